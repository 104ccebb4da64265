"""The export to browsers, without one: files, the command, the WebAssembly's sources."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import surnn
from helpers.paths import ROOT
from surnn.deploy.export import to_engine, to_web
from surnn.deploy.export.c_folder import inference_sources
from surnn.deploy.export.web import ASSETS, npm_version
from surnn.tasks.keyword_scores import threshold_at
from surnn.tasks.keyword_stream import KeywordStream
from surnn.tasks.sound import Sound
from surnn.tasks.speech_commands import SpeechCommands

BUILD = ROOT / "csrc" / "make_wasm.py"


def run_build(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, BUILD, *arguments], capture_output=True, text=True, check=False
    )


def script_names(script: Path) -> dict:
    """What the script defines."""
    return runpy.run_path(str(script), run_name="make_wasm")


def test_the_webassembly_is_built_from_these_sources():
    checked = run_build("--check")
    assert checked.returncode == 0, checked.stderr


def test_changed_sources_name_the_command_to_run(tmp_path):
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    place = tmp_path / ASSETS.relative_to(ROOT)
    place.mkdir(parents=True)
    script = tmp_path / "csrc" / "make_wasm.py"
    (place / "sources.sha256").write_text(script_names(script)["fingerprint"]())
    check = [sys.executable, script, "--check"]
    subprocess.run(check, check=True)
    with open(tmp_path / "csrc" / "kernels_products.inc", "a") as file:
        file.write("/* changed */\n")
    changed = subprocess.run(check, capture_output=True, text=True, check=False)
    assert changed.returncode == 1
    assert "run: make wasm" in changed.stderr


def test_the_build_takes_the_sources_of_the_export_to_c():
    built = [path.name for path in script_names(BUILD)["sources"]()]
    assert built == sorted(path.name for path in inference_sources())


@pytest.mark.skipif(
    shutil.which("clang-14") is None or not Path("/usr/lib/wasm32-wasi/libc.a").exists(),
    reason="needs clang 14 and wasi-libc; see csrc/make_wasm.py",
)
def test_the_same_sources_build_the_same_bytes(tmp_path):
    built = run_build("--out", str(tmp_path))
    assert built.returncode == 0, built.stderr
    for name in ("surnn-simd.wasm", "surnn-scalar.wasm", "sources.sha256"):
        assert (tmp_path / name).read_bytes() == (ASSETS / name).read_bytes()


def test_a_folder_is_complete(tmp_path):
    model = surnn.SuGRU(3, 8)
    sound = Sound(("none", "yes"), -6.0, 4.5, average=5, pause=25, threshold=0.7)
    folder = to_web(model, tmp_path / "new" / "web", title="Ears", sound=sound)
    about = json.loads((folder / "model.json").read_text())
    assert (about["title"], about["classes"]) == ("Ears", ["none", "yes"])
    assert about["sound"] == {
        "mean": -6.0, "spread": 4.5, "nothing": [0], "average": 5, "pause": 25, "clip": 0,
        "threshold": 0.7,
    }  # fmt: skip
    engine_file = to_engine(model, tmp_path / "model.surnn")
    assert (folder / about["model"]).read_bytes() == engine_file.read_bytes()
    package = json.loads((folder / "package.json").read_text())
    assert re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", package["version"])
    published = [*package["files"], package["exports"]["."]["default"], package["types"]]
    assert all((folder / name).exists() for name in published)
    assert not (folder / "sources.sha256").exists()
    referred = re.findall(r'(?:src|href)="([\w.]+)"', (folder / "index.html").read_text())
    modules = [p.read_text() for p in folder.glob("*.js")]
    referred += [n for text in modules for n in re.findall(r'"\./([\w.-]+)"', text)]
    assert len(referred) >= 8
    assert all((folder / name).exists() for name in referred)


def test_pages_ask_no_other_host():
    for path in ASSETS.iterdir():
        if path.suffix in (".js", ".css", ".html"):
            addresses = re.findall(r"https?://[\w.]+", path.read_text())
            assert set(addresses) <= {"http://localhost"}, path


def test_versions_are_those_of_npm():
    assert npm_version("0.2.0") == "0.2.0"
    assert npm_version("0.2.0.dev3") == "0.2.0-dev3"


def test_a_detections_threshold_is_that_of_validation():
    curve = [[0.1, 0.0, 90.0], [0.3, 0.1, 5.0], [0.5, 0.2, 1.0], [0.9, 0.9, 0.0]]
    assert threshold_at(curve) == 0.3
    assert threshold_at(curve, 1.0) == 0.5
    assert threshold_at([[0.1, 0.0, 90.0]]) is None


def test_sounds_name_their_classes():
    for task in (KeywordStream(), SpeechCommands()):
        assert len(task.sound.words) == task.output.size
        assert task.sound.words[-1] == "go"
    assert SpeechCommands().sound.clip == SpeechCommands().steps
    assert SpeechCommands(classes=30).sound is None
