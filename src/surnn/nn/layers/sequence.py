"""The time axis: directions, lengths, and gates spread over units."""

import torch
from torch import Tensor

from surnn.scan.contract import step_mask

from ..gates import Gate, Schedule


def spread_gates(schedule: Schedule, heads: int, head_size: int) -> tuple[Tensor, Tensor | None]:
    """A schedule [T, b, width] as gates [T, b, N, 1], or [T, b, N, D] if finer than heads.

    The second result says where the gate's gradient is needed, [T, b, N]; None is everywhere.
    """
    g, relevant = schedule
    if not head_size:  # no units, no gates
        return g.new_ones(*g.shape[:2], heads, 1), None
    share = heads * head_size // g.shape[-1]
    if not finer_than_heads(g.shape[-1], heads, head_size):
        repeat = share // head_size
        relevant = None if relevant is None else _repeat(relevant, repeat)
        return _repeat(g, repeat).unsqueeze(-1), relevant
    if relevant is not None:
        relevant = _repeat(relevant, share).unflatten(-1, (heads, head_size)).any(-1)
    return _repeat(g, share).unflatten(-1, (heads, head_size)), relevant


def finer_than_heads(width: int, heads: int, head_size: int) -> bool:
    """Whether ``width`` gates divide some head, so that its units have several gates."""
    return (heads * head_size // width) % head_size != 0


def is_learned(gate: Gate) -> bool:
    """Whether a gradient may be asked of ``gate``: by its parameters, or by an input it sees.

    It does not depend on the grad mode, so that training and evaluation run on one backend.
    """
    if gate.frozen:
        return False
    return gate.sees_input or any(parameter.requires_grad for parameter in gate.parameters())


def _repeat(g: Tensor, times: int) -> Tensor:
    """Each entry of the last dimension ``times`` times over."""
    return g if times == 1 else g.unsqueeze(-1).expand(*g.shape, times).flatten(-2)


def mean_rate(g: Tensor, lengths: Tensor | None) -> Tensor:
    """Share of open gates over the steps that exist, summed in at least float32."""
    g = g.to(torch.promote_types(g.dtype, torch.float32))
    if g.numel() == 0:  # no sequences
        return g.sum()
    if lengths is None:
        return g.mean()
    alive = step_mask(g.shape[0], lengths).to(g.dtype)
    return (g.mean(-1) * alive).sum() / alive.sum()


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [T, B, ...] backwards in time, each sequence within its length; padding stays in place."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    place = torch.where(t < lengths, lengths - 1 - t, t)
    return x.gather(0, place.unsqueeze(-1).expand_as(x))


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype to which autocast would cast x, or None if it would not."""
    kind = x.device.type
    if x.dtype == torch.float64 or kind == "meta":  # there is no autocast for meta tensors
        return None
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def merge_heads(y: Tensor) -> Tensor:
    """[T, B, N, D] to [T, B, N * D], without a copy.

    The result is no view for autograd, which forbids changing views of an operator's outputs in
    place. Nothing else holds y, so that ``y += x`` is as safe as for the output of ``nn.GRU``.
    """
    return torch.ops.aten._unsafe_view(y.contiguous(), [*y.shape[:2], y.shape[2] * y.shape[3]])
