"""The state that a stream carries from one call to the next."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

MAX_CLOCK = 1 << 50
"""The last time step that a stream can reach: past it, phases in float64 lose their fractions. At
a million steps a second it is 35 years away."""
CLOCK_DIGITS = 7
"""Columns of a packed state that hold the clock, enough for 2^56 time steps."""
_BASE = 256  # a digit is a whole number that every floating dtype holds exactly


class SuState(NamedTuple):
    """The state of a layer between two steps of a stream: hidden values *and* the clock.

    A plain tuple of tensors, which can be saved, compiled and exported. ``torch.load`` reads it
    once ``surnn.SuState`` has been imported. ``state[0]`` is the first field, as of any tuple;
    :meth:`select` takes sequences.

    Example:
        >>> import surnn
        >>> layer = surnn.SuGRU(4, 8)
        >>> state = layer.init_state(batch_size=2)
        >>> y, state = layer.step(torch.randn(2, 4), state)
        >>> isinstance(state, surnn.SuState)
        True
        >>> state.t.item(), state.reset(torch.tensor([True, False])).t.tolist()
        (1, [0, 1])
    """

    cell: Tensor
    """[layers, components, B, H] (GRU and RNN: h; LSTM: h, c; spiking: s, u, b)."""
    t: Tensor
    """int64 number of steps taken, 0 to 2^50: a scalar, or [B] if streams started at different
    times. Other integers are converted."""
    gates: tuple[Tensor, ...]
    """Memory of each layer's gate, [B, M]; M is 0 for gates without any."""

    def detach(self) -> "SuState":
        """A copy without its graph, for truncated back-propagation."""
        return SuState(self.cell.detach(), self.t, tuple(m.detach() for m in self.gates))

    def to(self, device: torch.device | str) -> "SuState":
        """A copy on another device."""
        moved = tuple(memory.to(device) for memory in self.gates)
        return SuState(self.cell.to(device), self.t.to(device), moved)

    def reset(self, done: Tensor) -> "SuState":
        """A copy in which the sequences where ``done`` [B] is true restart.

        Their hidden values, their clock and the memory of their gates are zero. The host does
        not wait for the GPU: no size depends on how many sequences are done.
        """
        if done.shape != self.cell.shape[2:3]:
            raise ValueError(
                f"done must be [{self.cell.shape[2]}], one entry for each sequence, got "
                f"{list(done.shape)}"
            )
        done = done.to(device=self.cell.device, dtype=torch.bool)
        row = done.unsqueeze(-1)
        gates = tuple(torch.where(row, torch.zeros_like(m), m) for m in self.gates)
        zero = torch.zeros_like(self.cell)
        return SuState(torch.where(row, zero, self.cell), self.t.masked_fill(done, 0), gates)

    def select(self, index: int | slice | Sequence[int] | Tensor) -> "SuState":
        """The state of some sequences: a number, a slice, numbers or a mask [B]."""
        index = slice(index, index + 1 or None) if isinstance(index, int) else index
        t = self.t if self.t.dim() == 0 else self.t[index]
        return SuState(self.cell[:, :, index], t, tuple(m[index] for m in self.gates))

    @staticmethod
    def cat(states: "Sequence[SuState]") -> "SuState":
        """The sequences of several states, one after the other."""
        first, *others = states
        t = first.t
        if any(other.t is not t for other in others) or t.dim():
            t = torch.cat([state.t.expand(state.cell.shape[2]) for state in states])
        gates = zip(*(state.gates for state in states), strict=True)
        cell = torch.cat([state.cell for state in states], 2)
        return SuState(cell, t, tuple(torch.cat(memory) for memory in gates))

    def pack(self) -> Tensor:
        """The whole state as one plain tensor [layers, B, W] that a layer takes as ``hx``.

        A row holds the components of a layer's state side by side, then the clock as digits, then
        the memory of its gate. The layer returns a packed state for a packed state. It may be
        stored in any buffer or NumPy array, sliced and stacked over sequences, and multiplied by
        ``1 - done``: a row of zeros is the start of a sequence. Zeros of
        ``layer.packed_shape(B)`` start all of them.
        """
        layers, _, batch, _ = self.cell.shape
        width = max((m.shape[-1] for m in self.gates), default=0)
        kind = self.cell.dtype
        for memory in self.gates:
            kind = torch.promote_types(kind, memory.dtype) if memory.shape[-1] else kind
        padded = [torch.nn.functional.pad(m, (0, width - m.shape[-1])) for m in self.gates]
        powers = torch.tensor([_BASE**i for i in range(CLOCK_DIGITS)], device=self.t.device)
        digits = self.t.expand(batch).unsqueeze(-1) // powers % _BASE
        columns = [self.cell.transpose(1, 2).flatten(2).to(kind)]
        columns.append(digits.to(kind).expand(layers, batch, CLOCK_DIGITS))
        if width:
            columns.append(torch.stack(padded).to(kind))
        return torch.cat(columns, -1)

    @staticmethod
    def unpack(packed: Tensor, like: "SuState") -> "SuState":
        """The inverse of :meth:`pack`, for a state of the sizes and dtypes of ``like``."""
        _, parts, _, width = like.cell.shape
        values, digits, memory = packed.split_with_sizes(
            [parts * width, CLOCK_DIGITS, packed.shape[-1] - parts * width - CLOCK_DIGITS], -1
        )
        powers = torch.tensor([_BASE**i for i in range(CLOCK_DIGITS)], device=packed.device)
        t = (digits[0].round().long() * powers).sum(-1)
        cell = values.unflatten(-1, (parts, width)).transpose(1, 2).to(like.cell.dtype)
        gates = tuple(
            memory[i, :, : own.shape[-1]].to(own.dtype) for i, own in enumerate(like.gates)
        )
        return SuState(cell, t, gates)

    def __repr__(self) -> str:
        layers, parts, batch, width = self.cell.shape
        if self.t.is_meta or self.t.numel() > 8:
            steps = f"{list(self.t.shape)} clocks"
        else:
            steps = str(self.t.tolist())
        memory = [m.shape[-1] for m in self.gates]
        return (
            f"SuState(t={steps}, cell: {layers} layers x {parts} components x {batch} sequences x "
            f"{width} units, {self.cell.dtype} on {self.cell.device}, gate memory: {memory})"
        )


# Version 0.1.0 saved states under the name of its module then, surnn.state.
torch.serialization.add_safe_globals([SuState, (SuState, "surnn.state.SuState")])
