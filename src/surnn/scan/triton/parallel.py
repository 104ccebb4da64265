"""The work on all events at once: projections, derivatives, and weight gradients.

Each is a matrix product over packed rows. The host does not know how many rows a head
has, so the grid is sized for the maximum, and surplus programs exit.
"""

import triton
import triton.language as tl

from surnn.nn.triton_sums import total_of

from .cells import linearize
from .tiles import (
    add_products,
    carry,
    cut,
    head_and_units,
    load_bias,
    load_decay,
    load_float,
    load_units,
    opens_at,
    resets_at,
    rows_at,
    silence,
    store_parts,
    units,
    zero_tiles,
)


@triton.jit
def head_rows(FIRST, n, B, SHARED: tl.constexpr):
    """The packed rows [begin, end) of head n; int32, because 64-bit division is slow."""
    if SHARED:
        return tl.load(FIRST + n).to(tl.int32) * B, tl.load(FIRST + n + 1).to(tl.int32) * B
    else:
        at = FIRST + tl.cast(n, tl.int64) * B
        return tl.load(at).to(tl.int32), tl.load(at + B).to(tl.int32)


@triton.jit
def place_of(TIME, SEQUENCE, row, end, B, T, SHARED: tl.constexpr):
    """Position, step and sequence of packed rows, and which of them are events."""
    inside = row < end
    if SHARED:
        position = row // B
        b = row % B
    else:
        position = row
        b = tl.load(SEQUENCE + row, mask=inside, other=0)
    t = tl.load(TIME + position, mask=inside, other=-1)
    return position, t, b, inside & (t >= 0) & (t < T)


@triton.jit(do_not_specialize=["T", "B"])
def project_kernel(
    X,  # [T, B, I]
    W,  # [S, N, D, I]
    BIAS,  # [S, N, D]
    MORE,  # [S, N, D]: a second bias of the first ADDED drives
    TIME,
    SEQUENCE,
    FIRST,
    DRIVES,  # [rows, S, D]
    T,
    B,
    N,
    I,
    S: tl.constexpr,
    ADDED: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BM: tl.constexpr,
    BI: tl.constexpr,
    SHARED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The input projection at events: gathered rows of x times a head's weights."""
    n, rd = head_and_units(tl.program_id(1), D, BD)
    begin, end = head_rows(FIRST, n, B, SHARED)
    row = begin + tl.program_id(0) * BM + tl.arange(0, BM)
    if tl.min(row, 0) < end:
        _, t, b, is_event = place_of(TIME, SEQUENCE, row, end, B, T, SHARED)
        x_rows = X + ((t.to(tl.int64) * B + b) * I)[:, None]
        none = tl.zeros((BM, BD), tl.float32)
        sums = [none + v for v in load_bias(BIAS, MORE, n, N, rd, S, D, ADDED)]
        sums = add_products(sums, x_rows, is_event, W, n, N, rd, I, S, D, BI, PRECISION)
        out = DRIVES + row.to(tl.int64)[:, None] * (S * D) + rd[None, :]
        store_parts(out, sums, units(is_event, rd, D, BD), S, D)


@triton.jit(do_not_specialize=["T", "B"])
def linearize_kernel(
    DRIVES,  # [rows, S, D]
    R,
    UNIT,
    DECAY,
    TIME,
    SEQUENCE,
    FIRST,
    RESET,  # [T, B]
    SILENT,  # [S, N, D]: recurrent products with a state of zeros
    STATES,  # [rows, C, D]
    WORK,  # [rows, K, D]
    PRODUCTS,  # [rows, S, D]: recurrent products with the state one row before, if wanted
    T,
    B,
    N,
    CELL: tl.constexpr,
    CONSTANTS: tl.constexpr,
    HALF: tl.constexpr,
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
    SHARED: tl.constexpr,
    DECAYS: tl.constexpr,
    RESETS: tl.constexpr,
    HAS_PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The cell's derivatives at all events."""
    n, rd = head_and_units(tl.program_id(1), D, BD)
    begin, end = head_rows(FIRST, n, B, SHARED)
    row = begin + tl.program_id(0) * BM + tl.arange(0, BM)
    if tl.min(row, 0) < end:
        position, t, b, is_event = place_of(TIME, SEQUENCE, row, end, B, T, SHARED)
        mask = units(is_event, rd, D, BD)
        stride = B if SHARED else 1
        wide = row.to(tl.int64)[:, None]
        states = STATES + (wide - stride) * (C * D)
        zero = zero_tiles(BM, BD, S)
        follows = (row < end) & (t >= 0)  # an event, or the end of the list
        q = add_products(zero, states, follows, R, n, N, rd, D, S, D, BI, PRECISION)
        if HAS_PRODUCTS:
            store_parts(PRODUCTS + wide * (S * D) + rd[None, :], q, units(follows, rd, D, BD), S, D)
        before = load_float(states + rd[None, :], mask, C, D)
        if DECAYS or RESETS:
            silent = load_units(SILENT, n, N, rd, S, D)
        if DECAYS:
            decay = load_decay(DECAY, n, rd, C, D)
            earlier = tl.load(TIME + position - 1, mask=is_event, other=0)
            before = carry(before, decay, (t - earlier - 1)[:, None], C)
            # A spike is received at the very next step only.
            q = silence(earlier != t - 1, q, silent, S)
        if RESETS:
            fresh = resets_at(RESET, t, b, B, is_event)
            before = cut(fresh, before, C)
            q = silence(fresh, q, silent, S)
        unit = load_units(UNIT, n, N, rd, P, D)
        x = load_float(DRIVES + wide * (S * D) + rd[None, :], mask, S, D)
        derivatives = linearize(x, q, before, unit, CELL, HALF)
        store_parts(WORK + wide * (K * D) + rd[None, :], derivatives, mask, K, D)


@triton.jit(do_not_specialize=["STRIDE", "T", "B", "SPLITS"])
def weight_gradient_kernel(
    WORK,  # [rows, K, D]: gradient columns
    SOURCE,  # x [T, B, I], or states [rows, C, D]
    TIME,
    SEQUENCE,
    FIRST,
    RESET,  # [T, B]
    OPEN,  # [T, B, N]
    GRAD,  # [splits, S, N, D, I] float32, splits STRIDE apart
    GRAD_BIAS,  # [splits, S, N, D] float32, likewise
    STRIDE,
    T,
    B,
    N,
    I,
    SPLITS,
    S: tl.constexpr,
    K: tl.constexpr,
    LAST: tl.constexpr,  # the column of the last drive
    D: tl.constexpr,
    BD: tl.constexpr,
    CD: tl.constexpr,
    BM: tl.constexpr,
    BI: tl.constexpr,
    SHARED: tl.constexpr,
    RECURRENT: tl.constexpr,
    DECAYS: tl.constexpr,
    RESETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """dW = dY^T X over the rows of one split.

    Row by row, dY has the gradients by the drives and X the vectors that the weights multiply: the
    inputs, or the states for the recurrent weights.
    """
    n, rd = head_and_units(tl.program_id(0), D, BD)
    split = tl.program_id(2)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    begin, end = head_rows(FIRST, n, B, SHARED)
    share = tl.cdiv(tl.cdiv(end - begin, BM), SPLITS) * BM
    begin = begin + share * split
    end = tl.minimum(begin + share, end)
    stride = B if SHARED else 1
    sums = ()
    bias = ()
    for _ in tl.static_range(S):
        sums = sums + (tl.zeros((BD, BI), tl.float32),)
        bias = bias + (tl.zeros((BD,), tl.float32),)
    for start in range(begin, end, BM):
        row = start + tl.arange(0, BM)
        wide = row.to(tl.int64)
        position, t, b, is_event = place_of(TIME, SEQUENCE, row, end, B, T, SHARED)
        read = is_event
        if RECURRENT:
            source = (wide - stride) * CD
            if DECAYS:  # a spike is received at the very next step only
                read = read & (tl.load(TIME + position - 1, mask=is_event, other=-2) == t - 1)
            if RESETS:
                read = read & (resets_at(RESET, t, b, B, is_event) == 0)
        else:
            source = (t.to(tl.int64) * B + b) * I
            if RESETS:
                read = read & opens_at(OPEN, t, b, n, B, N, is_event)
        value = tl.load(
            SOURCE + source[:, None] + i[None, :], mask=read[:, None] & (i < I)[None, :], other=0.0
        ).to(WORK.dtype.element_ty)
        columns = WORK + wide[:, None] * (K * D) + rd[None, :]
        mask = units(is_event, rd, D, BD)
        more = ()
        more_bias = ()
        for s in tl.static_range(S):
            column = LAST if s == S - 1 else s
            grad = tl.load(columns + column * D, mask=mask, other=0.0)
            product = tl.dot(tl.trans(grad), value, sums[s], input_precision=PRECISION)
            more = more + (product,)
            more_bias = more_bias + (bias[s] + tl.sum(grad.to(tl.float32), 0),)
        sums = more
        bias = more_bias
    for s in tl.static_range(S):
        first = tl.cast(split, tl.int64) * STRIDE
        out = (s * N + n) * D + rd
        mask = (rd < D)[:, None] & (i < I)[None, :]
        at = first + out.to(tl.int64)[:, None] * I + i[None, :]
        tl.store(GRAD + at, sums[s], mask=mask)
        if tl.program_id(1) == 0:
            tl.store(GRAD_BIAS + first + out, bias[s], mask=rd < D)


@triton.jit
def add_columns(total, WORK, W, row, is_event, n, N, j, i, I, J: tl.constexpr, KD: tl.constexpr,
                D: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Add head n's gradient columns j, at packed rows, times its weights."""
    mask = is_event[:, None] & (j < J)[None, :]
    grad = tl.load(WORK + row[:, None] * KD + j[None, :], mask=mask, other=0.0)
    at = ((j // D * N + n) * D + j % D).to(tl.int64)[:, None] * I + i[None, :]
    w = tl.load(W + at, mask=(j < J)[:, None] & (i < I)[None, :], other=0.0)
    return tl.dot(grad, w.to(grad.dtype), total, input_precision=PRECISION)


@triton.jit(do_not_specialize=["T", "B"])
def input_gradient_kernel(
    WORK,  # [rows, K * D]: gradient columns
    W,  # [S, N, D, I]
    INDEX,
    FIRST,
    OPEN,  # [T, B, N]
    GRAD_X,  # [T, B, I]
    T,
    B,
    N,
    I,
    J: tl.constexpr,  # S * D
    KD: tl.constexpr,
    D: tl.constexpr,
    BS: tl.constexpr,  # steps of a tile
    BB: tl.constexpr,  # sequences of a tile
    BN: tl.constexpr,  # at least N
    BJ: tl.constexpr,
    BI: tl.constexpr,
    SHARED: tl.constexpr,
    RESETS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The gradient by x: at every step, the sum over the heads that have an event there."""
    across = tl.cdiv(B, BB)
    t0 = tl.program_id(0) // across * BS
    place = tl.arange(0, BS * BB)
    t = t0 + place // BB
    b = tl.program_id(0) % across * BB + place % BB
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    inside = (t < T) & (b < B)
    total = tl.zeros((BS * BB, BI), tl.float32)
    if (
        SHARED and BS == 1 and not RESETS
    ):  # all rows have the same events: one loop over the columns of open heads
        rn = tl.arange(0, BN)
        at = INDEX + t0.to(tl.int64) * N + rn
        number = tl.load(at, mask=rn < N, other=0)
        event = number != tl.load(at - N, mask=(rn < N) & (t0 > 0), other=0)
        position = tl.load(FIRST + rn, mask=rn < N, other=0) + number
        rank = tl.cumsum(event.to(tl.int32), 0)
        blocks: tl.constexpr = (J + BJ - 1) // BJ
        for k in range(0, tl.sum(event.to(tl.int32), 0) * blocks):
            is_next = event & (rank == k // blocks + 1)
            n = tl.sum(tl.where(is_next, rn, 0), 0)
            row = tl.sum(tl.where(is_next, position, 0), 0) * B + b
            j = k % blocks * BJ + tl.arange(0, BJ)
            total = add_columns(total, WORK, W, row, inside, n, N, j, i, I, J, KD, D, PRECISION)
    else:
        for n in range(0, N):
            row, is_event = rows_at(INDEX, FIRST, t, b, inside, n, B, N, SHARED)
            if RESETS:
                is_event = is_event & opens_at(OPEN, t, b, n, B, N, is_event)
            if tl.max(is_event.to(tl.int32), 0) > 0:
                for start in range(0, J, BJ):
                    j = start + tl.arange(0, BJ)
                    more = add_columns(
                        total, WORK, W, row, is_event, n, N, j, i, I, J, KD, D, PRECISION
                    )
                    total = tl.where(is_event[:, None], more, total)  # 0 times NaN is NaN
    m = t.to(tl.int64) * B + b
    out = GRAD_X + m[:, None] * I + i[None, :]
    tl.store(out, total.to(GRAD_X.dtype.element_ty), mask=inside[:, None] & (i < I)[None, :])


@triton.jit(do_not_specialize=["SPLITS"])
def weight_sum_kernel(
    PARTS,  # [splits, WEIGHT + ROWS + RECURRENT + ROWS] float32
    BY_WEIGHT,  # [WEIGHT]
    BY_BIAS,  # [ROWS]
    BY_RECURRENT,  # [RECURRENT]
    BY_INNER,  # gradients by biases of the recurrent product
    WEIGHT,
    ROWS,
    RECURRENT,
    SPLITS,
    ADDED,  # the first rows of BY_INNER are biases of the drive
    FIRST,  # from this row on, BY_INNER has those of the product alone
    SKIPPED,  # rows that BY_INNER does not have
    BLOCK: tl.constexpr,
):
    """The gradients by weights and biases, from the sums of all splits."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = total_of(PARTS, i, WEIGHT + ROWS + RECURRENT + ROWS, SPLITS)
    tl.store(BY_WEIGHT + i, total.to(BY_WEIGHT.dtype.element_ty), mask=i < WEIGHT)
    row = i - WEIGHT
    by_inner = total.to(BY_INNER.dtype.element_ty)
    tl.store(BY_BIAS + row, total.to(BY_BIAS.dtype.element_ty), mask=(row >= 0) & (row < ROWS))
    tl.store(BY_INNER + row, by_inner, mask=(row >= 0) & (row < ADDED))
    place = row - ROWS
    by_recurrent = total.to(BY_RECURRENT.dtype.element_ty)
    tl.store(BY_RECURRENT + place, by_recurrent, mask=(place >= 0) & (place < RECURRENT))
    row = place - RECURRENT
    tl.store(BY_INNER + row - SKIPPED, by_inner, mask=(row >= FIRST) & (row < ROWS))
