"""A suite from first case to last: contestants take turns, results are kept after each case."""

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
from .ahead import compile_ahead
from .cases import Case, Contestant
from .contestants import build
from .jobs import EagerJob, GraphJob, Job, allocated, explain
from .results import Record

# For all alike, the whole run long: TF32, which cuDNN's float32 layers use by default anyway.
PRECISION = "high"
OUT_OF_BUDGET = "not run: out of budget"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What the user asked for."""

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
    with _precision(PRECISION), _progress(console) as tell:
        asked = {"command": settings.command, "seed": settings.seed, "turns": settings.turns}
        result = {"environment": asked | results.environment(settings.device)} | result
        if settings.device == "cuda" and settings.compilers:
            result["seconds"]["compile ahead"] = _compile(cases, settings, console, tell)
        for number, case in enumerate(cases, 1):
            started = time.perf_counter()
            if settings.budget is not None and started - begin > settings.budget:
                found = _not_run(case, settings.device)
            else:
                found = run_case(case, settings, _numbered(tell, number, len(cases)))
            result["seconds"][case.name] = took = round(time.perf_counter() - started, 2)
            result["records"] += [asdict(record) for record in found]
            result["fits"] = results.fits(result["records"])
            results.write(out, result)
            console.print(report.headline(case.name, took, found))
    report.show(result, console, out / "table.txt")
    try:
        figures.draw(result, out)
    except figures.NoMatplotlib as missing:
        console.print(f"no figures: {missing}")
    console.print(f"{time.perf_counter() - begin:.0f} s; results are in {out}")


def run_case(case: Case, settings: Settings, tell: Tell) -> list[Record]:
    """Prepare every contestant, then let them take turns; what fails is recorded, and left out."""
    device = torch.device(settings.device)
    _free(device)
    inputs: dict[str, tuple[Tensor, Tensor]] = {}
    jobs: list[tuple[Record, Job]] = []
    entries = _entries(case, settings.device)
    for contestant, record in entries:
        tell(f"{case.name}: {contestant.name} ({record.mode}), warming up")
        try:
            if contestant.dtype not in inputs:
                made = random_inputs(case, contestant.dtype, device, settings.seed)
                inputs[contestant.dtype] = made
            job = _prepare(case, contestant, record, inputs[contestant.dtype], settings)
            jobs.append((record, job))
        except Exception as error:  # out of memory, not installed, refused: results like any other
            record.error = explain(error)
        if record.error is not None:  # not before the error is gone, which holds its tensors
            _free(device)
    for turn in range(settings.turns + 1):
        tell(f"{case.name}: turn {turn} of {settings.turns}")
        first = turn % max(1, len(jobs))  # nobody always comes first
        for record, job in jobs[first:] + jobs[:first]:
            _take_turn(record, job, turn)
    for record, job in jobs:
        record.fwd_turns_ms, record.fwd_bwd_turns_ms = job.fwd_ms, job.fwd_bwd_ms
        record.summarize()
    return [record for _, record in entries]


def random_inputs(case: Case, dtype: str, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """x, and the gradient by y of a random linear loss."""
    generator = torch.Generator(device).manual_seed(seed)
    shape, kind = (case.steps, case.batch, case.hidden), getattr(torch, dtype)
    x = torch.randn(shape, generator=generator, device=device, dtype=kind)
    return x, torch.randn(shape, generator=generator, device=device, dtype=kind)


def _entries(case: Case, device: str) -> list[tuple[Contestant, Record]]:
    """Every contestant in each of its modes; graphs are CUDA's."""
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
    # Other contestants are alive and hold memory that is not this one's.
    others = allocated(device) - sum(v.nbytes for v in inputs)
    graph = record.mode == "graph"
    built = build(case, contestant, inputs[0], fixed_room=graph, seed=settings.seed)
    record.backend, record.events = built.backend, built.events
    turns = min(settings.turns, contestant.turns or settings.turns)
    job = (GraphJob if graph else EagerJob)(built, *inputs, turns)
    job.prepare()
    record.measured_rate = built.rate
    if device.type == "cuda":
        record.peak_gb = (job.peak - others) / 1e9
        record.growth_gb = (job.peak - job.before) / 1e9
    return job


def _take_turn(record: Record, job: Job, turn: int) -> None:
    """Turn 0 is a rehearsal."""
    if turn > job.turns or record.error is not None:
        return
    try:
        if turn:
            job.turn()
        elif job.turns > 1:
            job.rehearse()
    except Exception as error:  # the turns before it stay in the record, beside the reason
        record.error = explain(error)


def _not_run(case: Case, device: str) -> list[Record]:
    records = [record for _, record in _entries(case, device)]
    for record in records:
        record.error = OUT_OF_BUDGET
    return records


def _compile(cases: list[Case], settings: Settings, console: Console, tell: Tell) -> float:
    """Fill Triton's cache; a failure here will show again, and be recorded, in its case."""
    started = time.perf_counter()
    tell(f"compiling kernels in up to {settings.compilers} processes")
    for problem in compile_ahead(cases, settings.compilers, settings.seed):
        if problem is not None:
            console.print(f"compiling ahead failed for {problem}", markup=False)
    took = round(time.perf_counter() - started, 2)
    console.print(f"kernels compiled ahead in {took:.1f} s")
    return took


def _free(device: torch.device) -> None:
    """Give back what the case before, or one that failed, held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _numbered(tell: Tell, number: int, total: int) -> Tell:
    return lambda text: tell(f"{number}/{total} {text}")


@contextmanager
def _precision(wanted: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _progress(console: Console) -> Iterator[Tell]:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text: progress.update(task, description=text)
