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

    Example:
        The derivatives of a GRU cell at zero: one state component, three drives, four units.

        >>> import surnn
        >>> from torch import zeros
        >>> from surnn.nn.cells import get_cell
        >>> slopes = get_cell("gru").linearize(
        ...     zeros(3, 4), zeros(3, 4), zeros(1, 4), (zeros(4),)
        ... )
        >>> isinstance(slopes, surnn.Linearization)
        True
        >>> slopes.wrt_drive.shape, slopes.wrt_state.shape
        (torch.Size([1, 3, 4]), torch.Size([1, 1, 4]))
    """

    wrt_drive: Tensor  # [..., C, S, D]
    wrt_rec: Tensor | None  # [..., C, S, D]
    wrt_state: Tensor  # [..., C, C, D]
    wrt_unit: Tensor | None  # [..., C, P, D]


class Cell(ABC):
    """A recurrent update, without parameters and without time.

    Subclasses set the class attributes and write :meth:`update` and its derivatives,
    :meth:`linearize`. :func:`surnn.register_cell` then makes the cell known by its name.

    Example:
        A leaky unit, as a cell of your own:

        >>> import surnn, torch
        >>> class Leaky(surnn.Cell):
        ...     name, drives, components = "leaky_example", 1, ("h",)
        ...
        ...     def update(self, drive, rec, state, unit):
        ...         return 0.9 * state + 0.1 * torch.tanh(drive + rec)
        ...
        ...     def linearize(self, drive, rec, state, unit):
        ...         slope = 0.1 * (1 - torch.tanh(drive + rec) ** 2)
        ...         keep = torch.full_like(state, 0.9)
        ...         return surnn.Linearization(slope.unsqueeze(-3), None, keep.unsqueeze(-3), None)
        >>> Leaky().update(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2), ())
        tensor([[0.9000, 0.9000]])
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
