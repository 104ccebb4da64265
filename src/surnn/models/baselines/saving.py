"""Published ways to save work in a GRU: DeltaGRU, which multiplies only what has changed, and
Skip-RNN, which skips whole time steps.

Both run here as plain loops over time. They compute what the methods define and count the work that
an implementation would need; they do not save time themselves.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from surnn.nn.layers.weights import orthogonal
from surnn.scan.contract import step_mask

from ..base import Mixer, select_state


class SavingMixer(Mixer):
    """Base of GRUs that do only part of their work at a time step.

    Args:
        features: size of the input.
        width: units.
        budget: weight in the loss of what the layer should have little of; see subclasses.
    """

    outputs_state = True

    def __init__(self, features: int, width: int, budget: float) -> None:
        super().__init__()
        self.width, self.budget = width, budget
        bound = (3 / features) ** 0.5
        self.weight_ih = nn.Parameter(torch.empty(3 * width, features).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(orthogonal(3, width).reshape(3 * width, width).clone())
        self.bias_ih = nn.Parameter(torch.zeros(3 * width))
        self.bias_hh = nn.Parameter(torch.zeros(3 * width))
        with torch.no_grad():  # as in the other recurrent layers, z starts near 1 and retains
            self.bias_ih[width : 2 * width] = 1.0
        self.work: Tensor | None = None
        """[B, T]: the share of the layer's multiply-accumulates that each time step of the last
        forward pass needed."""
        self.cost: Tensor | None = None
        """What ``budget`` weighs, in the last forward pass."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.run(x, self.init_state(len(x)), lengths)[0]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.run(x.unsqueeze(1), state)
        return y[:, 0], state

    def _count(self, work: Tensor, cost: Tensor, lengths: Tensor | None) -> None:
        """Store the work, and the mean of ``cost``; both are [T, B]."""
        self.work = work.detach().t()
        if lengths is None:
            self.cost = cost.mean()
        else:
            inside = step_mask(len(cost), lengths)
            self.cost = (cost * inside).sum() / inside.sum()


def budget_loss(model: nn.Module) -> Tensor | None:
    """The weighted costs of all layers in their last forward pass, summed; None if none has any."""
    terms = [
        layer.budget * layer.cost
        for layer in model.modules()
        if isinstance(layer, SavingMixer) and layer.budget and layer.cost is not None
    ]
    return torch.stack(terms).sum() if terms else None


def _last(parts: Tensor, lengths: Tensor | None) -> Tensor:
    """The element [B, ...] of parts [T, B, ...] at each sequence's last time step."""
    if lengths is None:
        return parts[-1]
    return parts[lengths - 1, torch.arange(parts.shape[1], device=parts.device)]


# ---------------------------------------------------------------------------- DeltaGRU


class DeltaState(NamedTuple):
    """The state of a DeltaGRU between time steps."""

    h: Tensor
    """[B, H]"""
    h_seen: Tensor
    """[B, H] the state that the products contain."""
    x_seen: Tensor
    """[B, I] the input that the products contain."""


@select_state.register
def _(state: DeltaState, rows: Tensor) -> DeltaState:
    return DeltaState(*(part[rows] for part in state))


class DeltaGRU(SavingMixer):
    """A GRU that multiplies only those changes of its input and state that exceed a threshold Θ.

    Neil et al., Delta Networks, 2017; Gao et al., DeltaRNN, 2018. An element of x is read as x̂,
    the value at its last change: x̂_t = x_t where abs(x_t - x̂_{t-1}) > Θ, else x̂_{t-1}. The same
    for h. An implementation holds W x̂ and adds the columns of W whose element has changed; the sums
    are W x̂ and U ĥ, which is what this layer computes, in the equations of ``nn.GRU``; the carried
    state in (1 - z) n + z h is h itself. The threshold acts in training too; gradients pass
    straight through it, as if x̂ were x. With Θ = 0 this is a GRU.

    The work of a time step is the share of columns that changed, columns of W and of U together.

    Args:
        features: size of the input.
        width: units.
        threshold: Θ, for inputs and states.
        budget: weight in the loss of the mean of abs(h_t - h_{t-1}): an L1 cost that makes changes
            rarer.
    """

    def __init__(
        self, features: int, width: int, threshold: float = 0.1, budget: float = 0.0
    ) -> None:
        super().__init__(features, width, budget)
        self.threshold = threshold

    def init_state(self, batch: int) -> DeltaState:
        like, features = self.weight_hh, self.weight_ih.shape[1]
        sizes = (self.width, self.width, features)
        return DeltaState(*(like.new_zeros(batch, size) for size in sizes))

    def run(
        self, x: Tensor, state: DeltaState, lengths: Tensor | None = None
    ) -> tuple[Tensor, DeltaState]:
        with torch.autocast(x.device.type, enabled=False):
            inputs = x.transpose(0, 1).to(self.weight_hh.dtype)
            x_seen = HeldInput.apply(inputs, state.x_seen, self.threshold)
            drive = functional.linear(x_seen, self.weight_ih, self.bias_ih)  # type: ignore[arg-type]
            y, h_seen = DeltaScan.apply(
                drive, self.weight_hh, self.bias_hh, state.h, state.h_seen, self.threshold
            )  # type: ignore[misc]
        changes = (_changed(x_seen, state.x_seen), _changed(h_seen, state.h_seen))  # type: ignore[arg-type]
        work = torch.cat(changes, -1).to(y.dtype).mean(-1)
        before = torch.cat((state.h.unsqueeze(0), y[:-1]))
        self._count(work, (y - before).abs().mean(-1), lengths)
        after = DeltaState(*(_last(part, lengths) for part in (y, h_seen, x_seen)))  # type: ignore[arg-type]
        return y.transpose(0, 1).to(x.dtype), after

    def state_names(self, first: int) -> tuple[str, ...]:
        return tuple(f"{part}_{first}" for part in DeltaState._fields)

    def split_state(self, state: DeltaState) -> list[Tensor]:
        return list(state)

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> DeltaState:
        return DeltaState(*tensors)


def _changed(seen: Tensor, first: Tensor) -> Tensor:
    """[T, B, n]: where values were taken again."""
    return seen != torch.cat((first.unsqueeze(0), seen[:-1]))


class HeldInput(torch.autograd.Function):
    """x̂ of all time steps of x [T, B, I], from x̂_0; its gradient is that of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: Tensor, threshold: float) -> Tensor:
        values = []
        for now in x:
            seen = torch.where((now - seen).abs() > threshold, now, seen)
            values.append(seen)
        return torch.stack(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0], None, None


class DeltaScan(torch.autograd.Function):
    """h and ĥ [T, B, H] of a DeltaGRU, from drives W x̂ + b [T, B, 3H]; the gradient of ĥ passes
    to h."""

    @staticmethod
    def forward(
        ctx: Any, drive: Tensor, weight: Tensor, bias: Tensor, h: Tensor, seen: Tensor,
        threshold: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        first, kept = h, []
        width = h.shape[1]
        for now in drive:
            seen = torch.where((h - seen).abs() > threshold, h, seen)
            rec = torch.addmm(bias, seen, weight.t())
            gates = torch.sigmoid(now[:, : 2 * width] + rec[:, : 2 * width])
            r, z = gates.chunk(2, -1)
            rec_n = rec[:, 2 * width :]
            n = torch.tanh(torch.addcmul(now[:, 2 * width :], r, rec_n))
            h = torch.lerp(n, h, z)
            kept.append((h, seen, gates, n, rec_n))
        y, h_seen, *rest = (torch.stack(part) for part in zip(*kept, strict=True))
        ctx.save_for_backward(weight, first, y, h_seen, *rest)
        ctx.mark_non_differentiable(h_seen)
        return y, h_seen

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor | None, ...]:
        weight, first, y, h_seen, gates, n, rec_n = ctx.saved_tensors
        width = n.shape[-1]
        r, z = gates.chunk(2, -1)
        before = torch.cat((first.unsqueeze(0), y[:-1]))
        of_n = (1 - z) * (1 - n * n)  # dL/dh to the argument of tanh, and on to those of r and z
        slopes = torch.cat((of_n * rec_n * r * (1 - r), (before - n) * z * (1 - z)), -1)
        slopes_n = torch.cat((of_n * r, of_n), -1)
        back_rz, back_n = torch.empty_like(slopes), torch.empty_like(slopes_n)
        dh = torch.zeros_like(first)
        own, recurrent = weight[: 2 * width], weight[2 * width :]
        for t in range(len(y) - 1, -1, -1):
            dh = dh + grads[0][t]
            twice = torch.cat((dh, dh), -1)
            torch.mul(twice, slopes[t], out=back_rz[t])
            torch.mul(twice, slopes_n[t], out=back_n[t])
            dh = torch.addmm(dh * z[t], back_rz[t], own)
            dh = torch.addmm(dh, back_n[t][:, :width], recurrent)
        into_rec = torch.cat((back_rz, back_n[..., :width]), -1).flatten(0, 1)
        into_drive = torch.cat((back_rz, back_n[..., width:]), -1)
        d_weight = into_rec.t() @ h_seen.flatten(0, 1)
        return into_drive, d_weight, into_rec.sum(0), dh, None, None


# ---------------------------------------------------------------------------- Skip-RNN


class SkipState(NamedTuple):
    """The state of a SkipGRU between time steps."""

    h: Tensor
    """[B, H]"""
    due: Tensor
    """[B, 1]: 1 minus the accumulated probability of an update, so that it starts as zeros."""


@select_state.register
def _(state: SkipState, rows: Tensor) -> SkipState:
    return SkipState(*(part[rows] for part in state))


class SkipGRU(SavingMixer):
    """A GRU that updates its whole state or skips the time step (Campos et al., Skip RNN, 2018).

    With the accumulated probability ũ, ũ_1 = 1::

        u_t = round(ũ_t)
        h_t = u_t GRU(h_{t-1}, x_t) + (1 - u_t) h_{t-1}
        Δũ_t = σ(w h_t + b)
        ũ_{t+1} = u_t Δũ_t + (1 - u_t) (ũ_t + min(Δũ_t, 1 - ũ_t))

    The gradient passes straight through the rounding; b starts as 1. When a layer skips a time step
    it does not look at the input: it decides at each update how long to sleep. (In the paper the
    layers of a stack share one switch, read from the last; here each has its own.)

    The work of a time step is 1 or 0; Δũ changes only with h.

    Args:
        features: size of the input.
        width: units.
        budget: λ, the weight in the loss of the share of updates.
    """

    def __init__(self, features: int, width: int, budget: float = 0.0) -> None:
        super().__init__(features, width, budget)
        self.weight_u = nn.Parameter(torch.empty(1, width).uniform_(-1, 1) * width**-0.5)
        self.bias_u = nn.Parameter(torch.ones(1))

    def init_state(self, batch: int) -> SkipState:
        like = self.weight_hh
        return SkipState(*(like.new_zeros(batch, size) for size in (self.width, 1)))

    def run(
        self, x: Tensor, state: SkipState, lengths: Tensor | None = None
    ) -> tuple[Tensor, SkipState]:
        with torch.autocast(x.device.type, enabled=False):
            inputs = x.transpose(0, 1).to(self.weight_hh.dtype)
            drive = functional.linear(inputs, self.weight_ih, self.bias_ih)
            kept = self._run(drive, state)
        y, updates, due = (torch.stack(part) for part in zip(*kept, strict=True))
        self._count(updates[..., 0], updates[..., 0], lengths)
        after = SkipState(*(_last(part, lengths) for part in (y, due)))
        return y.transpose(0, 1).to(x.dtype), after

    def _run(self, drive: Tensor, state: SkipState) -> list[tuple[Tensor, ...]]:
        h, due = state
        width, kept = self.width, []
        weight = self.weight_hh.t()
        for now in drive:
            probability = 1 - due
            update: Tensor = Rounded.apply(probability)  # type: ignore[assignment]
            rec = torch.addmm(self.bias_hh, h, weight)
            r, z = torch.sigmoid(now[:, : 2 * width] + rec[:, : 2 * width]).chunk(2, -1)
            n = torch.tanh(torch.addcmul(now[:, 2 * width :], r, rec[:, 2 * width :]))
            h = torch.lerp(h, torch.lerp(n, h, z), update)
            gain = torch.sigmoid(functional.linear(h, self.weight_u, self.bias_u))
            grown = probability + torch.minimum(gain, due)
            due = 1 - torch.lerp(grown, gain, update)
            kept.append((h, update, due))
        return kept

    def state_names(self, first: int) -> tuple[str, ...]:
        return tuple(f"{part}_{first}" for part in SkipState._fields)

    def split_state(self, state: SkipState) -> list[Tensor]:
        return list(state)

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> SkipState:
        return SkipState(*tensors)


class Rounded(torch.autograd.Function):
    """0 or 1, from 1/2 on; the gradient passes straight through."""

    @staticmethod
    def forward(ctx: Any, probability: Tensor) -> Tensor:
        return (probability >= 0.5).to(probability.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]
