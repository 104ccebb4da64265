"""Draw a figure of one or several runs.

surnn plot list                                          all figures
surnn plot gate-raster runs/copying/2026-01-31-120000
surnn plot gradients RUN RUN RUN --out gradients.svg
surnn plot run-time results/gpu_bench                    from a benchmark's folder

surnn.analysis has functions for the numbers behind them.
"""

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING

from surnn.errors import suggestion

from ..main import CommandError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from surnn.analysis.figures import Plot, Subject

HELP = "draw a figure of runs"
ENDINGS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn plot``."""
    parser.add_argument("name", metavar="NAME", help="which figure; see surnn plot list")
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="png, svg or pdf (default: NAME.png)"
    )
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last", "previous"),
        default="best",
        help="weights to use (default: best)",
    )
    parser.add_argument(
        "--example", type=int, default=0, metavar="N", help="which sequence is shown (default: 0)"
    )
    parser.add_argument(
        "--theme", choices=("light", "dark"), default="light", help="of the page around the figure"
    )
    parser.add_argument("--data", type=Path, help="folder with data sets")


def run(arguments: argparse.Namespace) -> None:
    """Print the expected time, draw and write the figure."""
    from surnn.analysis.figures import PLOTS, BenchmarkPlot, Subject  # noqa: PLC0415 (torch)
    from surnn.plotting import styled  # noqa: PLC0415
    from surnn.runs.files import make_folder, write_atomically  # noqa: PLC0415

    if arguments.name == "list":
        width = max(map(len, PLOTS))
        print("\n".join(f"{name:{width}}  {plot.about}" for name, plot in PLOTS.items()))
        return
    if arguments.name not in PLOTS:
        hint = suggestion(arguments.name, PLOTS, "surnn plot list shows all")
        raise CommandError(f"there is no figure {arguments.name!r}; {hint}")
    plot = PLOTS[arguments.name]
    out = arguments.out or Path(f"{arguments.name}.png")
    if out.suffix not in ENDINGS:
        raise CommandError(f"{out} must end in {', '.join(ENDINGS)}")
    if arguments.example < 0:
        raise CommandError(f"--example counts from 0, got {arguments.example}")
    with styled(arguments.theme):
        if isinstance(plot, BenchmarkPlot):
            figure = plot.draw(_only(arguments.runs, arguments.name, "one benchmark's folder"))
        else:
            if not plot.several:
                _only(arguments.runs, arguments.name, "one run")
            subjects = [
                Subject(path, arguments.checkpoint, arguments.data) for path in arguments.runs
            ]
            figure = _draw(arguments.name, plot, subjects, arguments.example)
        image = io.BytesIO()
        figure.savefig(image, dpi=120, format=out.suffix[1:])
    make_folder(out.parent)
    write_atomically(out, image.getvalue())
    print(f"wrote {out}")


def _draw(name: str, plot: "Plot", subjects: "list[Subject]", example: int) -> "Figure":
    from surnn.analysis.figures import name_all  # noqa: PLC0415 (torch)
    from surnn.runs.time_budget import format_duration  # noqa: PLC0415

    if not subjects:
        raise CommandError(f"which runs? For example: surnn plot {name} runs/copying/...")
    name_all(subjects)
    seconds = plot.seconds(subjects)
    about = f"about {format_duration(seconds)}" if seconds > 2 else "a moment"
    runs = "1 run" if len(subjects) == 1 else f"{len(subjects)} runs"
    print(f"{name}, {runs}: this will take {about}", flush=True)
    figure = plot.draw(subjects, example)
    for subject in subjects:
        if subject.shown_blank and subject.without_data is not None:
            why = subject.without_data.splitlines()[0]  # the other lines say how to get them
            print(f"{subject.path}: drawn without data, which clocked gates do not need; {why}")
    return figure


def _only(runs: list[Path], name: str, what: str) -> Path:
    if len(runs) != 1:
        raise CommandError(f"{name} shows {what}, got {len(runs)}: surnn plot {name} FOLDER")
    return runs[0]
