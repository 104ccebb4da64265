"""The gate's gradient at every step, open or closed.

dL/dg_t is the adjoint of the state after step t times (proposal - kept). Neither needs another
step: the state before is that of the last event, whose recurrent products are computed already, and
the adjoint is its inflow plus the output gradients from t to its segment's end. One program walks
back through a few steps, keeps what belongs to a segment, and reads it again at events only.
The proposals' products with x are computed before for some steps at a time, and never for all.
"""

import triton
import triton.language as tl

from .cells import update
from .outputs import numbers_at, output_gradient
from .tiles import (
    add_products,
    carry,
    cut,
    end_of,
    head_and_units,
    list_rows,
    load_bias,
    load_decay,
    load_parts,
    load_units,
    per_row,
    resets_at,
    silence,
    units,
)


@triton.jit
def finite_or_zero(v):
    """By contract, a change that is not finite counts as 0 in the gate's gradient."""
    return tl.where(tl.abs(v) <= 3.4028234663852886e38, v, 0.0)


@triton.jit
def reload(P, mask, kept, COUNT: tl.constexpr, D: tl.constexpr):
    """COUNT tiles that lie D apart; where ``mask`` is False they stay as they are."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.load(P + i * D, mask=mask, other=kept[i]),)
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


@triton.jit(do_not_specialize=["T", "B", "START", "STOP"])
def gate_kernel(
    X,  # [T, B, I]
    DRIVE,  # [steps of this launch, B, S, N, D]: x's products, if computed already
    W,  # [S, N, D, I]
    BIAS,  # [S, N, D]
    MORE,  # [S, N, D]: a second bias of the first ADDED drives
    UNIT,
    DECAY,
    TIME,
    INDEX,
    FIRST,
    LENGTHS,
    RESET,  # [T, B]
    SILENT,  # [S, N, D]: recurrent products with a state of zeros
    RELEVANT,  # [T, b, N]
    GRAD_Y,  # [T, B, N, D]
    STATES,  # [rows, C, D]
    PRODUCTS,  # [rows, S, D]: recurrent products with the state one row before
    INFLOW,  # [rows, C, D]
    TAIL,  # [chunks + 1, B, N, D]
    LATER,  # [walks, B, N, D]: output gradients from the walk's end to the segment's or the chunk's
    GRAD_GATE,  # [lead, T, b, N, m], to be summed over lead
    START,  # the first step of this launch, a multiple of WALK
    STOP,  # the step after its last
    T,
    B,
    N,
    I,
    CELL: tl.constexpr,
    CONSTANTS: tl.constexpr,
    HALF: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
    P: tl.constexpr,
    U: tl.constexpr,
    K: tl.constexpr,
    G: tl.constexpr,
    ADDED: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    BI: tl.constexpr,
    CHUNK: tl.constexpr,
    WALK: tl.constexpr,
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
    tile = program // (N * PARTS) % tl.cdiv(B, BT)
    walk = START // WALK + program // (N * PARTS) // tl.cdiv(B, BT)
    rb = tile * BT + tl.arange(0, BT)
    row, position, stride, _ = list_rows(FIRST, n, rb, B, SHARED)
    exists = units(rb < B, rd, D, BD)
    unit = load_units(UNIT, n, N, rd, P, D)
    bias = load_bias(BIAS, MORE, n, N, rd, S, D, ADDED)
    if DECAYS or RESETS:
        silent = load_units(SILENT, n, N, rd, S, D)
    if DECAYS:
        decay = load_decay(DECAY, n, rd, C, D)
        end = end_of(LENGTHS, rb, T, B, HAS_LENGTHS)

    stop = tl.minimum((walk + 1) * WALK, STOP)
    number = numbers_at(INDEX, stop - 1, rb, n, B, N, True, SHARED)
    at = row + number * stride
    states = STATES + rd[None, :]
    inflows = INFLOW + rd[None, :]
    # The products with the state of a row are stored in the next row.
    recurrent = PRODUCTS + stride * (S * D) + rd[None, :]
    state = load_parts(states + at[:, None] * (C * D), exists, C, D)
    product = load_parts(recurrent + at[:, None] * (S * D), exists, S, D)
    inflow = load_parts(inflows + at[:, None] * (C * D), exists, C, D)
    later = tl.zeros((BT, BD), tl.float32)
    if not DECAYS:
        place = ((tl.cast(walk, tl.int64) * B + rb) * N + n) * D
        known = exists & (stop % WALK == 0)
        later = tl.load(LATER + place[:, None] + rd[None, :], mask=known, other=0.0)
        # The segment may continue after the chunk.
        chunk = walk * WALK // CHUNK + 1
        last = numbers_at(INDEX, tl.minimum(chunk * CHUNK, T) - 1, rb, n, B, N, True, SHARED)
        place = ((tl.cast(chunk, tl.int64) * B + rb) * N + n) * D
        continues = exists & (number + rb * 0 == last)[:, None]
        later += tl.load(TAIL + place[:, None] + rd[None, :], mask=continues, other=0.0)
    for i in range(0, stop - walk * WALK):
        t = stop - 1 - i
        number_before = numbers_at(INDEX, t - 1, rb, n, B, N, t > 0, SHARED)
        is_event = exists & per_row(number != number_before, SHARED)
        at = row + number_before * stride
        state = reload(states + at[:, None] * (C * D), is_event, state, C, D)
        product = reload(recurrent + at[:, None] * (S * D), is_event, product, S, D)
        here = output_gradient(GRAD_Y, t, rb, rd, n, B, N, exists, D)
        later = here if DECAYS else later + here
        needed = True
        if HAS_RELEVANT:
            relevant = numbers_at(RELEVANT, t, rb, n, B, N, True, SHARED)
            needed = tl.max(relevant.to(tl.int32) + rb * 0, 0) > 0
        if needed:
            before = [v.to(tl.float32) for v in state]
            received = rb < B
            if DECAYS:
                waited = t - tl.load(TIME + position + number_before) - 1
                before = carry(before, decay, (waited + rb * 0)[:, None], C)
                received = received & (waited == 0)  # a spike, at the very next step only
            if RESETS:
                fresh = resets_at(RESET, t, rb, B, rb < B)
                before = cut(fresh, before, C)
                received = received & (fresh == 0)
            # Only the GRU's reset gate keeps a recurrent product apart.
            q = ()
            for s in tl.static_range(S):
                q = q + (product[s].to(tl.float32),)
            if DECAYS or RESETS:
                q = silence(received == 0, q, silent, S)
            if HAS_DRIVE:
                x = ()
                for s in tl.static_range(S):
                    place = (((tl.cast(t - START, tl.int64) * B + rb) * S + s) * N + n) * D
                    drive = tl.load(DRIVE + place[:, None] + rd[None, :], mask=exists, other=0.0)
                    x = x + (drive.to(tl.float32) + bias[s],)
            else:
                sums = ()
                for s in tl.static_range(S):
                    sums = sums + (tl.zeros((BT, BD), tl.float32) + bias[s],)
                x_rows = X + ((tl.cast(t, tl.int64) * B + rb) * I)[:, None]
                x = add_products(sums, x_rows, rb < B, W, n, N, rd, I, S, D, BI, PRECISION)
            new = update(x, q, before, unit, CELL, CONSTANTS, HALF)
            adjoint = [v.to(tl.float32) for v in inflow]
            kept = before
            if DECAYS:
                follows = tl.load(TIME + position + number + 1)
                ahead = tl.maximum(tl.minimum(follows, end) - t - 1, 0)
                adjoint = carry(adjoint, decay, ahead[:, None], C)
                kept = carry(before, decay, tl.zeros((BT, 1), tl.float32) + 1, C)
            change = (adjoint[0] + later) * finite_or_zero(new[0] - kept[0])
            for c in tl.static_range(1, C):
                change += adjoint[c] * finite_or_zero(new[c] - kept[c])
            change = tl.where((rb < B)[:, None], change, 0.0)
        else:
            change = tl.zeros((BT, BD), tl.float32)
        store_sums(
            GRAD_GATE, change, t, tile, part, rb, rd, n, T, B, N, D, GATE_UNITS, PARTS, SHARED
        )
        inflow = reload(inflows + at[:, None] * (C * D), is_event, inflow, C, D)
        later = tl.where(is_event, 0.0, later)
        number = number_before
