"""The base of all layers: options, and running whole sequences.

Equations, for a cell f and a gate g (1 updates, 0 carries)::

    h_t = h_{t-1} + g_t * (f(h_{t-1}, x_t) - h_{t-1})

This is exactly h_{t-1} where g is 0 and exactly f where g is 1.
"""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from surnn.scan import Backend, ScanTraits, check_backend, choose, scan
from surnn.scan.contract import step_mask

from ..cells import get_cell
from ..constants import count_steps, is_start
from ..gates import Gate, SeesInput, one_per_layer
from ..grouped_linear import GroupedLinear
from ..options import check_known
from ..state import SuState
from . import checks
from .gate_statistics import GateStatistics, PendingRate, rate_of
from .interop import TorchInterop
from .resets import check_reset, clock_after, reverse_resets
from .scan_pass import run_scan
from .sequence import (
    autocast_dtype,
    finer_than_heads,
    is_learned,
    reverse,
)
from .streaming import Hidden, Streaming
from .weights import suffix_of


class SelectiveLayer(Streaming, GateStatistics, TorchInterop):
    """Base of ``SuRNN``, ``SuGRU``, ``SuLSTM`` and ``SuSNN``.

    Args:
        input_size: features of x.
        hidden_size: units, and features of the output.
        num_layers: stacked layers, each with its own gate.
        bias: use biases.
        batch_first: x and y are [B, T, ...] instead of [T, B, ...].
        dropout: probability of dropout between layers, in training.
        bidirectional: a second set of layers reads the sequence backwards, on a clock that
            starts at its end; outputs are concatenated.
        heads: blocks of the block-diagonal recurrence; 1 is dense. A head costs nothing
            while its gates are closed, so give heads gates of their own to make training fast.
        gate: when units update: a :class:`Gate`, a name such as ``"rhythm"``, or one of these
            for each layer. Each layer and direction gets its own copy.
        expand: the state has ``expand * hidden_size`` units. One projection widens the input to
            this size, another narrows the output to ``hidden_size``.
        groups: blocks of these two projections.
        backend: ``"auto"``, ``"reference"``, ``"events"``, ``"onepass"``, ``"native"``,
            ``"triton"``; see :mod:`surnn.scan.dispatch`.
        max_rate: capacity of the ``triton`` backend, as the share of time steps at which a head
            has an open unit (mean over heads). With it the host never waits for the device, and a
            CUDA graph needs memory for this share only; if there are more events, outputs are
            NaN. By default events are counted first, and a CUDA graph or a compiled layer
            allocates memory for all time steps.
        recompute: the ``triton`` backend's backward pass projects x again instead of storing the
            projection.
        nonfinite: ``"propagate"`` as in torch (but a closed unit does not read NaN, and a gate
            that sees it stays closed). ``"raise"``: an error names the position of the first one.

    Example:
        >>> SelectiveLayer(4, 8, cell="rnn_tanh")(torch.randn(10, 2, 4))[0].shape
        torch.Size([10, 2, 8])
    """

    skip_drive: float | None = None
    _scan = staticmethod(scan)
    """Runs one layer in one direction. Replace it on an instance to observe its scans."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        cell: str,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int = 1,
        gate: Gate | str | Sequence[Gate | str] = "rhythm",
        expand: int = 1,
        groups: int = 1,
        backend: Backend = "auto",
        max_rate: float | None = None,
        recompute: bool = False,
        nonfinite: Literal["propagate", "raise"] = "propagate",
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown.pop("proj_size", 0):
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        no_units = unknown.pop("_no_units", False)
        check_known(type(self), unknown)
        self.cell_name = get_cell(cell).name
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = checks.check_dropout(dropout, num_layers), bidirectional
        self.heads, self.expand, self.groups = heads, expand, groups
        self.backend: Backend = backend
        self.max_rate, self.recompute = max_rate, recompute
        self.nonfinite, self.proj_size = nonfinite, 0
        self._check_options(no_units)
        self.state_size = expand * hidden_size
        self.head_size = self.state_size // heads
        self.num_directions = 2 if bidirectional else 1
        self.gates = nn.ModuleList()
        self.up, self.down = nn.ModuleList(), nn.ModuleList()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        for layer, spec in enumerate(one_per_layer(gate, num_layers)):
            features = input_size if layer == 0 else hidden_size * self.num_directions
            for direction in range(self.num_directions):
                source = input_size if getattr(spec, "source", "layer") == "input" else features
                self.gates.append(spec.bind(self.state_size, heads, source, **factory))
                reads = features
                if expand > 1:
                    reads = self.state_size
                    self.up.append(GroupedLinear(features, reads, groups, **factory))
                    self.down.append(GroupedLinear(reads, hidden_size, groups, **factory))
                self._create_parameters(suffix_of(layer, direction), reads, factory)
        self._last_rates: tuple[Tensor | PendingRate, ...] = ()
        self._reset_weights()

    def reset_parameters(self) -> None:
        """Draw all parameters again: weights, gates, and the projections of ``expand``."""
        self._reset_weights()
        for module in (*self.gates, *self.up, *self.down):
            module.reset_parameters()  # type: ignore[operator]

    # ------------------------------------------------------------ whole sequences

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | SuState | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Run a sequence.

        Args:
            input: [T, B, I] ([B, T, I] with ``batch_first``), [T, I], or a PackedSequence.
            hx: the state before the first time step. Tensors as torch's counterpart takes them
                start a sequence at time step 1. A returned hidden state (a
                :class:`~surnn.ClockedTensor`), a :class:`SuState` and a packed state continue
                theirs. Default zeros.
            lengths: [B] time steps of each right-padded sequence. Outputs past a sequence's length
                are 0 and its last state is the one at its length. Lengths are not validated under
                torch.compile, vmap or CUDA graphs.
            reset: bool, [T, B] ([B, T] with ``batch_first``, [T] without a batch). Where it is
                True, a sequence restarts *before* that time step: from zero (``hx`` is the state
                before the first step only), at time step 1, without memory of gates. Outputs and
                gradients are those of separate sequences, in the reverse direction too.

        Returns:
            outputs and the last hidden state, as torch's counterpart returns them. The state is a
            :class:`SuState` or packed if ``hx`` is.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("a PackedSequence has its own lengths; leave out lengths=")
            return self._forward_packed(input, hx, reset)
        batched = checks.check_input(input, self.input_size, self.batch_first)
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        if self.batch_first:
            x = x.transpose(0, 1)
        length = checks.check_lengths(lengths, x)
        if length is not None:  # padding is zeroed so that it cannot affect the result
            x = torch.where(step_mask(x.shape[0], length).unsqueeze(-1), x, 0.0)
        if self.nonfinite == "raise":
            checks.check_finite(x)
        state = self._state_from(hx, x, batched)
        starts = check_reset(reset, x, batched, self.batch_first)
        y, new, rates = self._run(x, state, length, self.backend, reset=starts)
        self._remember_rates(rates)
        if self.batch_first:
            y = y.transpose(0, 1)
        if not batched:
            y = y.squeeze(0 if self.batch_first else 1)
        return y, self._hidden_from(new, hx, batched)

    def _forward_packed(
        self, packed: PackedSequence, hx: Any, reset: Tensor | None
    ) -> tuple[PackedSequence, Any]:
        padded, lengths = pad_packed_sequence(packed, batch_first=self.batch_first)
        y, hidden = self.forward(padded, hx, lengths=lengths.to(padded.device), reset=reset)
        if packed.sorted_indices is not None:
            y = y.index_select(0 if self.batch_first else 1, packed.sorted_indices)
            lengths = lengths[packed.sorted_indices.cpu()]
        data = pack_padded_sequence(y, lengths, batch_first=self.batch_first).data
        return PackedSequence(data, *packed[1:]), hidden

    def _run(
        self,
        x: Tensor,
        state: SuState,
        lengths: Tensor | None,
        backend: str,
        calibrate: bool = False,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, SuState, tuple[Tensor | PendingRate, ...]]:
        """All layers and directions over x [T, B, I]."""
        # Autocast must not reach gates, which compare with a threshold, nor the recurrence, which
        # accumulates. It is meant for the input projection, whose input is cast explicitly.
        half = autocast_dtype(x)
        if half is None:
            checks.check_dtype(x, self.weight_ih_l0)  # type: ignore[arg-type]
            return self._run_layers(x, state, lengths, reset, backend, calibrate)
        with torch.autocast(x.device.type, enabled=False):
            y, new, rates = self._run_layers(x, state, lengths, reset, backend, calibrate, half)
        if x.device.type == "cpu" and self.cell_name == "gru":  # nn.GRU's output there
            y = y.to(torch.promote_types(x.dtype, half))
        return y, new, rates

    def _run_layers(
        self,
        x: Tensor,
        state: SuState,
        lengths: Tensor | None,
        reset: Tensor | None,
        backend: str,
        calibrate: bool,
        half: torch.dtype | None = None,
    ) -> tuple[Tensor, SuState, tuple[Tensor | PendingRate, ...]]:
        clock = state.t.long()  # a smaller integer would overflow
        t = count_steps(x.shape[0], x)
        if not is_start(clock, x):
            t = clock.reshape(1, -1) + t
        starts = [reset, None if reset is None else reverse_resets(reset, lengths)]
        raw = x
        cells, memories, rates = [], [], []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                flip = (lambda v: reverse(v, lengths)) if direction else (lambda v: v)
                gate: Gate = self.gates[index]  # type: ignore[assignment]
                seen = flip(raw if getattr(gate, "source", "layer") == "input" else x)
                if calibrate and isinstance(gate, SeesInput) and gate.sees_input:
                    gate.calibrate(t, seen, lengths)
                schedule, memory = gate(t, seen, state.gates[index], lengths, starts[direction])
                projected = flip(x if half is None else x.to(half))
                y, last = run_scan(
                    self, index, projected, schedule, state.cell[index], backend,
                    lengths=lengths, reset=starts[direction],
                )  # fmt: skip
                if self.expand > 1:
                    y = self.down[index](y)
                outputs.append(flip(y))
                cells.append(last)
                memories.append(memory)
                rates.append(rate_of(schedule.g, lengths))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if layer + 1 < self.num_layers:
                x = functional.dropout(x, self.dropout, self.training)
        clock = clock_after(clock, t, reset, lengths)
        cell = cells[0].unsqueeze(0) if len(cells) == 1 else torch.stack(cells)
        return x, SuState(cell, clock, tuple(memories)), tuple(rates)

    # ------------------------------------------------------------ backend, calibration

    @property
    def chosen_backend(self) -> str:
        """The backend that runs this layer on whole sequences: ``auto`` resolved.

        Layers or directions whose gates differ may run on different backends; then it names all
        of them, separated by commas.
        """
        chosen = [choose(self.backend, self._traits(gate)) for gate in self.gates]  # type: ignore[arg-type]
        return ", ".join(dict.fromkeys(chosen))

    def _traits(self, gate: Gate) -> ScanTraits:
        """The properties of the scan that runs with ``gate``."""
        some: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        assert gate.width is not None
        return ScanTraits(
            cell=self.cell,
            width=self.head_size,
            device=some.device,
            dtype=autocast_dtype(some) or some.dtype,
            state_dtype=some.dtype,
            unit_gates=finer_than_heads(gate.width, self.heads, self.head_size),
            binary=gate.binary,
            learned_gate=is_learned(gate),
        )

    @torch.no_grad()
    def calibrate(
        self,
        input: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
    ) -> Self:
        """Set biases of gates that see the input so that they open at their rate on ``input``."""
        batched = checks.check_input(input, self.input_size, self.batch_first)
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        x = x.transpose(0, 1) if self.batch_first else x
        length = checks.check_lengths(lengths, x)
        starts = check_reset(reset, x, batched, self.batch_first)
        state, training = self._zero_state(x.shape[1]), self.training
        self.eval()  # hard gates, no dropout
        self._run(x, state, length, self.backend, calibrate=True, reset=starts)
        return self.train(training)

    # ------------------------------------------------------------ options

    def _check_options(self, no_units: bool) -> None:
        names = ("hidden_size", "input_size", "num_layers", "heads", "expand", "groups")
        checks.check_sizes({name: getattr(self, name) for name in names[no_units:]})
        checks.check_heads(self.heads, self.expand * self.hidden_size)
        if self.groups > 1 and self.expand == 1:
            raise ValueError(
                f"groups={self.groups} needs expand > 1: groups are blocks of the projections that "
                "expand adds"
            )
        if self.max_rate is not None and not 0 < self.max_rate <= 1:
            raise ValueError(f"max_rate is a share of steps between 0 and 1, got {self.max_rate!r}")
        for name in ("bias", "batch_first", "bidirectional", "recompute"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.nonfinite not in ("propagate", "raise"):
            raise ValueError(f"nonfinite must be 'propagate' or 'raise', got {self.nonfinite!r}")
        check_backend(self.backend)

    def extra_repr(self) -> str:
        shown = [str(self.input_size), str(self.hidden_size)]
        for name, default in _SHOWN.items():
            if (value := getattr(self, name)) != default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)


_SHOWN = {
    "num_layers": 1,
    "bias": True,
    "batch_first": False,
    "dropout": 0.0,
    "bidirectional": False,
    "heads": 1,
    "expand": 1,
    "groups": 1,
    "backend": "auto",
    "max_rate": None,
    "recompute": False,
}
