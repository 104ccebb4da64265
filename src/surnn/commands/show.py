"""How training is shown: a live line in a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from ..config import RunConfig, TrainConfig
from ..rate_words import in_words, is_soft

UNTOLD = ("seconds", "learning_rate", "gradient_norm")
"""What is logged, but not shown."""
BETWEEN = 2.0
"""Seconds between plain lines, at least; metrics.jsonl has them all."""


class Lasting:
    """Standard output of a run, which outlives its reader.

    When nobody reads on (``| head``, a ``tee`` that died, a lost terminal), or the disk that it
    goes to is full, nothing more is said, and training goes on: what counts is in the run's folder.
    """

    def __init__(self) -> None:
        self.file = sys.stdout

    def write(self, text: str) -> None:
        self._trying(lambda: self.file.write(text))

    def flush(self) -> None:
        self._trying(self.file.flush)

    def _trying(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except OSError:  # what is left in the buffer, and all that follows, goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def say(text: str) -> None:
    """Print it, if anybody listens."""
    print(text, file=Lasting(), flush=True)


class Pace:
    """How fast it goes, and when it will end.

    Args:
        train: with the number of updates, and the time budget if there is one.
        step: the updates so far.
        seconds: those of earlier sessions.
    """

    def __init__(self, train: TrainConfig, step: int, seconds: float) -> None:
        self.steps = train.steps
        now = time.perf_counter()
        self.deadline = None if train.minutes is None else now + 60 * train.minutes - seconds
        self.seen: deque[tuple[int, float]] = deque([(step, now)], maxlen=10)

    def told(self, step: int) -> str:
        """After ``step`` updates."""
        now = time.perf_counter()
        self.seen.append((step, now))
        (first, begin), (last, end) = self.seen[0], self.seen[-1]
        pace = (last - first) / max(end - begin, 1e-9)
        left = (self.steps - step) / pace if pace else float("inf")
        if self.deadline is not None:
            left = min(left, max(0.0, self.deadline - now))
        return f"{pace:.3g}/s, {duration(left)} left"


class PlainReporter:
    """A line now and then, for logs."""

    def __init__(self, pace: Pace, soft: bool) -> None:
        self.pace, self.soft = pace, soft
        self.before = 0.0

    def update(self, step: int, values: dict[str, Any]) -> None:
        told, now = f"  {self.pace.told(step)}", time.perf_counter()
        if "loss" not in values:  # an evaluation
            told = ""
        elif now - self.before < BETWEEN and step < self.pace.steps:
            return
        else:
            self.before = now
        say(f"update {step}/{self.pace.steps}  {describe(values, self.soft)}{told}")

    def message(self, text: str) -> None:
        say(text)

    def __enter__(self) -> "PlainReporter":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy."""


class LiveReporter:
    """A progress bar with loss, metric, update rate, pace and time left."""

    def __init__(self, pace: Pace, soft: bool) -> None:
        self.pace, self.soft = pace, soft
        # In a narrow terminal what comes last is cut off.
        one_line = Column(no_wrap=True, overflow="ellipsis", ratio=1)
        text = TextColumn("{task.description}", table_column=one_line)
        columns = (MofNCompleteColumn(), BarColumn(16), text)
        console = Console(file=cast("IO[str]", Lasting()))
        self.progress = Progress(*columns, console=console, expand=True)
        start = pace.seen[0][0]
        self.task = self.progress.add_task("", total=pace.steps, completed=start)
        self.values: dict[str, Any] = {}

    def update(self, step: int, values: dict[str, Any]) -> None:
        self.values |= values
        told = f"{self.pace.told(step)}  {describe(self.values, self.soft)}"
        self.progress.update(self.task, completed=step, description=told, refresh=True)

    def message(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def __enter__(self) -> "LiveReporter":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()


def reporter(
    config: RunConfig, step: int = 0, seconds: float = 0.0
) -> PlainReporter | LiveReporter:
    """The one that suits where the output goes."""
    kind = LiveReporter if sys.stdout.isatty() else PlainReporter
    return kind(Pace(config.train, step, seconds), is_soft(config))


def describe(values: dict[str, Any], soft: bool) -> str:
    """Loss, metrics and update rates (or how far ``soft`` gates are open) in a few words."""
    words = []
    for name, value in values.items():
        if name == "update_rate":
            words.append(str(in_words(sum(value) / len(value), soft)))
        elif isinstance(value, str):
            words.append(f"({value} {name})")
        elif name not in UNTOLD and isinstance(value, float):
            words.append(f"{name.replace('_', ' ')} {value:.4g}")
    return "  ".join(words)


def part(found: dict[str, Any]) -> str:
    """What numbers are of, if not of the whole set."""
    return f" on {found['sequences']} of {found['of']} sequences" if "of" in found else ""


def duration(seconds: float) -> str:
    """'45 s', '3 min 20 s', '2 h 5 min'."""
    if seconds == float("inf"):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
