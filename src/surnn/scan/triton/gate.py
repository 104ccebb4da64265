"""The gate's gradient at every step, open or closed, all in parallel.

dL/dg_t is the adjoint of the state after step t times (proposal - kept). Neither needs another
step: the state before is that of the last event, the adjoint is its inflow plus the output
gradients from t to its segment's end. The proposal's input projection is computed here, tile by
tile, and never stored; that of many narrow heads is computed before, for some steps at a time.
"""

import triton
import triton.language as tl

from .cells import update
from .outputs import numbers_at
from .tiles import (
    add_products,
    carry,
    cut,
    end_of,
    head_and_units,
    list_rows,
    load_bias,
    load_decay,
    load_float,
    load_units,
    per_row,
    resets_at,
    units,
    zero_tiles,
)


@triton.jit
def finite_or_zero(v):
    """By contract, a change that is not finite counts as 0 in the gate's gradient."""
    return tl.where(tl.abs(v) <= 3.4028234663852886e38, v, 0.0)


@triton.jit
def add_tiles(sums, rows, mask, S: tl.constexpr, D: tl.constexpr):
    """Add stored tiles, D numbers apart, to the S tiles."""
    out = ()
    for s in tl.static_range(S):
        out = out + (sums[s] + tl.load(rows + s * D, mask=mask, other=0.0).to(tl.float32),)
    return out


@triton.jit
def store_sums(GRAD_GATE, change, t, tile, part, rb, rd, n, T, B, N, D: tl.constexpr,
               UNITS: tl.constexpr, PARTS: tl.constexpr, SHARED: tl.constexpr):  # fmt: skip
    """Sum over the sequences and units of this tile that share a gate; the host sums tiles."""
    if SHARED:
        lead = tile * PARTS + part if UNITS == 1 else tile
        out = ((tl.cast(lead, tl.int64) * T + t) * N + n) * UNITS
        if UNITS == 1:
            tl.store(GRAD_GATE + out, tl.sum(tl.sum(change, 1), 0))
        else:
            tl.store(GRAD_GATE + out + rd, tl.sum(change, 0), mask=rd < D)
    else:
        lead = part if UNITS == 1 else 0
        out = (((tl.cast(lead, tl.int64) * T + t) * B + rb) * N + n) * UNITS
        if UNITS == 1:
            tl.store(GRAD_GATE + out, tl.sum(change, 1), mask=rb < B)
        else:
            mask = (rb < B)[:, None] & (rd < D)[None, :]
            tl.store(GRAD_GATE + out[:, None] + rd[None, :], change, mask=mask)


@triton.jit(do_not_specialize=["T", "B", "START"])
def gate_kernel(
    X,  # [T, B, I]
    DRIVE,  # [steps of this launch, B, N, S, D]: x's products, if computed already
    W,  # [N, S, D, I]
    BIAS,  # [N, S, D]
    R,  # [N, S, D, D]
    UNIT,
    DECAY,
    TIME,
    INDEX,
    FIRST,
    LENGTHS,
    RESET,  # [T, B]
    RELEVANT,  # [T, b, N]
    SUFFIX,  # [T, B, N, D]: output gradients summed to the segment's or the chunk's end
    STATES,
    INFLOW,
    TAIL,  # [chunks + 1, B, N, D]
    GRAD_GATE,  # [lead, T, b, N, m], to be summed over lead
    START,  # the first step of this launch
    T,
    B,
    N,
    I,
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
    BM: tl.constexpr,
    BI: tl.constexpr,
    CHUNK: tl.constexpr,
    SHARED: tl.constexpr,
    GATE_UNITS: tl.constexpr,
    DECAYS: tl.constexpr,
    RESETS: tl.constexpr,
    HAS_LENGTHS: tl.constexpr,
    HAS_RELEVANT: tl.constexpr,
    HAS_DRIVE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # Heads first: programs that run together read the same rows of x.
    PARTS: tl.constexpr = (D + BD - 1) // BD
    program = tl.program_id(0)
    n, rd = head_and_units(program % (N * PARTS), D, BD)
    part = program % PARTS
    tile = program // (N * PARTS) % tl.cdiv(B, BM)
    t = START + program // (N * PARTS) // tl.cdiv(B, BM)
    rb = tile * BM + tl.arange(0, BM)
    needed = True
    if HAS_RELEVANT:
        relevant = numbers_at(RELEVANT, t, rb, n, B, N, t < T, SHARED)
        needed = tl.max(per_row(relevant, SHARED) + tl.zeros((BM, 1), tl.int32)) > 0
    if needed:
        row, position, stride, _ = list_rows(FIRST, n, rb, B, SHARED)
        exists = units(rb < B, rd, D, BD)
        number = numbers_at(INDEX, t, rb, n, B, N, t < T, SHARED)
        number_before = numbers_at(INDEX, t - 1, rb, n, B, N, t > 0, SHARED)
        states = STATES + (row + number_before * stride)[:, None] * (C * D)
        before = load_float(states + rd[None, :], exists, C, D)
        received = rb < B
        if DECAYS:
            decay = load_decay(DECAY, n, rd, C, D)
            waited = t - tl.load(TIME + position + number_before) - 1
            before = carry(before, decay, per_row(waited, SHARED), C)
            received = received & (waited == 0)  # a spike, at the very next step only
        if RESETS:
            fresh = resets_at(RESET, t, rb, B, rb < B)
            before = cut(fresh, before, C)
            received = received & (fresh == 0)

        # Products with the state first, then x's on top, in the same sums; only the GRU's reset
        # gate keeps one of them apart.
        unit = load_units(UNIT, n, N, rd, P, D)
        zero = zero_tiles(BM, BD, S)
        q = add_products(zero, states, received, R, n, rd, D, S, D, BI, PRECISION)
        bias = load_bias(BIAS, n, rd, S, D)
        sums = ()
        apart = ()
        for s in tl.static_range(S):
            if CELL == "gru" and s == 2:
                sums = sums + (zero[s] + bias[s],)
                apart = apart + (q[s],)
            else:
                sums = sums + (q[s] + bias[s],)
                apart = apart + (0.0,)
        if HAS_DRIVE:
            place = (tl.cast(t - START, tl.int64) * B + rb) * N + n
            x = add_tiles(sums, DRIVE + place[:, None] * (S * D) + rd[None, :], exists, S, D)
        else:
            x_rows = X + ((tl.cast(t, tl.int64) * B + rb) * I)[:, None]
            x = add_products(sums, x_rows, rb < B, W, n, rd, I, S, D, BI, PRECISION)
        new = update(x, apart, before, unit, CELL, CONSTANTS)

        adjoint = load_float(
            INFLOW + (row + number * stride)[:, None] * (C * D) + rd[None, :], exists, C, D
        )
        kept = before
        if DECAYS:
            end = end_of(LENGTHS, rb, T, B, HAS_LENGTHS)
            follows = tl.load(TIME + position + number + 1)
            ahead = tl.maximum(tl.minimum(follows, end) - t - 1, 0)
            adjoint = carry(adjoint, decay, ahead[:, None], C)
            kept = carry(before, decay, tl.zeros((BM, 1), tl.float32) + 1, C)
        at = (((tl.cast(t, tl.int64) * B + rb) * N + n) * D)[:, None] + rd[None, :]
        own = adjoint[0] + tl.load(SUFFIX + at, mask=exists, other=0.0).to(tl.float32)
        if not DECAYS:  # a segment that continues past the chunk
            following = t // CHUNK + 1
            at_end = numbers_at(
                INDEX, following * CHUNK - 1, rb, n, B, N, following * CHUNK <= T, SHARED
            )
            continues = exists & per_row(at_end == number, SHARED)
            at = (((tl.cast(following, tl.int64) * B + rb) * N + n) * D)[:, None] + rd[None, :]
            own += tl.load(TAIL + at, mask=continues, other=0.0)
        change = own * finite_or_zero(new[0] - kept[0])
        for c in tl.static_range(1, C):
            change += adjoint[c] * finite_or_zero(new[c] - kept[c])
        change = tl.where((rb < B)[:, None], change, 0.0)
    else:
        change = tl.zeros((BM, BD), tl.float32)
    store_sums(GRAD_GATE, change, t, tile, part, rb, rd, n, T, B, N, D, GATE_UNITS, PARTS, SHARED)
