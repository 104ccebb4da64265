"""How much of the state the one-pass form keeps over many carries, and the skip drive for it."""

import math


def retention(skip_drive: float, steps: int, z: float = 0.0) -> float:
    """Share of h that ``onepass`` keeps over ``steps`` carries: sigmoid(z + C) ** steps.

    ``z`` is the pre-activation of the update gate; the smallest one gives a lower bound.
    """
    return math.exp(-steps * math.log1p(math.exp(-(z + skip_drive))))


def skip_drive_for_retention(loss: float, steps: int, z: float = 0.0) -> float:
    """C at which ``onepass`` loses at most ``loss`` of h over ``steps`` carries.

    ``logit((1 - loss) ** (1 / steps)) - z`` in PyTorch's sign. Pass the smallest z expected.
    """
    if not 0 < loss < 1 or steps < 1:
        raise ValueError(f"need 0 < loss < 1 and steps >= 1, got {loss} and {steps}")
    log_keep = math.log1p(-loss) / steps
    return log_keep - math.log(-math.expm1(log_keep)) - z
