"""Plans of several runs: their text, and the runs in it."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from surnn.errors import SurnnError, suggestion
from surnn_recipes import RECIPES

PLANS = Path(__file__).parent / "plans"
"""Plans that come with the recipes; a file NAME.txt is the plan NAME."""
AT_ONCE = "at-once"
RUNNING, DONE, DONE_BEFORE = "running", "done", "already done"
"""Outcomes of a run."""


class PlanError(SurnnError):
    """A plan that cannot be run; the message says why."""


@dataclass
class Run:
    """A line of the plan, and its outcome."""

    name: str
    recipe: str
    seed: str
    flags: list[str]
    tests: list[list[str]] = field(default_factory=list)
    at_once: int | None = None
    """The largest number of runs at the same time, with this one. None: as the command says."""
    keeps_weights: bool = False
    """Whether its best weights are packed with its records."""
    other_runs: int = 0
    """The largest number of runs at the same time, without this one."""
    outcome: str = "not started"

    @property
    def needs(self) -> list[str]:
        """Names of the runs that must end before this one starts."""
        return [word[1:] for word in self.flags if word.startswith("@")]

    def flags_in(self, out: Path) -> list[str]:
        """The flags, with folders in place of names of runs."""
        return [str(out / word[1:]) if word.startswith("@") else word for word in self.flags]


def plan_file(name: str) -> Path:
    """The file of a plan, from its path, or from the name of a plan of this package."""
    path = Path(name)
    if path.suffix or path.is_file():
        return path
    known = {file.stem: file for file in sorted(PLANS.glob("*.txt"))}
    if name not in known:
        raise PlanError(
            f"there is no plan {name!r}; {suggestion(name, known, ', '.join(known))}, or a file"
        )
    return known[name]


def read_plan(text: str) -> list[Run]:
    """The runs of a plan."""
    runs: list[Run] = []
    at_once = None
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == AT_ONCE:
            if len(words) != 2 or not words[1].isdigit() or int(words[1]) < 1:
                raise PlanError(f"line {number}: expected a number after {AT_ONCE}")
            at_once = int(words[1])
        elif words[0] in ("!", "+"):
            _add_to(runs, words, number)
        else:
            run = _run(words, line, number)
            run.at_once = at_once
            _check_name(run, runs, number)
            runs.append(run)
    return runs


def _add_to(runs: list[Run], words: list[str], number: int) -> None:
    """A line about the run above it: a test, or what to keep."""
    if not runs:
        raise PlanError(f"line {number}: {words[0]} needs a run above it")
    if words[0] == "!":
        runs[-1].tests.append(words[1:])
    elif words[1:] == ["weights"]:
        runs[-1].keeps_weights = True
    else:
        raise PlanError(f"line {number}: expected + weights")


def _run(words: list[str], line: str, number: int) -> Run:
    name = words.pop(0)[:-1] if words[0].endswith(":") else None
    if len(words) < 2 or words[0] not in RECIPES or not words[1].isdigit():
        raise PlanError(f"line {number}: expected a recipe and a seed, got {line.strip()!r}")
    recipe, seed, *flags = words
    return Run(name or f"{recipe}-seed{seed}", recipe, seed, flags)


def _check_name(run: Run, runs: list[Run], number: int) -> None:
    if run.name in ("", ".", "..") or Path(run.name).name != run.name:
        raise PlanError(f"line {number}: expected the name of a folder, got {run.name!r}")
    names = [earlier.name for earlier in runs]
    if run.name in names:
        raise PlanError(
            f"two lines have the name {run.name}: begin one with another name and a colon"
        )
    for needed in run.needs:
        if needed not in names:
            raise PlanError(f"line {number}: there is no run {needed} above it")
