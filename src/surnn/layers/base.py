"""What all layers share: running whole sequences and streams.

Equations, for a cell f and a gate g (1 updates, 0 carries)::

    h_t = h_{t-1} + g_t * (f(h_{t-1}, x_t) - h_{t-1})

exactly h_{t-1} where g is 0 and exactly f where it is 1.
"""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..cells import get_cell
from ..gates import Gate, Schedule, SeesInput, as_gate
from ..projections import GroupedLinear
from ..scan import Backend, ScanInputs, check_backend, choose, scan
from ..scan.contract import step_mask
from ..state import SuState
from . import checks
from .interop import TorchInterop
from .sequence import autocast_dtype, mean_rate, reverse, spread_gates
from .weights import suffix_of

Hidden = Tensor | tuple[Tensor, ...]


class SelectiveLayer(TorchInterop):
    """Base of ``SuRNN``, ``SuGRU``, ``SuLSTM`` and ``SuSNN``.

    Args:
        input_size: features of x.
        hidden_size: units, and features of the output.
        num_layers: stacked layers, each with its own gate.
        bias: use biases.
        batch_first: x and y are [B, T, ...] instead of [T, B, ...].
        dropout: between layers, in training.
        bidirectional: a second set of layers reads the sequence backwards, on a clock that
            starts at its end; outputs are concatenated.
        heads: blocks of the block-diagonal recurrence; 1 is dense. A head's updates cost nothing
            while it is closed, so heads with gates of their own are what makes training fast.
        gate: when units update: a :class:`Gate`, a name such as ``"rhythm"``, or one of these
            for each layer. Each layer and direction gets its own copy.
        expand: the state is ``expand * hidden_size`` wide, between grouped projections up from
            the input and down to the output.
        groups: blocks of those projections.
        backend: ``"auto"``, ``"reference"``, ``"events"``, ``"onepass"``, ``"triton"``; see
            :mod:`surnn.scan`.
        max_rate: room of the ``triton`` backend, as the share of steps at which a head has an
            open unit (mean over heads). Given, the host never waits for the device and a CUDA
            graph needs no more memory than this; if more come, outputs are NaN. By default they
            are counted first, and a graph or compiled layer has room for all steps.
        recompute: of the ``triton`` backend: keep no input projection for the backward pass.
        nonfinite: ``"propagate"`` lets NaN and infinity run on, as torch does (a closed unit
            does not read them, and a gate that sees NaN stays closed); ``"raise"`` stops with
            the place of the first one in the input, at the price of a host synchronisation.
    """

    skip_drive: float | None = None
    _scan = staticmethod(scan)
    """Runs one layer in one direction: the place from which an instance's states can be seen."""

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
        checks.check_known(type(self), unknown)
        self.cell_name = get_cell(cell).name
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = checks.dropped(dropout, num_layers), bidirectional
        self.heads, self.expand, self.groups = heads, expand, groups
        self.backend: Backend = backend
        self.max_rate, self.recompute = max_rate, recompute
        self.nonfinite = nonfinite
        self._check_options()
        self.state_size = expand * hidden_size
        self.head_size = self.state_size // heads
        self.num_directions = 2 if bidirectional else 1
        self.gates = nn.ModuleList()
        self.up, self.down = nn.ModuleList(), nn.ModuleList()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        for layer, spec in enumerate(_one_per_layer(gate, num_layers)):
            given = input_size if layer == 0 else hidden_size * self.num_directions
            for direction in range(self.num_directions):
                source = input_size if getattr(spec, "source", "layer") == "input" else given
                self.gates.append(spec.bind(self.state_size, heads, source))
                reads = given
                if expand > 1:
                    reads = self.state_size
                    self.up.append(GroupedLinear(given, reads, groups, **factory))
                    self.down.append(GroupedLinear(reads, hidden_size, groups, **factory))
                self._create_parameters(suffix_of(layer, direction), reads, factory)
        self.gates.to(device=device, dtype=dtype)
        self._rates: tuple[Tensor, ...] = ()
        self._reset_weights()

    def reset_parameters(self) -> None:
        """Draw everything anew: weights, gates, and the projections of ``expand``."""
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
    ) -> tuple[Any, Any]:
        """Run a sequence.

        Args:
            input: [T, B, I] ([B, T, I] with ``batch_first``), [T, I], or a PackedSequence.
            hx: initial hidden state as torch's counterpart takes it, with the clock at 1, or a
                :class:`SuState`, with which the clock goes on where it stood. Default zeros.
            lengths: [B] steps of each right-padded sequence. Outputs past a sequence's length
                are 0 and its last state is the one at its length. Nobody looks whether they fit
                where there are no numbers to look at: in torch.compile, vmap and CUDA graphs.

        Returns:
            outputs and the last hidden state, as torch's counterpart; a :class:`SuState` if one
            was given.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("a PackedSequence brings its own lengths; leave lengths out")
            return self._forward_packed(input, hx)
        batched = checks.check_input(input, self.input_size, self.batch_first)
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        if self.batch_first:
            x = x.transpose(0, 1)
        length = checks.check_lengths(lengths, x)
        if length is not None:  # what lies past a sequence's end is nobody's business
            x = torch.where(step_mask(x.shape[0], length).unsqueeze(-1), x, 0.0)
        if self.nonfinite == "raise":
            checks.check_finite(x)
        streaming = isinstance(hx, SuState)
        state = hx if isinstance(hx, SuState) else self._state_from(hx, x.shape[1], batched)
        if streaming:
            self._check_streamable()
            self._check_state(state, x.shape[1])
        y, new, self._rates = self._run(x, state, length, self.backend)
        if self.batch_first:
            y = y.transpose(0, 1)
        if not batched:
            y = y.squeeze(0 if self.batch_first else 1)
        return y, new if streaming else self._hidden_from(new, batched)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        padded, lengths = pad_packed_sequence(packed, batch_first=self.batch_first)
        y, hidden = self.forward(padded, hx, lengths=lengths.to(padded.device))
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
    ) -> tuple[Tensor, SuState, tuple[Tensor, ...]]:
        """All layers and directions over x [T, B, I]."""
        # Autocast must not reach gates, which decide by a threshold, nor the recurrence, which
        # accumulates. What it is for, the input projection, is cast by hand.
        half = autocast_dtype(x)
        if half is None:
            checks.check_dtype(x, self.weight_ih_l0)  # type: ignore[arg-type]
            return self._run_layers(x, state, lengths, backend, calibrate)
        with torch.autocast(x.device.type, enabled=False):
            return self._run_layers(x, state, lengths, backend, calibrate, half)

    def _run_layers(
        self,
        x: Tensor,
        state: SuState,
        lengths: Tensor | None,
        backend: str,
        calibrate: bool,
        half: torch.dtype | None = None,
    ) -> tuple[Tensor, SuState, tuple[Tensor, ...]]:
        steps = x.shape[0]
        t = state.t.reshape(1, -1) + torch.arange(1, steps + 1, device=x.device)[:, None]
        raw = x
        cells, memories, rates = [], [], []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                flip = (lambda v: reverse(v, lengths)) if direction else (lambda v: v)
                gate: Gate = self.gates[index]  # type: ignore[assignment]
                seen = flip(raw if getattr(gate, "source", "layer") == "input" else x)
                if calibrate and isinstance(gate, SeesInput):
                    gate.calibrate(t, seen)
                schedule, memory = gate(t, seen, state.gates[index], lengths)
                projected = flip(x if half is None else x.to(half))
                inputs = self._scan_inputs(
                    index, projected, schedule, state.cell[index], lengths, gate.binary
                )
                y, last = self._scan(inputs, backend)
                y = y.flatten(2)
                if self.expand > 1:
                    y = self.down[index](y)
                outputs.append(flip(y))
                cells.append(last.permute(2, 0, 1, 3).flatten(2))
                memories.append(memory)
                rates.append(mean_rate(schedule.g, lengths))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if layer + 1 < self.num_layers:
                x = functional.dropout(x, self.dropout, self.training)
        taken = steps if lengths is None else lengths
        cell = cells[0].unsqueeze(0) if len(cells) == 1 else torch.stack(cells)
        return x, SuState(cell, state.t + taken, tuple(memories)), tuple(rates)

    def _scan_inputs(
        self,
        index: int,
        x: Tensor,
        schedule: Schedule,
        cell_state: Tensor,
        lengths: Tensor | None,
        binary: bool,
    ) -> ScanInputs:
        suffix = suffix_of(*divmod(index, self.num_directions))
        if self.expand > 1:
            x = self.up[index](x)
        weight, bias, recurrent, unit = self._weights(suffix)
        gate, relevant = spread_gates(schedule, self.heads, self.head_size)
        state = cell_state.unflatten(-1, (self.heads, self.head_size)).permute(1, 2, 0, 3)
        return ScanInputs(
            cell=self.cell,
            x=x,
            weight=weight,
            bias=bias,
            recurrent=recurrent,
            unit=unit,
            gate=gate.to(state.dtype),
            state=state,
            decay=self._decay(suffix),
            lengths=lengths,
            relevant=relevant,
            binary=binary,
            skip_drive=self.skip_drive,
            max_rate=self.max_rate,
            recompute=self.recompute,
        )

    # ------------------------------------------------------------ streams

    def init_state(self, batch_size: int = 1) -> SuState:
        """The state before the first step of ``batch_size`` streams: zeros, clock at 0."""
        self._check_streamable()
        return self._zero_state(batch_size)

    def step(self, x: Tensor, state: SuState) -> tuple[Tensor, SuState]:
        """One step of a stream: x [B, I] to y [B, H], or [I] to [H]. Pure: ``state`` stays."""
        self._check_streamable()
        if not isinstance(x, Tensor) or x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"step takes one frame [B, {self.input_size}] or [{self.input_size}], got "
                f"{checks.shape_of(x)}; a whole sequence goes through layer(x, state)"
            )
        frame = x.reshape(1, -1, self.input_size)
        if self.nonfinite == "raise":
            checks.check_finite(frame)
        self._check_state(state, frame.shape[1])
        y, new, _ = self._run(frame, state, None, "reference")
        return y[0] if x.dim() == 2 else y[0, 0], new

    def _state_shape(self, batch: int) -> list[int]:
        layers = self.num_layers * self.num_directions
        return [layers, len(self.cell.components), batch, self.state_size]

    def _zero_state(self, batch: int) -> SuState:
        some: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        return SuState(
            some.new_zeros(self._state_shape(batch)),
            torch.zeros((), dtype=torch.int64, device=some.device),
            tuple(gate.init_memory(batch) for gate in self.gates),  # type: ignore[operator]
        )

    def _state_from(self, hx: Hidden | None, batch: int, batched: bool) -> SuState:
        """A fresh clock with the hidden values of ``hx``."""
        state = self._zero_state(batch)
        if hx is None:
            return state
        values = tuple(hx) if isinstance(hx, list | tuple) else (hx,)
        layers = state.cell.shape[0]
        shape = [layers, batch, self.state_size] if batched else [layers, self.state_size]
        checks.check_hidden(values, self.cell.components, shape, state.cell.dtype)
        stacked = torch.stack([v if batched else v.unsqueeze(1) for v in values], 1)
        return state._replace(cell=stacked.to(state.cell.dtype))

    def _hidden_from(self, state: SuState, batched: bool) -> Hidden:
        values = state.cell.unbind(1)
        if not batched:
            values = tuple(v.squeeze(1) for v in values)
        return values[0] if len(values) == 1 else tuple(values)

    # ------------------------------------------------------------ what the gates did

    @property
    def update_rate(self) -> Tensor:
        """Share of open gates in the last forward pass, for each layer (and direction); of soft
        gates, which are never closed, how far they were open on average."""
        self._check_ran("update_rate")
        return torch.stack([rate.detach() for rate in self._rates])

    def rate_penalty(self) -> Tensor:
        """Sum over layers of |update rate - target rate| in the last forward pass.

        Differentiable; add it, times a weight, to the loss. Gates without a target add 0.
        """
        self._check_ran("rate_penalty()")
        pairs = zip(self.gates, self._rates, strict=True)
        penalty = torch.stack([gate.rate_penalty(rate) for gate, rate in pairs]).sum()  # type: ignore[operator]
        if self.training:
            checks.check_penalty(penalty, self.gates)
        return penalty

    @property
    def chosen_backend(self) -> str:
        """The backend that runs this layer; what ``auto`` stands for."""
        some: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        dtypes = autocast_dtype(some) or some.dtype, some.dtype
        one_pass = self.cell.name == "gru" and all(
            g.frozen and g.binary and g.width > self.heads  # type: ignore[operator]
            for g in self.gates
        )
        return choose(self.backend, self.cell, self.head_size, some.device, *dtypes, one_pass)

    @torch.no_grad()
    def calibrate(self, input: Tensor) -> Self:
        """Set biases of gates that see the input so that they open at their rate on ``input``."""
        if not checks.check_input(input, self.input_size, self.batch_first):
            input = input.unsqueeze(0 if self.batch_first else 1)
        x = input.transpose(0, 1) if self.batch_first else input
        training = self.training
        self.eval()  # rates are of hard gates, and nothing is dropped
        self._run(x, self._zero_state(x.shape[1]), None, self.backend, calibrate=True)
        return self.train(training)

    # ------------------------------------------------------------ odds and ends

    def _check_options(self) -> None:
        names = ("input_size", "hidden_size", "num_layers", "heads", "expand", "groups")
        checks.check_sizes({name: getattr(self, name) for name in names})
        checks.check_heads(self.heads, self.expand * self.hidden_size)
        if self.groups > 1 and self.expand == 1:
            raise ValueError(
                f"groups are of the projections that expand adds; groups={self.groups} needs "
                "expand > 1"
            )
        if self.max_rate is not None and not 0 < self.max_rate <= 1:
            raise ValueError(f"max_rate is a share of steps between 0 and 1, got {self.max_rate!r}")
        for name in ("bias", "batch_first", "bidirectional", "recompute"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.nonfinite not in ("propagate", "raise"):
            raise ValueError(f"nonfinite must be 'propagate' or 'raise', got {self.nonfinite!r}")
        check_backend(self.backend)

    def _check_streamable(self) -> None:
        if self.bidirectional:
            raise ValueError(
                "a bidirectional layer needs the whole sequence and cannot stream; "
                "use bidirectional=False"
            )
        if self.backend == "onepass" and self.skip_drive is not None:
            raise ValueError(
                "a skip_drive of one's own carries only approximately, and a step would not; "
                "stream with backend='auto' or without skip_drive"
            )

    def _check_state(self, state: Any, batch: int) -> None:
        memories = [gate.init_memory(batch).shape for gate in self.gates]  # type: ignore[operator]
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        checks.check_state(state, self._state_shape(batch), memories, weight.dtype)

    def _check_ran(self, what: str) -> None:
        if not self._rates:
            raise RuntimeError(f"{what} is of the last forward pass, and there was none yet")

    def __getstate__(self) -> dict[str, Any]:
        # The last pass's rates hang on its graph, which neither deepcopy nor pickle can take.
        return {**super().__getstate__(), "_rates": ()}

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


def _one_per_layer(gate: Any, layers: int) -> list[Gate]:
    if isinstance(gate, Gate | str) or not isinstance(gate, Sequence):
        return [as_gate(gate)] * layers
    if len(gate) != layers:
        raise ValueError(f"got {len(gate)} gates for {layers} layers; give one gate, or one each")
    return [as_gate(g) for g in gate]
