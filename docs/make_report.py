"""Makes the pictures of docs/report.md: two small runs on Copying Memory, trained and compared.

python docs/make_report.py [FOLDER]        uses runs that FOLDER holds already
"""

import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))

from helpers.browser import Page  # noqa: E402
from surnn.cli.main import main  # noqa: E402

COMMON = (
    "--task.delay 100 --task.objective recall --model.block stack --model.width 128 "
    "--train.steps 500 --train.learning-rate 5e-3 --train.warmup 50 --train.batch 32 "
    "--train.log-every 5 --train.evaluate-every 25 --train.evaluation-batches 4"
)
RUNS = {
    "sugru": f"{COMMON} --model.heads 8 --gate.rate 0.1",
    "gru": f"{COMMON} --model.kind gru",
}


def surnn(*words: str) -> None:
    if status := main(words):
        sys.exit(status)


def make(folder: Path) -> None:
    """Train missing runs and take the pictures."""
    for name, options in RUNS.items():
        if not (folder / name).exists():
            surnn("train", "copying", *options.split(), "--out", str(folder / name))
            surnn("eval", str(folder / name), "--split", "test")
    page = folder / "report.html"
    surnn("report", *(str(folder / name) for name in RUNS), "--out", str(page))
    with tempfile.TemporaryDirectory() as own, Page(Path(own), 1180, 1500) as window:
        window.media("", prefers_color_scheme="light")
        window.open(page)
        window.screenshot(DOCS / "report.png", whole=False)
        window.resize(1180, 960)
        window.media("", prefers_color_scheme="dark")
        window.open(page)
        window.run("document.getElementById('gates').scrollIntoView()")
        window.screenshot(DOCS / "report-gates.png", whole=False)


if __name__ == "__main__":
    make(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/report"))
