"""The C engine against dense recurrences: ``surnn bench engine``.

Two GRU layers of 256 units, one number per time step, 784 time steps, one stream, one thread: the
shape of the paper's latency table. Groups of 16 units share a gate, or each unit has its own. The
time includes the gates: the clock starts past the gates' horizon, where the file has no table of
them. The input comes one time step at a time, as in a stream, or as a whole sequence. All
contestants take turns in one process. A time step is its median over the turns; a whole sequence is
the thread's own time, so that other processes do not count; the parts of a GRU are those of the
fastest turn. The worst step is also divided by what a line through time and work of all steps
says: how slow it is beyond the number of its open units.
"""

import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from surnn import AlwaysOpen, Engine, Rhythm, SuGRU
from surnn.deploy.export import to_engine
from surnn.deploy.export.engine_builder import Activations, Weights
from surnn.nn.gates.calibration import bias_for_rate
from surnn.plotting import NoMatplotlib, styled

from . import figures, results
from .engine_rivals import Contestant, rivals

STEPS, WIDTH, LAYERS, GROUP = 784, 256, 2, 16
STREAMS = 64
"""Streams that step together."""
SPARSITIES = (0.5, 0.83, 0.87, 0.95)
OF_UNITS = (0.83, 0.87)
"""Sparsities that are also measured with one gate per unit."""
WHOLE = (0.0, 0.83)
"""Sparsities that are also measured on whole sequences."""
PRECISIONS: dict[str, tuple[Weights, Activations]] = {
    "float32": ("float32", "int16"),
    "int8": ("int8", "int16"),
    "int8 by int8": ("int8", "int8"),
}
"""Types of weights and activations, by their names in the tables."""
WIDE = 140
"""Characters of the tables."""
PARTS = ("reset", "update", "candidate", "state")


def run(turns: int, seed: int, out: Path, command: str) -> None:
    """Measure, print, and write the numbers to ``out``."""
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
    wide = Console(width=max(console.width, WIDE))  # wide enough for the tables
    with (out / "table.txt").open("w") as file:
        for paper in (wide, Console(file=file, width=WIDE)):
            for table in tables(result):
                paper.print(table)
    if (problem := draw(result, out / "engine.png")) is not None:
        console.print(problem)
    console.print(f"results are in {out}")


def measure(turns: int, seed: int, folder: Path) -> dict[str, Any]:
    """The times of all contestants."""
    torch.manual_seed(seed)
    frames = torch.rand(STEPS, 1).numpy()
    dense = SuGRU(1, WIDTH, LAYERS, gate=AlwaysOpen(granularity=GROUP))
    contestants: list[Contestant] = []
    engines: dict[str, Engine] = {}
    batched: dict[str, Engine] = {}
    cases = [(sparsity, GROUP) for sparsity in (0.0, *SPARSITIES)]
    for sparsity, shared in [*cases, *((sparsity, 1) for sparsity in OF_UNITS)]:
        layer = dense if sparsity == 0 else gated(dense, sparsity, shared)
        past_horizon = layer.init_state(1)._replace(t=torch.tensor(STEPS))
        expected = layer(torch.from_numpy(frames)[:, None], past_horizon)[0][:, 0].numpy()
        name = "dense" if sparsity == 0 else f"{sparsity:.0%} closed"
        name = f"engine, {name}{', single units' if shared == 1 else ''}"
        for weights, precision in PRECISIONS.items():
            engine = export(layer, precision, folder)
            contestants.append(of_engine(engine, f"{name}, {weights}", frames, expected))
            if sparsity in WHOLE and shared == GROUP:
                contestants.append(whole_of(engine, contestants[-1]))
            if weights == "float32" and shared == GROUP:
                engines[name] = engine
            if sparsity in WHOLE:
                batched[f"{name}, {weights}"] = engine
    (simd,) = {engine.simd for engine in engines.values()}
    others, missing = rivals(dense)
    contestants += others
    for _ in track(range(turns), "turns", transient=True):
        for contestant in contestants:
            begin = time.thread_time()
            contestant.run(frames)
            contestant.seconds.append(time.thread_time() - begin)
            if contestant.each is not None:
                contestant.latencies.append(contestant.each(frames))
    parts = {name: parts_of(engine, frames, turns, False) for name, engine in engines.items()}
    before = {name: parts_of(engine, frames, turns, True) for name, engine in engines.items()}
    return {
        "environment": results.environment("cpu") | {"processor": processor(), "simd": simd},
        "steps": STEPS,
        "records": [summary(c) for c in contestants],
        "clock": STEPS,
        "python": {name: from_python(e, frames, turns) for name, e in batched.items()},
        "streams": {name: many_streams(engine, turns, seed) for name, engine in batched.items()},
        "parts": parts,
        "parts_reset_before": before,
        "not_run": missing,
    }


def gated(dense: SuGRU, sparsity: float, shared: int) -> SuGRU:
    """The same weights with clock gates, each shared by ``shared`` units.

    The share of closed units is exact past the horizon.
    """
    gate = Rhythm(rate=1 - sparsity, granularity=shared, horizon=STEPS)
    layer = SuGRU(1, WIDTH, LAYERS, gate=gate)
    layer.load_state_dict(dense.state_dict(), strict=False)
    t = torch.arange(STEPS + 1, 2 * STEPS + 1)[:, None]  # the time steps that are timed
    for each in layer.gates:
        each.bias.copy_(bias_for_rate(each.wave(t)[:, 0], each.rate))  # type: ignore[operator]
    return layer


def export(layer: SuGRU, precision: tuple[Weights, Activations], folder: Path) -> Engine:
    path = folder / f"{id(layer)}-{'-'.join(precision)}.surnn"
    to_engine(layer, path, *precision)
    return Engine(path)


def of_engine(engine: Engine, name: str, frames: np.ndarray, expected: np.ndarray) -> Contestant:
    """The engine as a stream, in a loop in C."""
    stream = engine.stream()
    stream.clock = STEPS
    outputs, shares, macs = [], [], [0]
    for frame in frames:
        outputs.append(stream.step(frame))
        macs.append(stream.work.macs)
        shares.append(float(np.mean([stream.gates(i).mean() for i in range(engine.layers)])))
    return Contestant(
        name,
        lambda frames: engine.run_steps(frames, STEPS),
        lambda frames: engine.time_steps(frames, STEPS).tolist(),
        1 - float(np.mean(shares)),
        1 - stream.work.skipped,
        open_shares=shares,
        work=np.diff(macs).tolist(),
        difference=float(np.abs(np.stack(outputs) - expected).max()),
    )


def whole_of(engine: Engine, streamed: Contestant) -> Contestant:
    """The same engine on the whole sequence; its outputs are bit-identical."""
    stream = engine.stream()

    def run(frames: np.ndarray) -> np.ndarray:
        stream.reset()
        stream.clock = STEPS
        return stream.run(frames)

    return replace(
        streamed,
        name=f"{streamed.name}, whole sequence",
        run=run,
        each=None,
        open_shares=None,
        work=None,
        seconds=[],
        latencies=[],
    )


# ---------------------------------------------------------------------------- numbers


def many_streams(engine: Engine, turns: int, seed: int) -> dict[str, float]:
    """Microseconds of a time step of one of STREAMS streams, one after another and together."""
    frames = np.random.default_rng(seed).random((STEPS // 8, STREAMS, engine.input_size))
    seconds: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for _ in range(turns):
        for together, measured in seconds.items():
            measured.append(engine.time_streams(frames, together, STEPS))
    alone, together = (float(np.median(s, 0).mean()) / STREAMS * 1e6 for s in seconds.values())
    return {"alone_us": alone, "together_us": together}


def from_python(engine: Engine, frames: np.ndarray, turns: int) -> dict[str, float]:
    """Microseconds of a time step in a loop in Python, and in a loop in C."""
    stream, seconds = engine.stream(), []
    for _ in range(turns):
        stream.clock = STEPS
        begin = time.thread_time()
        for frame in frames:
            stream.step(frame)
        middle = time.thread_time()
        engine.run_steps(frames, STEPS)
        seconds.append((middle - begin, time.thread_time() - middle))
    python, c = np.median(seconds, 0) / len(frames) * 1e6
    return {"python_us": float(python), "c_us": float(c)}


def parts_of(engine: Engine, frames: np.ndarray, turns: int, before: bool) -> dict[str, float]:
    """Seconds of the parts of a sequence, each in its fastest turn."""
    measured = [engine.time_parts(frames, before, STEPS)[1] for _ in range(turns)]
    return {name: min(m[name] for m in measured) for name in measured[0]}


def summary(c: Contestant) -> dict[str, Any]:
    """A contestant's numbers, in microseconds."""
    low, _, high = np.percentile(c.seconds, (25, 50, 75)) * 1e6
    numbers: dict[str, Any] = {
        "name": c.name, "sparsity": c.sparsity, "macs_done": c.macs, "difference": c.difference,
        "sequence_us": statistics.median(c.seconds) * 1e6, "iqr_us": high - low,
        "turns_us": [s * 1e6 for s in c.seconds],
    }  # fmt: skip
    if c.latencies:
        numbers["p50_us"], numbers["p99_us"] = (np.percentile(c.latencies, (50, 99)) * 1e6).tolist()
        steps = np.median(c.latencies, 0)  # without the pauses of the operating system
        numbers["sequence_us"] = float(steps.sum() * 1e6)
        numbers["worst_us"] = float(steps.max() * 1e6)
        if c.open_shares is not None:
            numbers["open_at_worst"] = c.open_shares[int(steps.argmax())]
        if c.work is not None:
            numbers["worst_of_alike"] = worst_of_alike(steps, np.array(c.work))
    return numbers


def worst_of_alike(times: np.ndarray, work: np.ndarray) -> float:
    """The largest time of [T], relative to that of a time step with the same work: a line through
    all of them."""
    line = np.stack((np.ones(len(work)), work / work.max()), 1)
    usual, worst = line @ np.linalg.lstsq(line, times, rcond=None)[0], times.argmax()
    return float(times[worst] / usual[worst])


def processor() -> str:
    """The processor's name."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] if Path("/proc/cpuinfo").exists() else []  # fmt: skip
    return names[0] if names else platform.processor() or platform.machine()


def tables(result: dict[str, Any]) -> list[Table]:
    """Tables of all contestants, and in the form of the paper's."""
    dense = {
        kind: next(r["sequence_us"] for r in result["records"] if is_whole(r) == kind)
        for kind in (False, True)
    }
    all_of_them = Table(title=f"{LAYERS} x {WIDTH} GRU, {STEPS} steps, one thread", box=None)
    for name in ("", "closed", "MACs", "µs a step", "vs dense", "p50 µs", "worst µs", "open then",
                 "of alike", "difference"):  # fmt: skip
        all_of_them.add_column(name, justify="right" if name else "left", no_wrap=True)
    for r in result["records"]:
        percentiles = [f"{r[p]:.2f}" if p in r else "" for p in ("p50_us", "worst_us")]
        percentiles.append(f"{r['open_at_worst']:.0%}" if "open_at_worst" in r else "")
        percentiles.append(f"{r['worst_of_alike']:.2f}x" if "worst_of_alike" in r else "")
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
        python_table(result["python"]),
        streams_table(result["streams"]),
        parts_table(title, result["parts"]),
        parts_table("the same, if the reset came before [µs]", result["parts_reset_before"]),
    ]


def is_whole(record: dict[str, Any]) -> bool:
    """Whether it took the whole sequence at once."""
    return "p50_us" not in record


def python_table(measured: dict[str, dict[str, float]]) -> Table:
    """Steps from Python and from C."""
    table = Table(title="stream.step, µs", box=None)
    for name in ("", "from Python", "from C", "more"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, numbers in measured.items():
        python, c = numbers["python_us"], numbers["c_us"]
        table.add_row(name, f"{python:.2f}", f"{c:.2f}", f"{python - c:.2f}")
    return table


def streams_table(measured: dict[str, dict[str, float]]) -> Table:
    """Many streams, one after another and together."""
    table = Table(title=f"{STREAMS} streams, µs a step of each", box=None)
    for name in ("", "one after another", "together", "faster"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, numbers in measured.items():
        alone, together = numbers["alone_us"], numbers["together_us"]
        table.add_row(name, f"{alone:.2f}", f"{together:.2f}", f"{alone / together:.2f}x")
    return table


def parts_table(title: str, measured: dict[str, dict[str, float]]) -> Table:
    """The paper's table: the time of each part, and relative to the dense network."""
    table = Table(title=title, box=None)
    for name in ("", *measured):
        table.add_column(name.removeprefix("engine, "), justify="right")
    for part in (*PARTS, "total"):
        row = [total(p) if part == "total" else p[part] * 1e6 for p in measured.values()]
        cells = [f"{row[0]:.0f}", *(f"{v:.0f} ({v / row[0]:.2f})" for v in row[1:])]
        table.add_row(part, *cells)
    return table


def total(parts: dict[str, float]) -> float:
    """Microseconds of all parts."""
    return sum(parts[name] for name in (*PARTS, "rest")) * 1e6 - parts["clock"] * 1e6


def draw(result: dict[str, Any], path: Path) -> str | None:
    """Draw speed against the share of closed units. Returns a reason if it cannot be drawn."""
    try:
        with styled():
            figures.engine(result).savefig(path, dpi=160)
    except NoMatplotlib as error:
        return f"no figure: {error}"
    return None
