"""Runs a suite: contestants take turns, and results are written after each case."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from . import figures, report, results
from .cases import Case, Contestant
from .contestants import build
from .jobs import EagerJob, GraphJob, Job, allocated, explain
from .precompile import compile_ahead
from .results import Record

# For all contestants: TF32, which cuDNN's float32 layers use by default.
PRECISION = "high"
OUT_OF_BUDGET = "not run: out of budget"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """Options of a run."""

    device: str
    turns: int
    seed: int
    budget: float | None
    compilers: int
    command: str


def run_suite(cases: list[Case], settings: Settings, out: Path) -> None:
    """Measure all cases; write result.json, table.txt and figures into ``out``."""
    begin = time.perf_counter()
    console = report.console()
    result: dict[str, Any] = {"seconds": {}, "records": [], "fits": []}
    with _precision(PRECISION), _progress(console) as say:
        asked = {"command": settings.command, "seed": settings.seed, "turns": settings.turns}
        result = {"environment": asked | results.environment(settings.device)} | result
        if settings.device == "cuda" and settings.compilers:
            result["seconds"]["compile ahead"] = _compile(cases, settings, console, say)
        for number, case in enumerate(cases, 1):
            started = time.perf_counter()
            if settings.budget is not None and started - begin > settings.budget:
                records = _not_run(case, settings.device)
            else:
                records = run_case(case, settings, _numbered(say, number, len(cases)))
            result["seconds"][case.name] = took = round(time.perf_counter() - started, 2)
            result["records"] += [asdict(record) for record in records]
            result["fits"] = results.fits(result["records"])
            results.write(out, result)
            console.print(report.headline(case.name, took, records))
    report.show(result, console, out / "table.txt")
    try:
        figures.draw(result, out)
    except figures.NoMatplotlib as missing:
        console.print(f"no figures: {missing}")
    console.print(f"{time.perf_counter() - begin:.0f} s; results are in {out}")


def run_case(case: Case, settings: Settings, say: Say) -> list[Record]:
    """Prepare every contestant, then time them in turns; a failing one is recorded and skipped."""
    device = torch.device(settings.device)
    _free(device)
    inputs: dict[str, tuple[Tensor, Tensor]] = {}
    jobs: list[tuple[Record, Job]] = []
    entries = _entries(case, settings.device)
    for contestant, record in entries:
        say(f"{case.name}: {contestant.name} ({record.mode}), warming up")
        try:
            if contestant.dtype not in inputs:
                inputs[contestant.dtype] = random_inputs(
                    case, contestant.dtype, device, settings.seed
                )
            job = _prepare(case, contestant, record, inputs[contestant.dtype], settings)
            jobs.append((record, job))
        except Exception as error:  # out of memory, not installed, refused: recorded as a result
            record.error = explain(error)
        if record.error is not None:  # after the error, which holds its tensors, is gone
            _free(device)
    for turn in range(settings.turns + 1):
        say(f"{case.name}: turn {turn} of {settings.turns}")
        first = turn % max(1, len(jobs))  # rotate who comes first
        for record, job in jobs[first:] + jobs[:first]:
            _take_turn(record, job, turn)
    for record, job in jobs:
        record.fwd_turns_ms, record.fwd_bwd_turns_ms = job.fwd_ms, job.fwd_bwd_ms
        record.summarize()
    return [record for _, record in entries]


def random_inputs(case: Case, dtype: str, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """x, and the gradient of a random linear loss with respect to y."""
    generator = torch.Generator(device).manual_seed(seed)
    shape, kind = (case.steps, case.batch, case.hidden), getattr(torch, dtype)
    x = torch.randn(shape, generator=generator, device=device, dtype=kind)
    return x, torch.randn(shape, generator=generator, device=device, dtype=kind)


def _entries(case: Case, device: str) -> list[tuple[Contestant, Record]]:
    """Every contestant in each of its modes; graphs need CUDA."""
    return [
        (
            c,
            Record(
                case=case.name, group=case.group, contestant=c.name, kind=c.kind, cell=c.cell,
                mode=mode, T=case.steps, B=case.batch, H=case.hidden, heads=c.heads,
                dtype=c.dtype, rate=c.rate, against=c.against,
            ),
        )
        for c in case.contestants
        for mode in c.modes
        if mode == "eager" or device == "cuda"
    ]  # fmt: skip


def _prepare(
    case: Case,
    contestant: Contestant,
    record: Record,
    inputs: tuple[Tensor, Tensor],
    settings: Settings,
) -> Job:
    device = inputs[0].device
    # Memory of the other contestants, which exist at the same time.
    others = allocated(device) - sum(v.nbytes for v in inputs)
    graph = record.mode == "graph"
    layer = build(case, contestant, inputs[0], fixed_room=graph, seed=settings.seed)
    record.backend, record.events = layer.backend, layer.events
    turns = min(settings.turns, contestant.turns or settings.turns)
    job = (GraphJob if graph else EagerJob)(layer, *inputs, turns)
    job.prepare()
    record.measured_rate = layer.rate
    if device.type == "cuda":
        record.peak_gb = (job.peak - others) / 1e9
        record.growth_gb = (job.peak - job.before) / 1e9
    return job


def _take_turn(record: Record, job: Job, turn: int) -> None:
    """Take one turn; turn 0 is a rehearsal."""
    if turn > job.turns or record.error is not None:
        return
    try:
        if turn:
            job.turn()
        elif job.turns > 1:
            job.rehearse()
    except Exception as error:  # earlier turns stay in the record, with the reason
        record.error = explain(error)


def _not_run(case: Case, device: str) -> list[Record]:
    records = [record for _, record in _entries(case, device)]
    for record in records:
        record.error = OUT_OF_BUDGET
    return records


def _compile(cases: list[Case], settings: Settings, console: Console, say: Say) -> float:
    """Fill Triton's cache. A failure here repeats, and is recorded, in its case."""
    started = time.perf_counter()
    say(f"compiling kernels in up to {settings.compilers} processes")
    for problem in compile_ahead(cases, settings.compilers, settings.seed):
        if problem is not None:
            console.print(f"compiling ahead failed for {problem}", markup=False)
    took = round(time.perf_counter() - started, 2)
    console.print(f"kernels compiled ahead in {took:.1f} s")
    return took


def _free(device: torch.device) -> None:
    """Free the memory of the previous case or of a failed contestant."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _numbered(say: Say, number: int, total: int) -> Say:
    return lambda text: say(f"{number}/{total} {text}")


@contextmanager
def _precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _progress(console: Console) -> Iterator[Say]:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)
