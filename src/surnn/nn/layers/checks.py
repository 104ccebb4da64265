"""Errors that say what came, what was expected, and how to fix it."""

import threading
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from surnn.errors import ClockError, InputError

from ..runtime import can_branch_on, is_captured, is_transformed
from ..state import MAX_CLOCK, SuState

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""Types that a clock may have; a layer counts in int64."""


def check_sizes(sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be greater than zero, an integer, got {value!r}")


def check_heads(heads: int, state_size: int) -> None:
    if state_size % heads:
        divisors = [n for n in range(1, state_size + 1) if state_size % n == 0]
        closest = sorted(sorted(divisors, key=lambda n: abs(n - heads))[:3])
        raise ValueError(
            f"{heads} heads do not divide a state of {state_size} units; try "
            f"{', '.join(map(str, closest))}"
        )


def check_dropout(dropout: float, layers: int) -> float:
    """``dropout`` if it is a probability; warns if a single layer has no place for it."""
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout is a probability between 0 and 1, got {dropout}")
    if dropout and layers == 1:
        warnings.warn(
            f"dropout={dropout} is applied between layers, and there is only one, so it has no "
            "effect",
            stacklevel=4,  # the line that creates the layer
        )
    return float(dropout)


def check_frame(x: Any, input_size: int) -> bool:
    """Whether the x of one time step has a batch dimension; raises if it is no such x."""
    expected = f"[B, {input_size}] or [{input_size}]"
    if not isinstance(x, Tensor):
        raise TypeError(f"a cell takes one frame {expected}, got {type(x).__name__}")
    if x.dim() not in (1, 2) or x.shape[-1] != input_size:
        raise InputError(f"a cell takes one frame {expected}, got {shape_of(x)}")
    _check_dtype(x)
    return x.dim() == 2


def check_input(x: Any, input_size: int, batch_first: bool) -> bool:
    """Whether x has a batch dimension; raises if it is not a sequence."""
    expected = f"[{'B, T' if batch_first else 'T, B'}, {input_size}] or [T, {input_size}]"
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a tensor {expected}, got {type(x).__name__}")
    if x.dim() not in (2, 3):
        raise InputError(f"input must be {expected}, got {x.dim()} dimensions: {shape_of(x)}")
    if x.shape[-1] != input_size:
        raise InputError(
            f"input must be {expected}: the last dimension is input_size, got {shape_of(x)}"
        )
    _check_dtype(x)
    if x.shape[1 if batch_first and x.dim() == 3 else 0] == 0:
        raise InputError(
            f"input has no time steps: {shape_of(x)}; expected {expected} with T at least 1"
        )
    return x.dim() == 3


def _check_dtype(x: Tensor) -> None:
    if not x.is_floating_point():
        raise TypeError(
            f"input must be floating point, got {x.dtype}; embed or one-hot encode tokens first"
        )


def check_lengths(lengths: Any, x: Tensor) -> Tensor | None:
    """``lengths`` as an int64 tensor [B] that fits x [T, B, I]. Clocks advance by them."""
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=x.device)
    not_integers = lengths.is_floating_point() or lengths.dtype == torch.bool
    if lengths.shape != x.shape[1:2] or not_integers:
        raise ValueError(
            f"lengths must be {x.shape[1]} integers, one for each sequence, got "
            f"{lengths.dtype} {shape_of(lengths)}"
        )
    if torch.compiler.is_compiling() or is_transformed() or is_captured(lengths):
        return lengths.long()  # there are no values to read
    if not _checked.contains(lengths, x.shape[0]):
        low, high = torch.stack(lengths.aminmax()).tolist() if len(lengths) else (1, 1)
        if low < 1 or high > x.shape[0]:
            raise ValueError(
                f"lengths must lie between 1 and T = {x.shape[0]}, got {low} to {high}"
            )
        _checked.remember(lengths, x.shape[0])
    return lengths.long()


class CheckedLengths(threading.local):
    """The lengths that passed the last check.

    Reading them waits for a GPU, and all layers of a model get the same tensor.
    """

    tensor: "weakref.ref[Tensor] | None" = None
    version = steps = -1

    def contains(self, lengths: Tensor, steps: int) -> bool:
        """Whether this tensor, unchanged since, passed for sequences of ``steps``."""
        same = self.tensor is not None and self.tensor() is lengths and self.steps == steps
        return same and not lengths.is_inference() and self.version == lengths._version

    def remember(self, lengths: Tensor, steps: int) -> None:
        """Store that ``lengths`` passed."""
        self.version = -1 if lengths.is_inference() else lengths._version
        self.tensor, self.steps = weakref.ref(lengths), steps


_checked = CheckedLengths()


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Outside autocast an input must have the layer's dtype, as in torch's own layers."""
    if x.dtype != weight.dtype:
        double = torch.float64 in (x.dtype, weight.dtype)  # autocast does not touch float64
        raise InputError(
            f"RNN input dtype {x.dtype} does not match weight dtype {weight.dtype}. Convert input: "
            f"input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            + ", or run under torch.autocast"
            * (not double)
        )


def check_finite(x: Tensor) -> None:
    if torch.compiler.is_compiling():
        raise ValueError(
            "nonfinite='raise' reads values on the host and cannot be compiled; "
            "use nonfinite='propagate'"
        )
    bad = (~x.isfinite()).nonzero()
    if len(bad):
        t, b, i = bad[0].tolist()
        raise ValueError(
            f"input holds {len(bad)} value(s) that are not finite, the first, "
            f"{x[t, b, i].item()}, at step {t}, sequence {b}, feature {i}; clean the "
            "input, or let them propagate with nonfinite='propagate'"
        )


def check_penalty(penalty: Tensor, gates: Iterable[Any]) -> None:
    """A penalty that training adds to its loss must have a gradient by the gates."""
    if torch.compiler.is_compiling() or is_transformed():  # no graph to inspect
        return
    if penalty.requires_grad or not torch.is_grad_enabled():
        return
    learned = [gate for gate in gates if gate.target_rate is not None and not gate.frozen]
    if any(weight.requires_grad for gate in learned for weight in gate.parameters()):
        raise RuntimeError(
            "rate_penalty() has no gradient: the last forward ran without autograd, in "
            "torch.no_grad or in checkpoint(..., use_reentrant=True). Call it before the next "
            "forward, use use_reentrant=False, or read it in torch.no_grad"
        )


def check_hidden(values: Any, names: tuple[str, ...], shape: list[int], dtype: torch.dtype) -> None:
    """Initial hidden tensors against the layer's state components."""
    expected = " and ".join(names)
    if not all(isinstance(value, Tensor) for value in values):
        types = ", ".join(type(value).__name__ for value in values)
        raise TypeError(
            f"an initial state is tensors {shape} ({expected}), or a SuState, got {types}"
        )
    if len(values) != len(names):
        raise InputError(
            f"the hidden state is {len(names)} tensor(s) ({', '.join(names)}), got {len(values)}"
        )
    for name, value in zip(names, values, strict=True):
        if list(value.shape) != shape:
            dimensions = (
                "layers * directions, B, H" if len(shape) == 3 else "layers * directions, H"
            )
            raise InputError(
                f"initial {name} must be {shape} ({dimensions}), got {shape_of(value)}"
            )
        if (value.dtype == torch.float64) != (dtype == torch.float64):
            raise InputError(
                f"initial {name} is {value.dtype} but the layer is {dtype}; convert it, for "
                f"example {name}.to({dtype})"
            )


def is_recorded(x: Tensor) -> bool:
    """Whether a graph is recorded that runs without Python, so that no clock can stay with h_n."""
    if torch.jit.is_tracing() or torch.compiler.is_exporting() or is_transformed():
        return True
    return isinstance(x, FakeTensor) and not torch.compiler.is_compiling()


def check_start(values: tuple[Tensor, ...], steps: int) -> None:
    """Plain hidden tensors start a sequence at time step 1; refuse them where they may not.

    Several time steps from a plain state are a sequence from its start, as in torch. One time step
    from a plain state that is not zero is most often a later one, whose clock was lost on the way.
    """
    if torch.compiler.is_compiling() or is_recorded(values[0]):
        from .plain_state import refuse_plain_state  # noqa: PLC0415 (imports Dynamo, which is slow)

        refuse_plain_state()
    if steps != 1 or values[0].is_meta or not any(bool(v.any()) for v in values):
        return
    raise ClockError(
        "one time step from a plain hidden state: this layer's gates read a clock, and a plain "
        "tensor does not hold the time step that comes next. Start the loop with hx=None, with "
        "state = layer.init_state(B), or, where states are stored in buffers, with "
        "layer.init_state(B).pack(). To start a sequence from your own h_0, pass "
        "layer.init_state(B, h_0)"
    )


def check_state(
    state: Any, shape: list[int], memories: list[torch.Size], dtype: torch.dtype
) -> None:
    """A stream's state against the layer: hidden values, clock, and the gates' memories.

    A layer in half precision may keep its state in float32. float64 must match.
    """
    if not isinstance(state, SuState):
        raise TypeError(
            f"a stream continues from a SuState, got {type(state).__name__}; begin with "
            "state = layer.init_state(batch_size)"
        )
    if list(state.cell.shape) != shape:
        raise ValueError(
            f"state.cell must be {shape} (layers, components, B, H), got "
            f"{shape_of(state.cell)}; begin with layer.init_state({shape[2]})"
        )
    if (state.cell.dtype == torch.float64) != (dtype == torch.float64):
        raise ValueError(
            f"state.cell is {state.cell.dtype} but the layer is {dtype}; begin with "
            f"layer.init_state({shape[2]}), or convert it: "
            f"state._replace(cell=state.cell.to({dtype}))"
        )
    t = state.t
    integer = isinstance(t, Tensor) and t.dtype in INTEGERS
    if not integer or list(t.shape) not in ([], shape[2:3]):
        kind = f"{t.dtype} {shape_of(t)}" if isinstance(t, Tensor) else type(t).__name__
        raise ValueError(
            f"state.t must be an integer tensor, a scalar or one clock for each of {shape[2]} "
            f"sequences, got {kind}"
        )
    check_clock(t)
    if [m.shape for m in state.gates] != memories:
        raise ValueError(
            f"state.gates must be {[list(m) for m in memories]}, one memory for each layer's gate, "
            f"got {[list(m.shape) for m in state.gates]}; begin with layer.init_state({shape[2]})"
        )


def check_clock(t: Tensor) -> None:
    """The clock of a stream must be within its limits. One on a GPU is not read."""
    if t.device.type != "cpu" or not can_branch_on(t) or not t.numel():
        return
    low, high = (int(v) for v in t.aminmax())
    if low < 0 or high > MAX_CLOCK:
        raise ValueError(
            f"state.t must be 0 to 2^50 time steps, got {low if low < 0 else high}; begin a new "
            "stream with layer.init_state(batch_size)"
        )


def shape_of(x: Tensor) -> str:
    return str(list(x.shape))
