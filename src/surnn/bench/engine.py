"""The C engine against dense recurrences: ``surnn bench engine``.

Two GRU layers of 256 units, one number a step, 784 steps, one stream, one thread: the shape of the
paper's latency table. Groups of 16 units share a gate, or each unit has its own; making the gates
is part of the time. Steps come one by one, as in a stream, or as a whole known sequence. All
contestants take turns in one process.
"""

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

from .. import AlwaysOpen, Engine, Rhythm, SuGRU
from ..export import to_engine
from ..export.engine import Weights
from ..plotting import NoMatplotlib, styled
from . import figures, results
from .jobs import explain

STEPS, WIDTH, LAYERS, GROUP = 784, 256, 2, 16
SPARSITIES = (0.5, 0.83, 0.87, 0.95)
OF_UNITS = (0.83, 0.87)
"""Sparsities that are measured with a gate for each unit, too."""
WHOLE = (0.0, 0.83)
"""Sparsities that are measured over whole sequences, too."""
PARTS = ("reset", "update", "candidate", "state")


@dataclass
class Contestant:
    """Someone who turns frames [T, 1] into outputs [T, 256]."""

    name: str
    run: Callable[[np.ndarray], np.ndarray]
    each: Callable[[np.ndarray], list[float]] | None = None
    """Seconds of each step, if it runs step by step; else it knows the whole sequence."""
    sparsity: float | None = None
    """Share of units that do not update, over steps and layers."""
    macs: float | None = None
    """Share of multiply-accumulates that are done."""
    seconds: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    difference: float | None = None
    """Largest, of outputs from the same layer in torch."""


def run(turns: int, seed: int, out: Path, command: str) -> None:
    """Measure, show, and keep the numbers in ``out``."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            result = measure(turns, seed, Path(folder))
    finally:
        torch.set_num_threads(threads)
    result["environment"]["command"] = command
    results.write(out, result)
    console = Console()
    wide = Console(width=max(console.width, 120))  # a table that is cut off says nothing
    with (out / "table.txt").open("w") as file:
        for paper in (wide, Console(file=file, width=120)):
            for table in tables(result):
                paper.print(table)
    if (problem := draw(result, out / "engine.png")) is not None:
        console.print(problem)
    console.print(f"results are in {out}")


def measure(turns: int, seed: int, folder: Path) -> dict[str, Any]:
    """Everyone's times."""
    torch.manual_seed(seed)
    frames = torch.rand(STEPS, 1).numpy()
    dense = SuGRU(1, WIDTH, LAYERS, gate=AlwaysOpen(granularity=GROUP))
    contestants: list[Contestant] = []
    engines: dict[str, Engine] = {}
    cases = [(sparsity, GROUP) for sparsity in (0.0, *SPARSITIES)]
    for sparsity, shared in [*cases, *((sparsity, 1) for sparsity in OF_UNITS)]:
        layer = dense if sparsity == 0 else masked(dense, sparsity, shared)
        expected = layer(torch.from_numpy(frames)[:, None])[0][:, 0].numpy()
        name = "dense" if sparsity == 0 else f"{sparsity:.0%} closed"
        name = f"engine, {name}{', single units' if shared == 1 else ''}"
        for weights in get_args(Weights):
            engine = exported(layer, weights, folder)
            contestants.append(of_engine(engine, f"{name}, {weights}", frames, expected))
            if sparsity in WHOLE and shared == GROUP:
                contestants.append(whole_of(engine, contestants[-1]))
            if weights == "float32" and shared == GROUP:
                engines[name] = engine
    (simd,) = {engine.simd for engine in engines.values()}
    others, missing = rivals(dense)
    contestants += others
    for _ in track(range(turns), "turns", transient=True):
        for contestant in contestants:
            begin = time.perf_counter()
            contestant.run(frames)
            contestant.seconds.append(time.perf_counter() - begin)
            if contestant.each is not None:
                contestant.latencies += contestant.each(frames)
    parts = {name: parts_of(engine, frames, turns, False) for name, engine in engines.items()}
    before = {name: parts_of(engine, frames, turns, True) for name, engine in engines.items()}
    return {
        "environment": results.environment("cpu") | {"processor": processor(), "simd": simd},
        "steps": STEPS,
        "records": [summary(c) for c in contestants],
        "parts": parts,
        "parts_reset_before": before,
        "not_run": missing,
    }


def masked(dense: SuGRU, sparsity: float, shared: int) -> SuGRU:
    """The same weights under clocks, each shared by some units."""
    gate = Rhythm(rate=1 - sparsity, granularity=shared, horizon=STEPS)
    layer = SuGRU(1, WIDTH, LAYERS, gate=gate)
    layer.load_state_dict(dense.state_dict(), strict=False)
    return layer


def exported(layer: SuGRU, weights: Weights, folder: Path) -> Engine:
    path = folder / f"{id(layer)}-{weights}.surnn"
    to_engine(layer, path, weights=weights)
    return Engine(path)


def of_engine(engine: Engine, name: str, frames: np.ndarray, expected: np.ndarray) -> Contestant:
    """Streamed, in a loop in C."""
    stream = engine.stream()
    found, closed = [], []
    for frame in frames:
        found.append(stream.step(frame))
        closed += [1 - stream.gates(layer).mean() for layer in range(engine.layers)]
    return Contestant(
        name,
        engine.run_steps,
        lambda frames: engine.time_steps(frames).tolist(),
        float(np.mean(closed)),
        1 - stream.work.skipped,
        difference=float(np.abs(np.stack(found) - expected).max()),
    )


def whole_of(engine: Engine, streamed: Contestant) -> Contestant:
    """The same, given the whole sequence; its outputs are equal bit for bit."""
    stream = engine.stream()
    return replace(
        streamed,
        name=f"{streamed.name}, whole sequence",
        run=lambda frames: stream.reset().run(frames),
        each=None,
        seconds=[],
        latencies=[],
    )


# ---------------------------------------------------------------------------- the others


def rivals(dense: SuGRU) -> tuple[list[Contestant], dict[str, str]]:
    """torch's layer and onnxruntime's operator with the same weights; and who is not here, why."""
    layer = dense.to_torch()
    found = [
        Contestant("torch nn.GRU, whole sequence", lambda frames: whole(layer, frames)),
        Contestant(
            "torch nn.GRU, streamed",
            lambda frames: streamed(layer, frames, None),
            lambda frames: latencies(lambda note: streamed(layer, frames, note)),
        ),
    ]
    try:
        session = onnx_session(layer)
    except ModuleNotFoundError as error:
        return found, {"onnxruntime GRU": explain(error)}
    found += [
        Contestant("onnxruntime GRU, whole sequence", lambda frames: onnx_whole(session, frames)),
        Contestant("onnxruntime GRU, streamed", lambda frames: onnx_streamed(session, frames, None),
                   lambda frames: latencies(lambda note: onnx_streamed(session, frames, note))),
    ]  # fmt: skip
    return found, {}


Note = Callable[[], None] | None


def latencies(work: Callable[[Note], object]) -> list[float]:
    """Seconds between one note and the next."""
    times = [time.perf_counter()]
    work(lambda: times.append(time.perf_counter()))
    return np.diff(times).tolist()


def whole(layer: nn.RNNBase, frames: np.ndarray) -> np.ndarray:
    return layer(torch.from_numpy(frames)[:, None])[0][:, 0].numpy()


def streamed(layer: nn.RNNBase, frames: np.ndarray, note: Note) -> np.ndarray:
    out, state = np.empty((len(frames), WIDTH), np.float32), torch.zeros(LAYERS, 1, WIDTH)
    for t, frame in enumerate(torch.from_numpy(frames)[:, None, None]):
        y, state = layer(frame, state)
        out[t] = y[0, 0].numpy()
        if note is not None:
            note()
    return out


def onnx_session(layer: nn.RNNBase) -> Any:
    """Two GRU operators in a row, states in and out."""
    onnx, onnxruntime = import_module("onnx"), import_module("onnxruntime")  # if they are there
    helper, numpy_helper = import_module("onnx.helper"), import_module("onnx.numpy_helper")

    def number(name: str, tensor: torch.Tensor) -> Any:
        return numpy_helper.from_array(np.ascontiguousarray(tensor.detach().numpy()), name)

    def gates_first(rows: torch.Tensor) -> torch.Tensor:
        r, z, n = rows.chunk(3)  # torch's order; ONNX has z first
        return torch.cat((z, r, n))

    nodes, weights, given = [], [], "x"
    for i in range(LAYERS):
        w, u, b, c = (
            gates_first(getattr(layer, f"{name}_l{i}"))
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weights += [number(f"w{i}", w[None]), number(f"u{i}", u[None])]
        weights += [number(f"b{i}", torch.cat((b, c))[None])]
        names = [given, f"w{i}", f"u{i}", f"b{i}", "", f"h{i}"]
        nodes += [
            helper.make_node("GRU", names, [f"y{i}", f"new{i}"], hidden_size=WIDTH,
                             linear_before_reset=1),
            helper.make_node("Squeeze", [f"y{i}", "directions"], [f"x{i + 1}"]),
        ]  # fmt: skip
        given = f"x{i + 1}"
    weights.append(numpy_helper.from_array(np.array([1]), "directions"))
    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, ["T", 1, 1])]
    inputs += [helper.make_tensor_value_info(f"h{i}", kind, [1, 1, WIDTH]) for i in range(LAYERS)]
    outputs = [helper.make_tensor_value_info(given, kind, ["T", 1, WIDTH])]
    outputs += [
        helper.make_tensor_value_info(f"new{i}", kind, [1, 1, WIDTH]) for i in range(LAYERS)
    ]
    graph = helper.make_graph(nodes, "gru", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def onnx_states() -> dict[str, np.ndarray]:
    return {f"h{i}": np.zeros((1, 1, WIDTH), np.float32) for i in range(LAYERS)}


def onnx_whole(session: Any, frames: np.ndarray) -> np.ndarray:
    return session.run(None, {"x": frames[:, None], **onnx_states()})[0][:, 0]


def onnx_streamed(session: Any, frames: np.ndarray, note: Note) -> np.ndarray:
    out, states = np.empty((len(frames), WIDTH), np.float32), onnx_states()
    for t, frame in enumerate(frames[:, None, None]):
        y, *new = session.run(None, {"x": frame, **states})
        states = {f"h{i}": h for i, h in enumerate(new)}
        out[t] = y[0, 0]
        if note is not None:
            note()
    return out


# ---------------------------------------------------------------------------- numbers


def parts_of(engine: Engine, frames: np.ndarray, turns: int, before: bool) -> dict[str, float]:
    """Median seconds of the parts of a sequence."""
    measured = [engine.time_parts(frames, before)[1] for _ in range(turns)]
    return {name: statistics.median(m[name] for m in measured) for name in measured[0]}


def summary(c: Contestant) -> dict[str, Any]:
    """A contestant's numbers, in microseconds."""
    low, _, high = np.percentile(c.seconds, (25, 50, 75)) * 1e6
    told = {
        "name": c.name, "sparsity": c.sparsity, "macs_done": c.macs, "difference": c.difference,
        "sequence_us": statistics.median(c.seconds) * 1e6, "iqr_us": high - low,
        "turns_us": [s * 1e6 for s in c.seconds],
    }  # fmt: skip
    if c.latencies:
        told["p50_us"], told["p99_us"] = (np.percentile(c.latencies, (50, 99)) * 1e6).tolist()
    return told


def processor() -> str:
    """Its name, as the system has it."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] if Path("/proc/cpuinfo").exists() else []  # fmt: skip
    return names[0] if names else platform.processor() or platform.machine()


def tables(result: dict[str, Any]) -> list[Table]:
    """What was measured, and the paper's own table."""
    dense = {
        kind: next(r["sequence_us"] for r in result["records"] if is_whole(r) == kind)
        for kind in (False, True)
    }
    all_of_them = Table(title=f"{LAYERS} x {WIDTH} GRU, {STEPS} steps, one thread", box=None)
    for name in ("", "closed", "MACs", "µs a step", "vs dense", "p50 µs", "p99 µs", "difference"):
        all_of_them.add_column(name, justify="right" if name else "left", no_wrap=True)
    for r in result["records"]:
        percentiles = [f"{r[p]:.2f}" if p in r else "" for p in ("p50_us", "p99_us")]
        shares = ["" if r[k] is None else f"{r[k]:.1%}" for k in ("sparsity", "macs_done")]
        faster = dense[is_whole(r)] / r["sequence_us"]
        times = f"{r['sequence_us'] / STEPS:.2f}", f"{faster:.2f}x"
        differs = "" if r["difference"] is None else f"{r['difference']:.0e}"
        all_of_them.add_row(r["name"], *shares, *times, *percentiles, differs)
    for name, why in result["not_run"].items():
        all_of_them.add_row(name, "", "", why)
    title = "parts of a sequence, computed one after another [µs]"
    return [
        all_of_them,
        parts_table(title, result["parts"]),
        parts_table("the same, if the reset came before [µs]", result["parts_reset_before"]),
    ]


def is_whole(record: dict[str, Any]) -> bool:
    """Whether it knew the whole sequence."""
    return "p50_us" not in record


def parts_table(title: str, measured: dict[str, dict[str, float]]) -> Table:
    """The paper's table: each part, and its share of the dense network's."""
    table = Table(title=title, box=None)
    for name in ("", *measured):
        table.add_column(name.removeprefix("engine, "), justify="right")
    for part in (*PARTS, "total"):
        row = [total(p) if part == "total" else p[part] * 1e6 for p in measured.values()]
        told = [f"{row[0]:.0f}", *(f"{v:.0f} ({v / row[0]:.2f})" for v in row[1:])]
        table.add_row(part, *told)
    return table


def total(parts: dict[str, float]) -> float:
    """Microseconds of all parts."""
    return sum(parts[name] for name in (*PARTS, "rest")) * 1e6 - parts["clock"] * 1e6


def draw(result: dict[str, Any], path: Path) -> str | None:
    """Speed against the share of closed units; a reason if it cannot be drawn."""
    try:
        with styled():
            figures.engine(result).savefig(path, dpi=160)
    except NoMatplotlib as error:
        return f"no figure: {error}"
    return None
