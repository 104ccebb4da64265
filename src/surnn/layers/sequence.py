"""The time axis: directions, lengths, and gates spread over units."""

import torch
from torch import Tensor

from ..gates import Schedule
from ..scan.contract import step_mask


def spread_gates(schedule: Schedule, heads: int, head_size: int) -> tuple[Tensor, Tensor | None]:
    """A schedule [T, b, width] as gates [T, b, N, 1], or [T, b, N, D] if finer than heads.

    And where its gradient is wanted, [T, b, N], if that is not everywhere.
    """
    g, relevant = schedule
    width, units = g.shape[-1], heads * head_size
    share = units // width
    if share % head_size == 0:
        repeat = share // head_size
        relevant = None if relevant is None else _repeat(relevant, repeat)
        return _repeat(g, repeat).unsqueeze(-1), relevant
    if relevant is not None:
        relevant = _repeat(relevant, share).unflatten(-1, (heads, head_size)).any(-1)
    return _repeat(g, share).unflatten(-1, (heads, head_size)), relevant


def _repeat(g: Tensor, times: int) -> Tensor:
    """Each entry of the last dimension ``times`` times over."""
    return g if times == 1 else g.unsqueeze(-1).expand(*g.shape, times).flatten(-2)


def mean_rate(g: Tensor, lengths: Tensor | None) -> Tensor:
    """Share of open gates over the steps that exist, summed in at least float32."""
    g = g.to(torch.promote_types(g.dtype, torch.float32))
    if lengths is None:
        return g.mean()
    alive = step_mask(g.shape[0], lengths).to(g.dtype)
    return (g.mean(-1) * alive).sum() / alive.sum()


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [T, B, ...] backwards in time, each sequence within its length; padding stays."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    place = torch.where(t < lengths, lengths - 1 - t, t)
    return x.gather(0, place.unsqueeze(-1).expand_as(x))


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype that autocast asks for, if it is on and would touch x."""
    kind = x.device.type
    if x.dtype == torch.float64 or kind == "meta":  # meta tensors have no autocast to ask
        return None
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
