"""Cells: the pointwise functions that an update applies. See :mod:`surnn.nn.cells.base`."""

from functools import lru_cache
from importlib import metadata

from .base import Cell as Cell
from .base import Linearization as Linearization
from .gru import GRU
from .lstm import LSTM
from .rnn import RNNRelu, RNNTanh
from .spiking import ALIF, LIF

CELLS: dict[str, Cell] = {}


def register_cell(cell: Cell) -> Cell:
    """Register ``cell`` under its name, by which layers and operators refer to it.

    Example:
        >>> import surnn, torch
        >>> from surnn.nn.cells import CELLS, RNNTanh
        >>> class Half(RNNTanh):
        ...     name = "half_example"
        ...
        ...     def update(self, drive, rec, state, unit):
        ...         return 0.5 * super().update(drive, rec, state, unit)
        >>> cell = surnn.register_cell(Half())
        >>> layer = surnn.SelectiveLayer(3, 8, cell="half_example")
        >>> layer(torch.zeros(5, 1, 3))[0].shape
        torch.Size([5, 1, 8])
        >>> del CELLS["half_example"]

    Raises:
        ValueError: another cell has this name.
    """
    if cell.name in CELLS:
        raise ValueError(f"a cell named {cell.name!r} is registered already; pick another name")
    CELLS[cell.name] = cell
    return cell


@lru_cache(maxsize=1)
def load_cells() -> None:
    """Register the cells of installed packages: entry points ``surnn.cells``."""
    for entry in metadata.entry_points(group="surnn.cells"):
        cell = entry.load()
        if cell.name not in CELLS:  # importing its module may have registered it
            register_cell(cell)


def get_cell(name: str) -> Cell:
    """The cell registered under ``name``, or brought by an installed package."""
    if name not in CELLS:
        load_cells()
    try:
        return CELLS[name]
    except KeyError:
        raise ValueError(f"unknown cell {name!r}; known: {', '.join(sorted(CELLS))}") from None


for _cell in (RNNTanh(), RNNRelu(), GRU(), LSTM(), LIF(), ALIF()):
    register_cell(_cell)
