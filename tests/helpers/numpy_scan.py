"""An independent implementation of a scan: plain loops over sequences, heads, steps and units.

Written in numpy and float64 from the equations in ``surnn.scan.contract`` and the papers of the
cells, forward and backward, without code of the library. It is slow, and simple to check by eye.
Indices: b sequence, n head, t step, i and j units, s drive, c state component.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
SPIKE_SLOPE = 2.0
THRESHOLD = {"lif": 1.0, "alif": 0.01}
BETA = 1.8


def sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def triangle(v: Array) -> Array:
    """The surrogate derivative of the spike; 0 at NaN, which does not spike."""
    return SPIKE_SLOPE * np.fmax(1 - np.abs(SPIKE_SLOPE * v), 0)


# ------------------------------------------------------------------ cells: f, and its reverse


def propose(cell: str, drive: Array, rec: Array, state: Array, unit: Array) -> Array:
    """f [C, D] of one head."""
    if cell == "rnn_tanh":
        return np.tanh(drive + rec)
    if cell == "rnn_relu":
        return np.maximum(drive + rec, 0)
    if cell == "gru":
        r, z = sigmoid(drive[0] + rec[0]), sigmoid(drive[1] + rec[1])
        n = np.tanh(drive[2] + r * (rec[2] + unit[0]))
        return ((1 - z) * n + z * state[0])[None]
    if cell == "lstm":
        i, f = sigmoid(drive[0] + rec[0]), sigmoid(drive[1] + rec[1])
        g, o = np.tanh(drive[2] + rec[2]), sigmoid(drive[3] + rec[3])
        c = f * state[1] + i * g
        return np.stack((o * np.tanh(c), c))
    alpha = unit[0]
    v = state[1] + (1 - alpha) * (drive[0] + rec[0])
    if cell == "lif":
        s = np.where(v > THRESHOLD[cell], 1.0, 0.0)
        return np.stack((s, alpha * v - THRESHOLD[cell] * s))
    rho = unit[1]
    s = np.where(v - (THRESHOLD[cell] + BETA * state[2]) > 0, 1.0, 0.0)
    b = rho * state[2] + (1 - rho) * s
    return np.stack((s, alpha * v - (THRESHOLD[cell] + BETA * b) * s, b))


def reverse(
    cell: str, a: Array, drive: Array, rec: Array, state: Array, unit: Array
) -> tuple[Array, Array, Array, Array]:
    """Gradients of ``sum(a * f)`` by drive, rec, state (directly) and unit."""
    by_state, by_unit = np.zeros_like(state), np.zeros_like(unit)
    if cell == "rnn_tanh":
        by = a * (1 - np.tanh(drive + rec) ** 2)
        return by, by, by_state, by_unit
    if cell == "rnn_relu":
        by = a * np.where(drive + rec <= 0, 0.0, 1.0)
        return by, by, by_state, by_unit
    if cell == "gru":
        r, z = sigmoid(drive[0] + rec[0]), sigmoid(drive[1] + rec[1])
        q = rec[2] + unit[0]
        n = np.tanh(drive[2] + r * q)
        by_n = a[0] * (1 - z) * (1 - n**2)
        by_z = a[0] * (state[0] - n) * z * (1 - z)
        by_r = by_n * q * r * (1 - r)
        by_state[0] = a[0] * z
        by_unit[0] = by_n * r
        return np.stack((by_r, by_z, by_n)), np.stack((by_r, by_z, by_n * r)), by_state, by_unit
    if cell == "lstm":
        i, f = sigmoid(drive[0] + rec[0]), sigmoid(drive[1] + rec[1])
        g, o = np.tanh(drive[2] + rec[2]), sigmoid(drive[3] + rec[3])
        tanh_c = np.tanh(f * state[1] + i * g)
        by_c = a[1] + a[0] * o * (1 - tanh_c**2)
        by_o = a[0] * tanh_c * o * (1 - o)
        gates = by_c * g * i * (1 - i), by_c * state[1] * f * (1 - f), by_c * i * (1 - g**2)
        by = np.stack((*gates, by_o))
        by_state[1] = by_c * f
        return by, by, by_state, by_unit
    return _reverse_spiking(cell, a, drive, rec, state, unit)


def _reverse_spiking(
    cell: str, a: Array, drive: Array, rec: Array, state: Array, unit: Array
) -> tuple[Array, Array, Array, Array]:
    by_state, by_unit = np.zeros_like(state), np.zeros_like(unit)
    alpha, current = unit[0], drive[0] + rec[0]
    v = state[1] + (1 - alpha) * current
    if cell == "lif":
        theta = THRESHOLD[cell]
        by_spike = a[0] - theta * a[1]
        by_v = a[1] * alpha + by_spike * triangle(v - theta)
    else:
        rho = unit[1]
        above = v - (THRESHOLD[cell] + BETA * state[2])
        s = np.where(above > 0, 1.0, 0.0)
        theta = THRESHOLD[cell] + BETA * (rho * state[2] + (1 - rho) * s)
        by_b = a[2] - BETA * s * a[1]
        by_spike = a[0] - theta * a[1] + (1 - rho) * by_b
        by_above = by_spike * triangle(above)
        by_v = a[1] * alpha + by_above
        by_state[2] = rho * by_b - BETA * by_above
        by_unit[1] = by_b * (state[2] - s)
    by_state[1] = by_v
    by_unit[0] = a[1] * v - by_v * current
    by = ((1 - alpha) * by_v)[None]
    return by, by, by_state, by_unit


# ------------------------------------------------------------------ the recurrence


@dataclass
class Step:
    """One step of one head in one sequence, for the way back."""

    gate: Array
    state: Array
    drive: Array
    rec: Array
    kept: Array
    proposal: Array


@dataclass
class NumpyScan:
    """Operands as in ``ScanOperands``, as float64 arrays; ``decay``, ``lengths`` and ``reset``
    may be None."""

    cell: str
    x: Array
    weight: Array
    bias: Array
    recurrent: Array
    unit: Array
    gate: Array
    state: Array
    decay: Array | None = None
    lengths: Array | None = None
    reset: Array | None = None
    open_units_only: bool = False
    """Whether gradients by products are summed over open units only, as `native` does. Otherwise
    the zeros of closed units are multiplied too, which matters for numbers that are not finite."""
    steps: dict[tuple[int, int], list[Step]] = field(default_factory=dict)
    undefined: dict[str, Array] = field(default_factory=dict)
    """After :meth:`backward`: where a gradient follows from an adjoint that is not finite."""

    def forward(self) -> tuple[Array, Array]:
        """y [T, B, N, D] and the last state [B, N, C, D]."""
        time, batch = self.x.shape[:2]
        heads, _, width, _ = self.weight.shape
        y, last = np.zeros((time, batch, heads, width)), self.state.copy()
        for b in range(batch):
            for n in range(heads):
                state = self.state[b, n].copy()
                self.steps[b, n] = []
                for t in range(time if self.lengths is None else int(self.lengths[b])):
                    if self._is_reset(t, b):
                        state = np.zeros_like(state)
                    state = self._step(b, n, t, state)
                    y[t, b, n] = state[0]
                last[b, n] = state
        return y, last

    def _is_reset(self, t: int, b: int) -> bool:
        return self.reset is not None and bool(self.reset[t, b])

    def _step(self, b: int, n: int, t: int, state: Array) -> Array:
        gate = np.broadcast_to(self.gate[t, min(b, self.gate.shape[1] - 1), n], state[0].shape)
        drive = self.weight[n] @ self.x[t, b] + self.bias[n]
        rec = self.recurrent[n] @ state[0]
        proposal = propose(self.cell, drive, rec, state, self.unit[:, n])
        kept = state.copy()
        if self.decay is not None:
            kept = self.decay[n] * state
            kept[0] = 0
        self.steps[b, n].append(Step(gate, state, drive, rec, kept, proposal))
        between = kept + gate * (proposal - kept)
        return np.where(gate == 0, kept, np.where(gate == 1, proposal, between))

    def backward(self, grad_y: Array, grad_last: Array) -> dict[str, Array]:
        """Gradients of ``sum(grad_y * y) + sum(grad_last * last)`` by all operands."""
        names = ("x", "weight", "bias", "recurrent", "unit", "gate", "state")
        grads: dict[str, Any] = {name: np.zeros_like(getattr(self, name)) for name in names}
        grads["decay"] = None if self.decay is None else np.zeros_like(self.decay)
        self.undefined = {k: np.zeros(v.shape, bool) for k, v in grads.items() if v is not None}
        for (b, n), steps in self.steps.items():
            a = grad_last[b, n].copy()
            for t in range(len(steps) - 1, -1, -1):
                a[0] += grad_y[t, b, n]
                if not np.isfinite(a).all():
                    self._mark_undefined(b, n, t)
                a = self._step_back(b, n, t, steps[t], a, grads)
                if self._is_reset(t, b):
                    a = np.zeros_like(a)
            grads["state"][b, n] = a
        return grads

    def _mark_undefined(self, b: int, n: int, t: int) -> None:
        """The gradients that the adjoint of head n after step t enters."""
        self.undefined["x"][: t + 1, b] = True
        self.undefined["gate"][: t + 1, min(b, self.gate.shape[1] - 1), n] = True
        self.undefined["state"][b, n] = True
        self.undefined["unit"][:, n] = True
        for name in ("weight", "bias", "recurrent", "decay"):
            if name in self.undefined:
                self.undefined[name][n] = True

    def _step_back(
        self, b: int, n: int, t: int, step: Step, a: Array, grads: dict[str, Array]
    ) -> Array:
        """The adjoint of the state before; adds to ``grads``."""
        change = step.proposal - step.kept
        by_gate = (a * np.where(np.isfinite(change), change, 0)).sum(0)
        own = grads["gate"][t, min(b, self.gate.shape[1] - 1), n]
        own += by_gate if own.size == by_gate.size else by_gate.sum()
        closed = step.gate == 0
        before = np.where(closed, a, np.where(step.gate == 1, 0, a * (1 - step.gate)))
        if self.decay is not None:
            grads["decay"][n] += np.where(before == 0, 0, before * step.state)
            before = before * self.decay[n]
            before[0] = 0
        if closed.all():
            return before
        local = reverse(self.cell, a * step.gate, step.drive, step.rec, step.state, self.unit[:, n])
        by_drive, by_rec, by_state, by_unit = (np.where(closed, 0, v) for v in local)
        read = ~closed if self.open_units_only else np.ones_like(closed)
        grads["x"][t, b] += np.einsum("si,sij->j", by_drive[:, read], self.weight[n][:, read])
        grads["weight"][n][:, read] += by_drive[:, read, None] * self.x[t, b]
        grads["bias"][n] += by_drive
        grads["recurrent"][n][:, read] += by_rec[:, read, None] * step.state[0]
        grads["unit"][:, n] += by_unit
        before = before + by_state
        before[0] += np.einsum("si,sij->j", by_rec[:, read], self.recurrent[n][:, read])
        return before
