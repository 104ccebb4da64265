"""One time step of a stream on a CPU without gradients, in C.

A frame is small, so the time of a step is that of the calls around it. This path makes one call
for each layer, on weights and states as they are, and reads the gates of a clock from a table.
Where it does not apply, :func:`fast_step` returns None and the layer takes the general path, which
also raises the errors.
"""

import ctypes
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from surnn.scan.native import Frame, are_equal, run_frame, step_number

from ..gates import Gate
from ..runtime import is_transformed
from ..state import MAX_CLOCK, SuState
from ..surrogate import Surrogate
from .sequence import spread_gates
from .weights import suffix_of

if TYPE_CHECKING:
    from .base import SelectiveLayer

# Time steps of one table, and tables of one gate: streams may be at different times.
TABLE_STEPS = 64
TABLES = 8
_OPTIONS = (bool, int, float, str, tuple, Surrogate, type(None))


class ScheduleTable:
    """The values of a clock gate at the next time steps.

    A table is valid until the gate changes. Parameters are compared by value at every step:
    versions of tensors do not see changes through ``.data``.
    """

    def __init__(self, gate: Gate) -> None:
        self._names = [name for name, v in vars(gate).items() if isinstance(v, _OPTIONS)]
        self._options: list[Any] = []
        self._tensors: list[Tensor] = []
        self._blocks: dict[int, Tensor] = {}

    def values(self, gate: Gate, t: list[int], heads: int, head_size: int) -> Tensor:
        """The gate's values [b, N, m] at time steps t; b is 1 if they are all the same."""
        self._renew_if_changed(gate)
        rows = [self._row(gate, each, heads, head_size) for each in dict.fromkeys(t)]
        if len(rows) == 1:
            return rows[0].unsqueeze(0)
        by_step = dict(zip(dict.fromkeys(t), rows, strict=True))
        return torch.stack([by_step[each] for each in t])

    def _renew_if_changed(self, gate: Gate) -> None:
        own = gate.__dict__
        options = [own[name] for name in self._names]
        stored = (*gate._parameters.values(), *gate._buffers.values())
        tensors = [v for v in stored if v is not None]
        if options != self._options or not _equal(tensors, self._tensors):
            self._options, self._tensors = options, [_copy(v) for v in tensors]
            self._blocks.clear()

    def _row(self, gate: Gate, t: int, heads: int, head_size: int) -> Tensor:
        number, place = divmod(t - 1, TABLE_STEPS)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) == TABLES:
                del self._blocks[next(iter(self._blocks))]
            steps = torch.arange(TABLE_STEPS, device="cpu") + (number * TABLE_STEPS + 1)
            values, _ = spread_gates(gate(steps.unsqueeze(1))[0], heads, head_size)
            block = self._blocks[number] = values[:, 0].float().contiguous()
        return block[place]


_TABLES: WeakKeyDictionary[Gate, ScheduleTable] = WeakKeyDictionary()


def _equal(tensors: list[Tensor], others: list[Tensor]) -> bool:
    if len(tensors) != len(others):
        return False
    pairs = zip(tensors, others, strict=True)
    return all(_same_form(v, w) and are_equal(v, w) for v, w in pairs)


def _copy(v: Tensor) -> Tensor:
    return v.detach().clone(memory_format=torch.contiguous_format)


def _same_form(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and a.is_cpu and a.is_contiguous()


def _is_clock(gate: Gate) -> bool:
    """Whether the gate's values depend on time and on its own attributes alone."""
    if gate.sees_input or gate._modules or (gate.mode in ("sampled", "relaxed") and gate.training):
        return False
    return type(gate).__module__.startswith("surnn.")  # other gates may read anything


def fast_step(layer: "SelectiveLayer", x: Tensor, state: Any) -> tuple[Tensor, SuState] | None:
    """Outputs [B, H] of one time step of x [B, I], and the state after it.

    None if the general path must do it.
    """
    gates: list[Gate] = list(layer._modules["gates"]._modules.values())  # type: ignore[union-attr]
    if not _can_run_here(layer, gates) or not _is_plain_state(layer, x, state):
        return None
    batch = x.shape[0]
    clock = [1 + t for t in state.t.reshape(-1).tolist()]
    weights = [_weights(layer, index, x.shape[1]) for index in range(len(gates))]
    if not all(1 <= t <= MAX_CLOCK for t in clock) or None in weights:
        return None
    new, memories = torch.empty_like(state.cell), []
    frame = Frame(batch, layer.heads, layer.head_size, cell=step_number(layer.cell))
    x = x.contiguous()
    size = 4 * state.cell.stride(0)
    frame.features, frame.x = x.shape[1], x.data_ptr()
    frame.state, frame.next = state.cell.data_ptr(), new.data_ptr()
    for index, gate in enumerate(gates):
        memory = state.gates[index]
        if _is_clock(gate):
            if memory.shape[0] != batch or memory.numel():
                return None
            table = _TABLES.get(gate) or _TABLES.setdefault(gate, ScheduleTable(gate))
            values = table.values(gate, clock, layer.heads, layer.head_size)
        else:
            if memory.shape != gate.init_memory(batch).shape:
                return None
            first = index == 0 or getattr(gate, "source", "layer") == "input"
            seen = x if first else new[index - 1, 0]
            schedule, memory = gate(state.t.reshape(1, -1) + 1, seen.unsqueeze(0), memory)
            spread, _ = spread_gates(schedule, layer.heads, layer.head_size)
            values = spread[0].float().contiguous()
        frame.gate, frame.gate_batch, frame.gate_width = values.data_ptr(), *values.shape[::2]
        frame.weight_ih, frame.weight_hh, frame.bias_ih, frame.bias_hh = weights[index]  # type: ignore[misc]
        frame.binary = gate.binary
        run_frame(ctypes.byref(frame))
        memories.append(memory)
        frame.features, frame.x = layer.state_size, frame.next  # component 0 comes first
        frame.state, frame.next = frame.state + size, frame.next + size
    return new[-1, 0].clone(), SuState(new, state.t + 1, tuple(memories))


def _can_run_here(layer: "SelectiveLayer", gates: list[Gate]) -> bool:
    """Whether the layer and the modes that are active allow it."""
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not is_transformed()
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and not torch.is_autocast_enabled("cpu")
        and layer.backend in ("auto", "native")
        and layer.expand == 1
        and layer.nonfinite == "propagate"
        and "_scan" not in layer.__dict__
        and not any(gate._forward_hooks for gate in gates)
        and step_number(layer.cell) is not None
    )


def _is_plain_state(layer: "SelectiveLayer", x: Tensor, state: Any) -> bool:
    """Whether x and the state are as C reads them."""
    if not isinstance(state, SuState) or len(state.gates) != layer.num_layers:
        return False
    cell, t = state.cell, state.t
    return (
        _is_plain(x)
        and _is_plain(cell)
        and cell.is_contiguous()
        and tuple(cell.shape) == tuple(layer._state_shape(x.shape[0]))
        and type(t) is Tensor
        and t.dtype == torch.int64
        and tuple(t.shape) in ((), (x.shape[0],))
        and t.is_cpu
    )


def _is_plain(x: Tensor) -> bool:
    """Whether C can read x: float32 values in the memory of the CPU."""
    plain = type(x) is Tensor or type(x) is nn.Parameter
    return plain and x.dtype is torch.float32 and x.is_cpu


def _weights(layer: "SelectiveLayer", index: int, features: int) -> list[int | None] | None:
    """Addresses of the weights of one layer; None where C cannot read one of them."""
    addresses: list[int | None] = [None] * 4
    rows = layer.cell.drives * layer.state_size
    reads = features if index == 0 else layer.state_size
    shapes = {"weight_ih": (rows, reads), "weight_hh": (rows, layer.head_size)}
    if layer.bias:
        shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
    for place, (name, shape) in enumerate(shapes.items()):
        weight = layer._parameters.get(name + suffix_of(index, 0))
        if weight is None or not _is_plain(weight) or not weight.is_contiguous():
            return None
        if weight.shape != shape:  # C would read past its end
            return None
        addresses[place] = weight.data_ptr()
    return addresses
