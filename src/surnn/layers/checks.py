"""Errors that say what came, what was expected, and how to mend it."""

import difflib
import inspect
import threading
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..eager import is_captured, is_transformed
from ..state import SuState


def check_sizes(sizes: dict[str, int]) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")


def check_heads(heads: int, state_size: int) -> None:
    if state_size % heads:
        divisors = [n for n in range(1, state_size + 1) if state_size % n == 0]
        closest = sorted(sorted(divisors, key=lambda n: abs(n - heads))[:3])
        raise ValueError(
            f"{heads} heads do not divide a state of {state_size} units; try "
            f"{', '.join(map(str, closest))}"
        )


def dropped(dropout: float, layers: int) -> float:
    """A probability, and of use: it is between layers."""
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout is a probability between 0 and 1, got {dropout}")
    if dropout and layers == 1:
        warnings.warn(
            f"dropout={dropout} is applied between layers, and there is only one: nothing is "
            "dropped",
            stacklevel=4,  # where a SuGRU is made
        )
    return float(dropout)


def check_input(x: Any, input_size: int, batch_first: bool) -> bool:
    """Whether x has a batch dimension; raises if it is no sequence at all."""
    wanted = f"[{'B, T' if batch_first else 'T, B'}, {input_size}] or [T, {input_size}]"
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a tensor {wanted}, got {type(x).__name__}")
    if x.dim() not in (2, 3):
        raise ValueError(f"input must be {wanted}, got {x.dim()} dimensions: {shape_of(x)}")
    if x.shape[-1] != input_size:
        raise ValueError(
            f"input must be {wanted}: the last dimension is input_size, got {shape_of(x)}"
        )
    if not x.is_floating_point():
        raise TypeError(
            f"input must be floating point, got {x.dtype}; embed or one-hot encode tokens first"
        )
    if 0 in x.shape:
        raise ValueError(
            f"input has no time steps or no sequences: {shape_of(x)}; expected {wanted} with T "
            "and B at least 1"
        )
    return x.dim() == 3


def check_lengths(lengths: Any, x: Tensor) -> Tensor | None:
    """``lengths`` as an int64 tensor [B] that fits x [T, B, I]: clocks are counted on from them."""
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=x.device)
    no_integers = lengths.is_floating_point() or lengths.dtype == torch.bool
    if lengths.shape != x.shape[1:2] or no_integers:
        raise ValueError(
            f"lengths must be {x.shape[1]} integers, one for each sequence, got "
            f"{lengths.dtype} {shape_of(lengths)}"
        )
    if torch.compiler.is_compiling() or is_transformed() or is_captured(lengths):
        return lengths.long()  # there are no numbers to look at
    if not _seen.knows(lengths, x.shape[0]):
        low, high = torch.stack(lengths.aminmax()).tolist()
        if low < 1 or high > x.shape[0]:
            raise ValueError(
                f"lengths must lie between 1 and T = {x.shape[0]}, got {low} to {high}"
            )
        _seen.keep(lengths, x.shape[0])
    return lengths.long()


class Seen(threading.local):
    """The lengths that were found good last. To look at them means to wait for a GPU, and the
    layers of a model are all given the same."""

    tensor: "weakref.ref[Tensor] | None" = None
    version = steps = -1

    def knows(self, lengths: Tensor, steps: int) -> bool:
        """Whether these very numbers were good for so many steps."""
        same = self.tensor is not None and self.tensor() is lengths and self.steps == steps
        return same and not lengths.is_inference() and self.version == lengths._version

    def keep(self, lengths: Tensor, steps: int) -> None:
        """They are good."""
        self.version = -1 if lengths.is_inference() else lengths._version
        self.tensor, self.steps = weakref.ref(lengths), steps


_seen = Seen()


def check_dtype(x: Tensor, weight: Tensor) -> None:
    """Outside autocast an input has the layer's dtype, as torch's own layers ask."""
    if x.dtype != weight.dtype:
        double = torch.float64 in (x.dtype, weight.dtype)  # which autocast leaves alone
        raise ValueError(
            f"input is {x.dtype} but the layer is {weight.dtype}; convert one of them, for "
            f"example x.to({weight.dtype})" + ", or run under torch.autocast" * (not double)
        )


def check_finite(x: Tensor) -> None:
    if torch.compiler.is_compiling():
        raise ValueError(
            "nonfinite='raise' looks at values on the host and cannot be compiled; "
            "use nonfinite='propagate'"
        )
    bad = (~x.isfinite()).nonzero()
    if len(bad):
        t, b, i = bad[0].tolist()
        raise ValueError(
            f"input holds {len(bad)} value(s) that are not finite, the first, "
            f"{x[t, b, i].item()}, at step {t}, sequence {b}, feature {i}; clean the "
            "input, or let them run on with nonfinite='propagate'"
        )


def check_penalty(penalty: Tensor, gates: Iterable[Any]) -> None:
    """One that training adds to its loss must lead back to the gates."""
    if torch.compiler.is_compiling() or is_transformed():  # there is no graph to be seen
        return
    if penalty.requires_grad or not torch.is_grad_enabled():
        return
    learned = [gate for gate in gates if gate.target_rate is not None and not gate.frozen]
    if any(weight.requires_grad for gate in learned for weight in gate.parameters()):
        raise RuntimeError(
            "rate_penalty() would pull at nothing: the last forward pass was made without "
            "gradients, in torch.no_grad or in checkpoint(..., use_reentrant=True). Ask for it "
            "before another forward pass, use use_reentrant=False, or look at it in no_grad"
        )


def check_hidden(values: Any, names: tuple[str, ...], shape: list[int], dtype: torch.dtype) -> None:
    """Initial hidden tensors against the layer's state components."""
    wanted = " and ".join(names)
    if not all(isinstance(value, Tensor) for value in values):
        came = ", ".join(type(value).__name__ for value in values)
        raise TypeError(f"an initial state is tensors {shape} ({wanted}), or a SuState, got {came}")
    if len(values) != len(names):
        raise ValueError(
            f"the hidden state is {len(names)} tensor(s) ({', '.join(names)}), got {len(values)}"
        )
    for name, value in zip(names, values, strict=True):
        if list(value.shape) != shape:
            dimensions = (
                "layers * directions, B, H" if len(shape) == 3 else "layers * directions, H"
            )
            raise ValueError(
                f"initial {name} must be {shape} ({dimensions}), got {shape_of(value)}"
            )
        if (value.dtype == torch.float64) != (dtype == torch.float64):
            raise ValueError(
                f"initial {name} is {value.dtype} but the layer is {dtype}; convert it, for "
                f"example {name}.to({dtype})"
            )


def check_state(
    state: Any, shape: list[int], memories: list[torch.Size], dtype: torch.dtype
) -> None:
    """A stream's state against the layer: hidden values, clock, and the gates' memories.

    A layer in half precision may keep its state in float32; nothing goes on in float64 by chance.
    """
    if not isinstance(state, SuState):
        raise TypeError(
            f"a stream goes on from a SuState, got {type(state).__name__}; begin with "
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
    integer = isinstance(t, Tensor) and not t.is_floating_point()
    if not integer or list(t.shape) not in ([], shape[2:3]):
        what = f"{t.dtype} {shape_of(t)}" if isinstance(t, Tensor) else type(t).__name__
        raise ValueError(
            f"state.t must be an integer tensor, a scalar or one clock for each of {shape[2]} "
            f"sequences, got {what}"
        )
    if [m.shape for m in state.gates] != memories:
        raise ValueError(
            f"state.gates must be {[list(m) for m in memories]}, one memory for each layer's gate, "
            f"got {[list(m.shape) for m in state.gates]}; begin with layer.init_state({shape[2]})"
        )


def shape_of(x: Tensor) -> str:
    return str(list(x.shape))


def check_known(layer: type, unknown: dict[str, Any]) -> None:
    """Options that this kind of layer does not have are refused, with the nearest that it has."""
    for name in unknown:
        known = inspect.signature(layer).parameters
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
        raise TypeError(f"{layer.__name__} has no option {name!r}; {hint}")
