"""Writes the page: one HTML file made from data, template, style and scripts."""

import html
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from surnn import __version__
from surnn.errors import RunError
from surnn.runs.environment import timestamp
from surnn.runs.files import make_folder, write_atomically

from .curves import thin_all, with_means

GENERATOR = '<meta name="generator" content="surnn report'
"""Identifies a report, which may be overwritten."""
SCRIPTS = ("values.js", "chart.js", "curves.js", "gates.js", "tables.js", "page.js")


def page(runs: list[dict[str, Any]]) -> str:
    """The HTML page about runs, each from :func:`~surnn.report.gather`."""
    thinned = thin_all(with_means([run["curves"] for run in runs]))
    about = [run | {"curves": curves} for run, curves in zip(runs, thinned, strict=True)]
    data = {"made": timestamp(), "surnn": __version__, "runs": about}
    parts = {
        "VERSION": html.escape(__version__),
        "TITLE": html.escape(" · ".join(run["name"] for run in runs)),
        "STYLE": _asset("page.css"),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
        "DATA": script_json(data),
    }
    template = _asset("page.html")
    # All placeholders are filled at once: strings of a run that look like one stay text.
    pieces = template.split("@@")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    # The page is pure ASCII, so that any encoding reads it correctly.
    return "".join(pieces).encode("ascii", "xmlcharrefreplace").decode()


def script_json(data: Any) -> str:
    """JSON for a script element. Strings cannot end the element or begin a comment; NaN and
    infinity, which JSON lacks, become strings."""
    text = json.dumps(_strict(data), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write(text: str, path: Path) -> None:
    """Write the page. Overwrites reports, but no other file."""
    if path.exists() and (not path.is_file() or GENERATOR not in _start(path)):
        raise RunError(
            f"{path} exists and is not a report of surnn; choose another file with --out, or "
            "remove it"
        )
    make_folder(path.parent)
    write_atomically(path, text)


def _start(path: Path) -> str:
    with path.open(errors="replace") as file:
        return file.read(2000)


def _asset(name: str) -> str:
    return (files("surnn.report") / "assets" / name).read_text(encoding="utf-8")


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(v) for v in value]
    return value
