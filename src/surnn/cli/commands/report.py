"""Write a page about a run, or several side by side: one HTML file that needs no network.

surnn report runs/copying/2026-01-31-120000
surnn report RUN RUN RUN --out compared.html
surnn report RUN --no-gates                     only the log: quick, and needs no model
"""

import argparse
import time
from pathlib import Path

from surnn.errors import printable

HELP = "write a page about a run, or several side by side"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn report``."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: report.html in the first run)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with data sets, or with your own data, parts of which the page then shows",
    )
    parser.add_argument(
        "--no-gates", action="store_true", help="leave out the gates, which need the model"
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(arguments: argparse.Namespace) -> None:
    """Gather the runs, write the page and print its path."""
    from surnn.report import gather, names, page, write  # noqa: PLC0415 (torch)
    from surnn.runs.folder import RunFolder  # noqa: PLC0415

    begin = time.perf_counter()
    out = arguments.out or arguments.runs[0] / "report.html"
    for path in arguments.runs:  # a wrong path is an error before the first run is read
        RunFolder.open(path)
    runs = []
    for path, name in zip(arguments.runs, names(arguments.runs), strict=True):
        title = printable(name)
        print(f"{title}: reading", flush=True)
        runs.append(
            gather(
                path, name, gates=not arguments.no_gates, data=arguments.data,
                say=lambda text, title=title: print(f"{title}: {text}", flush=True),
            )
        )  # fmt: skip
        for note in runs[-1]["notes"]:
            print(printable(f"{name}: {note}"))
    text = page(runs)
    write(text, out)
    took = time.perf_counter() - begin
    print(f"{printable(str(out))}: {len(text.encode()) / 1e6:.2f} MB, written in {took:.1f} s")
    if arguments.open:
        import webbrowser  # noqa: PLC0415

        webbrowser.open(out.resolve().as_uri())
