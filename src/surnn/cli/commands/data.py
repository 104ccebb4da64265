"""List, download and locate the data sets of the benchmarks.

    surnn data list               all sets: size, licence, and where each was found
    surnn data get mnist imdb     download and verify; resumes partial downloads
    surnn data where mnist        the folder of a set (fails if it is missing)

Searched in --data, then $SURNN_DATA, then $SURNN_CACHE/data (~/.cache/surnn/data), where downloads
go. Respect the licences and cite the authors.
"""

import argparse
from pathlib import Path

from surnn.data.locate import cache_folder, find, need, size_text
from surnn.data.registry import SETS, DataSet, look_up

from ..tables import show

HELP = "list, download and locate the data sets of the benchmarks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn data``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all sets, and where each was found")
    getting = actions.add_parser("get", help="download and verify")
    getting.add_argument("names", nargs="+", metavar="NAME")
    where = actions.add_parser("where", help="the folder of a set")
    where.add_argument("name", metavar="NAME")
    for action in (listing, getting, where):
        action.add_argument("--data", type=Path, metavar="DIR", help="a folder to search first")


def run(arguments: argparse.Namespace) -> None:
    """List, locate or download."""
    if arguments.action == "list":
        _list(arguments.data)
    elif arguments.action == "where":
        print(need(arguments.name, arguments.data).folder)
    else:
        for entry in [look_up(name) for name in arguments.names]:
            _get(entry, arguments.data)


def _list(data: Path | None) -> None:
    rows = []
    for entry in SETS.values():
        place = find(entry.name, data)
        where = "missing" if place is None else str(place.folder)
        if place is not None and place.layout.lacks:
            where += f" (without {place.layout.lacks})"
        rows.append((entry.name, size_text(entry.size), entry.licence, entry.title, where))
    show(("name", "download", "licence", "what it is", "where"), rows)


def _get(entry: DataSet, data: Path | None) -> None:
    place = find(entry.name, data)
    if place is not None and not place.layout.lacks:
        print(f"{entry.name}: already in {place.folder}")
        return
    from rich import progress as bars  # noqa: PLC0415

    from surnn.data.download import get  # noqa: PLC0415

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    folder = cache_folder() / entry.name
    tasks: dict[str, bars.TaskID] = {}
    with bars.Progress(*columns) as progress:

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        unverified = get(entry, folder, report)
    checked = "verified" if not unverified else f"not verified: {', '.join(unverified)}"
    print(f"{entry.name}: in {folder} ({checked}). Licence: {entry.licence}. Cite {entry.citation}")
