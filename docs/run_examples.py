"""Run the tutorials and the commands of pages: make docs-examples.

    python docs/run_examples.py                  everything; a quarter of an hour on two cores
    python docs/run_examples.py own_csv          one tutorial
    python docs/run_examples.py own_task.md      the commands of a page

The output of tutorials is recorded in results/tutorials, from where their pages take it. The
tutorial ``ecg`` needs the data set mitbih (SURNN_DATA, or surnn data get mitbih). Commands of a
page are its blocks marked ``sh``; they run in order, in a folder with the files that they name. The
program ends at the first failure.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tutorials import NAMES, RECORDS, ROOT, SCRIPTS, cells, code_checksum

from surnn.runs.environment import capture_environment

SOURCES = ROOT / "src" / "surnn"
PAGES = ("get_started.md", "own_data.md", "own_task.md", "language_models.md")


class Tee(io.StringIO):
    """Keeps what is printed and shows it."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)
        return super().write(text)


def run(name: str) -> dict:
    """Run the code cells of a tutorial in order; the record."""
    script = (SCRIPTS / f"{name}.py").read_text()
    names: dict = {"__name__": "__main__"}
    outputs, begin, work = [], time.perf_counter(), processor_seconds()
    for cell in cells(script):
        if cell.kind == "code":
            with contextlib.redirect_stdout(Tee()) as shown:
                exec(compile(cell.content, f"{name}.py", "exec"), names)
            outputs.append(clean(shown.getvalue()))
    seconds = round(time.perf_counter() - begin, 1)
    return {
        "command": f"python examples/tutorials/{name}.py",
        "environment": capture_environment() | {"command": f"python docs/run_examples.py {name}"},
        "cores": os.cpu_count(),
        "seconds": seconds,
        "processor_seconds": round(processor_seconds() - work, 1),
        "code": code_checksum(script),
        "outputs": outputs,
    }


def processor_seconds() -> float:
    """Of this process and of the commands that it has run: other programs do not add to it."""
    return sum(os.times()[:4])


def write_files(folder: Path) -> None:
    """The files that commands of the pages name."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    texts = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
    (folder / "letters.txt").write_text("".join(texts))
    (folder / "book.txt").write_text("".join(p.read_text() for p in sorted(SOURCES.rglob("*.py"))))
    random = np.random.default_rng(0)
    for name, count in (("series.csv", 200), ("new.csv", 50)):
        rows = ["id,time,current,label"]
        for n in range(count):
            values = random.normal(n % 2, 1, 40)
            rows += [f"{n},{t},{x:.3f},{'ab'[n % 2]}" for t, x in enumerate(values)]
        (folder / name).write_text("\n".join(rows) + "\n")


def run_page(page: str) -> float:
    """Run the blocks of a page that are marked ``sh``; seconds."""
    begin = time.perf_counter()
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        for block in blocks:
            subprocess.run(["bash", "-euxc", block], cwd=name, check=True)
    return time.perf_counter() - begin


def clean(output: str) -> str:
    """Output without paths of this machine."""
    return re.sub(rf"{re.escape(str(ROOT))}/", "", output).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    known = (*NAMES, *PAGES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names
    if unknown := set(names) - set(known):
        parser.error(f"there is no example {', '.join(unknown)}; there are {', '.join(known)}")
    os.chdir(ROOT)
    os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    RECORDS.mkdir(exist_ok=True)
    for name in names or known:
        print(f"--- {name}", flush=True)
        if name in PAGES:
            print(f"--- {name}: {run_page(name):.0f} s", flush=True)
            continue
        record = run(name)
        (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        print(f"--- {name}: {record['processor_seconds']:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
