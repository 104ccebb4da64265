"""The browser: a keyword model in headless Chromium, beside onnxruntime-web.

    PYTHONPATH=tests python benchmarks/web.py RUN --out results/web
    npm install onnxruntime-web                            # elsewhere; for this comparison only
    PYTHONPATH=tests python benchmarks/web.py RUN --onnxruntime-web node_modules/onnxruntime-web

RUN is a run of keyword_stream. Compared with Python's engine: predictions of 1000 test clips, from new
streams. Timed in one thread, medians of turns: the front end alone, and all that the page does for a
frame (front end, model, decision) on recorded background noise; steps of the model on a test stream
of its task, and of an untrained GRU of about the same number of parameters; the same steps in
onnxruntime-web, which computes every unit. The data sets speech_commands and
speech_commands_noise are needed; see surnn data list.
"""

import argparse
import gzip
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers.browser import Page, chromium, served

import surnn
from surnn.data.sounds import noise
from surnn.data.speech import RATE, TEST, speech_commands
from surnn.deploy.export import to_engine, to_onnx, to_web
from surnn.runs.loading import build_model

CLIPS, SECONDS, TURNS = 1000, 60, 5
FRAME = 0.02
SCRIPT = """
import { load } from "./surnn.js";
import { Spotter } from "./spotter.js";
const fetched = async (name) => (await fetch(name)).arrayBuffer();

window.compareClips = async (simd, expected) => {
  const model = await load("model.surnn", { simd });
  const stream = model.stream();
  const [x, y] = [new Float32Array(await fetched("clips.bin")), new Float32Array(await fetched(expected))];
  const [clip, out] = [x.length / CLIPS, y.length / CLIPS];
  let [same, largest, decisions] = [0, 0, 0];
  for (let i = 0; i < CLIPS; i++) {
    stream.reset();
    const found = stream.run(x.subarray(i * clip, (i + 1) * clip));
    const wanted = y.subarray(i * out, (i + 1) * out);
    same += found.every((value, j) => value === wanted[j]);
    found.forEach((value, j) => { largest = Math.max(largest, Math.abs(value - wanted[j])); });
    const best = (all) => { const last = [...all.slice(-model.outputSize)]; return last.indexOf(Math.max(...last)); };
    decisions += best(found) === best(wanted);
  }
  return { clips: CLIPS, "same bits": same, "largest difference": largest, "same last answers": decisions };
};

window.timeSteps = async (name, simd) => {
  const model = await load(name, { simd });
  const x = new Float32Array(await fetched("stream.bin"));
  const [stream, out, frames] = [model.stream(), new Float32Array(model.outputSize), x.length / model.inputSize];
  const rows = Array.from({ length: frames }, (_, t) => x.subarray(t * model.inputSize, (t + 1) * model.inputSize));
  const turn = () => {
    stream.reset();
    const begin = performance.now();
    for (const row of rows) stream.step(row, out);
    return (1000 * (performance.now() - begin)) / frames;
  };
  turn();
  const times = Array.from({ length: TURNS }, turn).sort((a, b) => a - b);
  return { "microseconds a step": times[TURNS >> 1], "update rate": stream.work.updateRate, skipped: stream.work.skipped };
};

window.timePage = async (simd, sound, classes) => {
  const model = await load("model.surnn", { simd });
  const [spotter, mel] = [new Spotter(model, sound, classes), model.logMel()];
  const samples = new Int16Array(await fetched("sound.bin"));
  const blocks = Array.from({ length: samples.length / 320 }, (_, t) => samples.subarray(320 * t, 320 * t + 320));
  const turn = (push) => {
    const begin = performance.now();
    for (const block of blocks) push(block);
    return (1000 * (performance.now() - begin)) / blocks.length;
  };
  const median = (push, before) => {
    turn(push);
    return Array.from({ length: TURNS }, () => (before(), turn(push))).sort((a, b) => a - b)[TURNS >> 1];
  };
  const front = median((block) => mel.push(block), () => mel.reset());
  const all = median((block) => spotter.push(block), () => spotter.reset());
  return { "front end, microseconds a frame": front, "all, microseconds a frame": all,
           "real-time factor": all / 1e6 / 0.02, "update rate": spotter.stream.work.updateRate };
};

window.timeOnnx = async (name) => {
  const ort = await import("./ort/ort.wasm.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = new URL("./ort/", location.href).href;
  const session = await ort.InferenceSession.create(name, { executionProviders: ["wasm"] });
  const x = new Float32Array(await fetched("stream.bin"));
  const [input, ...states] = session.inputNames;
  const outputs = session.outputNames;
  const shapes = JSON.parse(await (await fetch(`${name}.json`)).text());
  const size = shapes[input].reduce((a, b) => a * b);
  const zeros = () => Object.fromEntries(states.map((s) => {
    const count = shapes[s].reduce((a, b) => a * b, 1);
    const values = s === "t" ? new BigInt64Array(count) : new Float32Array(count);
    return [s, new ort.Tensor(s === "t" ? "int64" : "float32", values, shapes[s])];
  }));
  const turn = async () => {
    let state = zeros();
    const begin = performance.now();
    for (let t = 0; t < 500; t++) {
      const frame = new ort.Tensor("float32", x.slice(t * size, (t + 1) * size), shapes[input]);
      const result = await session.run({ [input]: frame, ...state });
      state = Object.fromEntries(states.map((s, i) => [s, result[outputs[i + 1]]]));
    }
    return (1000 * (performance.now() - begin)) / 500;
  };
  await turn();
  const times = [];
  for (let i = 0; i < TURNS; i++) times.push(await turn());
  return { "microseconds a step": times.sort((a, b) => a - b)[TURNS >> 1] };
};
document.documentElement.dataset.ready = "yes";
""".replace("CLIPS", str(CLIPS)).replace("TURNS", str(TURNS))


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
            "command": f"python {' '.join(sys.argv)}", "processor": platform.machine(),
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
    (site / "bench.html").write_text(
        '<!doctype html><link rel="icon" href="data:,"><script type="module" src="bench.js"></script>'
    )
    (site / "bench.js").write_text(SCRIPT)
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
        import onnxruntime  # noqa: PLC0415 (an extra)

        session = onnxruntime.InferenceSession(site / f"{name}.onnx")
        shapes = {i.name: [1, *i.shape[1:]] for i in session.get_inputs()}
        (site / f"{name}.onnx.json").write_text(json.dumps(shapes))
    return sizes


def write_data(task, site: Path) -> str:
    """Write inputs, and the predictions of Python's engine; the name of its fastest kernels."""
    import os  # noqa: PLC0415

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
