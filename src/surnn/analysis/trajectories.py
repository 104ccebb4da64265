"""States as curves in space: principal components and path lengths."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class PrincipalComponents(NamedTuple):
    """Directions in which states vary most, the largest variance first."""

    mean: Float[Tensor, "H"]
    directions: Float[Tensor, "K H"]
    """Unit vectors; the largest entry of each is positive."""
    share: Float[Tensor, "K"]
    """Share of the total variance."""

    def project(self, states: Float[Tensor, "*any H"]) -> Float[Tensor, "*any K"]:
        """Coordinates of states along the directions."""
        return (states - self.mean) @ self.directions.T


def principal_components(
    states: Float[Tensor, "*any H"], components: int = 2
) -> PrincipalComponents:
    """PCA of all states together, after subtracting their mean."""
    rows = states.flatten(0, -2).double()
    mean = rows.mean(0)
    _, sizes, directions = torch.linalg.svd(rows - mean, full_matrices=False)
    directions = directions[:components]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    variance = sizes.square()
    share = variance[:components] / variance.sum().clamp(min=1e-300)
    parts = mean, directions * largest.sign(), share
    return PrincipalComponents(*(part.to(states.dtype) for part in parts))


def path_length(states: Float[Tensor, "B T H"]) -> float:
    """Length of the path of a sequence's state, the mean over sequences."""
    return states.double().diff(dim=1).norm(dim=-1).sum(1).mean().item()


class Regimes(NamedTuple):
    """Distance between the states of two periods, and their spread."""

    radius: float
    """Mean distance of the first period's states from their centre."""
    distance: float
    """Distance between the centres of both periods."""

    @property
    def ratio(self) -> float:
        """radius / distance: small if the periods are well separated."""
        return self.radius / self.distance if self.distance else float("inf")


def regimes(first: Float[Tensor, "B S H"], second: Float[Tensor, "B T H"]) -> Regimes:
    """Computed for each sequence on its own, as each holds other symbols; then the mean."""
    centre, other = (part.double().mean(1, keepdim=True) for part in (first, second))
    radius = (first - centre).norm(dim=-1).mean()
    return Regimes(radius.item(), (centre - other).norm(dim=-1).mean().item())
