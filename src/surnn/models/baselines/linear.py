"""A mixer without memory: a control that isolates the rest of the model."""

from collections.abc import Sequence

from torch import Tensor, nn

from ..base import Mixer


class LinearMap(Mixer):
    """A linear map at each time step. The control for convolutions and means over time steps.

    Args:
        features: size of the input.
        width: size of the output.
    """

    handles_resets = True

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(features, width)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> Tensor:
        return self.map(x)

    def init_state(self, batch: int) -> Tensor:
        """An empty tensor [B, 0]."""
        return self.map.weight.new_zeros(batch, 0)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.map(x), state

    def run(
        self, x: Tensor, state: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.map(x), state

    def state_names(self, first: int) -> tuple[str, ...]:
        return ()

    def split_state(self, state: Tensor) -> list[Tensor]:
        return []

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> Tensor:
        return t.new_zeros(t.shape[0], 0)
