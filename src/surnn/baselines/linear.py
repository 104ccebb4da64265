"""No memory: what is left of a model is what stands around its layers."""

from torch import Tensor, nn


class LinearMap(nn.Module):
    """Each step by itself. The control of how much convolutions do, and means over steps.

    Args:
        features: size of the input.
        width: of the output.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(features, width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.map(x)

    def init_state(self, batch: int) -> Tensor:
        """Nothing, of each sequence."""
        return self.map.weight.new_zeros(batch, 0)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.map(x), state

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Some steps [B, T, features] of a stream."""
        return self.map(x), state
