"""The table of learning curves in docs/loops.md."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from .tables import head, row_of

COLUMNS = 5


def curves(results: Path) -> list[str]:
    """Mean reward of each kind of layer and learning rate in each fifth of training."""
    record = json.loads((results / "recurrent_ppo" / "result.json").read_text())
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for run in record["runs"]:
        groups.setdefault((run["kind"], run["learning_rate"]), []).append(run)
    steps = record["runs"][0]["steps"]
    ends = (f"to {steps * (i + 1) // COLUMNS:,}" for i in range(COLUMNS))
    lines = head("layer", "learning rate", "seeds", *ends)
    for (kind, rate), runs in sorted(groups.items()):
        curve = [mean(values) for values in zip(*(run["rewards"] for run in runs), strict=True)]
        edges = [len(curve) * i // COLUMNS for i in range(COLUMNS + 1)]
        parts = (mean(curve[a:b]) for a, b in pairwise(edges))
        lines.append(row_of(kind, f"{rate:g}", str(len(runs)), *(f"{part:.2f}" for part in parts)))
    return lines
