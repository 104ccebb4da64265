"""The bias that gives a gate its initial rate."""

from torch import Tensor

from ..runtime import has_float64


def bias_for_rate(a: Tensor, rate: float) -> Tensor:
    """The offset [width] per gate that leaves a share ``rate`` of a [T, width] above 0.

    It lies halfway between the two values around the cut, so that rounding does not move it.
    """
    a = a if has_float64(a.device) else a.cpu()
    steps = a.shape[0]
    open_steps = round(rate * steps)
    columns = a.double().t().contiguous()
    edge = 1.0  # all open, or all closed: a clear margin beyond the last value

    def ranked(place: int) -> Tensor:
        """The value at this place from the top, counted from 1."""
        if place == 0:
            return columns.amax(1) + edge
        if place > steps:
            return columns.amin(1) - edge
        return columns.kthvalue(steps + 1 - place).values

    return -(ranked(open_steps) + ranked(open_steps + 1)) / 2
