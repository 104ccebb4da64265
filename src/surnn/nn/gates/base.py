"""When does a unit update?

A gate turns time steps (and, if it sees the input, inputs) into pre-activations for all time steps
at once; a positive one means update. A gate never reads the hidden state, so all time steps can be
computed in parallel. A new gate takes two methods::

    class Weekend(surnn.Gate):
        def setup(self, width, input_size):
            self.offset = torch.nn.Parameter(torch.zeros(width))

        def preactivation(self, t, x, memory):          # t: [T, b] int64, counted from 1
            weekend = (t % 7 >= 5).double().unsqueeze(-1)   # -> [T, b, width], or anything that
            return weekend - 0.5 + self.offset, memory      #    broadcasts to it

The base class does the rest: thresholds and their gradients, granularity, always-on units,
initial and target rates, freezing, streaming. A gate with options of its own takes them by keyword
and passes the others on: ``def __init__(self, *, day=5, **options): super().__init__(**options)``.
"""

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn

from ..constants import constant_zeros
from ..last_pass import LastPass
from ..options import check_known, inherit_options
from ..resets import restart_clock
from ..runtime import can_branch_on, fake_mode, is_transformed, make_fake, no_fake_mode
from ..surrogate import Mode, Surrogate
from .options import Granularity, gate_width
from .resets import look_up


class Schedule(NamedTuple):
    """Gate values at all time steps of one layer.

    Example:
        >>> schedule = Schedule(torch.tensor([[[1.0]], [[0.0]]]), None)
        >>> schedule.g.mean().item()
        0.5
    """

    g: Tensor
    """[T, b, width]: 1 updates, 0 carries. b is 1 if all sequences share the schedule."""
    relevant: Tensor | None
    """[T, b, width] bool: where g has a gradient; None means everywhere."""


class Gate(nn.Module, ABC):
    """Base class of all gates. The module's docstring shows how to write one.

    Args:
        rate: share of time steps at which a gate is open at the start. Clock gates have exactly
            this rate over their ``horizon``, so set that to the length of your sequences. Gates
            that see the input have it on standard normal inputs, or after ``layer.calibrate(x)``.
        granularity: which units share a gate: ``"unit"`` (none), ``"head"``, ``"layer"``, or a
            number of neighbouring units. ``"auto"`` is one gate per head, or per unit if the layer
            has one head.
        always_on: share of gates that are always open (the first ones, rounded up). ``rate``
            does not include them, and they have no gradient.
        target_rate: the update rate that :meth:`rate_penalty` pulls towards. Without it, learned
            rates tend to rise.
        frozen: keep the initial schedule; the gate gets no gradient.
        surrogate: a :class:`~surnn.Surrogate`, whose derivative replaces the step function's.
        mode: ``"hard"``, ``"sampled"`` (Bernoulli draws in training, hard at evaluation),
            ``"relaxed"`` (the smooth step in training, hard at evaluation) or ``"soft"`` (the
            smooth step itself, without an exact carry). :func:`surnn.anneal` turns sampled and
            relaxed gates into hard ones.
        margin: distance from 0 to which ``layer.margin_penalty()`` pushes pre-activations, so that
            rounding does not change decisions. 0 is no margin.

    Example:
        >>> class Weekend(Gate):
        ...     def preactivation(self, t, x, memory):
        ...         return (t % 7 >= 5).double().unsqueeze(-1) - 0.5, memory
        >>> gate = Weekend().bind(hidden_size=1)
        >>> gate(torch.arange(1, 8)[:, None])[0].g.flatten().tolist()
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    """

    sees_input: bool = False
    """Whether the schedule depends on the input. Such gates get x, the others None."""

    margin: float = 0.0
    _near: tuple[Tensor, ...] = ()  # gates that earlier versions pickled have neither
    target_progress: float | Tensor = 1.0
    """How far the target of :meth:`rate_penalty` has moved: 0 is ``rate``, 1 ``target_rate``."""
    reads_clock: bool = True
    """Whether the schedule depends on t. A stream of a gate that reads it needs the clock."""

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
        margin: float = 0.0,
        **unknown: Any,
    ) -> None:
        super().__init__()
        check_known(type(self), unknown)
        check_share("rate", rate)
        check_share("always_on", always_on)
        if target_rate is not None:
            check_share("target_rate", target_rate)
        if not isinstance(surrogate, Surrogate):
            raise TypeError(
                f"surrogate must be a surnn.Surrogate, such as Surrogate('sigmoid', slope=4.0), "
                f"got {surrogate!r}"
            )
        if mode not in get_args(Mode):
            raise ValueError(f"unknown mode {mode!r}; choose hard, sampled, relaxed or soft")
        if not (math.isfinite(margin) and margin >= 0):
            raise ValueError(f"margin is a distance from 0, at least 0, got {margin!r}")
        self.rate = rate
        self.granularity: Granularity = granularity
        self.always_on = always_on
        self.target_rate = target_rate
        self.frozen = frozen
        self.surrogate = surrogate
        self.mode: Mode = mode
        self.margin = margin
        self.noise: float | Tensor = 1.0
        """How far sampled and relaxed gates are from hard ones in training, to be annealed: 1
        draws fully, or is the smooth step; 0 is the hard gate."""
        self._near: tuple[Tensor, ...] = ()
        """The margin penalty of the last pass in training."""
        self.width: int | None = None
        self._forced_open = 0
        self._input_size = 0

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "preactivation" in cls.__dict__ and "reads_clock" not in cls.__dict__:
            cls.reads_clock = True  # a new schedule may read t, whatever its base does
        bases = (base for base in cls.__mro__[1:] if issubclass(base, Gate))
        inherit_options(cls, next(base for base in bases if "__init__" in base.__dict__))

    # ------------------------------------------------------------ methods that a gate defines

    def setup(self, width: int, input_size: int) -> None:
        """Create parameters for ``width`` gates reading inputs of ``input_size``."""

    @abstractmethod
    def preactivation(self, t: Tensor, x: Any, memory: Tensor) -> tuple[Tensor, Any]:
        """Pre-activations, broadcastable to [T, b, width], and the memory after these time steps.

        Args:
            t: [T, b] int64 time steps, counted from 1; b is 1 unless every stream has its own
                clock. Integers keep arithmetic exact however long a stream runs.
            x: [T, B, I], or None for a gate that does not see the input.
            memory: [B, M], from :meth:`init_memory` or from the previous chunk.

        Return the memory as [B, M] or, if it changes with time, as [T, B, M], the memory after
        every time step; sequences of different lengths then each get their own. A tuple of
        tensors [T, B, ...] is joined to one [B, M].
        """

    def preactivation_with_resets(
        self, t: Tensor, x: Any, memory: Tensor, reset: Tensor
    ) -> tuple[Tensor, Any]:
        """:meth:`preactivation` of sequences that restart where ``reset`` [T, B] is True.

        t [T, B] is 1 there. Gates with a memory define this method: nothing that they remember may
        cross a reset. Only gates that see the input need it.
        """
        if memory.shape[-1]:
            raise ValueError(
                f"{type(self).__name__} has a memory and cannot restart inside a sequence: it "
                "does not define preactivation_with_resets(t, x, memory, reset). Define it, or "
                "pass the parts of the sequence one by one, without reset="
            )
        return self.preactivation(t, x, memory)

    def reads_nan(self, x: Tensor) -> bool:
        """Whether NaN in x makes :meth:`preactivation` NaN at that step only, without gradient."""
        return False

    def init_memory(self, batch: int) -> Tensor:
        """Streaming memory before the first time step: [B, M]. Most gates need none (M = 0)."""
        parameter = next(self.parameters(), None)
        if parameter is None:
            return torch.zeros(batch, 0)
        return constant_zeros((batch, 0), torch.get_default_dtype(), parameter)

    def needs_state(self) -> bool:
        """Whether a sequence in pieces needs more than the hidden state: a clock or a memory."""
        return self.reads_clock or self.init_memory(1).shape[-1] > 0

    # ------------------------------------------------------------ methods that all gates share

    def bind(
        self,
        hidden_size: int,
        heads: int = 1,
        input_size: int = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """A new copy with parameters for a layer of this shape. Layers call this."""
        gate = copy.deepcopy(self)
        gate.width = gate_width(self.granularity, hidden_size, heads)
        gate._input_size = input_size
        gate._forced_open = math.ceil(self.always_on * gate.width)
        mode = fake_mode()
        with no_fake_mode():  # initial rates are measured on real numbers
            gate._setup_float32(gate.width, input_size)
            gate.to(device=device or torch.get_default_device(), dtype=dtype)
            return gate if mode is None else make_fake(gate, mode)

    def _setup_float32(self, width: int, input_size: int) -> None:
        """Run :meth:`setup` on the CPU in float32, whatever torch's current defaults are."""
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
        """Draw new parameters, in place."""
        assert self.width is not None
        fresh = copy.copy(self)
        for registry in ("_parameters", "_buffers", "_modules"):
            setattr(fresh, registry, {})
        fresh._setup_float32(self.width, self._input_size)
        for name, parameter in self.named_parameters():
            parameter.copy_(fresh.get_parameter(name))

    def forward(
        self,
        t: Tensor,
        x: Tensor | None = None,
        memory: Tensor | None = None,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Schedule, Tensor]:
        """The schedule at time steps t [T, b], and the memory [B, M] after these (or ``lengths``).

        Where ``reset`` [T, B] is True, a sequence restarts: at t = 1 and without memory.
        """
        if self.width is None:
            raise RuntimeError(
                f"{type(self).__name__} has no parameters yet: layers bind their gates; to use a "
                "gate without a layer, call gate = gate.bind(hidden_size, heads, input_size) first"
            )
        if self.sees_input and x is None:
            raise ValueError(f"{type(self).__name__} sees the input: pass x of shape [T, B, I]")
        if memory is None:
            memory = self.init_memory(1 if x is None else x.shape[1])
        if reset is not None and not self.sees_input:
            return look_up(self, t, memory, reset), memory
        if reset is None and (g := self._fused_gate(t, x)) is not None:
            return Schedule(g, None), memory
        return self._schedule(t, x, memory, lengths, reset)

    def _schedule(
        self,
        t: Tensor,
        x: Tensor | None,
        memory: Tensor,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Schedule, Tensor]:
        has_nan = None
        if self.sees_input and x is not None and not self.reads_nan(x):
            has_nan = x.isnan().any(-1, keepdim=True)
            if x.is_cpu and can_branch_on(x) and not has_nan.any():
                has_nan = None
            else:
                x = x.nan_to_num(nan=0.0)
        if reset is None:
            result = self.preactivation(t, x if self.sees_input else None, memory)
        else:
            t = restart_clock(t, reset)
            result = self.preactivation_with_resets(t, x, memory, reset)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"{type(self).__name__}.preactivation must return two things, pre-activations and "
                f"memory, got {type(result).__name__}; write return a, memory"
            )
        a, after = result
        after = _last_memory(after, lengths)
        if a.shape[-1] not in (1, self.width):
            raise ValueError(
                f"{type(self).__name__}.preactivation returned {list(a.shape)}; its last dimension "
                f"must be the gate's width, {self.width}, or 1"
            )
        if a.shape[-1] != self.width or a.shape[0] != t.shape[0] or a.dim() != 3:
            a = a.expand(*torch.broadcast_shapes(a.shape, (t.shape[0], 1, self.width)))
        if self.frozen:
            a = a.detach()
        if self.margin and self.training and not self.frozen:
            self._remember_near(a, has_nan, lengths)
        g = self._threshold(a)
        if has_nan is not None:  # a gate that sees NaN stays closed
            g = torch.where(has_nan, 0.0, g)
        relevant = self.surrogate.support(a) if self.surrogate.compact else None
        if self._forced_open:
            assert self.width is not None
            forced = torch.arange(self.width, device=a.device) < self._forced_open
            g = torch.where(forced, 1.0, g)
            relevant = ~forced.expand(a.shape) if relevant is None else relevant & ~forced
        return Schedule(g, relevant), after

    def _fused_gate(self, t: Tensor, x: Tensor | None) -> Tensor | None:
        """The gate's values by one GPU kernel, or None. Such gates have no memory."""

    def _threshold(self, a: Tensor) -> Tensor:
        if self.mode == "soft":
            return self.surrogate.smooth(a)
        if self.mode == "sampled" and self.training:
            return self.surrogate.sample(a, self.noise)
        if self.mode == "relaxed" and self.training:
            return self.surrogate.relax(a, self.noise)
        return self.surrogate.step(a)

    def _remember_near(self, a: Tensor, has_nan: Tensor | None, lengths: Tensor | None) -> None:
        """Keep the mean of max(0, 1 - |a| / margin) over gates that are not forced open."""
        if torch.compiler.is_exporting() or torch.jit.is_tracing() or is_transformed():
            return
        # A fused kernel marks inputs with NaN by NaN: they are far from 0.
        a = a[..., self._forced_open :].nan_to_num(math.inf, math.inf, -math.inf)
        near = torch.relu(1 - a.abs() / self.margin)
        if has_nan is not None:
            near = near.masked_fill(has_nan, 0.0)
        if lengths is not None:
            exists = torch.arange(a.shape[0], device=a.device)[:, None, None] < lengths[:, None]
            shares = exists.to(near.dtype) / exists.sum()
            mean = (near.mean(-1, keepdim=True) * shares).sum()
        else:
            mean = near.mean()
        self._near = (mean,) if torch.compiler.is_compiling() else LastPass((mean,))

    @property
    def binary(self) -> bool:
        """Whether g is exactly 0 or 1."""
        return self.mode != "soft" and not (self.mode == "relaxed" and self.training)

    def rate_penalty(self, rate: Tensor) -> Tensor:
        """|rate - target_rate|, or 0 without a target. ``rate`` carries the gate's gradient."""
        if self.target_rate is None:
            return torch.zeros_like(rate)
        moved = self.target_progress
        return (rate - (self.target_rate * moved + self.rate * (1 - moved))).abs()

    def _apply(self, fn, recurse=True):
        # A gate compares with a threshold: in half precision its clock would drift and change
        # the schedule. It moves between devices with its layer but keeps its precision.
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
        for name, default in _SHOWN:
            if getattr(self, name) != default:
                shown.append(f"{name}={getattr(self, name)}")
        if self.mode != "hard":
            shown.append(f"mode={self.mode!r}")
        return ", ".join(shown)


_SHOWN = (("always_on", 0.0), ("target_rate", None), ("frozen", False), ("margin", 0.0))


def _last_memory(memory: Tensor | tuple[Tensor, ...], lengths: Tensor | None) -> Tensor:
    """The memory [B, M] after the last time step of each sequence."""
    if isinstance(memory, tuple):
        return torch.cat([_last_memory(part, lengths) for part in memory], -1)
    if memory.dim() == 2:
        return memory
    if lengths is None:
        return memory[-1].flatten(1)
    last = (lengths - 1).reshape(1, -1, *[1] * (memory.dim() - 2))
    return memory.gather(0, last.expand(1, *memory.shape[1:]))[0].flatten(1)


def check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} is a share between 0 and 1, got {value!r}")
