"""The interface of a cell, the function that an update applies.

A cell is a *pointwise* function of a unit's inputs: its drive (the input projection), its
recurrent input (the head's own output through the recurrent matrix) and its own state. All
matrix products stay outside, so that a backend can order them freely.

Shapes (trailing dimensions; any number of leading ones):

=======  ================================  ==========================================
name     shape                             meaning
=======  ================================  ==========================================
drive    ``[..., S, D]``                   input projection, S per unit (GRU: r, z, n)
rec      ``[..., S, D]``                   recurrent product of component 0 of the state
state    ``[..., C, D]``                   C numbers per unit; component 0 is the output
unit     P tensors, broadcast ``[..., D]`` parameters of the unit itself (GRU: b_hn)
=======  ================================  ==========================================
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from torch import Tensor


class Linearization(NamedTuple):
    """The derivatives of :meth:`Cell.update`, all pointwise.

    ``wrt_rec`` is None where drive and recurrent input are simply added, and then equals
    ``wrt_drive``. Entry ``[..., c, s, :]`` is the derivative of new component c by input s.
    """

    wrt_drive: Tensor  # [..., C, S, D]
    wrt_rec: Tensor | None  # [..., C, S, D]
    wrt_state: Tensor  # [..., C, C, D]
    wrt_unit: Tensor | None  # [..., C, P, D]


class Cell(ABC):
    """A recurrent update, without parameters and without time.

    Subclasses set the class attributes and write :meth:`update` and its derivatives,
    :meth:`linearize`. See ``CONTRIBUTING.md`` for a worked example.
    """

    name: str
    """How operators and errors refer to the cell; unique."""
    drives: ClassVar[int]
    """S: inputs per unit."""
    components: ClassVar[tuple[str, ...]]
    """Names of the C state components; the first is the output."""
    unit_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the P per-unit parameters that :meth:`update` reads."""

    @abstractmethod
    def update(self, drive: Tensor, rec: Tensor, state: Tensor, unit: Sequence[Tensor]) -> Tensor:
        """The proposal f: the new state ``[..., C, D]`` if the unit updates."""

    @abstractmethod
    def linearize(
        self, drive: Tensor, rec: Tensor, state: Tensor, unit: Sequence[Tensor]
    ) -> Linearization:
        """The derivatives of :meth:`update` at the same arguments."""

    def __repr__(self) -> str:
        return f"<cell {self.name}>"
