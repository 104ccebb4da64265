"""What the user holds: ``SuRNN``, ``SuGRU``, ``SuLSTM``, ``SuSNN``, shaped like ``nn.GRU``.

Equations, for a cell f and a gate g (1 updates, 0 carries)::

    h_t = h_{t-1} + g_t * (f(h_{t-1}, x_t) - h_{t-1})

exactly h_{t-1} where g is 0 and exactly f where it is 1. Parameters have the names, shapes and
order of their torch counterparts (``weight_ih_l0`` ...), except that ``weight_hh_l0`` is
``[S * H, H / heads]``: row i holds the weights from unit i's own head. One head is torch's layout.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from .cells import Cell, get_cell
from .gates import Gate, Schedule, SeesInput, as_gate
from .projections import GroupedLinear
from .scan import Backend, ScanInputs, check_backend, choose, scan
from .state import SuState

Hidden = Tensor | tuple[Tensor, ...]


class SelectiveLayer(nn.Module):
    """Base of the four layers; everything but the cell's own parameters.

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
        backend: ``"auto"``, ``"reference"``, ``"events"``, ``"onepass"``; see :mod:`surnn.scan`.
        nonfinite: ``"propagate"`` lets NaN and infinity run on, as torch does (a closed unit
            does not read them, and a gate that sees NaN stays closed); ``"raise"`` stops with
            the place of the first one, at the price of a host synchronisation.
    """

    skip_drive: float | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        cell: Cell | str,
        heads: int = 1,
        gate: Gate | str | Sequence[Gate | str] = "rhythm",
        expand: int = 1,
        groups: int = 1,
        backend: Backend = "auto",
        nonfinite: Literal["propagate", "raise"] = "propagate",
    ) -> None:
        super().__init__()
        self.cell = get_cell(cell) if isinstance(cell, str) else cell
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = float(dropout), bidirectional
        self.heads, self.expand, self.groups = heads, expand, groups
        self.backend: Backend = backend
        self.nonfinite = nonfinite
        self._check_arguments()
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
                self._create_parameters(_suffix(layer, direction), reads, factory)
        self.gates.to(device=device, dtype=dtype)
        self._rates: tuple[Tensor, ...] = ()
        self.reset_parameters()

    # ------------------------------------------------------------ parameters

    def _create_parameters(self, suffix: str, reads: int, factory: dict[str, Any]) -> None:
        rows = self.cell.drives * self.state_size
        shapes = {"weight_ih": (rows, reads), "weight_hh": (rows, self.head_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            setattr(self, name + suffix, nn.Parameter(torch.empty(shape, **factory)))

    def reset_parameters(self) -> None:
        """As torch does; recurrent weights are scaled by what a unit reads, its own head."""
        bound = 1 / math.sqrt(self.state_size)
        for name, parameter in self.named_parameters(recurse=False):
            by_head = 1 / math.sqrt(self.head_size)
            limit = by_head if name.startswith("weight_hh") else bound
            nn.init.uniform_(parameter, -limit, limit)

    def flatten_parameters(self) -> None:
        """Nothing to do; here so that code written for ``nn.GRU`` runs."""

    def _weights(self, suffix: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """weight, bias, recurrent and unit of :class:`ScanInputs`."""
        weight = self._by_head(getattr(self, "weight_ih" + suffix))
        recurrent = self._by_head(getattr(self, "weight_hh" + suffix))
        if self.bias:
            b_ih = self._by_head(getattr(self, "bias_ih" + suffix))
            b_hh = self._by_head(getattr(self, "bias_hh" + suffix))
        else:
            b_ih = b_hh = weight.new_zeros(weight.shape[:3])
        bias, unit = self._split_biases(b_ih, b_hh, suffix)
        return weight, bias, recurrent, unit

    def _split_biases(self, b_ih: Tensor, b_hh: Tensor, suffix: str) -> tuple[Tensor, Tensor]:
        """What adds to the drive [N, S, D], and the cell's per-unit parameters [P, N, D]."""
        return b_ih + b_hh, b_ih.new_empty(0, self.heads, self.head_size)

    def _by_head(self, rows: Tensor) -> Tensor:
        """torch's [S * H, ...] to [N, S, D, ...]."""
        return rows.unflatten(0, (self.cell.drives, self.heads, self.head_size)).transpose(0, 1)

    def _decay(self, suffix: str) -> Tensor | None:
        """What a carry multiplies the state by, [N, C, D]; None for an exact carry of all."""
        return None

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
            hx: initial hidden state as torch's counterpart takes it, or a :class:`SuState`, with
                which the clock goes on where it stood. Default zeros, clock at 1.
            lengths: [B] steps of each right-padded sequence. Outputs past a sequence's length
                are 0 and its last state is the one at its length.

        Returns:
            outputs and the last hidden state, as torch's counterpart; a :class:`SuState` if one
            was given.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        batched = self._check_input(input)
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        if self.batch_first:
            x = x.transpose(0, 1)
        length = self._check_lengths(lengths, x)
        self._check_finite(x)
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
        return (
            PackedSequence(
                data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
            ),
            hidden,
        )

    def _run(
        self,
        x: Tensor,
        state: SuState,
        lengths: Tensor | None,
        backend: str,
        calibrate: bool = False,
    ) -> tuple[Tensor, SuState, tuple[Tensor, ...]]:
        """All layers and directions over x [T, B, I]."""
        steps = x.shape[0]
        t = state.t.reshape(1, -1) + torch.arange(1, steps + 1, device=x.device)[:, None]
        if torch.is_autocast_enabled(x.device.type) and x.dtype != torch.float64:
            x = x.to(torch.get_autocast_dtype(x.device.type))
        raw = x
        cells, memories, rates = [], [], []
        rate_dtype = torch.promote_types(state.cell.dtype, torch.float32)
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                flip = (lambda v: _reverse(v, lengths)) if direction else (lambda v: v)
                gate = self.gates[index]
                seen = raw if getattr(gate, "source", "layer") == "input" else x
                if calibrate and isinstance(gate, SeesInput):
                    gate.calibrate(t, flip(seen))
                schedule, memory = gate(t, flip(seen), state.gates[index])
                inputs = self._scan_inputs(
                    index, flip(x), schedule, state.cell[index], lengths, gate.binary
                )
                y, last = scan(inputs, backend)
                y = y.flatten(2)
                if self.expand > 1:
                    y = self.down[index](y)
                outputs.append(flip(y))
                cells.append(last.permute(2, 0, 1, 3).flatten(2))
                memories.append(memory)
                rates.append(_mean_rate(schedule.g, lengths).to(rate_dtype))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if layer + 1 < self.num_layers:
                x = functional.dropout(x, self.dropout, self.training)
        new = SuState(torch.stack(cells), state.t + steps, tuple(memories))
        return x, new, tuple(rates)

    def _scan_inputs(
        self,
        index: int,
        x: Tensor,
        schedule: Schedule,
        cell_state: Tensor,
        lengths: Tensor | None,
        binary: bool,
    ) -> ScanInputs:
        suffix = _suffix(*divmod(index, self.num_directions))
        if self.expand > 1:
            x = self.up[index](x)
        weight, bias, recurrent, unit = self._weights(suffix)
        gate, relevant = self._by_gate(schedule)
        state = cell_state.unflatten(-1, (self.heads, self.head_size)).permute(1, 2, 0, 3)
        return ScanInputs(
            cell=self.cell,
            x=x if x.dtype in _NARROW else x.to(state.dtype),
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
        )

    def _by_gate(self, schedule: Schedule) -> tuple[Tensor, Tensor | None]:
        """A schedule [T, b, width] as gates [T, b, N, 1], or [T, b, N, D] if finer than heads."""
        g, relevant = schedule
        width = g.shape[-1]
        if self.state_size % width:
            raise ValueError(
                f"a gate of width {width} does not fit {self.state_size} units: its schedule's "
                f"last dimension must divide {self.state_size}"
            )
        share = self.state_size // width
        if share % self.head_size == 0:
            repeat = share // self.head_size
            relevant = None if relevant is None else _repeat(relevant, repeat)
            return _repeat(g, repeat).unsqueeze(-1), relevant
        shape = (self.heads, self.head_size)
        if relevant is not None:
            relevant = _repeat(relevant, share).unflatten(-1, shape).any(-1)
        return _repeat(g, share).unflatten(-1, shape), relevant

    # ------------------------------------------------------------ streams

    def init_state(self, batch_size: int = 1) -> SuState:
        """The state before the first step of ``batch_size`` streams: zeros, clock at 0."""
        self._check_streamable()
        return self._zero_state(batch_size)

    def step(self, x: Tensor, state: SuState) -> tuple[Tensor, SuState]:
        """One step of a stream: x [B, I] to y [B, H], or [I] to [H]. Pure: ``state`` stays."""
        self._check_streamable()
        if not isinstance(state, SuState):
            raise TypeError(
                f"step needs a SuState, got {type(state).__name__}; begin with "
                f"state = layer.init_state(batch_size)"
            )
        if x.dim() not in (1, 2) or x.shape[-1] != self.input_size:
            raise ValueError(
                f"step takes one frame [B, {self.input_size}] or [{self.input_size}], got "
                f"{_shape(x)}; a whole sequence goes through layer(x, state)"
            )
        frame = x.reshape(1, -1, self.input_size)
        self._check_finite(frame)
        self._check_state(state, frame.shape[1])
        y, new, _ = self._run(frame, state, None, "reference")
        return y[0] if x.dim() == 2 else y[0, 0], new

    def _zero_state(self, batch: int) -> SuState:
        some: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        components = len(self.cell.components)
        layers = self.num_layers * self.num_directions
        return SuState(
            some.new_zeros(layers, components, batch, self.state_size),
            torch.zeros((), dtype=torch.int64, device=some.device),
            tuple(gate.init_memory(batch) for gate in self.gates),  # type: ignore[operator]
        )

    def _state_from(self, hx: Hidden | None, batch: int, batched: bool) -> SuState:
        """A fresh clock with the hidden values of ``hx``."""
        state = self._zero_state(batch)
        if hx is None:
            return state
        names = self.cell.components
        values = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        expected = (state.cell.shape[0], batch, self.state_size)
        if not batched:
            expected = (expected[0], expected[2])
        if len(values) != len(names):
            raise ValueError(
                f"the hidden state of {type(self).__name__} is {len(names)} tensor(s) "
                f"({', '.join(names)}), got {len(values)}"
            )
        for name, value in zip(names, values, strict=True):
            if value.shape != expected:
                raise ValueError(
                    f"initial {name} must be {list(expected)} (layers * directions, "
                    f"{'B, ' if batched else ''}H), got {_shape(value)}"
                )
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
        """Share of open gates in the last forward pass, for each layer (and direction)."""
        self._check_ran("update_rate")
        return torch.stack([rate.detach() for rate in self._rates])

    def rate_penalty(self) -> Tensor:
        """Sum over layers of |update rate - target rate| in the last forward pass.

        Differentiable; add it, times a weight, to the loss. Gates without a target add 0.
        """
        self._check_ran("rate_penalty()")
        pairs = zip(self.gates, self._rates, strict=True)
        return torch.stack([gate.rate_penalty(rate) for gate, rate in pairs]).sum()  # type: ignore[operator]

    @property
    def chosen_backend(self) -> str:
        """The backend that runs this layer; what ``auto`` stands for."""
        return choose(self.backend)

    @torch.no_grad()
    def calibrate(self, input: Tensor) -> Self:
        """Set biases of gates that see the input so that they open at their rate on ``input``."""
        if not self._check_input(input):
            input = input.unsqueeze(0 if self.batch_first else 1)
        x = input.transpose(0, 1) if self.batch_first else input
        training = self.training
        self.eval()  # rates are of hard gates, and nothing is dropped
        self._run(x, self._zero_state(x.shape[1]), None, self.backend, calibrate=True)
        return self.train(training)

    # ------------------------------------------------------------ torch's layers

    _torch_class: type[nn.RNNBase] | None = None

    @classmethod
    def from_torch(cls, module: nn.RNNBase, **options) -> Self:
        """A layer with the weights of a torch layer; ``options`` are gate, backend, ...

        With ``gate=AlwaysOpen()`` it computes what ``module`` does.
        """
        if cls._torch_class is None or not isinstance(module, cls._torch_class):
            wanted = "no torch layer" if cls._torch_class is None else cls._torch_class.__name__
            raise TypeError(f"{cls.__name__} loads {wanted}, got {type(module).__name__}")
        if getattr(module, "proj_size", 0):
            raise ValueError("a torch LSTM with proj_size has no counterpart here; use expand")
        if options.get("heads", 1) != 1:
            raise ValueError("torch's recurrent weights are dense: heads must be 1")
        weight: Tensor = module.weight_ih_l0  # type: ignore[assignment]
        layer = cls(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            module.bias,
            module.batch_first,
            module.dropout,
            module.bidirectional,
            weight.device,
            weight.dtype,
            **cls._options_of(module),
            **options,
        )
        layer.load_state_dict(module.state_dict(), strict=False)
        return layer.train(module.training)

    @classmethod
    def _options_of(cls, module: nn.RNNBase) -> dict[str, Any]:
        return {}

    def to_torch(self) -> nn.RNNBase:
        """The torch layer with these weights; heads become blocks of a dense matrix.

        Gates are left behind: the two agree where every gate is open.
        """
        if self._torch_class is None or self.expand > 1:
            raise ValueError(
                f"{type(self).__name__}{' with expand' if self.expand > 1 else ''} has no torch "
                "counterpart"
            )
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        module = self._torch_class(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            bias=self.bias,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
            device=weight.device,
            dtype=weight.dtype,
            **self._torch_options(),
        )
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                own = getattr(self, name)
                parameter.copy_(self._dense(own) if name.startswith("weight_hh") else own)
        return module.train(self.training)

    def _torch_options(self) -> dict[str, Any]:
        return {}

    def _dense(self, recurrent: Tensor) -> Tensor:
        """[S * H, D] to the block-diagonal [S * H, H]."""
        blocks = recurrent.unflatten(0, (-1, self.heads, self.head_size))  # [S, N, D, D]
        same = torch.eye(self.heads, dtype=blocks.dtype, device=blocks.device)
        return (blocks.unsqueeze(3) * same[:, None, :, None]).flatten(3).flatten(0, 2)

    # ------------------------------------------------------------ checks

    def _check_arguments(self) -> None:
        for name in ("input_size", "hidden_size", "num_layers", "heads", "expand", "groups"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        size = self.expand * self.hidden_size
        if size % self.heads:
            near = [n for n in range(1, size + 1) if size % n == 0]
            closest = sorted(near, key=lambda n: abs(n - self.heads))[:3]
            raise ValueError(
                f"{self.heads} heads do not divide a state of {size} units; try "
                f"{', '.join(map(str, sorted(closest)))}"
            )
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout is a probability between 0 and 1, got {self.dropout}")
        if self.nonfinite not in ("propagate", "raise"):
            raise ValueError(f"nonfinite must be 'propagate' or 'raise', got {self.nonfinite!r}")
        check_backend(self.backend)

    def _check_input(self, x: Tensor) -> bool:
        """Whether x has a batch dimension; raises if it is no sequence at all."""
        batched = "[B, T, {}]" if self.batch_first else "[T, B, {}]"
        wanted = f"{batched.format(self.input_size)} or [T, {self.input_size}]"
        if not isinstance(x, Tensor):
            raise TypeError(f"input must be a tensor {wanted}, got {type(x).__name__}")
        if x.dim() not in (2, 3):
            raise ValueError(f"input must be {wanted}, got {x.dim()} dimensions: {_shape(x)}")
        if x.shape[-1] != self.input_size:
            raise ValueError(
                f"input must be {wanted}: the last dimension is input_size, got {_shape(x)}"
            )
        if not x.is_floating_point():
            raise TypeError(
                f"input must be floating point, got {x.dtype}; embed or one-hot encode tokens first"
            )
        time = 1 if x.dim() == 3 and self.batch_first else 0
        if x.shape[time] == 0:
            raise ValueError(
                f"input has no time steps: {_shape(x)}; expected {wanted} with T at least 1"
            )
        return x.dim() == 3

    def _check_lengths(self, lengths: Any, x: Tensor) -> Tensor | None:
        if lengths is None:
            return None
        lengths = torch.as_tensor(lengths, device=x.device)
        if lengths.shape != x.shape[1:2] or lengths.is_floating_point():
            raise ValueError(
                f"lengths must be {x.shape[1]} integers, one for each sequence, got "
                f"{lengths.dtype} {_shape(lengths)}"
            )
        if not torch.compiler.is_compiling():
            low, high = int(lengths.min()), int(lengths.max())
            if low < 1 or high > x.shape[0]:
                raise ValueError(
                    f"lengths must lie between 1 and T = {x.shape[0]}, got {low} to {high}"
                )
        return lengths

    def _check_finite(self, x: Tensor) -> None:
        if self.nonfinite == "raise":
            bad = (~x.isfinite()).nonzero()
            if len(bad):
                t, b, i = bad[0].tolist()
                raise ValueError(
                    f"input holds {len(bad)} value(s) that are not finite, the first, "
                    f"{x[t, b, i].item()}, at step {t}, sequence {b}, feature {i}; clean the "
                    "input, or let them run on with nonfinite='propagate'"
                )

    def _check_streamable(self) -> None:
        if self.bidirectional:
            raise ValueError(
                "a bidirectional layer needs the whole sequence and cannot stream; "
                "use bidirectional=False"
            )

    def _check_state(self, state: SuState, batch: int) -> None:
        components = len(self.cell.components)
        expected = (self.num_layers, components, batch, self.state_size)
        if state.cell.shape != expected:
            raise ValueError(
                f"state.cell must be {list(expected)} (layers, components, B, H), got "
                f"{_shape(state.cell)}; begin with layer.init_state({batch})"
            )

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


_NARROW = (torch.float16, torch.bfloat16)
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
}


def _suffix(layer: int, direction: int) -> str:
    return f"_l{layer}" + ("_reverse" if direction else "")


def _shape(x: Tensor) -> str:
    return str(list(x.shape))


def _repeat(g: Tensor, times: int) -> Tensor:
    """Each entry of the last dimension ``times`` times over."""
    return g if times == 1 else g.unsqueeze(-1).expand(*g.shape, times).flatten(-2)


def _one_per_layer(gate: Any, layers: int) -> list[Gate]:
    if isinstance(gate, Gate | str) or not isinstance(gate, Sequence):
        return [as_gate(gate)] * layers
    if len(gate) != layers:
        raise ValueError(f"got {len(gate)} gates for {layers} layers; give one gate, or one each")
    return [as_gate(g) for g in gate]


def _mean_rate(g: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return g.mean()
    alive = (torch.arange(g.shape[0], device=g.device)[:, None] < lengths).to(g.dtype)
    return (g.mean(-1) * alive).sum() / alive.sum()


def _reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x [T, B, ...] backwards in time, each sequence within its length; padding stays."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    place = torch.where(t < lengths, lengths - 1 - t, t)
    return x.gather(0, place.unsqueeze(-1).expand_as(x))


class SuRNN(SelectiveLayer):
    """Elman RNN with selective update: ``f = tanh(W x + b_ih + U h + b_hh)``, or relu.

    Args:
        nonlinearity: ``"tanh"`` or ``"relu"``.
        *args, **options: see :class:`SelectiveLayer`.
    """

    _torch_class = nn.RNN

    def __init__(self, *args, nonlinearity: Literal["tanh", "relu"] = "tanh", **options) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        super().__init__(*args, cell=f"rnn_{nonlinearity}", **options)

    @classmethod
    def _options_of(cls, module):
        return {"nonlinearity": module.nonlinearity}

    def _torch_options(self):
        return {"nonlinearity": self.nonlinearity}


class SuGRU(SelectiveLayer):
    """GRU with selective update, in PyTorch's convention (gate order r, z, n).

    ``r, z = σ(W x + b_ih + U h + b_hh)``, ``n = tanh(W x + b_in + r * (U h + b_hn))``,
    ``f = (1 - z) * n + z * h``.

    Args:
        skip_drive: C of ``backend="onepass"``; None is large enough for an exact carry, see
            :func:`surnn.theory.skip_drive_for_retention` for smaller ones.
        *args, **options: see :class:`SelectiveLayer`.

    Example:
        >>> layer = SuGRU(32, 64, heads=4, gate="rhythm", batch_first=True)
        >>> y, h_n = layer(torch.randn(8, 100, 32))
        >>> y.shape, h_n.shape
        (torch.Size([8, 100, 64]), torch.Size([1, 8, 64]))
    """

    _torch_class = nn.GRU

    def __init__(self, *args, skip_drive: float | None = None, **options) -> None:
        super().__init__(*args, cell="gru", **options)
        self.skip_drive = skip_drive

    def _split_biases(self, b_ih, b_hh, suffix):
        # b_hn stays inside the reset gate's product; the others simply add.
        inner = torch.zeros_like(b_hh[:, 2:])
        bias = b_ih + torch.cat((b_hh[:, :2], inner), 1)
        return bias, b_hh[:, 2].unsqueeze(0)


class SuLSTM(SelectiveLayer):
    """LSTM with selective update (gate order i, f, g, o); h and c are carried together.

    ``c' = σ(f) * c + σ(i) * tanh(g)``, ``h' = σ(o) * tanh(c')``. The hidden state is (h, c).

    Args:
        *args, **options: see :class:`SelectiveLayer`.
    """

    _torch_class = nn.LSTM

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, cell="lstm", **options)


class SuSNN(SelectiveLayer):
    """Recurrent spiking layer with selective update; the output is the spikes, 0 or 1.

    On a carry step membrane and adaptation stay as they are and no spike is emitted. The hidden
    state is (s, u, b): emitted spikes, membrane, adaptation; without the last for plain LIF.

    Args:
        neuron: ``"alif"`` (adaptive threshold), ``"lif"``, or a registered spiking cell.
        tau_m: mean and standard deviation of the initial membrane time constants, in steps.
        tau_adp: the same for the adaptation.
        adaptation_goes_on: variant in which the adaptation decays on carry steps too.
        *args, **options: see :class:`SelectiveLayer`.
    """

    def __init__(
        self,
        *args,
        neuron: str = "alif",
        tau_m: tuple[float, float] = (20.0, 5.0),
        tau_adp: tuple[float, float] = (200.0, 25.0),
        adaptation_goes_on: bool = False,
        **options,
    ) -> None:
        self.tau = {"alpha": tau_m, "rho": tau_adp}
        self.adaptation_goes_on = adaptation_goes_on
        cell = get_cell(neuron)
        if cell.components[:2] != ("s", "u"):
            raise ValueError(f"{neuron!r} is not a spiking cell; choose 'alif' or 'lif'")
        super().__init__(*args, cell=cell, **options)

    def _create_parameters(self, suffix, reads, factory):
        super()._create_parameters(suffix, reads, factory)
        if self.bias:  # one bias is all a spiking unit has
            delattr(self, "bias_hh" + suffix)
        for name in self.cell.unit_parameters:
            shape = torch.empty(self.state_size, **factory)
            setattr(self, f"log_tau_{name}{suffix}", nn.Parameter(shape))

    def reset_parameters(self):
        super().reset_parameters()
        with torch.no_grad():
            for name, parameter in self.named_parameters(recurse=False):
                if name.startswith("log_tau_"):
                    mean, deviation = self.tau[name.split("_")[2]]
                    tau = torch.randn_like(parameter) * deviation + mean
                    parameter.copy_(tau.clamp(min=1.0).log())

    def _weights(self, suffix):
        weight = self._by_head(getattr(self, "weight_ih" + suffix))
        recurrent = self._by_head(getattr(self, "weight_hh" + suffix))
        bias = weight.new_zeros(weight.shape[:3])
        if self.bias:
            bias = self._by_head(getattr(self, "bias_ih" + suffix))
        unit = [self._per_step_decay(name, suffix) for name in self.cell.unit_parameters]
        return weight, bias, recurrent, torch.stack(unit)

    def _per_step_decay(self, name: str, suffix: str) -> Tensor:
        """exp(-1 / τ) [N, D]: always between 0 and 1, whatever is learned."""
        log_tau: Tensor = getattr(self, f"log_tau_{name}{suffix}")
        return torch.exp(-torch.exp(-log_tau)).unflatten(0, (self.heads, self.head_size))

    def _decay(self, suffix):
        rho = self._per_step_decay(self.cell.unit_parameters[-1], suffix)
        zero, one = torch.zeros_like(rho), torch.ones_like(rho)
        if len(self.cell.components) == 2:
            return torch.stack((zero, one), 1)
        return torch.stack((zero, one, rho if self.adaptation_goes_on else one), 1)
