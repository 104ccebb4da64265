"""Compiles kernels in several processes into Triton's cache, before anything is timed.

The kernels of a layer take about ten seconds to compile in one process. Compiled in parallel, those
of a whole suite take about as long as those of one layer. Timing follows in one process, when all
compilers have ended.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from .cases import Case, Contestant


def configurations(cases: Sequence[Case]) -> list[list[tuple[Case, Contestant]]]:
    """Our layers, grouped by their kernels; layers of a group differ in shape only.

    Only the lowest update rate of each is included: kernels do not depend on it, time and memory
    do.
    """
    alike: dict[tuple, dict[tuple, tuple[Case, Contestant]]] = {}
    for case in cases:
        for contestant in case.contestants:
            if contestant.kind != "ours" or contestant.backend not in ("auto", "triton"):
                continue
            c = contestant
            shapes = alike.setdefault((c.cell, c.heads, case.hidden, c.dtype, c.gate), {})
            known = shapes.get((case.steps, case.batch))
            if known is None or (known[1].rate or 1) > (c.rate or 1):
                shapes[case.steps, case.batch] = case, contestant
    return [list(shapes.values()) for shapes in alike.values()]


def compile_ahead(cases: Sequence[Case], processes: int, seed: int) -> Iterable[str | None]:
    """Compile; yields None or an error message for each configuration."""
    groups = configurations(cases)
    workers = max(1, min(processes, len(groups)))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_compile, group, seed) for group in groups]
        for group, future in zip(groups, futures, strict=True):
            error = future.exception()
            yield None if error is None else f"{group[0][1].name}: {type(error).__name__}: {error}"


def _compile(group: list[tuple[Case, Contestant]], seed: int) -> None:
    """Run one training step of each layer, in a separate process."""
    import torch  # noqa: PLC0415

    from .contestants import build  # noqa: PLC0415
    from .run import PRECISION, random_inputs  # noqa: PLC0415

    torch.set_float32_matmul_precision(PRECISION)
    for case, contestant in group:
        x, grad_y = random_inputs(case, contestant.dtype, torch.device("cuda"), seed)
        layer = build(case, contestant, x, fixed_room=False, seed=seed)
        if layer.backend != "triton":
            continue
        y, _ = layer.module(x.requires_grad_())
        y.backward(grad_y)
    torch.cuda.synchronize()
