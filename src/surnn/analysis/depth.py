"""The depth of the computation between two states: numbers of updates, and of paths.

Gate schedules here are ``g`` [T, H], 1 = update. Time steps are counted from 0. A window (s, t]
holds the time steps s, s+1, ..., t-1, between the state after s steps and the state after t.
"""

from collections import Counter

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .recording import LayerRecord


def update_set(g: Float[Tensor, "T H"], unit: int, s: int = 0, t: int | None = None) -> list[int]:
    """U_on of the paper: the time steps in (s, t] at which ``unit`` updates."""
    return [s + step for step in g[s:t, unit].nonzero().flatten().tolist()]


def update_count(g: Float[Tensor, "T H"], s: int = 0, t: int | None = None) -> Int[Tensor, "H"]:
    """Number of updates of each unit in (s, t]."""
    return (g[s:t] != 0).sum(0)


def update_rate(g: Float[Tensor, "T H"]) -> float:
    """p: the share of (time step, unit) pairs that update."""
    return (g != 0).double().mean().item()


def effective_depth(g: Float[Tensor, "T H"], s: int = 0, t: int | None = None) -> float:
    """Mean number of non-identity factors between the states s and t: p * (t - s)."""
    return update_count(g, s, t).double().mean().item()


def depth_curve(
    layer: LayerRecord, lengths: Int[Tensor, "B"] | None = None
) -> Float[Tensor, "steps H"]:
    """Updates of each unit in (0, t] for t = 0, ..., T: effective depth against elapsed time steps.

    The mean at each time step is over the sequences that are long enough.
    """
    batch, steps, _ = layer.gate.shape
    ends = torch.full((batch,), steps) if lengths is None else lengths
    alive = (torch.arange(steps)[:, None] < ends).sum(1, keepdim=True)
    updates = ((layer.gate != 0).double().sum(0) / alive.clamp(min=1)).cumsum(0)
    return torch.cat((torch.zeros_like(updates[:1]), updates))


def path_counts(g: Float[Tensor, "T H"], unit: int, heads: int = 1) -> list[int]:
    """Number of paths to ``unit`` by length: entry k counts the paths with k updates.

    The product of I + D (J - I) over a window expands into one term for each subset S of its time
    steps. The term is the product of D (J - I) over S: a path that is transformed at the steps of S
    and carried at all others. A subset counts if its term can differ from 0 in the unit's row: its
    last step updates the unit itself, and each other step updates some unit of the same head, as
    only these are coupled. A dense unit has ``comb(T, k)`` paths, 2 ** T in total. A head with one
    gate and n updates has ``comb(n, k)``. Counts are exact integers.
    """
    size = g.shape[1] // heads
    head = g[:, unit // size * size :][:, :size] != 0
    events = head.any(1).long()
    before = Counter((events.cumsum(0) - events)[g[:, unit] != 0].tolist())
    # Paths that end at an update after n events have the polynomial x (1 + x)^n. Horner's rule
    # sums these.
    sums: list[int] = []
    for earlier in range(int(events.sum()) - 1, -1, -1):
        sums = [a + b for a, b in zip([*sums, 0], [0, *sums], strict=True)]
        sums[0] += before[earlier]
    return [1, *sums]
