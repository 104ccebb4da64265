"""RESULTS.md: tables of records, their comparison with the paper's claims, and figures."""

import json
from pathlib import Path

from surnn_recipes import RECIPES, Recipe

from .benchmarks import engine_ratios, latency, run_time
from .claims import fill_in
from .figures import FIGURES, RACES
from .records import read_records
from .tables import race, table

ROOT = Path(__file__).resolve().parents[3]


def page(rows: Path) -> str:
    """The text of RESULTS.md."""
    records = read_records(rows)
    claims = rows.parent / "claims.md"
    lines = [
        "# Results",
        "",
        "`python -m surnn_recipes.results write` makes this page from the records in",
        "`results/rows/`: each run's configuration, environment, metrics and evaluations. Each",
        "run is tested once, with the weights of its best validation; rows that replace tested",
        "runs are named under [tests](#tests).",
        "± is the standard deviation over seeds. **Bold** is at least as good as the paper's",
        "number for that row, also in rows that are meant to be worse (ablations, no gates).",
        "Seconds are training time with evaluations. Steps/s are optimizer steps without",
        "evaluations, at full length if sequences grow. Memory is the largest amount that torch",
        "allocated on the GPU. Commands are below each table, without folders, for the first",
        "seed. Each record has its whole command and its commit; a trailing `+` marks an",
        "uncommitted working tree.",
    ]
    if claims.exists():
        engine = engine_ratios(ROOT / "results" / "engine_bench")
        lines += ["", fill_in(claims.read_text(), records, rows, **engine).rstrip()]
    reasons = json.loads((rows / "not_run.json").read_text())
    families: dict[str, list[Recipe]] = {}
    for recipe in RECIPES.values():
        families.setdefault(recipe().task.name, []).append(recipe)
    for family, recipes in families.items():
        lines += ["", f"## {family}", "", *table(family, recipes, records, reasons)]
        for names, targets in RACES:
            if RECIPES[names[0]] in recipes:
                lines += race(rows, records, names, targets)
        for figure in FIGURES:
            if figure.task == family and figure.runs(rows):
                lines += figure.markdown()
    lines += [
        "",
        *run_time(ROOT / "results" / "gpu_bench"),
        "",
        *latency(ROOT / "results" / "engine_bench"),
    ]
    return "\n".join(lines) + "\n"
