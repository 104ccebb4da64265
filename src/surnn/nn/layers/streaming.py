"""Streams: running a layer step by step, and the state that it carries between calls."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from surnn.errors import ClockError
from surnn.scan import Backend

from ..clocked import Clock, ClockedTensor, clock_of, with_clock
from ..constants import zero_clock
from ..state import CLOCK_DIGITS, SuState
from . import checks
from .fast_step import fast_step
from .resets import check_step_reset
from .weights import RecurrentWeights

Hidden = Tensor | tuple[Tensor, ...]


class Streaming(RecurrentWeights):
    """The streaming interface of a layer, and conversions between states and hidden tensors."""

    input_size: int
    num_layers: int
    num_directions: int
    bidirectional: bool
    backend: Backend
    skip_drive: float | None
    nonfinite: str
    gates: nn.ModuleList

    def _run(
        self, x: Tensor, state: SuState, lengths: Tensor | None, backend: str
    ) -> tuple[Tensor, SuState, tuple[Any, ...]]:
        """Outputs, last state and update rates of all layers over x [T, B, I]."""
        raise NotImplementedError

    @property
    def needs_state(self) -> bool:
        """Whether a sequence in pieces needs a clock or a gate's memory in addition to h."""
        return any(gate.needs_state() for gate in self.gates)  # type: ignore[operator]

    def init_state(self, batch_size: int = 1, hx: Hidden | None = None) -> SuState:
        """The state before the first step of ``batch_size`` streams: ``hx`` or zeros, clock at 0.

        Args:
            batch_size: number of streams.
            hx: hidden state at the start, as torch's counterpart takes it. A clock that it holds
                is dropped.
        """
        self._check_streamable()
        state = self._zero_state(batch_size)
        return state if hx is None else self._with_hidden(state, hx, batched=True)

    def step(
        self, x: Tensor, state: SuState, reset: Tensor | bool | None = None
    ) -> tuple[Tensor, SuState]:
        """One step of a stream: x [B, I] to y [B, H], or [I] to [H]. ``state`` is not changed.

        Args:
            x: the frame of each stream.
            state: from :meth:`init_state` or the step before.
            reset: bool [B], or one bool for [I]: streams that restart *before* this step.
        """
        self._check_streamable()
        if not isinstance(x, Tensor) or x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"step takes one frame [B, {self.input_size}] or [{self.input_size}], got "
                f"{checks.shape_of(x)}; run a whole sequence with layer(x, state)"
            )
        batched = x.dim() == 2
        if (starts := check_step_reset(reset, x.shape[0] if batched else 1, batched)) is not None:
            self._check_state(state, starts.shape[0])  # len() would fix the size in an export
            state = state.reset(starts)
        if (done := fast_step(self, x if batched else x.unsqueeze(0), state)) is not None:  # type: ignore[arg-type]
            return (done[0] if batched else done[0][0]), done[1]
        frame = x.reshape(1, -1, self.input_size)
        if self.nonfinite == "raise":
            checks.check_finite(frame)
        self._check_state(state, frame.shape[1])
        y, new, _ = self._run(frame, state, None, "reference")
        return y[0] if batched else y[0, 0], new

    def _state_shape(self, batch: int) -> list[int]:
        layers = self.num_layers * self.num_directions
        return [layers, len(self.cell.components), batch, self.state_size]

    def _zero_state(self, batch: int, clock: Tensor | None = None) -> SuState:
        some: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        new = {"dtype": torch.int64, "device": some.device}
        return SuState(
            some.new_zeros(self._state_shape(batch)),
            torch.zeros((), **new) if clock is None else clock,
            tuple(gate.init_memory(batch) for gate in self.gates),  # type: ignore[operator]
        )

    def packed_shape(self, batch_size: int = 1) -> tuple[int, int, int]:
        """The shape of a packed state, :meth:`SuState.pack`. Zeros of this shape start streams."""
        layers, parts, batch, width = self._state_shape(batch_size)
        memory = max(gate.init_memory(1).shape[-1] for gate in self.gates)  # type: ignore[operator]
        return layers, batch, parts * width + CLOCK_DIGITS + memory

    def _state_from(self, hx: Any, x: Tensor, batched: bool) -> SuState:
        """The state at the start of x [T, B, I] that ``hx`` describes."""
        steps, batch = x.shape[:2]
        if isinstance(hx, SuState):
            self._check_streamable()
            self._check_state(hx, batch)
            return hx
        state = self._zero_state(batch, zero_clock(self.weight_ih_l0))  # type: ignore[arg-type]
        if hx is None:
            return state
        if self._is_packed(hx, batch):
            self._check_streamable()
            return SuState.unpack(hx, like=state)
        state = self._with_hidden(state, hx, batched)
        clock = self._clock_from(hx, steps)
        if clock is None:
            return state
        t = clock.t if clock.t.dim() == 0 else clock.t[0].reshape(-1)
        return state._replace(t=t, gates=self._memories_from(clock.memory, state))

    def _with_hidden(self, state: SuState, hx: Hidden, batched: bool) -> SuState:
        """``state`` with the hidden values ``hx``."""
        values = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        layers, _, batch, width = state.cell.shape
        shape = [layers, batch, width] if batched else [layers, width]
        checks.check_hidden(values, self.cell.components, shape, state.cell.dtype)
        with torch._C.DisableTorchFunctionSubclass():
            if layers > 1 and len(values) > 1:  # a gradient is a slice; its product is contiguous
                values = tuple(v * 1 if v.requires_grad else v for v in values)
            stacked = torch.stack([v if batched else v.unsqueeze(1) for v in values], 1)
        return state._replace(cell=stacked.to(state.cell.dtype))

    def _clock_from(self, hx: Hidden, steps: int) -> Clock | None:
        """The clock that a hidden state brings; None starts at time step 1."""
        if not self.needs_state:
            return None
        values = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        clock = clock_of(values)
        if clock is not None:
            self._check_streamable()
        elif not self.bidirectional:
            checks.check_start(values, steps)
        return clock

    def _memories_from(self, memory: Tensor | None, state: SuState) -> tuple[Tensor, ...]:
        """A hidden state's memory [layers, B, M] as the memories of all gates."""
        sizes = [own.shape[-1] for own in state.gates]
        if memory is None:
            if any(sizes):
                raise ClockError(
                    f"the gates of this layer have a memory of {sizes} values for each layer, and "
                    "the hidden state comes from a layer whose gates have none; start a new "
                    "sequence with h.plain()"
                )
            return state.gates
        rows = memory if memory.dim() == 3 else memory.unsqueeze(1)
        if rows.shape[-1] != max(sizes):
            raise ClockError(
                f"the gates of this layer have a memory of {sizes} values for each layer, and the "
                f"hidden state brings {rows.shape[-1]}, from another layer; start a new sequence "
                "with h.plain()"
            )
        return tuple(
            row[:, : own.shape[-1]].to(own.dtype)
            for row, own in zip(rows.unbind(0), state.gates, strict=True)
        )

    def _hidden_from(self, state: SuState, hx: Any, batched: bool) -> Any:
        """The state in the form in which ``hx`` came."""
        if isinstance(hx, SuState):
            return state
        if self._is_packed(hx, state.cell.shape[2]):
            return state.pack()
        # Not unbind, whose results cannot be changed in place.
        parts = (state.cell.select(1, c) for c in range(state.cell.shape[1]))
        values = tuple(part.contiguous() for part in parts)
        if not batched:
            values = tuple(v.squeeze(1) for v in values)
        if self.needs_state and not self.bidirectional and not checks.is_recorded(state.cell):
            t, memory = self._clock_to(state, batched)
            values = tuple(with_clock(v, t, memory) for v in values)
        return values[0] if len(values) == 1 else values

    def _clock_to(self, state: SuState, batched: bool) -> tuple[Tensor, Tensor | None]:
        """Clock and memory of a hidden state, for each row of it."""
        t = state.t if state.t.dim() == 0 else state.t.expand(state.cell.shape[0], -1)
        width = max(memory.shape[-1] for memory in state.gates)
        memory = None
        if width:
            memory = torch.stack([pad(m, (0, width - m.shape[-1])) for m in state.gates])
        if batched:
            return t, memory
        t = t if t.dim() == 0 else t.squeeze(1)
        return t, None if memory is None else memory.squeeze(1)

    def _is_packed(self, hx: Any, batch: int) -> bool:
        return (
            isinstance(hx, Tensor)
            and not isinstance(hx, ClockedTensor)
            and hx.dim() == 3
            and hx.shape == self.packed_shape(batch)
        )

    def _check_streamable(self) -> None:
        if self.bidirectional:
            raise ValueError(
                "a bidirectional layer needs the whole sequence and cannot stream; "
                "use bidirectional=False"
            )
        if self.backend == "onepass" and self.skip_drive is not None:
            raise ValueError(
                f"skip_drive={self.skip_drive} carries approximately, while a step of a stream "
                "carries exactly; stream with backend='auto' or without skip_drive"
            )

    def _check_state(self, state: Any, batch: int) -> None:
        memories = [gate.init_memory(batch).shape for gate in self.gates]  # type: ignore[operator]
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        checks.check_state(state, self._state_shape(batch), memories, weight.dtype)
