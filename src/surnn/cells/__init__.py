"""Cells: what an update is. Each is a pointwise function; see :mod:`surnn.cells.base`."""

from .base import Cell as Cell
from .base import Linearization as Linearization
from .gru import GRU
from .lstm import LSTM
from .rnn import RNNRelu, RNNTanh
from .spiking import ALIF, LIF

CELLS: dict[str, Cell] = {}


def register_cell(cell: Cell) -> Cell:
    """Make ``cell`` known by its name, which is how the compiled operators refer to it."""
    if cell.name in CELLS:
        raise ValueError(f"a cell named {cell.name!r} is registered already; pick another name")
    CELLS[cell.name] = cell
    return cell


def get_cell(name: str) -> Cell:
    """The cell registered under ``name``."""
    try:
        return CELLS[name]
    except KeyError:
        raise ValueError(f"unknown cell {name!r}; known: {', '.join(sorted(CELLS))}") from None


for _cell in (RNNTanh(), RNNRelu(), GRU(), LSTM(), LIF(), ALIF()):
    register_cell(_cell)
