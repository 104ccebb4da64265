"""Hidden states that hold their clock: see :mod:`surnn.nn.clocked.tensor`."""

from .tensor import Clock as Clock
from .tensor import ClockedTensor as ClockedTensor
from .tensor import clock_of as clock_of
from .tensor import with_clock as with_clock
