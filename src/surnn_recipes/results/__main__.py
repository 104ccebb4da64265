"""Makes RESULTS.md from the records of runs in results/rows.

    surnn reproduce psmnist --seeds 0,1,2 --out runs/psmnist
    python -m surnn_recipes.results add psmnist runs/psmnist-seed*  # copies records, not weights
    python -m surnn_recipes.results figures  # draws its figures with surnn plot
    python -m surnn_recipes.results write  # writes RESULTS.md, and tables in README.md and docs
    python -m surnn_recipes.results check  # fails if write would change them
    python -m surnn_recipes.results again  # rebuilds all record.json files

A row is a recipe. Its folder holds each seed's configuration, environment, metrics and evaluations
unchanged, except for the paths of its data, and record.json, a summary of all seeds. The tables of
run time and latency come from the benchmarks in results/gpu_bench and results/engine_bench. The
text about the paper's claims is results/claims.md, with placeholders for numbers of rows.
"""

import argparse
import sys
from pathlib import Path

from surnn.errors import SurnnError

from . import ResultsError
from .blocks import documents, fill_blocks
from .figures import FOLDER, draw_figures
from .page import ROOT, page
from .records import add, rebuild


def main() -> None:
    """Run one command; errors end the program with their message."""
    parser = argparse.ArgumentParser(
        prog="python -m surnn_recipes.results", description="RESULTS.md and its records."
    )
    parser.add_argument("--rows", type=Path, default=ROOT / "results" / "rows")
    parser.add_argument("--page", type=Path, default=ROOT / "RESULTS.md")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="copy the records of runs")
    adding.add_argument("row", help="name of the recipe")
    adding.add_argument("runs", type=Path, nargs="+")
    adding.add_argument("--other-runs", type=int, default=0, help="runs that shared the device")
    adding.add_argument("--untested", action="store_true", help="accept runs without a test")
    commands.add_parser("again", help="rebuild all record.json files")
    commands.add_parser("figures", help="draw the figures of the page")
    commands.add_parser("write", help="write RESULTS.md, and tables in README.md and docs")
    commands.add_parser("check", help="fail if write would change them")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except SurnnError as error:
        sys.exit(str(error))


def run(arguments: argparse.Namespace) -> None:
    """Call the command's function."""
    if arguments.command == "add":
        add(
            arguments.row, arguments.runs, arguments.rows, arguments.other_runs,
            untested=arguments.untested,
        )  # fmt: skip
    elif arguments.command == "again":
        rebuild(arguments.rows)
    elif arguments.command == "figures":
        draw_figures(arguments.rows, arguments.page.parent / FOLDER)
    else:
        texts = {arguments.page: page(arguments.rows)}
        for path in documents(arguments.page.parent):
            texts[path] = fill_blocks(path.read_text(), arguments.rows.parent)
        for path, text in texts.items():
            if arguments.command == "write":
                path.write_text(text)
            elif path.read_text() != text:
                raise ResultsError(
                    f"{path.name} is not up to date: python -m surnn_recipes.results write"
                )


if __name__ == "__main__":
    main()
