"""When does a unit update?

A gate turns step numbers (and, if it sees the input, inputs) into pre-activations for all steps
at once; positive means update. It never reads the hidden state, so it never serialises. Writing
one takes two methods::

    class Weekend(surnn.Gate):
        def setup(self, width, input_size):
            self.offset = torch.nn.Parameter(torch.zeros(width))

        def preactivation(self, t, x, memory):          # t: [T, b] int64, the first step is 1
            weekend = (t % 7 >= 5).double().unsqueeze(-1)   # -> [T, b, width], or anything that
            return weekend - 0.5 + self.offset, memory      #    broadcasts to it

The base class does the rest: thresholds and their gradients, granularity, always-on units,
initial and target rates, freezing, streaming.
"""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from ..surrogate import Mode, Surrogate

Granularity = Literal["auto", "unit", "head", "layer"] | int


class Schedule(NamedTuple):
    """Gate values for all steps of one layer."""

    g: Tensor
    """[T, b, width]: 1 updates, 0 carries. b is 1 if all sequences share it."""
    relevant: Tensor | None
    """[T, b, width] bool: where g has any gradient; None means everywhere."""


class Gate(nn.Module, ABC):
    """Base class of all gates. See the module's text for how to write one.

    Args:
        rate: share of steps at which a gate is open at the start. Each clock gate's schedule
            really has it over its ``horizon``, so set that to the length of your sequences. Gates
            that see the input have it on standard normal inputs, or after ``layer.calibrate(x)``.
        granularity: who shares a gate: ``"unit"``, ``"head"``, ``"layer"``, or a number of
            neighbouring units. ``"auto"`` is one gate per head, or per unit if there is one head.
        always_on: share of gates that are always open (the first ones, rounded up). They come on
            top of ``rate``, and have no gradient.
        target_rate: the update rate that :meth:`rate_penalty` pulls towards. Learned rates creep
            up without it.
        frozen: no gradient reaches the gate; its schedule stays as it began.
        surrogate: the step function's derivative, a :class:`~surnn.Surrogate`.
        mode: ``"hard"``, ``"sampled"`` (Bernoulli draws in training, hard at evaluation) or
            ``"soft"`` (the smooth step itself: no exact carry).
    """

    sees_input: bool = False
    """Whether the schedule depends on the sequence. Such gates get x; others None."""

    def __init__(
        self,
        *,
        rate: float = 0.1,
        granularity: Granularity = "auto",
        always_on: float = 0.0,
        target_rate: float | None = None,
        frozen: bool = False,
        surrogate: Surrogate = Surrogate("sigmoid", slope=4.0),  # noqa: B008 (frozen)
        mode: Mode = "hard",
    ) -> None:
        super().__init__()
        _share("rate", rate)
        _share("always_on", always_on)
        if target_rate is not None:
            _share("target_rate", target_rate)
        if not isinstance(surrogate, Surrogate):
            raise TypeError(
                f"surrogate must be a surnn.Surrogate, such as Surrogate('sigmoid', slope=4.0), "
                f"got {surrogate!r}"
            )
        if mode not in ("hard", "sampled", "soft"):
            raise ValueError(f"unknown mode {mode!r}; choose hard, sampled or soft")
        self.rate = rate
        self.granularity: Granularity = granularity
        self.always_on = always_on
        self.target_rate = target_rate
        self.frozen = frozen
        self.surrogate = surrogate if isinstance(surrogate, Surrogate) else Surrogate(surrogate)  # type: ignore[arg-type]
        self.mode: Mode = mode
        self.noise = 1.0
        """Annealing knob of sampled mode: 1 draws fully, 0 is the hard gate."""
        self.width: int | None = None
        self._forced_open = 0
        self._input_size = 0

    # ------------------------------------------------------------ what a gate writes

    def setup(self, width: int, input_size: int) -> None:
        """Create parameters for ``width`` gates reading inputs of ``input_size``."""

    @abstractmethod
    def preactivation(self, t: Tensor, x: Any, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Pre-activations, broadcastable to [T, b, width], and the memory after the steps.

        Args:
            t: [T, b] int64 step numbers, counted from 1; b is 1 unless streams run on clocks of
                their own. Integers, so that arithmetic can stay exact however long a stream runs.
            x: [T, B, I], or None for a gate that does not see the input.
            memory: [B, M], whatever :meth:`init_memory` or the chunk before gave.

        The memory is returned as [B, M] or, if it changes with time, [T, B, M]: after every step,
        so that sequences of different lengths find theirs.
        """

    def reads_nan(self, x: Tensor) -> bool:
        """Whether NaN in x may be left in: it gives NaN at that step alone, and no gradient."""
        return False

    def init_memory(self, batch: int) -> Tensor:
        """Streaming memory before the first step: [B, M]. Most gates need none (M = 0)."""
        some = next(self.parameters(), None)
        return torch.zeros(batch, 0, device=None if some is None else some.device)

    # ------------------------------------------------------------ what every gate does

    def bind(self, hidden_size: int, heads: int = 1, input_size: int = 1) -> Self:
        """A fresh copy with parameters, for a layer of this shape. Layers call this."""
        gate = copy.deepcopy(self)
        gate.width = _gate_width(self.granularity, hidden_size, heads)
        gate._input_size = input_size
        gate._forced_open = math.ceil(self.always_on * gate.width)
        gate._setup_here(gate.width, input_size)
        return gate

    def _setup_here(self, width: int, input_size: int) -> None:
        """:meth:`setup` on the CPU in float32, whatever torch's defaults are at the moment."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            with torch.device("cpu"):
                self.setup(width, input_size)
        finally:
            torch.set_default_dtype(default)
        if self.frozen:
            self.requires_grad_(False)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the parameters anew, in place."""
        assert self.width is not None
        fresh = copy.copy(self)
        for registry in ("_parameters", "_buffers", "_modules"):
            setattr(fresh, registry, {})
        fresh._setup_here(self.width, self._input_size)
        for name, parameter in self.named_parameters():
            parameter.copy_(fresh.get_parameter(name))

    def forward(
        self,
        t: Tensor,
        x: Tensor | None = None,
        memory: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Schedule, Tensor]:
        """The schedule of steps t [T, b], and the memory [B, M] after them or after ``lengths``."""
        if self.width is None:
            raise RuntimeError(
                f"{type(self).__name__} has no parameters yet: a layer binds its gates itself; "
                "to use one alone, call gate = gate.bind(hidden_size, heads, input_size) first"
            )
        if self.sees_input and x is None:
            raise ValueError(f"{type(self).__name__} sees the input: pass x of shape [T, B, I]")
        if memory is None:
            memory = self.init_memory(1 if x is None else x.shape[1])
        unreadable = None
        if self.sees_input and x is not None and not self.reads_nan(x):
            unreadable = x.isnan().any(-1, keepdim=True)
            x = x.nan_to_num(nan=0.0)
        given = self.preactivation(t, x if self.sees_input else None, memory)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError(
                f"{type(self).__name__}.preactivation must return two things, what the gates are "
                f"made of and the memory, got {type(given).__name__}; write return a, memory"
            )
        a, memory = given
        if memory.dim() == 3:
            memory = memory[-1] if lengths is None else _at_lengths(memory, lengths)
        if a.shape[-1] not in (1, self.width):
            raise ValueError(
                f"{type(self).__name__}.preactivation gave {list(a.shape)}; its last dimension "
                f"must be the gate's width, {self.width}, or 1"
            )
        if a.shape[-1] != self.width or a.shape[0] != t.shape[0] or a.dim() != 3:
            a = a.expand(*torch.broadcast_shapes(a.shape, (t.shape[0], 1, self.width)))
        if self.frozen:
            a = a.detach()
        g = self._threshold(a)
        if unreadable is not None:  # a gate that sees NaN stays closed
            g = torch.where(unreadable, 0.0, g)
        relevant = self.surrogate.support(a) if self.surrogate.compact else None
        if self._forced_open:
            forced = torch.arange(self.width, device=a.device) < self._forced_open
            g = torch.where(forced, 1.0, g)
            relevant = ~forced.expand(a.shape) if relevant is None else relevant & ~forced
        return Schedule(g, relevant), memory

    def _threshold(self, a: Tensor) -> Tensor:
        if self.mode == "soft":
            return self.surrogate.smooth(a)
        if self.mode == "sampled" and self.training:
            return self.surrogate.sample(a, self.noise)
        return self.surrogate.step(a)

    @property
    def binary(self) -> bool:
        """Whether g is exactly 0 or 1."""
        return self.mode != "soft"

    def rate_penalty(self, rate: Tensor) -> Tensor:
        """|rate - target|; ``rate`` carries the gate's gradient. 0 without a target."""
        if self.target_rate is None:
            return torch.zeros_like(rate)
        return (rate - self.target_rate).abs()

    def _apply(self, fn, recurse=True):
        # A gate decides by a threshold: in half precision its clock would drift and its
        # schedule change. It moves between devices with its layer, but keeps its precision.
        def keep_precision(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if moved.dtype in (torch.float16, torch.bfloat16):
                return tensor.to(moved.device)
            return moved

        return super()._apply(keep_precision, recurse)

    def extra_repr(self) -> str:
        shown = [f"rate={self.rate:g}", f"granularity={self.granularity!r}"]
        if self.width is not None:
            shown.insert(0, f"width={self.width}")
        for name, default in (("always_on", 0.0), ("target_rate", None), ("frozen", False)):
            if getattr(self, name) != default:
                shown.append(f"{name}={getattr(self, name)}")
        if self.mode != "hard":
            shown.append(f"mode={self.mode!r}")
        return ", ".join(shown)


def refuse(gate: type, options: dict[str, Any], *names: str) -> None:
    """Options that would mean nothing to a gate that is fixed."""
    for name in names:
        if name in options:
            raise TypeError(f"{gate.__name__} is a fixed schedule and takes no {name!r}")


def _at_lengths(memory: Tensor, lengths: Tensor) -> Tensor:
    """memory [T, B, M] after the last step of each sequence: [B, M]."""
    last = (lengths - 1)[None, :, None].expand(1, -1, memory.shape[-1])
    return memory.gather(0, last)[0]


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a share between 0 and 1, got {value!r}")


def _gate_width(granularity: Granularity, hidden_size: int, heads: int) -> int:
    if granularity == "auto":
        granularity = "head" if heads > 1 else "unit"
    if granularity == "unit":
        return hidden_size
    if granularity == "head":
        return heads
    if granularity == "layer":
        return 1
    if isinstance(granularity, bool) or not isinstance(granularity, int) or granularity < 1:
        raise ValueError(
            f"granularity must be 'auto', 'unit', 'head', 'layer' or a number of units, "
            f"got {granularity!r}"
        )
    if hidden_size % granularity:
        raise ValueError(
            f"groups of {granularity} units do not divide hidden_size {hidden_size}; "
            f"choose a divisor of {hidden_size}"
        )
    return hidden_size // granularity


def bias_for_rate(a: Tensor, rate: float) -> Tensor:
    """Per-gate offset [width] that leaves the given share of a [T, width] above 0.

    Halfway between the two values around the cut, so that rounding does not move it.
    """
    steps = a.shape[0]
    open_steps = round(rate * steps)
    ranked = a.double().sort(0, descending=True).values
    edge = 1.0  # all open, or all closed: a clear margin beyond the last value
    padded = torch.cat((ranked[:1] + edge, ranked, ranked[-1:] - edge))
    return -(padded[open_steps] + padded[open_steps + 1]) / 2
