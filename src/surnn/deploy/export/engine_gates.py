"""Gates as operations of the engine."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surnn.nn.gates import (
    AlwaysOpen,
    Cycles,
    EveryN,
    FixedRandom,
    FixedRhythm,
    FullGate,
    Gate,
    InputGate,
    Rhythm,
    Spectral,
    Spline,
    SSMGate,
    Table,
    Threshold,
    WarpedRhythm,
)
from surnn.nn.gates.parts import GateParts

from .engine_file import FLOAT32, EngineFile, Op, float_bits, linear

BLOCK = 16
"""Time steps whose gates the engine computes at once."""
SLICE = 16
"""Gates that the engine computes at once."""
MAX_TABLE = 1 << 20
"""Largest table, in bytes, of a schedule that the engine can also compute; a larger table would
cost more than it saves."""
MAX_PERIODIC = 1 << 26
"""Largest table, in bytes, of a periodic schedule, which the engine cannot compute."""
_CHUNK = 4096


def add_gate(file: EngineFile, gate: Gate, layer_input: int, stack_input: int) -> tuple[int, int]:
    """Append the operations of a gate; returns its number in the file, and its width.

    Args:
        file: the file.
        gate: the gate, bound to its layer, in evaluation mode.
        layer_input: the vector that its layer reads.
        stack_input: the vector that the whole stack reads.
    """
    if not gate.binary:
        raise ValueError(
            "the engine skips units whose gate is 0, and a soft gate is never 0; train with "
            "mode='hard' or 'sampled'"
        )
    assert gate.width is not None
    x = stack_input if getattr(gate, "source", "layer") == "input" else layer_input
    writers = {
        Rhythm: _rhythm,
        FixedRhythm: _rhythm,
        WarpedRhythm: _rhythm,
        Spline: _periodic,
        Spectral: _periodic,
        Table: _periodic,
        AlwaysOpen: _periodic,
        EveryN: _periodic,
        Cycles: _cycles,
        FixedRandom: _hash,
        InputGate: _parts,
        SSMGate: _parts,
        FullGate: _parts,
        Threshold: _threshold,
    }
    if type(gate) not in writers:
        raise TypeError(
            f"the engine does not know the gate {type(gate).__name__}; it knows "
            f"{', '.join(sorted(kind.__name__ for kind in writers))}. If its schedule is "
            "periodic and depends on time alone, replace it by a surnn.Table and train on"
        )
    out = file.gate()
    writers[type(gate)](file, gate, x, out)
    return out, gate.width


def schedule_bits(gate: Gate, steps: int) -> np.ndarray:
    """Gates at t = 1, 2, ..., ``steps``, as rows of 64-bit words."""
    assert gate.width is not None
    words = -(-gate.width // 64)
    rows = np.zeros((steps, words * 64), np.uint8)
    for begin in range(0, steps, _CHUNK):
        t = torch.arange(begin + 1, min(begin + _CHUNK, steps) + 1)[:, None]
        rows[begin : begin + len(t), : gate.width] = gate(t)[0].g[:, 0].numpy() != 0
    return np.packbits(rows, axis=1, bitorder="little").view(np.uint64)


def _periodic(file: EngineFile, gate, into: int, out: int) -> None:
    period = {AlwaysOpen: lambda: 1, EveryN: lambda: gate.n}.get(type(gate), lambda: gate.horizon)()
    size = period * -(-gate.width // 64) * 8
    if size > MAX_PERIODIC:
        raise ValueError(
            f"a {type(gate).__name__} of {gate.width} gates over {period} steps takes {size} bytes "
            f"in the engine's file, at most {MAX_PERIODIC} are allowed; use a shorter horizon"
        )
    numbers = [gate.width, gate._forced_open, period]
    file.add(Op.GATE_PERIODIC, 0, out, numbers=numbers, data=[schedule_bits(gate, period)])


def _waves(gate: GateParts) -> tuple[Tensor, Tensor, Tensor]:
    """ω [K], weights [2K, w] of the sines, then of the cosines, and bias [w]; w is the width of the
    gate rounded up to 8. All in float64."""
    amplitude, phase = gate.amplitude.double(), gate.phase.double()
    waves = torch.cat((amplitude * phase.cos(), amplitude * phase.sin()), 1).T
    fill = (0, -waves.shape[1] % 8)
    bias = functional.pad(gate.bias.double(), fill)
    return gate.angular_frequency(), functional.pad(waves, fill), bias


def _rhythm(file: EngineFile, gate, into: int, out: int) -> None:
    width = gate.width
    omega, waves, bias = _waves(gate)
    table = min(gate.horizon, MAX_TABLE // (-(-width // 64) * 8))
    warped = isinstance(gate, WarpedRhythm)
    bins, per_unit = (gate.bins, gate.per_unit) if warped else (0, False)
    ahead = (v.numpy() for v in (omega, waves[:, :width], bias[:width]))
    data = [
        omega.numpy(),
        gate.amplitude.double().numpy() if per_unit else waves.numpy(),
        bias.numpy(),
        schedule_bits(gate, table),
        None if bins else turns(omega.numpy()),
        _edges(gate).numpy() if bins else None,
        gate.phase.double().numpy() if per_unit else None,
        None if bins else slices(*ahead),
    ]
    horizon = gate.horizon if bins else 0
    numbers = [width, gate._forced_open, len(omega), table, bins, horizon, per_unit]
    file.add(Op.GATE_RHYTHM, 0, out, numbers=[int(n) for n in numbers], data=data)


def turns(omega: np.ndarray) -> np.ndarray:
    """sin and cos of ω j for j < BLOCK, [BLOCK, 2, K]."""
    angle = omega.astype(np.longdouble) * np.arange(BLOCK)[:, None]
    return np.stack((np.sin(angle), np.cos(angle)), 1).astype(np.float64)


def slices(omega: np.ndarray, waves: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A rhythm in float32, in slices of gates, with the largest error of each gate's sum.

    The engine decides by these sums where they are larger than their error, and by more exact ones
    elsewhere. ``csrc/FORMAT.md`` explains the error.

    Args:
        omega: [K].
        waves: [2K, width], the weights of the sines, then of the cosines.
        bias: [width].
    """
    count, width = len(omega), len(bias)
    angle = omega.astype(np.longdouble)[:, None] * np.arange(1, BLOCK // 2 + 1)
    rotations = np.stack((np.cos(angle), np.sin(angle)), 1)  # [K, 2, BLOCK / 2]
    amplitude = np.hypot(waves[:count], waves[count:])
    unit = 2.0**-24
    rounding = 1.01 * unit * ((count + 32) * amplitude.sum(0) + 4 * np.abs(bias)) + 1e-34
    phase = 2.02 * 2.0**-53 * (np.abs(omega)[:, None] * amplitude).sum(0)
    parts = [rotations.ravel()]
    for first in range(0, width, SLICE):
        chosen = slice(first, first + SLICE)
        fill = (0, SLICE - len(bias[chosen]))
        parts += [np.pad(numbers[chosen], fill) for numbers in (bias, rounding, phase)]
        weights = np.stack((waves[:count, chosen], waves[count:, chosen]), 1)  # [K, 2, slice]
        parts.append(np.pad(weights, ((0, 0), (0, 0), fill)).ravel())
    with np.errstate(over="ignore"):  # an infinite error: decided in float64
        return np.concatenate(parts).astype(np.float32)


def _edges(gate: WarpedRhythm) -> Tensor:
    """Edges of the bins of the warped clock, in units of the horizon."""
    pace = functional.softplus(gate.speed.double())
    share = pace / pace.sum(-1, keepdim=True)
    return functional.pad(share.cumsum(-1), (1, 0))


def _hash(file: EngineFile, gate: FixedRandom, into: int, out: int) -> None:
    seed = np.array([(gate.seed * 0x9E3779B1) % (1 << 62)], np.uint64)
    both = np.concatenate((np.array([gate.rate], np.float64).view(np.uint64), seed))
    assert gate.width is not None
    file.add(Op.GATE_HASH, 0, out, numbers=[gate.width, gate._forced_open], data=[both])


def _cycles(file: EngineFile, gate: Cycles, into: int, out: int) -> None:
    period, open_steps, shift = gate.cycles()
    cycles = torch.stack((period, open_steps, shift % period)).numpy().astype(np.uint32)
    assert gate.width is not None
    file.add(Op.GATE_CYCLES, 0, out, numbers=[gate.width, gate._forced_open], data=[cycles])


def _clean(file: EngineFile, into: int) -> int:
    """The vector without NaN, as gates read it."""
    return file.add(Op.CLEAN, into, file.vector(file.buffers[into]))


def _above(file: EngineFile, gate: Gate, a: int, seen: int, out: int) -> None:
    assert gate.width is not None
    file.add(Op.GATE_ABOVE, a, out, seen, numbers=[gate.width, gate._forced_open])


def _parts(file: EngineFile, gate: GateParts, into: int, out: int) -> None:
    """A sum of parts: products of the input, then the sinusoids."""
    if not gate.sees_input:
        _rhythm(file, gate, into, out)
        return
    assert gate.width is not None
    x = _clean(file, into)
    products = []
    if gate.ssm:
        products.append((_state_space(file, gate, x), as_numpy(gate.read_state)))
    if gate.conv:
        products.append(_recent(file, gate, x))
    if gate.input:
        products.append((_features(file, gate, x), as_numpy(getattr(gate, gate._input_weight))))
    bias = None if gate.rhythm else as_numpy(gate.bias)
    first_bias = bias if gate.joint is None else as_numpy(gate.joint_bias)
    shifts = [None] * (len(products) - 1) + [first_bias]
    terms = [linear(file, v, w, b, FLOAT32) for (v, w), b in zip(products, shifts, strict=True)]
    if gate.joint is not None:
        hidden = file.add(Op.GELU, _sum(file, terms), file.vector(gate.joint))
        terms = [linear(file, hidden, as_numpy(gate.read_joint), bias, FLOAT32)]
    if gate.rhythm:
        terms.append(_sinusoids(file, gate, into))
    _above(file, gate, _sum(file, terms), into, out)


def _sum(file: EngineFile, terms: list[int]) -> int:
    """The sum of vectors of one size."""
    a = terms[0]
    for term in terms[1:]:
        a = file.add(Op.ADD, a, file.vector(file.buffers[a]), term)
    return a


def _features(file: EngineFile, gate: GateParts, x: int) -> int:
    """The vector that the map of the present input reads."""
    if not isinstance(gate, InputGate) or gate.hidden is None:
        return x
    lift: Any = gate.lift
    x = linear(file, x, as_numpy(lift.weight), as_numpy(lift.bias), FLOAT32)
    return file.add(Op.GELU, x, file.vector(gate.hidden))


def _state_space(file: EngineFile, gate: GateParts, x: int) -> int:
    lifted = linear(file, x, as_numpy(gate.lift), None, FLOAT32)
    decay = as_numpy(torch.exp(-torch.exp(-gate.log_time))).astype(np.float32)
    return file.add(Op.LEAK, lifted, file.vector(gate.modes), data=[decay])


def _recent(file: EngineFile, gate: GateParts, x: int) -> tuple[int, np.ndarray]:
    """Products of the input with the weights of all lags, each delayed by its lag; and their sum.

    Delaying a product [width] takes less than delaying the input.
    """
    weight = as_numpy(gate.read_recent).transpose(1, 0, 2)  # [lags, width, input]
    lags, width, _ = weight.shape
    now = linear(file, x, weight.reshape(lags * width, -1), None, FLOAT32)
    taps = np.zeros((lags + 1, lags, width), np.float32)  # the last tap is the present
    taps[np.arange(lags)[::-1], np.arange(lags)] = 1
    taps = taps.reshape(lags + 1, -1)
    later = file.add(Op.CONVOLVE, now, file.vector(lags * width), numbers=[lags + 1], data=[taps])
    return later, np.tile(np.eye(width), lags)


def _sinusoids(file: EngineFile, gate: GateParts, into: int) -> int:
    """The rhythm and the bias as a vector."""
    assert gate.width is not None
    omega, waves, bias = _waves(gate)
    ahead = slices(omega.numpy(), waves[:, : gate.width].numpy(), bias[: gate.width].numpy())
    data = [omega.numpy(), waves.numpy(), bias.numpy(), *[None] * 4, ahead]
    numbers = [gate.width, 0, len(omega)]
    return file.add(Op.SINUSOIDS, into, file.vector(gate.width), numbers=numbers, data=data)


def _threshold(file: EngineFile, gate: Threshold, into: int, out: int) -> None:
    assert gate.width is not None
    if not math.isfinite(gate.level):
        raise ValueError(f"a threshold's level must be a number, got {gate.level}")
    numbers = [gate.width, gate._forced_open, float_bits(gate.level)]
    file.add(Op.GATE_LEVEL, into, out, numbers=numbers)


def as_numpy(values: Tensor) -> np.ndarray:
    """A float64 array, detached and on the CPU."""
    return values.detach().cpu().double().numpy()
