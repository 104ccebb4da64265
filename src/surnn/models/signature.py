"""The inputs and the output of a model."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tokens:
    """Inputs are integers [B, T] below ``vocabulary``."""

    vocabulary: int


@dataclass(frozen=True)
class Values:
    """Inputs are floats [B, T, features]."""

    features: int
    scaled: bool = False
    """The model standardises the features, by means and deviations that it holds."""


@dataclass(frozen=True)
class Output:
    """A model predicts ``size`` numbers for each sequence, or at each time step."""

    size: int
    per: Literal["sequence", "step"]
    pairs: bool = False
    """A sample is two documents: inputs are [B, 2, T], and the model compares their encodings."""
    scaled: bool = False
    """The model predicts in raw units, by means and deviations that it holds."""
