"""The browser: a keyword model in headless Chromium, compared with onnxruntime-web.

    PYTHONPATH=tests python benchmarks/web.py RUN --out results/web
    npm install onnxruntime-web                            # elsewhere; for this comparison only
    PYTHONPATH=tests python benchmarks/web.py RUN --onnxruntime-web node_modules/onnxruntime-web

RUN is a run of keyword_stream. Predictions of 1000 test clips, from new streams, are compared with
those of Python's engine. Timed in one thread, medians of turns: the front end alone; all that the
page does for a frame (front end, model, decision), on recorded background noise; steps of the model
on a test stream of its task, and of an untrained GRU of about as many parameters; the same steps in
onnxruntime-web, which computes every unit. It needs the data sets speech_commands and
speech_commands_noise; see surnn data list.
"""

import argparse
import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import surnn
from helpers.browser import Page, chromium, served
from surnn.data.sounds import noise
from surnn.data.speech import RATE, TEST, speech_commands
from surnn.deploy.export import to_engine, to_onnx, to_web
from surnn.runs.loading import build_model

CLIPS, SECONDS, TURNS = 1000, 60, 5
SCRIPT = Path(__file__).with_suffix(".js")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--onnxruntime-web", type=Path, help="the package's folder")
    parser.add_argument("--out", type=Path, help="folder for result.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        site = Path(place, "site")
        trained = surnn.load(arguments.run)
        to_web(trained.model, site, sound=trained.task.sound)
        sizes = export_others(trained, site)
        expected = write_data(trained.task, site)
        result = {
            "command": f"PYTHONPATH=tests python {' '.join(sys.argv)}",
            "processor": platform.machine(),
            "browser": version(), "optimizer steps": trained.step, "engine here": expected,
            "parameters": sizes,
            "bytes": file_sizes(site, ["surnn-simd.wasm", "surnn-scalar.wasm", "surnn.js"]),
        }  # fmt: skip
        if arguments.onnxruntime_web:
            shutil.copytree(arguments.onnxruntime_web / "dist", site / "ort")
            names = ["ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs"]
            result["bytes of onnxruntime-web"] = file_sizes(site / "ort", names)
        result |= measure(site, Path(place, "browser"), expected, bool(arguments.onnxruntime_web))
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "result.json").write_text(text + "\n")


def measure(site: Path, profile: Path, expected: str, onnx: bool) -> dict[str, Any]:
    """All that is measured in the browser."""
    icon, script = '<link rel="icon" href="data:,">', '<script type="module" src="bench.js">'
    (site / "bench.html").write_text(f"<!doctype html>{icon}{script}</script>")
    (site / "bench.js").write_text(
        f"const [CLIPS, TURNS] = [{CLIPS}, {TURNS}];\n{SCRIPT.read_text()}"
    )
    about = json.loads((site / "model.json").read_text())
    result: dict[str, Any] = {"clips": {}, "steps": {}, "page": {}}
    with served(site) as url, Page(profile) as page:
        page.open(f"{url}bench.html")
        page.until("document.documentElement.dataset.ready")
        for here in dict.fromkeys(("generic", "scalar", expected)):
            simd = json.dumps(here != "scalar")
            name = f"{'SIMD' if here != 'scalar' else 'scalar'} against Python's {here}"
            result["clips"][name] = page.run(f"compareClips({simd}, 'expected-{here}.bin')")
        for simd, name in ((True, "SIMD"), (False, "scalar")):
            flag = json.dumps(simd)
            for model in ("model", "model-int8", "gru"):
                steps = page.run(f"timeSteps('{model}.surnn', {flag})")
                result["steps"][f"{model}, {name}"] = steps
            sound, classes = json.dumps(about["sound"]), json.dumps(about["classes"])
            result["page"][name] = page.run(f"timePage({flag}, {sound}, {classes})")
        if onnx:
            for model in ("model", "gru"):
                result["steps"][f"{model}, onnxruntime-web"] = page.run(f"timeOnnx('{model}.onnx')")
        result["console"] = page.console
    return result


def export_others(trained, site: Path) -> dict[str, int]:
    """Write 8-bit weights, a GRU of about the same size, and ONNX files; parameters of both."""
    config = trained.config
    width = round(config.model.width * 2 / 3)
    torch.manual_seed(0)
    options = {"width": width, "layers": config.model.layers, "block": config.model.block}
    gru = build_model(config.with_model("gru", **options), trained.task).eval()
    to_engine(trained.model, site / "model-int8.surnn", "int8")
    to_engine(gru, site / "gru.surnn")
    sizes = {}
    for name, model in (("model", trained.model), ("gru", gru)):
        sizes[name] = sum(p.numel() for p in model.parameters())
        to_onnx(model, site / f"{name}.onnx")
        session = onnxruntime.InferenceSession(site / f"{name}.onnx")
        shapes = {i.name: [1, *i.shape[1:]] for i in session.get_inputs()}
        (site / f"{name}.onnx.json").write_text(json.dumps(shapes))
    return sizes


def write_data(task, site: Path) -> str:
    """Write inputs, and the predictions of Python's engine; the name of its fastest kernels."""
    words, sound = speech_commands(), task.sound
    chosen = np.flatnonzero(words.split == TEST)
    chosen = np.random.default_rng(0).permutation(chosen)[:CLIPS]
    x = ((words.x[chosen] * (24 / 255) - 14 - sound.mean) / sound.spread).astype(np.float32)
    (site / "clips.bin").write_bytes(x.tobytes())
    fastest = surnn.Engine(site / "model.surnn").simd
    for kernels in dict.fromkeys(("generic", "scalar", fastest)):
        os.environ["SURNN_SIMD"] = kernels
        engine = surnn.Engine(site / "model.surnn")
        y = np.concatenate([engine.stream().run(clip) for clip in x])
        (site / f"expected-{kernels}.bin").write_bytes(y.astype(np.float32).tobytes())
    del os.environ["SURNN_SIMD"]
    task.prepare(torch.device("cpu"))
    batch = task.batch("test", 0, 1, 0, torch.device("cpu"))
    (site / "stream.bin").write_bytes(batch.x[0].numpy().tobytes())
    parts = [samples[: SECONDS * RATE // 6] for samples in noise().values()]
    samples = np.concatenate(parts)
    (site / "sound.bin").write_bytes(
        samples[: len(samples) // 320 * 320].astype(np.int16).tobytes()
    )
    return fastest


def file_sizes(folder: Path, names: list[str]) -> dict[str, dict[str, int]]:
    contents = {name: (folder / name).read_bytes() for name in names}
    return {
        name: {"bytes": len(c), "gzipped": len(gzip.compress(c, 9))} for name, c in contents.items()
    }


def version() -> str:
    program = chromium()
    assert program is not None
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return " ".join(told.stdout.split()[:2])


if __name__ == "__main__":
    main()
