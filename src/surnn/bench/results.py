"""Stored numbers: records, their environment, and fits of time against events."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surnn import __version__
from surnn.runs.environment import commit, version

FILE = "result.json"


@dataclass
class Record:
    """One contestant in one mode of one case. Times in milliseconds, memory in GB (10^9)."""

    case: str
    group: str
    contestant: str
    kind: str
    cell: str
    mode: str
    T: int
    B: int
    H: int
    heads: int
    dtype: str
    rate: float | None
    against: str | None
    backend: str | None = None
    measured_rate: float | None = None
    events: int | None = None
    """Events of the busiest head."""
    fwd_ms: float | None = None
    """Median of the turns."""
    fwd_iqr_ms: float | None = None
    """Their inter-quartile range."""
    fwd_bwd_ms: float | None = None
    fwd_bwd_iqr_ms: float | None = None
    peak_gb: float | None = None
    """Peak memory of a training step, with inputs, without the other contestants."""
    growth_gb: float | None = None
    """Peak memory relative to the allocation before the step."""
    fwd_turns_ms: list[float] = field(default_factory=list)
    fwd_bwd_turns_ms: list[float] = field(default_factory=list)
    error: str | None = None

    def summarize(self) -> None:
        """Compute medians and spreads of the turns."""
        self.fwd_ms, self.fwd_iqr_ms = _summary(self.fwd_turns_ms)
        self.fwd_bwd_ms, self.fwd_bwd_iqr_ms = _summary(self.fwd_bwd_turns_ms)


def _summary(values: Sequence[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), high - low


def baseline(record: dict[str, Any], records: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The record to compare with: the rival in the same mode, or in eager mode."""
    rivals = {
        other["mode"]: other
        for other in records
        if (other["case"], other["contestant"]) == (record["case"], record["against"])
        and other["fwd_bwd_ms"] is not None
    }
    return rivals.get(record["mode"], rivals.get("eager"))


def ratio(
    record: dict[str, Any], rival: dict[str, Any] | None, key: str = "fwd_bwd_ms"
) -> float | None:
    """The rival's value divided by the record's."""
    if rival is None or not record[key] or rival[key] is None:
        return None
    return rival[key] / record[key]


# ---------------------------------------------------------------------------- fits


@dataclass(frozen=True)
class Line:
    """y = a + b * x by least squares."""

    a: float
    b: float
    r2: float


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line | None:
    """The least-squares line, or None if the points do not determine one."""
    if len(set(x)) < 2:
        return None
    b, a = statistics.linear_regression(x, y)
    mean = statistics.fmean(y)
    total = sum((v - mean) ** 2 for v in y)
    rest = sum((v - a - b * u) ** 2 for u, v in zip(x, y, strict=True))
    return Line(a, b, 1 - rest / total if total else 1.0)


def fits(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Time against events, for each mode of each case of long sequences."""
    lines = []
    for case, mode in sorted({(r["case"], r["mode"]) for r in records if r["group"] == "long"}):
        points = [
            (r["events"], r["fwd_bwd_ms"])
            for r in records
            if (r["case"], r["mode"]) == (case, mode) and r["fwd_bwd_ms"] is not None
        ]
        line = fit_line([p[0] for p in points], [p[1] for p in points]) if points else None
        if line is not None:
            lines.append({"case": case, "mode": mode, **asdict(line)})
    return lines


# ---------------------------------------------------------------------------- the file


def write(folder: Path, result: dict[str, Any]) -> None:
    """Replace the file atomically: a killed run leaves the previous one."""
    draft = folder / (FILE + ".part")
    draft.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    os.replace(draft, folder / FILE)


def read(folder: Path) -> dict[str, Any]:
    """The result that :func:`write` wrote."""
    return json.loads((folder / FILE).read_text())


def environment(device: str) -> dict[str, Any]:
    """Versions, device and settings, without anything that identifies the machine or its user."""
    import torch  # noqa: PLC0415 (figures are redrawn without it)

    on_gpu = device == "cuda"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "surnn": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
    }
