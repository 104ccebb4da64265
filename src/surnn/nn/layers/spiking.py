"""``SuSNN``: recurrent layers of spiking neurons."""

from typing import Unpack

import torch
from torch import Tensor, nn

from ..cells import get_cell
from .base import SelectiveLayer
from .options import LayerOptions, document_options


@document_options
class SuSNN(SelectiveLayer):
    """Recurrent spiking layer with selective update; the output is the spikes, 0 or 1.

    On a carry step, membrane and adaptation do not change and no spike is emitted. The hidden
    state is (s, u, b): emitted spikes, membrane, adaptation; LIF has no b.

    Args:
        neuron: ``"alif"`` (adaptive threshold), ``"lif"``, or a registered spiking cell.
        tau_m: mean and standard deviation of the initial membrane time constants, in steps.
        tau_adp: the same for the adaptation.
        adaptation_always_decays: the adaptation decays at carry steps too.
        **options: see :class:`SelectiveLayer`.

    Example:
        >>> layer = SuSNN(32, 64)
        >>> spikes, _ = layer(torch.randn(100, 8, 32))
        >>> sorted(set(spikes.flatten().tolist()))
        [0.0, 1.0]
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        neuron: str = "alif",
        tau_m: tuple[float, float] = (20.0, 5.0),
        tau_adp: tuple[float, float] = (200.0, 25.0),
        adaptation_always_decays: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        self.tau = {"alpha": tau_m, "rho": tau_adp}
        self.adaptation_always_decays = adaptation_always_decays
        cell = get_cell(neuron)
        if cell.components[:2] != ("s", "u"):
            raise ValueError(f"{neuron!r} is not a spiking cell; choose 'alif' or 'lif'")
        if adaptation_always_decays and len(cell.components) == 2:
            raise ValueError(
                f"adaptation_always_decays needs a neuron with adaptation, got {neuron!r}, which "
                "has no adaptation; use neuron='alif'"
            )
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            cell=neuron, **options,
        )  # fmt: skip

    def _create_parameters(self, suffix, reads, factory):
        super()._create_parameters(suffix, reads, factory)
        if self.bias:  # a spiking unit has one bias
            delattr(self, "bias_hh" + suffix)
        for name in self.cell.unit_parameters:
            shape = torch.empty(self.state_size, **factory)
            setattr(self, f"log_tau_{name}{suffix}", nn.Parameter(shape))

    @torch.no_grad()
    def _reset_weights(self):
        super()._reset_weights()
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith("log_tau_"):
                mean, deviation = self.tau[name.split("_")[2]]
                tau = torch.randn_like(parameter) * deviation + mean
                parameter.copy_(tau.clamp(min=1.0).log())

    def _weights(self, suffix):
        weight = self._by_head(getattr(self, "weight_ih" + suffix))
        recurrent = self._by_head(getattr(self, "weight_hh" + suffix))
        bias = weight.new_zeros(weight.shape[:3])
        if self.bias:
            bias = self._by_head(getattr(self, "bias_ih" + suffix))
        unit = [self._per_step_decay(name, suffix) for name in self.cell.unit_parameters]
        return weight, bias, recurrent, torch.stack(unit)

    def _per_step_decay(self, name: str, suffix: str) -> Tensor:
        """exp(-1 / τ) [N, D]: between 0 and 1 for every learned value."""
        log_tau: Tensor = getattr(self, f"log_tau_{name}{suffix}")
        return torch.exp(-torch.exp(-log_tau)).unflatten(0, (self.heads, self.head_size))

    def _decay(self, suffix):
        rho = self._per_step_decay(self.cell.unit_parameters[-1], suffix)
        zero, one = torch.zeros_like(rho), torch.ones_like(rho)
        if len(self.cell.components) == 2:
            return torch.stack((zero, one), 1)
        return torch.stack((zero, one, rho if self.adaptation_always_decays else one), 1)
