"""The table of PyTorch's own tests in docs/loops.md."""

import json
from pathlib import Path

from .tables import head, row_of


def causes(results: Path) -> list[str]:
    """How many of torch's tests pass with surnn's layers, and why the others fail."""
    record = json.loads((results / "parity" / "auto.json").read_text())
    rows = sorted(record["causes"].items(), key=lambda item: -len(item[1]))
    return [
        *head("result", "tests"),
        row_of("passed", str(record["counts"]["passed"])),
        *(row_of(f"`{cause}`", str(len(tests))) for cause, tests in rows),
    ]
