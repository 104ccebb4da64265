"""``h_n`` with a clock: the hidden state that ordinary loops carry from call to call.

Code written for ``nn.GRU`` runs a stream by ``y, h = layer(x, h)``. A clock gate needs the time
step as well as ``h``, and a gate with a memory needs that memory. Without them every call would
start at time step 1, and the result would silently differ from that of one pass. So a layer with
such gates returns ``h_n`` as a :class:`ClockedTensor`.

Why a subclass of ``Tensor``: a wider tensor or a tuple would break ``h_n[-1]`` and every readout
of it, and a plain tensor looks like an initial state. Why it refuses rather than warns:
a lost clock gives plausible numbers, and a warning is lost in a log.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surnn.errors import ClockError


class ClockedTensor(Tensor):
    """A hidden state together with its clock (the number of time steps) and its gates' memory.

    Passed to a layer as ``hx``, it continues its sequence. The clock stays with it through
    ``detach``, ``clone``, ``to``, ``copy.deepcopy``, ``torch.save``, indexing, ``cat``, ``stack``,
    ``transpose`` and other moves of whole sequences. A sequence whose state is set to zero
    (``h * (1 - done)``, ``torch.where``, ``h[:, done] = 0``) starts at time step 1 again, as does a
    plain tensor that is joined to it.

    An operation that would lose the clock leads to an error, never to a silent restart: arithmetic
    gives a tensor that a layer refuses as ``hx``, and the conversion to NumPy or storage in a plain
    buffer raises. ``h_n[-1]``, results of another shape and :meth:`plain` are plain
    tensors.

    Example:
        >>> import surnn
        >>> y, h = surnn.SuGRU(4, 8)(torch.randn(10, 2, 4))
        >>> isinstance(h, surnn.ClockedTensor)
        True
        >>> h.shape, type(h.detach()).__name__, type(h.plain()).__name__
        (torch.Size([1, 2, 8]), 'ClockedTensor', 'Tensor')
    """

    _t: Tensor | None
    """int64 time steps taken: a scalar, or one for each row, of shape ``self.shape[:-1]``."""
    _memory: Tensor | None
    """[*self.shape[:-1], M]: memory of the gates, or None if they have none."""
    _lost: str
    """The operation that lost the clock, or an empty string."""
    _layers_first: bool
    """Whether dimension 0 is that of layers."""

    def plain(self) -> Tensor:
        """The values without a clock, for a readout or as the start of a new sequence."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    @property
    def clock(self) -> Tensor | None:
        """Time steps taken: a scalar, or one for each row; None if an operation lost them."""
        return self._t

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from .rules import apply  # noqa: PLC0415 (rules are about this class)

        return apply(func, args, {} if kwargs is None else kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ClockedTensor":
        values = copy.deepcopy(self.plain(), memo)
        return wrap(values, self._t, self._memory, self._lost, self._layers_first)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return _rebuild, (self.plain(), self._t, self._memory, self._lost, self._layers_first)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        clock = f"clock lost by {self._lost}" if self._lost else f"t={_clock_text(self._t)}"
        return f"ClockedTensor({self.plain()!r}, {clock})"


class Clock(NamedTuple):
    """The values with which a hidden state continues: see the fields of :class:`ClockedTensor`."""

    t: Tensor
    memory: Tensor | None


def with_clock(values: Tensor, t: Tensor, memory: Tensor | None) -> ClockedTensor:
    """``values`` [L, B, H] or [L, H] with the clock ``t``, a scalar or [L, B], and a memory."""
    return wrap(values, t, memory, "", True)


def clock_of(values: tuple[Tensor, ...]) -> Clock | None:
    """The clock of the first of ``values`` that has one; None if all are plain tensors."""
    clock = None
    for value in values:
        if not isinstance(value, ClockedTensor):
            continue
        if value._t is None:
            raise ClockError(
                f"the clock of this hidden state was lost in {value._lost}(), so the layer cannot "
                "know its time step. As the start of a new sequence, pass h.plain(). To continue "
                "the sequence, carry the state that layer.init_state(B) begins, a SuState: change "
                "its cell by state._replace(cell=...)"
            )
        clock = Clock(value._t, value._memory) if clock is None else clock
    return clock


def wrap(
    values: Tensor, t: Tensor | None, memory: Tensor | None, lost: str, layers_first: bool
) -> ClockedTensor:
    clocked = values.as_subclass(ClockedTensor)
    clocked._t, clocked._memory = t, memory
    clocked._lost, clocked._layers_first = lost, layers_first
    return clocked


def _rebuild(values: Tensor, t: Any, memory: Any, lost: str, layers_first: bool) -> ClockedTensor:
    return wrap(values, t, memory, lost, layers_first)


torch.serialization.add_safe_globals([_rebuild])


def _clock_text(t: Tensor | None) -> str:
    return "?" if t is None else str(t.tolist())
