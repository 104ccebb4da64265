"""The serial kernels of heads whose recurrent weights do not fit on chip.

The same walk as :mod:`surnn.scan.kernels.walk`, but a head's units are cut into parts of ``BD``,
and the whole state passes from event to event through memory. Where the device has room, ``TEAM``
programs share a head and meet after every event, each with the weights of its own part on chip;
with fewer programs than parts, a program takes its parts in turn and reads their weights anew at
every event. What is computed does not depend on it. For all cells that do not spike.
"""

import triton
import triton.language as tl

from .cells import pull, update
from .tiles import (
    gate_tile,
    list_rows,
    load_float,
    load_units,
    longest,
    per_row,
    products,
    store_parts,
    units,
)
from .walk import add, blend, step_of, with_first

_SIZES = ["T", "B", "N"]


@triton.jit
def meet(COUNTER, meetings, TEAM: tl.constexpr):
    """Wait until all programs of the team have written what they had to, the n-th time."""
    tl.debug_barrier()
    if TEAM > 1:
        tl.atomic_add(COUNTER, 1, sem="release", scope="gpu")
        while tl.atomic_add(COUNTER, 0, sem="acquire", scope="gpu") < meetings * TEAM:
            pass
        tl.debug_barrier()


@triton.jit
def weight_parts(R, n, rk, rd, S: tl.constexpr, D: tl.constexpr, TRANSPOSE: tl.constexpr):
    """Columns ``rd`` of all S matrices of head n."""
    out = ()
    for s in tl.static_range(S):
        out = out + (weight_part(R, n, s, rk, rd, S, D, TRANSPOSE),)
    return out


@triton.jit
def weight_part(R, n, s, rk, rd, S: tl.constexpr, D: tl.constexpr, TRANSPOSE: tl.constexpr):
    """Columns ``rd`` of matrix s of head n, or of its transpose: [rk, rd]."""
    if TRANSPOSE:
        at = rk[:, None] + rd[None, :] * D
    else:
        at = rk[:, None] * D + rd[None, :]
    mask = (rk < D)[:, None] & (rd < D)[None, :]
    return tl.load(R + (tl.cast(n, tl.int64) * S + s) * (D * D) + at, mask=mask, other=0.0)


@triton.jit(do_not_specialize=_SIZES)
def wide_forward_kernel(
    DRIVES,  # [rows, S, D]
    R,  # [N, S, D, D]
    UNIT,  # [P, N, D]
    GATE,  # [T, b, N, m]
    TIME,
    FIRST,
    STATE,  # [B, N, C, D]
    STATES,  # [rows, C, D]
    LAST,  # [B, N, C, D]
    COUNTER,  # [tiles * N] int32 zeros
    T,
    B,
    N,
    CELL: tl.constexpr,
    CONSTANTS: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    KD: tl.constexpr,
    TEAM: tl.constexpr,
    BT: tl.constexpr,
    SHARED: tl.constexpr,
    MASKED: tl.constexpr,
    GATE_UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    member = tl.program_id(0) % TEAM
    tile, n = tl.program_id(0) // TEAM, tl.program_id(1)
    COUNTER += tile * N + n
    rb = tile * BT + tl.arange(0, BT)
    rk = tl.arange(0, KD)
    RESIDENT: tl.constexpr = TEAM * BD >= D
    row, position, stride, count = list_rows(FIRST, n, rb, B, SHARED)
    outside = ((rb.to(tl.int64) * N + n) * (C * D))[:, None]
    states = STATES + row[:, None] * (C * D)
    drives = DRIVES + row[:, None] * (S * D)
    if RESIDENT:
        kept = weight_parts(R, n, rk, member * BD + tl.arange(0, BD), S, D, True)
    for part in range(member * BD, D, TEAM * BD):
        rd = part + tl.arange(0, BD)
        exists = units(rb < B, rd, D, BD)
        store_parts(
            states + rd[None, :], load_float(STATE + outside + rd[None, :], exists, C, D),
            exists, C, D,
        )  # fmt: skip
    for k in range(1, longest(count, SHARED) + 1):
        active = (rb < B) & (k <= count)
        before_row = states + (k - 1) * stride * (C * D)
        meet(COUNTER, k, TEAM)
        mask = active[:, None] & (rk < D)[None, :]
        whole = tl.load(before_row + rk[None, :], mask=mask, other=0.0, cache_modifier=".cg")
        whole = whole.to(R.dtype.element_ty)
        t = step_of(TIME, position, k, k <= count)
        for part in range(member * BD, D, TEAM * BD):
            rd = part + tl.arange(0, BD)
            here = units(active, rd, D, BD)
            x = load_float(drives + k * stride * (S * D) + rd[None, :], here, S, D)
            before = load_float(before_row + rd[None, :], here, C, D)
            if RESIDENT:
                weights = kept
            else:
                weights = weight_parts(R, n, rk, rd, S, D, True)
            q = products(whole, weights, PRECISION)
            new = update(x, q, before, load_units(UNIT, n, N, rd, P, D), CELL, CONSTANTS)
            if MASKED:
                g = gate_tile(GATE, t, rb, rd, n, B, N, here, GATE_UNITS, SHARED)
                new = blend(before, new, g, C)
            store_parts(states + k * stride * (C * D) + rd[None, :], new, here, C, D)
    tl.debug_barrier()
    for part in range(member * BD, D, TEAM * BD):
        rd = part + tl.arange(0, BD)
        exists = units(rb < B, rd, D, BD)
        ended = states + per_row(count, SHARED) * stride * (C * D) + rd[None, :]
        store_parts(LAST + outside + rd[None, :], load_float(ended, exists, C, D), exists, C, D)


@triton.jit(do_not_specialize=_SIZES)
def wide_backward_kernel(
    WORK,  # [rows, K, D]: derivatives in, gradient columns out
    R,  # [N, S, D, D]
    GATE,  # [T, b, N, m]
    TIME,
    FIRST,
    INFLOW,  # [rows, C, D] float32: sums of output gradients in component 0; inflow out
    FLOW,  # [B, N, C, D] float32: gradient by the last state in, by the first one out
    COUNTER,  # [tiles * N] int32 zeros
    T,
    B,
    N,
    CELL: tl.constexpr,
    CONSTANTS: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    KD: tl.constexpr,
    TEAM: tl.constexpr,
    BT: tl.constexpr,
    SHARED: tl.constexpr,
    MASKED: tl.constexpr,
    GATE_UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    member = tl.program_id(0) % TEAM
    tile, n = tl.program_id(0) // TEAM, tl.program_id(1)
    COUNTER += tile * N + n
    rb = tile * BT + tl.arange(0, BT)
    rk = tl.arange(0, KD)
    RESIDENT: tl.constexpr = TEAM * BD >= D
    row, position, stride, count = list_rows(FIRST, n, rb, B, SHARED)
    flow = FLOW + ((rb.to(tl.int64) * N + n) * (C * D))[:, None]
    inflows = INFLOW + row[:, None] * (C * D)
    works = WORK + row[:, None] * (K * D)
    last = longest(count, SHARED)
    if RESIDENT:
        kept = weight_parts(R, n, rk, member * BD + tl.arange(0, BD), S, D, False)
    for i in range(0, last):
        k = last - i
        active = (rb < B) & (k <= count)
        t = step_of(TIME, position, k, k <= count)
        work = works + k * stride * (K * D)
        for part in range(member * BD, D, TEAM * BD):
            rd = part + tl.arange(0, BD)
            here = units(active, rd, D, BD)
            arriving = load_float(flow + rd[None, :], here, C, D)
            at = inflows + k * stride * (C * D) + rd[None, :]
            segment = tl.load(at, mask=here, other=0.0)
            store_parts(at, arriving, here, C, D)
            a = with_first(arriving, arriving[0] + segment, C)
            proposal = a
            if MASKED:
                g = gate_tile(GATE, t, rb, rd, n, B, N, here, GATE_UNITS, SHARED)
                proposal = [v * g for v in a]
            derivatives = load_float(work + rd[None, :], here, K, D)
            columns, _, direct, _ = pull(proposal, derivatives, a, (), CELL, CONSTANTS)
            store_parts(work + rd[None, :], columns, here, G, D)
            if MASKED:
                direct = add(direct, [v * (1 - g) for v in a], C)
            store_parts(flow + rd[None, :], direct, here, C, D)
        meet(COUNTER, i + 1, TEAM)
        mask = active[:, None] & (rk < D)[None, :]
        whole = ()
        for s in tl.static_range(S):
            column = G - 1 if s == S - 1 else s
            at = work + column * D + rk[None, :]
            value = tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")
            whole = whole + (value,)
        for part in range(member * BD, D, TEAM * BD):
            rd = part + tl.arange(0, BD)
            here = units(active, rd, D, BD)
            through = tl.load(flow + rd[None, :], mask=here, other=0.0)
            if RESIDENT:
                weights = kept
            else:
                weights = weight_parts(R, n, rk, rd, S, D, False)
            for s in tl.static_range(S):
                through = through + tl.dot(whole[s], weights[s], input_precision=PRECISION)
            tl.store(flow + rd[None, :], through, mask=here)
        tl.debug_barrier()
    for part in range(member * BD, D, TEAM * BD):
        rd = part + tl.arange(0, BD)
        exists = units(rb < B, rd, D, BD)
        at = inflows + rd[None, :]
        segment = tl.load(at, mask=exists, other=0.0)
        arriving = load_float(flow + rd[None, :], exists, C, D)
        store_parts(at, arriving, exists, C, D)
        tl.store(flow + rd[None, :], arriving[0] + segment, mask=exists)
