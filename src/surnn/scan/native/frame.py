"""One time step in C, without gradients: for streams."""

from typing import Any

from torch import Tensor

from surnn.nn.cells.base import Cell
from surnn.nn.cells.gru import GRU
from surnn.nn.cells.lstm import LSTM
from surnn.nn.cells.rnn import RNNRelu, RNNTanh

from .library import Frame, scan_library
from .support import CELLS, is_available

__all__ = ["Frame", "are_equal", "run_frame", "step_number"]

_STEPPED = (RNNTanh, RNNRelu, GRU, LSTM)
_NUMBERS: dict[type[Cell], int] = {
    cell: number for number, cell in enumerate(CELLS) if cell in _STEPPED
}


def step_number(cell: Cell) -> int | None:
    """The cell's number in ``surnn_frame``; None if C cannot step it here."""
    return _NUMBERS.get(type(cell)) if is_available() else None


def run_frame(frame: Any) -> None:
    """Call ``surnn_scan_step`` with a pointer to a :class:`Frame`."""
    if _library().surnn_scan_step(frame):
        raise MemoryError("no memory for a time step of the native scan")


def are_equal(a: Tensor, b: Tensor) -> bool:
    """Whether two contiguous tensors of one shape and dtype in the CPU's memory hold the same bits.

    It is faster than ``torch.equal``.
    """
    return bool(_library().surnn_scan_equal(a.data_ptr(), b.data_ptr(), a.nbytes))


def _library() -> Any:
    library = scan_library()
    assert library is not None, "step_number checks that the library is there"
    return library
