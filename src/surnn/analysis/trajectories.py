"""States as curves in space: principal components, and how far they travel."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class PrincipalComponents(NamedTuple):
    """Directions in which states vary most, the strongest first."""

    mean: Float[Tensor, "H"]
    directions: Float[Tensor, "K H"]
    """Unit vectors; the largest entry of each is positive."""
    share: Float[Tensor, "K"]
    """Of the whole variance."""

    def project(self, states: Float[Tensor, "*any H"]) -> Float[Tensor, "*any K"]:
        """Coordinates of states along the directions."""
        return (states - self.mean) @ self.directions.T


def principal_components(
    states: Float[Tensor, "*any H"], components: int = 2
) -> PrincipalComponents:
    """PCA of all states together, less their mean."""
    rows = states.flatten(0, -2).double()
    mean = rows.mean(0)
    _, sizes, directions = torch.linalg.svd(rows - mean, full_matrices=False)
    directions = directions[:components]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    variance = sizes.square()
    share = variance[:components] / variance.sum().clamp(min=1e-300)
    found = mean, directions * largest.sign(), share
    return PrincipalComponents(*(part.to(states.dtype) for part in found))


def path_length(states: Float[Tensor, "B T H"]) -> float:
    """How far a sequence's state travels, the mean over sequences."""
    return states.double().diff(dim=1).norm(dim=-1).sum(1).mean().item()


class Regimes(NamedTuple):
    """How far apart the states of two stretches of time lie, and how wide they are spread."""

    radius: float
    """Mean distance of the first stretch's states from their centre."""
    distance: float
    """Between the centres of both stretches."""

    @property
    def ratio(self) -> float:
        """radius / distance: small if the stretches are told apart."""
        return self.radius / self.distance if self.distance else float("inf")


def regimes(first: Float[Tensor, "B S H"], second: Float[Tensor, "B T H"]) -> Regimes:
    """For each sequence by itself (each has other symbols in mind), then the mean."""
    centre, other = (part.double().mean(1, keepdim=True) for part in (first, second))
    radius = (first - centre).norm(dim=-1).mean()
    return Regimes(radius.item(), (centre - other).norm(dim=-1).mean().item())
