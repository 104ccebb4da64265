"""One HTML file out of data, template, style and scripts."""

import html
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from .. import __version__
from ..runs import now, write_atomically
from .curves import thin_all, with_means

MADE_BY = '<meta name="generator" content="surnn report'
"""What tells our pages from other files."""
SCRIPTS = ("values.js", "chart.js", "curves.js", "gates.js", "tables.js", "page.js")


def page(runs: list[dict[str, Any]]) -> str:
    """The page about these runs, as :func:`~surnn.report.gather` gives them."""
    thinned = thin_all(with_means([run["curves"] for run in runs]))
    about = [run | {"curves": curves} for run, curves in zip(runs, thinned, strict=True)]
    data = {"made": now(), "surnn": __version__, "runs": about}
    parts = {
        "VERSION": html.escape(__version__),
        "TITLE": html.escape(" · ".join(run["name"] for run in runs)),
        "STYLE": _asset("page.css"),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
        "DATA": embedded(data),
    }
    template = _asset("page.html")
    # In one go, so that nothing in a run's strings is taken for a place to fill.
    pieces = template.split("@@")
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    # Characters beyond ASCII are written as such nowhere: it is then read right in any encoding.
    return "".join(pieces).encode("ascii", "xmlcharrefreplace").decode()


def embedded(data: Any) -> str:
    """JSON for a script element: whatever strings hold, they end neither the element nor begin a
    comment, and NaN, which JSON does not have, is a string."""
    text = json.dumps(_strict(data), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write(text: str, path: Path) -> None:
    """Put the page there; another file than a page of ours is not overwritten."""
    if path.exists() and (not path.is_file() or MADE_BY not in _beginning(path)):
        raise FileExistsError(
            f"{path} is there already and no report of surnn's; choose another file with --out, or "
            "remove it"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)


def _beginning(path: Path) -> str:
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
