"""Gates as operations of the engine."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..gates import (
    AlwaysOpen,
    Cycles,
    EveryN,
    FixedRandom,
    FixedRhythm,
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
from .engine_file import FLOAT32, EngineFile, Op, float_bits, linear

BLOCK = 16
"""Steps whose gates the engine makes at once."""
MOST_KNOWN = 1 << 20
"""Bytes of a schedule that could also be computed; more would cost more than it saves."""
MOST_PERIODIC = 1 << 26
"""Bytes of a schedule that repeats; there is no other way to have it."""
_CHUNK = 4096


def add_gate(file: EngineFile, gate: Gate, into: int, raw: int) -> tuple[int, int]:
    """The gate's operations; returns its number in the file, and its width.

    Args:
        file: where to.
        gate: bound to its layer, in evaluation mode.
        into: vector that its layer reads.
        raw: vector that the whole stack reads.
    """
    if not gate.binary:
        raise ValueError(
            "the engine skips units whose gate is 0, and a soft gate is never 0; train with "
            "mode='hard' or 'sampled'"
        )
    assert gate.width is not None
    seen = raw if getattr(gate, "source", "layer") == "input" else into
    makers = {
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
        InputGate: _input,
        SSMGate: _ssm,
        Threshold: _threshold,
    }
    if type(gate) not in makers:
        raise TypeError(
            f"the engine does not know the gate {type(gate).__name__}; it knows "
            f"{', '.join(sorted(kind.__name__ for kind in makers))}. If it is a function of time "
            "alone that repeats, train on with a surnn.Table of its schedule"
        )
    out = file.gate()
    makers[type(gate)](file, gate, seen, out)
    return out, gate.width


def schedule_bits(gate: Gate, steps: int) -> np.ndarray:
    """Rows of 64-bit words: gates at t = 1, 2, ..., ``steps``."""
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
    if size > MOST_PERIODIC:
        raise ValueError(
            f"a {type(gate).__name__} of {gate.width} gates over {period} steps takes {size} bytes "
            f"in the engine's file, and {MOST_PERIODIC} is the most; use a shorter horizon"
        )
    numbers = [gate.width, gate._forced_open, period]
    file.add(Op.GATE_PERIODIC, 0, out, numbers=numbers, data=[schedule_bits(gate, period)])


def _rhythm(file: EngineFile, gate, into: int, out: int) -> None:
    width, omega = gate.width, gate.angular_frequency()
    amplitude, phase = gate.amplitude.double(), gate.phase.double()
    wide = -(-width // 8) * 8
    known = min(gate.horizon, MOST_KNOWN // (-(-width // 64) * 8))
    bins = gate.bins if isinstance(gate, WarpedRhythm) else 0
    each = isinstance(gate, WarpedRhythm) and gate.per_unit
    mixed = torch.cat((amplitude * phase.cos(), amplitude * phase.sin()), 1).T  # [2K, width]
    data = [
        omega.numpy(),
        amplitude.numpy() if each else functional.pad(mixed, (0, wide - width)).numpy(),
        functional.pad(gate.bias.double(), (0, wide - width)).numpy(),
        schedule_bits(gate, known),
        None if bins else turns(omega.numpy()),
        _edges(gate).numpy() if bins else None,
        phase.numpy() if each else None,
    ]
    numbers = [width, gate._forced_open, len(omega), known, bins, gate.horizon if bins else 0, each]
    file.add(Op.GATE_RHYTHM, 0, out, numbers=[int(n) for n in numbers], data=data)


def turns(omega: np.ndarray) -> np.ndarray:
    """sin and cos of ω j for j < BLOCK, [BLOCK, 2, K]."""
    angle = omega.astype(np.longdouble) * np.arange(BLOCK)[:, None]
    return np.stack((np.sin(angle), np.cos(angle)), 1).astype(np.float64)


def _edges(gate: WarpedRhythm) -> Tensor:
    """Where the bins of the warped clock begin and end, in horizons."""
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
    """x as gates read it: without NaN."""
    return file.add(Op.CLEAN, into, file.vector(file.buffers[into]))


def _above(file: EngineFile, gate: Gate, a: int, seen: int, out: int) -> None:
    assert gate.width is not None
    file.add(Op.GATE_ABOVE, a, out, seen, numbers=[gate.width, gate._forced_open])


def _input(file: EngineFile, gate: InputGate, into: int, out: int) -> None:
    x = _clean(file, into)
    if gate.hidden is not None:
        x = linear(file, x, as_numpy(gate.lift.weight), as_numpy(gate.lift.bias), FLOAT32)
        x = file.add(Op.GELU, x, file.vector(gate.hidden))
    a = linear(file, x, as_numpy(gate.weight), as_numpy(gate.bias), FLOAT32)
    _above(file, gate, a, into, out)


def _ssm(file: EngineFile, gate: SSMGate, into: int, out: int) -> None:
    assert gate.width is not None
    x = _clean(file, into)
    lifted = linear(file, x, as_numpy(gate.lift), None, FLOAT32)
    decay = as_numpy(torch.exp(-torch.exp(-gate.log_time))).astype(np.float32)
    state = file.add(Op.LEAK, lifted, file.vector(gate.modes), data=[decay])
    from_state = linear(file, state, as_numpy(gate.read_state), None, FLOAT32)
    from_input = linear(file, x, as_numpy(gate.read_input), as_numpy(gate.bias), FLOAT32)
    a = file.add(Op.ADD, from_state, file.vector(gate.width), from_input)
    _above(file, gate, a, into, out)


def _threshold(file: EngineFile, gate: Threshold, into: int, out: int) -> None:
    assert gate.width is not None
    if not math.isfinite(gate.level):
        raise ValueError(f"a threshold's level must be a number, got {gate.level}")
    numbers = [gate.width, gate._forced_open, float_bits(gate.level)]
    file.add(Op.GATE_LEVEL, into, out, numbers=numbers)


def as_numpy(values: Tensor) -> np.ndarray:
    """On the CPU, without its history."""
    return values.detach().cpu().double().numpy()
