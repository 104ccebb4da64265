"""Tutorials: scripts in examples/tutorials that are also pages.

A script has cells, as jupytext and editors know them: ``# %% [markdown]`` starts text, ``# %%``
starts code. ``python docs/run_examples.py`` runs them and records the output of each cell, which
the page shows.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "tutorials"
RECORDS = ROOT / "results" / "tutorials"
NAMES = tuple(sorted(path.stem for path in SCRIPTS.glob("*.py")))


class Cell(NamedTuple):
    """Text or code of a script."""

    kind: str
    """``text`` or ``code``."""
    content: str


def cells(script: str) -> list[Cell]:
    """The cells of a script, in order."""
    parts = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"a tutorial starts with '# %% [markdown]', not with {parts[0][:40]!r}")
    return [
        Cell("text", re.sub(r"^# ?", "", content, flags=re.MULTILINE).strip())
        if mark
        else Cell("code", content.strip())
        for mark, content in zip(parts[1::2], parts[2::2], strict=True)
    ]


def code_checksum(script: str) -> str:
    """A checksum of the code alone: text may change without running the script again."""
    code = "\n".join(cell.content for cell in cells(script) if cell.kind == "code")
    return hashlib.sha256(code.encode()).hexdigest()


def read_record(name: str) -> dict[str, Any] | None:
    """What ``docs/run_examples.py`` recorded of a tutorial; None if it has not run yet."""
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def page(name: str) -> str:
    """The page of a tutorial: text, code and recorded output, if there is a record."""
    record, parts = read_record(name), []
    outputs = iter([] if record is None else record["outputs"])
    for cell in cells((SCRIPTS / f"{name}.py").read_text()):
        if cell.kind == "text":
            parts.append(cell.content)
            continue
        parts.append(f"```python\n{cell.content}\n```")
        if output := next(outputs, ""):
            parts.append(f"```text\n{output}\n```")
    if record is None:
        return "\n\n".join(parts) + "\n"
    parts.append(
        f"*This output took {record['processor_seconds']:.0f} seconds of processor time, and "
        f"{record['seconds']:.0f} seconds by the clock on {record['cores']} cores that other "
        f"programs used too: `{record['command']}`.*"
    )
    return "\n\n".join(parts) + "\n"
