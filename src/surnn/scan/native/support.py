"""Which scans the C code can run, and its constants for each cell."""

import torch

from surnn.nn.cells.base import Cell
from surnn.nn.cells.gru import GRU
from surnn.nn.cells.lstm import LSTM
from surnn.nn.cells.rnn import RNNRelu, RNNTanh
from surnn.nn.cells.spiking import ALIF, LIF

from ..contract import ScanTraits
from .library import scan_library

# By number, as in csrc/kernels.h. Registered variants of the spiking cells are instances of these.
CELLS: tuple[type[Cell], ...] = (RNNTanh, RNNRelu, GRU, LSTM, LIF, ALIF)
SAVED = (2, 2, 5, 6, 3, 4)
"""Numbers saved for each update, by cell: activations and the new output."""
SLACK = 16
"""Floats past the end of the saved numbers that vectors may read."""
SURROGATES = ("sigmoid", "triangle", "rectangle", "arctan")

_HAS_LIBRARY = scan_library() is not None  # looked up once: compilers cannot trace the search


def is_available() -> bool:
    """Whether the C library is installed, with the scan."""
    return _HAS_LIBRARY


def cell_number(cell: Cell) -> int:
    """The cell's number in the C library."""
    return CELLS.index(type(cell))


def unsupported(traits: ScanTraits) -> str | None:
    """Why this backend cannot run such a scan, or None."""
    if type(traits.cell) not in CELLS:
        return f"its C code has no cell {traits.cell.name!r}"
    if traits.device.type not in ("cpu", "meta"):
        return f"it runs on a CPU and x is on {traits.device}"
    if traits.state_dtype != torch.float32 or traits.dtype == torch.float64:
        wrong = traits.dtype if traits.state_dtype == torch.float32 else traits.state_dtype
        return f"its states are float32, not {str(wrong).removeprefix('torch.')}"
    return None
