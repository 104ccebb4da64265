"""The two serial kernels: over a head's events forwards, and backwards.

One program runs through one head's list for ``BT`` sequences: a *walk*. Recurrent weights and the
state stay on chip for the whole walk; an event reads its drives (forwards) or its derivatives
(backwards), both packed in the order of the walk and fetched ahead of time, and writes its state
or its gradients. Everything that is not serial is computed elsewhere, for all events at once.

A head whose weights do not fit on chip is shared by a ``TEAM`` of programs, ``BD`` units each,
which wait for each other at every event: they exchange outputs of units through memory. All
programs of a team must run at the same time.
"""

import triton
import triton.language as tl

from .cells import pull, update
from .tiles import (
    add,
    carry,
    choose,
    cut,
    end_of,
    gate_tile,
    list_rows,
    load_decay,
    load_float,
    load_parts,
    load_units,
    load_weights,
    longest,
    per_row,
    power,
    products,
    resets_at,
    store_parts,
    units,
    with_first,
    zeros,
)

_SIZES = ["WALK", "T", "B", "N"]


@triton.jit
def wait_for_team(COUNTER, rounds, TEAM: tl.constexpr):
    """A barrier: wait until all programs of the team have reached it ``rounds`` times."""
    tl.debug_barrier()
    tl.atomic_add(COUNTER, 1, sem="release", scope="gpu")
    while tl.atomic_add(COUNTER, 0, sem="acquire", scope="gpu") < rounds * TEAM:
        pass
    tl.debug_barrier()


@triton.jit
def step_of(TIME, position, number, inside):
    """The step of event ``number``; 0 where there is none."""
    return tl.load(TIME + position + number, mask=inside, other=0)


@triton.jit
def blend(kept, new, g, C: tl.constexpr):
    """Exactly ``kept`` at g = 0 and ``new`` at 1."""
    out = ()
    for i in tl.static_range(C):
        between = kept[i] + g * (new[i] - kept[i])
        out = out + (tl.where(g == 0, kept[i], tl.where(g == 1, new[i], between)),)
    return out


@triton.jit
def hide_closed(values, g, COUNT: tl.constexpr):
    """0 where the gate is 0."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.where(g == 0, 0.0, values[i]),)
    return out


@triton.jit
def load_columns(P, mask, S: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    """The columns that enter the recurrent product, as written by all programs of the team."""
    out = ()
    for s in tl.static_range(S):
        column = G - 1 if s == S - 1 else s
        out = out + (tl.load(P + column * D, mask=mask, other=0.0, cache_modifier=".cg"),)
    return out


@triton.jit
def decay_slopes(adjoint, state, decay, gap, mask, C: tl.constexpr):
    """Gradient by the decay of carrying ``state`` across ``gap`` steps; component 0 is constant."""
    out = (tl.zeros_like(state[0]),)
    gap = gap.to(tl.float32)
    for i in tl.static_range(1, C):
        slope = tl.where(gap > 0, gap * power(decay[i], gap - 1), 0.0)
        by_state = adjoint[i] * slope  # where it is 0 the state is not read, whatever it is
        read = mask & (gap > 0) & (by_state != 0)  # without a carry, an adjoint may be NaN
        out = out + (tl.where(read, by_state * state[i], 0.0),)
    return out


@triton.jit(do_not_specialize=_SIZES)
def forward_kernel(
    DRIVES,  # [rows, S, D]
    R,  # [S, N, D, D]
    UNIT,  # [P, N, D]
    DECAY,  # [N, C, D]
    GATE,  # [T, b, N, m]
    TIME,
    FIRST,
    LENGTHS,
    RESET,  # [T, B]
    STATE,  # [C, B, N, D]
    STATES,  # [rows, C, D]
    LAST,  # [C, B, N, D]
    COUNTER,  # [walks] int32, 0
    WALK,  # the first walk of this launch
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
    KD: tl.constexpr,
    TEAM: tl.constexpr,
    BT: tl.constexpr,
    SHARED: tl.constexpr,
    MASKED: tl.constexpr,
    GATE_UNITS: tl.constexpr,
    DECAYS: tl.constexpr,
    RESETS: tl.constexpr,
    HAS_LENGTHS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    walk = WALK + tl.program_id(0) // TEAM
    tile, n = walk // N, walk % N
    rb = tile * BT + tl.arange(0, BT)
    rd = tl.program_id(0) % TEAM * BD + tl.arange(0, BD)
    rk = tl.arange(0, KD)
    row, position, stride, count = list_rows(FIRST, n, rb, B, SHARED)
    exists = units(rb < B, rd, D, BD)
    weights = load_weights(R, n, N, rk, rd, S, D, True)
    unit = load_units(UNIT, n, N, rd, P, D)
    outside = ((rb.to(tl.int64) * N + n) * D)[:, None] + rd[None, :]
    apart = tl.cast(B, tl.int64) * N * D
    h = load_float(STATE + outside, exists, C, apart)
    states = STATES + row[:, None] * (C * D) + rd[None, :]
    store_parts(states, h, exists, C, D)

    drives = DRIVES + row[:, None] * (S * D) + rd[None, :]
    ahead = stride * (S * D)
    now = load_parts(drives + ahead, exists & per_row(count >= 1, SHARED), S, D)
    after = load_parts(drives + 2 * ahead, exists & per_row(count >= 2, SHARED), S, D)
    if DECAYS:
        decay = load_decay(DECAY, n, rd, C, D)
    if DECAYS or MASKED:
        t_before = step_of(TIME, position, 0, count >= 0)
        t = step_of(TIME, position, 1, count >= 1)
        t_after = step_of(TIME, position, 2, count >= 2)
    if MASKED:
        open_ = exists & per_row(count >= 1, SHARED)
        g = gate_tile(GATE, t, rb, rd, n, B, N, open_, GATE_UNITS, SHARED)
    if RESETS:
        fresh = resets_at(RESET, t, rb, B, (rb < B) & (count >= 1))
    for k in range(1, longest(count, SHARED) + 1):
        far = load_parts(drives + (k + 2) * ahead, exists & per_row(k + 2 <= count, SHARED), S, D)
        if DECAYS or MASKED:
            t_far = step_of(TIME, position, k + 2, k + 2 <= count)
        if MASKED:
            open_ = exists & per_row(k + 1 <= count, SHARED)
            g_after = gate_tile(GATE, t_after, rb, rd, n, B, N, open_, GATE_UNITS, SHARED)
        if RESETS:
            fresh_after = resets_at(RESET, t_after, rb, B, (rb < B) & (k + 1 <= count))
        before = h
        if DECAYS:
            before = carry(h, decay, per_row(t - t_before - 1, SHARED), C)
        if RESETS:
            before = cut(fresh, before, C)
        output = before[0]
        if D % BD != 0:  # padding is NaN after an infinite state, and would spread
            output = tl.where(exists, output, 0.0)
        if TEAM > 1:
            wait_for_team(COUNTER + walk, k, TEAM)
            at = STATES + (row + (k - 1) * stride)[:, None] * (C * D) + rk[None, :]
            read = ((rb < B) & (k <= count))[:, None] & (rk < D)[None, :]
            if DECAYS:  # a spike is received at the very next step only
                read = read & per_row(t == t_before + 1, SHARED)
            if RESETS:
                read = read & (fresh == 0)[:, None]
            output = tl.load(at, mask=read, other=0.0, cache_modifier=".cg")
        q = products(output, weights, PRECISION)
        new = update([v.to(tl.float32) for v in now], q, before, unit, CELL, CONSTANTS, HALF)
        if MASKED:
            kept = before
            if DECAYS:
                kept = carry(before, decay, g * 0 + 1, C)
            new = blend(kept, new, g, C)
        if not SHARED:
            new = choose(per_row(k <= count, SHARED), new, h, C)
        h = new
        store_parts(states + k * stride * (C * D), h, exists & per_row(k <= count, SHARED), C, D)
        now = after
        after = far
        if DECAYS or MASKED:
            if SHARED:
                t_before = t
            else:
                t_before = tl.where(k <= count, t, t_before)
            t = t_after
            t_after = t_far
        if MASKED:
            g = g_after
        if RESETS:
            fresh = fresh_after
    if DECAYS:
        h = carry(h, decay, (end_of(LENGTHS, rb, T, B, HAS_LENGTHS) - t_before - 1)[:, None], C)
    store_parts(LAST + outside, h, exists, C, apart)


@triton.jit(do_not_specialize=_SIZES)
def backward_kernel(
    WORK,  # [rows, K, D]: derivatives in, gradient columns out
    R,  # [S, N, D, D]
    UNIT,  # [P, N, D]
    DECAY,  # [N, C, D]
    GATE,  # [T, b, N, m]
    TIME,
    FIRST,
    LENGTHS,
    RESET,  # [T, B]
    STATES,  # [rows, C, D]
    INFLOW,  # [rows, C, D] float32: sums of output gradients in component 0; inflow out
    GRAD_LAST,  # [C, B, N, D]
    GRAD_STATE,  # [C, B, N, D]
    GRAD_UNIT,  # [tiles, U, N, D]
    GRAD_DECAY,  # [tiles, N, C, D]
    COUNTER,  # [walks] int32, 0
    WALK,  # the first walk of this launch
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
    KD: tl.constexpr,
    TEAM: tl.constexpr,
    BT: tl.constexpr,
    SHARED: tl.constexpr,
    MASKED: tl.constexpr,
    GATE_UNITS: tl.constexpr,
    DECAYS: tl.constexpr,
    RESETS: tl.constexpr,
    HAS_LENGTHS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    walk = WALK + tl.program_id(0) // TEAM
    tile, n = walk // N, walk % N
    rb = tile * BT + tl.arange(0, BT)
    rd = tl.program_id(0) % TEAM * BD + tl.arange(0, BD)
    rk = tl.arange(0, KD)
    row, position, stride, count = list_rows(FIRST, n, rb, B, SHARED)
    exists = units(rb < B, rd, D, BD)
    weights = load_weights(R, n, N, rk, rd, S, D, False)
    unit = load_units(UNIT, n, N, rd, P, D)
    outside = ((rb.to(tl.int64) * N + n) * D)[:, None] + rd[None, :]
    apart = tl.cast(B, tl.int64) * N * D
    inflow = load_float(GRAD_LAST + outside, exists, C, apart)
    work = WORK + row[:, None] * (K * D) + rd[None, :]
    flows = INFLOW + row[:, None] * (C * D) + rd[None, :]
    states = STATES + row[:, None] * (C * D) + rd[None, :]
    by_unit = zeros(inflow[0], U)
    by_decay = zeros(inflow[0], C)

    last = longest(count, SHARED)
    here = exists & per_row((last <= count) & (last >= 1), SHARED)
    now = load_parts(work + last * stride * (K * D), here, K, D)
    listed = exists & per_row(last <= count, SHARED)
    segment = tl.load(flows + last * stride * (C * D), mask=listed, other=0.0)
    if DECAYS:
        decay = load_decay(DECAY, n, rd, C, D)
        end = end_of(LENGTHS, rb, T, B, HAS_LENGTHS)
    if DECAYS or MASKED:
        t = step_of(TIME, position, last, (last <= count) & (last >= 1))
    if MASKED:
        g = gate_tile(GATE, t, rb, rd, n, B, N, here, GATE_UNITS, SHARED)
    if RESETS:
        fresh = resets_at(RESET, t, rb, B, (rb < B) & (last <= count) & (last >= 1))
    tl.debug_barrier()  # another thread may overwrite below the values read above
    for i in range(0, last):
        k = last - i
        earlier = exists & per_row((k - 1 <= count) & (k > 1), SHARED)
        after = load_parts(work + (k - 1) * stride * (K * D), earlier, K, D)
        listed = exists & per_row(k - 1 <= count, SHARED)  # the initial state included
        segment_after = tl.load(flows + (k - 1) * stride * (C * D), mask=listed, other=0.0)
        if DECAYS or MASKED:
            t_earlier = step_of(TIME, position, k - 1, k - 1 <= count)  # -1 before the first
        if MASKED:
            g_after = gate_tile(
                GATE, tl.maximum(t_earlier, 0), rb, rd, n, B, N, earlier, GATE_UNITS, SHARED
            )
        if RESETS:
            is_earlier = (rb < B) & (k - 1 <= count) & (k > 1)
            fresh_after = resets_at(RESET, t_earlier, rb, B, is_earlier)
        active = per_row(k <= count, SHARED)
        here = exists & active
        store_parts(flows + k * stride * (C * D), inflow, here, C, D)
        arriving = inflow
        before = inflow
        if DECAYS:
            # ``inflow`` is the adjoint just before the next event, or at the end.
            follows = tl.where(k == count, end, step_of(TIME, position, k + 1, k < count))
            gap = (tl.minimum(follows, end) - t - 1)[:, None]
            state = load_float(states + k * stride * (C * D), here, C, D)
            by_decay = add(by_decay, decay_slopes(inflow, state, decay, gap, here, C), C)
            arriving = carry(inflow, decay, gap, C)
            before = load_float(states + (k - 1) * stride * (C * D), here, C, D)
            before = carry(before, decay, per_row(t - t_earlier - 1, SHARED), C)
            if RESETS:
                before = cut(fresh, before, C)
        a = with_first(arriving, arriving[0] + segment, C)
        proposal = a
        if MASKED:
            proposal = [v * g for v in a]
        columns, recurrent, direct, by_unit_here = pull(
            proposal, [v.to(tl.float32) for v in now], before, unit, CELL, CONSTANTS
        )
        if MASKED:  # a closed unit reads nothing, also where a derivative is not finite
            columns = hide_closed(columns, g, G)
            recurrent = hide_closed(recurrent, g, S)
            direct = hide_closed(direct, g, C)
            by_unit_here = hide_closed(by_unit_here, g, U)
        store_parts(work + k * stride * (K * D), columns, here, G, D)
        by_unit = add(by_unit, [tl.where(here, v, 0.0) for v in by_unit_here], U)
        if MASKED:
            kept = [v * (1 - g) for v in a]
            if DECAYS:
                by_decay = add(by_decay, decay_slopes(kept, before, decay, g * 0 + 1, here, C), C)
                kept = carry(kept, decay, g * 0 + 1, C)
            direct = add(direct, kept, C)
        if TEAM > 1:
            wait_for_team(COUNTER + walk, i + 1, TEAM)
            at = WORK + (row + k * stride)[:, None] * (K * D) + rk[None, :]
            read = ((rb < B) & (k <= count))[:, None] & (rk < D)[None, :]
            recurrent = load_columns(at, read, S, G, D)
        through = direct[0]
        for s in tl.static_range(S):  # separate sums, which do not wait for each other
            operand = recurrent[s].to(weights[s].dtype)
            through = through + tl.dot(operand, weights[s], input_precision=PRECISION)
        new = with_first(direct, through, C)
        if RESETS:
            new = cut(fresh, new, C)
        if not SHARED:
            new = choose(active, new, inflow, C)
        inflow = new
        now = after
        segment = segment_after
        if DECAYS or MASKED:
            t = t_earlier
        if MASKED:
            g = g_after
        if RESETS:
            fresh = fresh_after

    tl.debug_barrier()  # another thread may still have to read the values overwritten here
    store_parts(flows, inflow, exists, C, D)
    arriving = inflow
    if DECAYS:
        follows = tl.where(count == 0, end, step_of(TIME, position, 1, count > 0))
        gap = (tl.minimum(follows, end))[:, None]
        state = load_float(states, exists, C, D)
        by_decay = add(by_decay, decay_slopes(inflow, state, decay, gap, exists, C), C)
        arriving = carry(inflow, decay, gap, C)
    by_state = with_first(arriving, arriving[0] + segment, C)
    store_parts(GRAD_STATE + outside, by_state, exists, C, apart)
    for p in tl.static_range(U):
        out = GRAD_UNIT + ((tl.cast(tile, tl.int64) * U + p) * N + n) * D + rd
        tl.store(out, tl.sum(by_unit[p], 0), mask=rd < D)
    if DECAYS:
        for c in tl.static_range(C):
            out = GRAD_DECAY + ((tl.cast(tile, tl.int64) * N + n) * C + c) * D + rd
            tl.store(out, tl.sum(by_decay[c], 0), mask=rd < D)
