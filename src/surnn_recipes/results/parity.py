"""The table of PyTorch's own tests in docs/loops.md."""

import json
from pathlib import Path

from .tables import head, row_of


def causes(results: Path) -> list[str]:
    """How many of torch's tests pass with surnn's layers, and why the others fail."""
    names = ("auto", "projections")
    all_ours, others = (json.loads((results / "parity" / f"{n}.json").read_text()) for n in names)
    rows = sorted(all_ours["causes"].items(), key=lambda item: -len(item[1]))
    rows += [(cause, []) for cause in others["causes"] if cause not in all_ours["causes"]]
    return [
        *head("result", "tests", "tests, `proj_size` left to torch"),
        row_of("passed", str(all_ours["counts"]["passed"]), str(others["counts"]["passed"])),
        *(
            row_of(f"`{cause}`", str(len(tests)), str(len(others["causes"].get(cause, []))))
            for cause, tests in rows
        ),
    ]
