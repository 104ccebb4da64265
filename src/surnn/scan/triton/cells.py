"""The cells as device functions: twins of :mod:`surnn.nn.cells`, on tuples of tiles.

Names follow the torch side: ``x`` are the S drives, ``q`` the S recurrent products, ``h`` the C
state components, ``u`` the P unit parameters, all float32 tiles ``[rows, D]``. Three functions per
cell:

* ``update``: the proposal;
* ``linearize``: the derivatives that the backward kernel reads at an event, K tiles, computed for
  all events in parallel. The factor by which a cell keeps its state is stored as 1 minus it:
  rounded to half precision, factors near 1 would add up errors over many events;
* ``pull``: the vector-Jacobian product with those tiles. It gives G gradient columns (by the
  drives, then for the GRU by ``q_n``, which the reset gate separates from its drive and whose sum
  is the gradient by its bias), the direct part of the gradient by the state before, and, for
  spiking cells, that by the unit parameters.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from surnn.nn.cells import Cell
from surnn.nn.cells.gru import GRU
from surnn.nn.cells.lstm import LSTM
from surnn.nn.cells.rnn import RNNRelu, RNNTanh
from surnn.nn.cells.spiking import ALIF, LIF
from surnn.nn.runtime import is_interpreted
from surnn.nn.triton_surrogate import sigmoid, surrogate_derivative


@dataclass(frozen=True)
class KernelCell:
    """Counts and constants of a cell that the kernels implement."""

    kind: str
    drives: int
    components: int
    units: int
    coefficients: int
    """K: tiles of ``linearize``."""
    columns: int
    """G: gradient columns of ``pull``."""
    constants: tuple[float, float, str, float] = (0.0, 0.0, "", 0.0)
    """Threshold, β, and the surrogate's kind and slope; for spiking cells only."""

    @property
    def spiking(self) -> bool:
        return self.kind in ("lif", "alif")

    def meta(self, dtype: torch.dtype) -> dict[str, Any]:
        """The constants of a kernel launch on inputs of ``dtype``."""
        return {
            "CELL": self.kind,
            "S": self.drives,
            "C": self.components,
            "P": self.units,
            "U": self.units if self.spiking else 0,
            "K": self.coefficients,
            "G": self.columns,
            "CONSTANTS": self.constants,
            "HALF": dtype.itemsize == 2 and not is_interpreted(),
        }


def kernel_cell(cell: Cell) -> KernelCell | None:
    """The kernels' own version of ``cell``, or None if they have none."""
    if type(cell) is GRU:
        return KernelCell("gru", 3, 1, 1, 5, 4)
    if type(cell) is LSTM:
        return KernelCell("lstm", 4, 2, 0, 6, 4)
    if type(cell) is RNNTanh:
        return KernelCell("tanh", 1, 1, 0, 1, 1)
    if type(cell) is RNNRelu:
        return KernelCell("relu", 1, 1, 0, 1, 1)
    if type(cell) is LIF or type(cell) is ALIF:
        adaptive = isinstance(cell, ALIF)
        beta = cell.beta if isinstance(cell, ALIF) else 0.0
        constants = (cell.threshold, beta, cell.surrogate.kind, cell.surrogate.slope)
        if adaptive:
            return KernelCell("alif", 1, 3, 2, 1, 1, constants)
        return KernelCell("lif", 1, 2, 1, 1, 1, constants)
    return None


# ---------------------------------------------------------------------------- pointwise


@triton.jit
def tanh(x, HALF: tl.constexpr):
    """By its series near 0, where the quotient would cancel. In half precision it is the
    hardware's, with a relative error of 2^-11. (A sigmoid of it would be too coarse near 0.)"""
    if HALF:
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        far = 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
        y = x * x
        near = x * (1.0 + y * (-1.0 / 3.0 + y * (2.0 / 15.0 - y * (17.0 / 315.0))))
        return tl.where(y < 0.04, near, far)


@triton.jit
def spike(v, b, CONSTANTS: tl.constexpr):
    """The spike, and the voltage above its threshold; b is 0 without adaptation."""
    theta = CONSTANTS[0] + CONSTANTS[1] * b
    above = v - theta
    return tl.where(above > 0, 1.0, 0.0), above


# ---------------------------------------------------------------------------- the cells


@triton.jit
def update(x, q, h, u, CELL: tl.constexpr, CONSTANTS: tl.constexpr, HALF: tl.constexpr):
    """The proposal: C tiles."""
    if CELL == "gru":
        r = sigmoid(x[0] + q[0])
        z = sigmoid(x[1] + q[1])
        n = tanh(x[2] + r * (q[2] + u[0]), HALF)
        return ((1.0 - z) * n + z * h[0],)
    elif CELL == "lstm":
        c = sigmoid(x[1] + q[1]) * h[1] + sigmoid(x[0] + q[0]) * tanh(x[2] + q[2], HALF)
        return (sigmoid(x[3] + q[3]) * tanh(c, HALF), c)
    elif CELL == "tanh":
        return (tanh(x[0] + q[0], HALF),)
    elif CELL == "relu":
        return (tl.maximum(x[0] + q[0], 0.0, propagate_nan=tl.PropagateNan.ALL),)
    elif CELL == "lif":
        v = h[1] + (1.0 - u[0]) * (x[0] + q[0])
        s, _ = spike(v, tl.zeros_like(v), CONSTANTS)
        return (s, u[0] * v - CONSTANTS[0] * s)
    else:
        v = h[1] + (1.0 - u[0]) * (x[0] + q[0])
        s, _ = spike(v, h[2], CONSTANTS)
        b = u[1] * h[2] + (1.0 - u[1]) * s
        return (s, u[0] * v - (CONSTANTS[0] + CONSTANTS[1] * b) * s, b)


@triton.jit
def linearize(x, q, h, u, CELL: tl.constexpr, HALF: tl.constexpr):
    """K tiles of derivatives for ``pull``."""
    if CELL == "gru":
        r = sigmoid(x[0] + q[0])
        new = sigmoid(-x[1] - q[1])  # 1 - z
        a = q[2] + u[0]
        n = tanh(x[2] + r * a, HALF)
        by_n = new * (1.0 - n * n)
        by_q = by_n * r
        return (by_q * a * (1.0 - r), (h[0] - n) * new * (1.0 - new), by_n, by_q, new)
    elif CELL == "lstm":
        i = sigmoid(x[0] + q[0])
        f = sigmoid(x[1] + q[1])
        g = tanh(x[2] + q[2], HALF)
        o = sigmoid(x[3] + q[3])
        c = tanh(f * h[1] + i * g, HALF)
        return (
            g * i * (1.0 - i),
            h[1] * f * (1.0 - f),
            i * (1.0 - g * g),
            c * o * (1.0 - o),
            o * (1.0 - c * c),
            sigmoid(-x[1] - q[1]),  # 1 - f
        )
    elif CELL == "tanh":
        n = tanh(x[0] + q[0], HALF)
        return (1.0 - n * n,)
    elif CELL == "relu":
        return (tl.where(x[0] + q[0] <= 0, 0.0, 1.0),)
    else:
        return (x[0] + q[0],)  # the current; pull computes the rest, which is cheap


@triton.jit
def pull(a, k, h, u, CELL: tl.constexpr, CONSTANTS: tl.constexpr):
    """Gradient columns, inputs of the recurrent product, gradients by the state and by units."""
    if CELL == "gru":
        by_q = a[0] * k[3]
        columns = (a[0] * k[0], a[0] * k[1], a[0] * k[2], by_q)
        return columns, (columns[0], columns[1], by_q), (a[0] - a[0] * k[4],), ()
    elif CELL == "lstm":
        by_c = a[1] + a[0] * k[4]
        columns = (by_c * k[0], by_c * k[1], by_c * k[2], a[0] * k[3])
        return columns, columns, (tl.zeros_like(by_c), by_c - by_c * k[5]), ()
    elif CELL == "tanh" or CELL == "relu":
        columns = (a[0] * k[0],)
        return columns, columns, (tl.zeros_like(a[0]),), ()
    elif CELL == "lif":
        KIND: tl.constexpr = CONSTANTS[2]
        SLOPE: tl.constexpr = CONSTANTS[3]
        alpha = u[0]
        v = h[1] + (1.0 - alpha) * k[0]
        _, above = spike(v, tl.zeros_like(v), CONSTANTS)
        s_by_v = surrogate_derivative(above, KIND, SLOPE)
        by_v = a[0] * s_by_v + a[1] * (alpha - CONSTANTS[0] * s_by_v)
        columns = (by_v * (1.0 - alpha),)
        return columns, columns, (tl.zeros_like(by_v), by_v), (a[1] * v - by_v * k[0],)
    else:
        KIND: tl.constexpr = CONSTANTS[2]
        SLOPE: tl.constexpr = CONSTANTS[3]
        alpha, rho = u[0], u[1]
        v = h[1] + (1.0 - alpha) * k[0]
        s, above = spike(v, h[2], CONSTANTS)
        beta = CONSTANTS[1]
        theta = CONSTANTS[0] + beta * (rho * h[2] + (1.0 - rho) * s)
        s_by_v = surrogate_derivative(above, KIND, SLOPE)
        b_by_v = (1.0 - rho) * s_by_v
        by_v = a[0] * s_by_v + a[1] * (alpha - theta * s_by_v - beta * s * b_by_v) + a[2] * b_by_v
        s_by_b = -beta * s_by_v
        b_by_b = rho + (1.0 - rho) * s_by_b
        by_b = a[0] * s_by_b - a[1] * (theta * s_by_b + beta * s * b_by_b) + a[2] * b_by_b
        by_alpha = a[1] * v - by_v * k[0]
        by_rho = (a[2] - a[1] * beta * s) * (h[2] - s)
        columns = (by_v * (1.0 - alpha),)
        return columns, columns, (tl.zeros_like(by_v), by_v, by_b), (by_alpha, by_rho)
