"""Between event states and steps: outputs from states, and output gradients to states.

A state is the output at every step from its event to the next one (its *segment*), so its gradient
is the sum of the output gradients over that segment. Sums are computed in chunks of steps: inside
all chunks at once, then joined across them.
"""

import triton
import triton.language as tl

from .tiles import head_and_units, list_rows, per_row, rows_at, units


@triton.jit(do_not_specialize=["T", "B"])
def output_kernel(
    STATES,  # [rows, C, D]
    INDEX,
    FIRST,
    Y,  # [T, B, N, D]
    T,
    B,
    N,
    C: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BM: tl.constexpr,
    SHARED: tl.constexpr,
    DECAYS: tl.constexpr,
):
    """y_t is the state after the last event."""
    n, rd = head_and_units(tl.program_id(1), D, BD)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    t, b = m // B, m % B
    inside = m < T * B
    row, is_event = rows_at(INDEX, FIRST, t, b, inside, n, B, N, SHARED)
    emits = inside
    if DECAYS:  # a carried unit emits nothing
        emits = emits & is_event
    source = STATES + row[:, None] * (C * D) + rd[None, :]
    value = tl.load(source, mask=units(emits, rd, D, BD), other=0.0)
    target = Y + ((m.to(tl.int64) * N + n) * D)[:, None] + rd[None, :]
    tl.store(target, value.to(Y.dtype.element_ty), mask=units(inside, rd, D, BD))


@triton.jit
def numbers_at(INDEX, t, rb, n, B, N, inside, SHARED: tl.constexpr):
    """Events up to and including step t; 0 before the first step."""
    if SHARED:
        return tl.load(INDEX + tl.cast(t, tl.int64) * N + n, mask=inside, other=0)
    else:
        at = (tl.cast(t, tl.int64) * B + rb) * N + n
        return tl.load(INDEX + at, mask=inside & (rb < B), other=0)


@triton.jit
def output_gradient(GRAD_Y, t, rb, rd, n, B, N, mask, D: tl.constexpr):
    at = ((tl.cast(t, tl.int64) * B + rb) * N + n) * D
    return tl.load(GRAD_Y + at[:, None] + rd[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["T", "B"])
def segment_kernel(
    GRAD_Y,  # [T, B, N, D]
    INDEX,
    FIRST,
    INFLOW,  # [rows, C, D]
    TAIL,  # [chunks + 1, B, N, D]
    LATER,  # [walks, B, N, D]
    T,
    B,
    N,
    C: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    CHUNK: tl.constexpr,
    WALK: tl.constexpr,  # divides CHUNK; 0 leaves LATER out
    SHARED: tl.constexpr,
    DECAYS: tl.constexpr,
):
    """Sums inside chunks: for each event to its segment's or the chunk's end.

    ``TAIL[c]`` is the sum from chunk c's beginning to its first event. ``LATER[w]`` is the sum from
    the end of steps w * WALK, ... to the end of that segment or of the chunk.
    """
    PARTS: tl.constexpr = (D + BD - 1) // BD
    n, rd = head_and_units(tl.program_id(0) % (N * PARTS), D, BD)
    rest = tl.program_id(0) // (N * PARTS)
    chunk = rest // tl.cdiv(B, BT)
    rb = rest % tl.cdiv(B, BT) * BT + tl.arange(0, BT)
    row, _, stride, _ = list_rows(FIRST, n, rb, B, SHARED)
    total = tl.zeros((BT, BD), tl.float32)
    for i in range(0, CHUNK):
        t = (chunk + 1) * CHUNK - 1 - i
        inside = units((rb < B) & (t < T), rd, D, BD)
        if WALK > 0:
            if (t + 1) % WALK == 0:
                at = ((tl.cast(t // WALK, tl.int64) * B + rb) * N + n) * D
                tl.store(LATER + at[:, None] + rd[None, :], total, mask=inside)
        here = output_gradient(GRAD_Y, t, rb, rd, n, B, N, inside, D)
        total = here if DECAYS else total + here
        number = numbers_at(INDEX, t, rb, n, B, N, t < T, SHARED)
        before = numbers_at(INDEX, t - 1, rb, n, B, N, (t < T) & (t > 0), SHARED)
        is_event = units(rb < B, rd, D, BD) & per_row(number != before, SHARED)
        place = (row + number * stride)[:, None] * (C * D) + rd[None, :]
        tl.store(INFLOW + place, total, mask=is_event)
        total = tl.zeros_like(total) if DECAYS else tl.where(is_event, 0.0, total)
    at = ((tl.cast(chunk, tl.int64) * B + rb) * N + n) * D
    tl.store(TAIL + at[:, None] + rd[None, :], total, mask=units(rb < B, rd, D, BD))


@triton.jit(do_not_specialize=["T", "B"])
def join_kernel(
    INDEX,
    FIRST,
    INFLOW,
    TAIL,
    T,
    B,
    N,
    C: tl.constexpr,
    D: tl.constexpr,
    BD: tl.constexpr,
    BT: tl.constexpr,
    CHUNK: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Add to each chunk's last event the part of its segment's sum that lies in later chunks.

    Afterwards ``TAIL[c]`` reaches to the end of the segment that covers chunk c's beginning.
    """
    PARTS: tl.constexpr = (D + BD - 1) // BD
    n, rd = head_and_units(tl.program_id(0) % (N * PARTS), D, BD)
    rb = tl.program_id(0) // (N * PARTS) * BT + tl.arange(0, BT)
    row, _, stride, _ = list_rows(FIRST, n, rb, B, SHARED)
    exists = units(rb < B, rd, D, BD)
    tail = TAIL + (((rb.to(tl.int64)) * N + n) * D)[:, None] + rd[None, :]
    per_chunk = tl.cast(B, tl.int64) * N * D
    chunks = tl.cdiv(T, CHUNK)
    later = tl.zeros((BT, BD), tl.float32)
    tl.store(tail + chunks * per_chunk, later, mask=exists)
    end = numbers_at(INDEX, T - 1, rb, n, B, N, T > 0, SHARED)
    for i in range(0, chunks):
        chunk = chunks - 1 - i
        begin = numbers_at(INDEX, chunk * CHUNK - 1, rb, n, B, N, chunk > 0, SHARED)
        own = tl.load(tail + chunk * per_chunk, mask=exists, other=0.0)
        has_event = exists & per_row(end != begin, SHARED)
        place = INFLOW + (row + end * stride)[:, None] * (C * D) + rd[None, :]
        sums = tl.load(place, mask=has_event, other=0.0)
        tl.store(place, sums + later, mask=has_event)
        later = own + tl.where(has_event, 0.0, later)
        tl.store(tail + chunk * per_chunk, later, mask=exists)
        end = begin
    tl.store(INFLOW + row[:, None] * (C * D) + rd[None, :], later, mask=exists)
