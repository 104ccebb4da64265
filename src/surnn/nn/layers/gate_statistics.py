"""Update rates of the last forward pass, and the penalty that training adds for them."""

from typing import Any

import torch
from torch import Tensor, nn

from ..last_pass import LastPass
from ..runtime import can_branch_on, is_transformed
from . import checks
from .sequence import mean_rate

Rates = LastPass  # the name in pickles of earlier versions
# Gates that are kept until their rate is read.
_MOST_PENDING = 1 << 20
_NO_FORWARD = "{name} needs a forward pass, and there was none yet; run the layer first"


class GateStatistics(nn.Module):
    """Statistics of a layer's gates after a forward pass."""

    gates: nn.ModuleList
    _last_rates: "tuple[Tensor | PendingRate, ...]" = ()

    @property
    def _rates(self) -> tuple[Tensor, ...]:
        """The update rate of each layer and direction in the last forward pass."""
        if not any(isinstance(rate, PendingRate) for rate in self._last_rates):
            return self._last_rates  # type: ignore[return-value]
        if torch.is_inference_mode_enabled():
            return _values(self._last_rates)
        with torch.enable_grad():  # rates have the gradient of their pass, wherever they are read
            rates = LastPass(_values(self._last_rates))
        self._last_rates = rates
        return rates

    @property
    def update_rate(self) -> Tensor:
        """Share of open gates in the last forward pass, for each layer (and direction).

        Soft gates are never closed; for them it is their mean value.
        """
        if not self._rates:  # hasattr is False then, and tools pass over it
            raise AttributeError(_NO_FORWARD.format(name="update_rate"))
        return torch.stack([rate.detach() for rate in self._rates])

    def rate_penalty(self) -> Tensor:
        """Sum over layers of |update rate - target rate| in the last forward pass.

        Differentiable; add it, times a weight, to the loss. Gates without a target add 0.
        """
        if not self._rates:
            raise RuntimeError(_NO_FORWARD.format(name="rate_penalty()"))
        pairs = zip(self.gates, self._rates, strict=True)
        penalty = torch.stack([gate.rate_penalty(rate) for gate, rate in pairs]).sum()  # type: ignore[operator]
        if self.training:
            checks.check_penalty(penalty, self.gates)
        return penalty

    def margin_penalty(self) -> Tensor:
        """Sum over layers of the mean of max(0, 1 - |a| / margin) in the last forward pass.

        It pushes pre-activations a out of the gates' ``margin`` around 0. Differentiable; add it,
        times a weight, to the loss. It needs training mode. Gates without a margin add 0.
        """
        near = [gate._near for gate in self.gates if gate.margin and not gate.frozen]
        if not self._rates or not all(near):
            raise RuntimeError(
                "margin_penalty() needs a forward pass in training mode, and the last one was not: "
                "run layer.train()(x) first"
            )
        zero = torch.zeros_like(self._rates[0].detach())
        return torch.stack([*(value for (value,) in near), zero]).sum()  # type: ignore[misc]

    def __getattr__(self, name: str) -> Any:
        if name == "update_rate":  # nn.Module would hide the property's own message
            raise AttributeError(_NO_FORWARD.format(name=name))
        return super().__getattr__(name)

    def _remember_rates(self, rates: "tuple[Tensor | PendingRate, ...]") -> None:
        """Keep the rates of this pass, unless a graph is recorded that has no place for them."""
        if not checks.is_recorded(rates[0]) or is_transformed():  # type: ignore[arg-type]
            self._last_rates = rates if torch.compiler.is_compiling() else LastPass(rates)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        # deepcopy and pickle do not support tensors with a graph. Pruning leaves such weights,
        # which its hook computes again before the next pass.
        state = super().__getstate__().items()
        return {name: v.detach() if _has_graph(v) else v for name, v in state}


class PendingRate:
    """The update rate of a pass that nobody has read yet: it is computed when it is."""

    def __init__(self, g: Tensor) -> None:
        self.g = g


def rate_of(g: Tensor, lengths: Tensor | None) -> Tensor | PendingRate:
    """The share of open gates, later if that keeps little memory and cannot change."""
    small = g.numel() <= _MOST_PENDING
    if lengths is None and small and can_branch_on(g) and not torch.jit.is_tracing():
        return PendingRate(g)
    return mean_rate(g, lengths)


def _values(rates: "tuple[Tensor | PendingRate, ...]") -> tuple[Tensor, ...]:
    return tuple(mean_rate(r.g, None) if isinstance(r, PendingRate) else r for r in rates)


def _has_graph(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_leaf
