"""Packs the records of a plan's runs, and the weights that a later call needs, into one file."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from surnn.errors import RunError
from surnn.runs.folder import RunFolder

from .plan import RUNNING, Run
from .results.records import FILES

MIB = 1 << 20
SLACK = 64 << 10
"""Bytes that compression may hold back, and the end of the file."""


def pack(runs: list[Run], out: Path, file: Path, limit: float) -> list[str]:
    """Write the records and logs of all runs to one file, then weights while they fit.

    Weights are those of a run that is to be continued or still to be tested, and the best ones of
    a run that keeps them. The file replaces an older one when it is complete.

    Args:
        limit: the largest size of the file, in MiB.

    Returns:
        What was left out because the file would be too large.
    """
    draft, left_out = file.with_name(f"{file.name}.part"), []
    with draft.open("wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as packed:
        for run in runs:
            names = (f"{run.name}/{name}" for name in ("environment.json", *FILES))
            for name in (f"{run.name}.log", *names):
                if (out / name).exists():
                    packed.add(out / name, name)
        for run in runs:
            for name in weights(run, out):
                folder = out / run.name / name
                size = sum(path.stat().st_size for path in folder.iterdir())
                if raw.tell() + size + SLACK > limit * MIB:
                    left_out.append(f"{run.name}/{name}")
                else:
                    packed.add(folder, f"{run.name}/{name}")
    os.replace(draft, file)
    return left_out


def weights(run: Run, out: Path) -> Iterator[str]:
    """The checkpoints of a run that are packed; none while it is running."""
    if run.outcome == RUNNING:
        return
    try:
        folder = RunFolder.open(out / run.name)
    except RunError:
        return
    kept = ("last", "best") if folder.test_metrics() is None else ("best",) * run.keeps_weights
    yield from (name for name in kept if (out / run.name / name).is_dir())
