"""The table of learning curves in docs/loops.md."""

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
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
    lines = head("layer", "parameters", "learning rate", "seeds", *ends)
    for (kind, rate), runs in sorted(groups.items()):
        edges = [len(runs[0]["rewards"]) * i // COLUMNS for i in range(COLUMNS + 1)]
        parts = ([mean(run["rewards"][a:b]) for run in runs] for a, b in pairwise(edges))
        cells = (f"{mean(part):.2f} ± {stdev(part):.2f}" for part in parts)
        size = f"{runs[0]['parameters']:,}"
        lines.append(row_of(kind, size, f"{rate:g}", str(len(runs)), *cells))
    return lines
