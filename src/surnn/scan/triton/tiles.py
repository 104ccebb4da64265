"""Device functions that all kernels share: the layout of lists and rows, and tuples of tiles.

Layout. A head's list (one for the batch, or one for each sequence: ``SHARED`` or not) has
*positions*: number 0 is the initial state, numbers 1 to ``count`` its events, and one more closes
it. ``FIRST [N, b]`` says where each list's positions begin, in one array for all lists; its last
entry is their total. A packed *row* belongs to a position and a sequence::

    row = (FIRST[n] + number) * B + b     shared lists
    row =  FIRST[n, b] + number           one list per sequence

``TIME [positions]`` is the step of each event, -1 before the first and T after the last;
``SEQUENCE [positions]`` the sequence of a list that is not shared. Packed tensors hold ``[rows,
parts, D]``.
"""

import triton
import triton.language as tl


@triton.jit
def list_rows(FIRST, n, rb, B, SHARED: tl.constexpr):
    """For sequences rb: row and position of number 0, row stride of numbers, count of events."""
    if SHARED:
        first = tl.load(FIRST + n)
        count = tl.load(FIRST + n + 1) - first - 2
        return first * B + rb, first, tl.cast(B, tl.int64), count.to(tl.int32)
    else:
        at = FIRST + tl.cast(n, tl.int64) * B + rb
        first = tl.load(at, mask=rb < B, other=0)
        count = tl.load(at + 1, mask=rb < B, other=2) - first - 2
        return first, first, tl.cast(1, tl.int64), count.to(tl.int32)


@triton.jit
def rows_at(INDEX, FIRST, t, b, inside, n, B, N, SHARED: tl.constexpr):
    """For steps t of sequences b: the packed row of head n's state after it, and whether the step
    is an event."""
    if SHARED:
        at, step = t.to(tl.int64) * N + n, N
        first = tl.load(FIRST + n)
    else:
        at, step = (t.to(tl.int64) * B + b) * N + n, B * N
        first = tl.load(FIRST + tl.cast(n, tl.int64) * B + b, mask=inside, other=0)
    number = tl.load(INDEX + at, mask=inside, other=0)
    before = tl.load(INDEX + at - step, mask=inside & (t > 0), other=0)
    row = first + number
    if SHARED:
        row = row * B + b
    return row, inside & (number != before)


@triton.jit
def longest(count, SHARED: tl.constexpr):
    if SHARED:
        return count
    else:
        return tl.max(count, 0)


@triton.jit
def per_row(value, SHARED: tl.constexpr):
    """A column that broadcasts over units; shared lists have scalars."""
    if SHARED:
        return value
    else:
        return value[:, None]


@triton.jit
def head_and_units(program, D: tl.constexpr, BD: tl.constexpr):
    """The head and the units that a program handles: wide heads are cut into tiles of BD units."""
    parts: tl.constexpr = (D + BD - 1) // BD
    return program // parts, (program % parts) * BD + tl.arange(0, BD)


@triton.jit
def units(rows_exist, rd, D: tl.constexpr, BD: tl.constexpr):
    """Mask [rows, BD] of existing units; heads that do not fill their tiles are padded."""
    if D % BD != 0:
        return rows_exist[:, None] & (rd < D)[None, :]
    else:
        return rows_exist[:, None]


@triton.jit
def load_parts(P, mask, COUNT: tl.constexpr, D):
    """COUNT tiles that lie D apart."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.load(P + i * D, mask=mask, other=0.0),)
    return out


@triton.jit
def store_parts(P, values, mask, COUNT: tl.constexpr, D):
    for i in tl.static_range(COUNT):
        tl.store(P + i * D, values[i].to(P.dtype.element_ty), mask=mask)


@triton.jit
def load_float(P, mask, COUNT: tl.constexpr, D):
    return [v.to(tl.float32) for v in load_parts(P, mask, COUNT, D)]


@triton.jit
def load_units(P, n, N, rd, COUNT: tl.constexpr, D: tl.constexpr):
    """Values of units [COUNT, N, D] of head n, as rows that broadcast over sequences."""
    out = ()
    for i in tl.static_range(COUNT):
        value = tl.load(P + (i * N + n) * D + rd, mask=rd < D, other=0.0)
        out = out + (value.to(tl.float32)[None, :],)
    return out


@triton.jit
def load_decay(P, n, rd, C: tl.constexpr, D: tl.constexpr):
    """Decay [N, C, D] of head n, as rows that broadcast over sequences."""
    out = ()
    for i in tl.static_range(C):
        value = tl.load(P + (n * C + i) * D + rd, mask=rd < D, other=1.0)
        out = out + (value.to(tl.float32)[None, :],)
    return out


@triton.jit
def load_weights(R, n, N, rk, rd, S: tl.constexpr, D: tl.constexpr, TRANSPOSE: tl.constexpr):
    """Columns ``rd`` of head n's S recurrent matrices [S, N, D, D], as they are or transposed."""
    mask = (rk < D)[:, None] & (rd < D)[None, :]
    if TRANSPOSE:
        at = rk[:, None] + rd[None, :] * D
    else:
        at = rk[:, None] * D + rd[None, :]
    out = ()
    for s in tl.static_range(S):
        matrix = R + tl.cast(s * N + n, tl.int64) * (D * D)
        out = out + (tl.load(matrix + at, mask=mask, other=0.0),)
    return out


@triton.jit
def products(h, weights, PRECISION: tl.constexpr):
    """h times each of the matrices."""
    hw = h.to(weights[0].dtype)
    return [tl.dot(hw, w, input_precision=PRECISION) for w in weights]


@triton.jit
def power(decay, gap):
    """decay ** gap for whole gaps; 1 at gap 0 for every decay, and exact at decay 1."""
    positive = tl.where(decay > 0, decay, 1.0)
    over_gap = tl.where(decay > 0, tl.exp2(gap * tl.log2(positive)), 0.0)
    return tl.where(gap > 0, over_gap, 1.0)


@triton.jit
def carry(h, decay, gap, C: tl.constexpr):
    """States (or adjoints) across ``gap`` closed steps."""
    gap = gap.to(tl.float32)
    out = ()
    for i in tl.static_range(C):
        out = out + (h[i] * power(decay[i], gap),)
    return out


@triton.jit
def gate_tile(GATE, t, rb, rd, n, B, N, mask, UNITS: tl.constexpr, SHARED: tl.constexpr):
    """Gate values [rows, BD or 1] at steps t, from [T, b, N, m]."""
    if SHARED:
        at = (t.to(tl.int64) * N + n) * UNITS + rb[:, None] * 0
    else:
        at = (((t.to(tl.int64) * B + rb) * N + n) * UNITS)[:, None]
    if UNITS > 1:
        at = at + rd[None, :]
    return tl.load(GATE + at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def resets_at(RESET, t, b, B, inside):
    """Whether sequences b are reset before steps t: [rows], from [T, B]."""
    return tl.load(RESET + tl.cast(t, tl.int64) * B + b, mask=inside, other=0) != 0


@triton.jit
def opens_at(OPEN, t, b, n, B, N, inside):
    """Whether units of head n are open at steps t of sequences b, from [T, B, N]."""
    at = (t.to(tl.int64) * B + b) * N + n
    return tl.load(OPEN + at, mask=inside, other=0) != 0


@triton.jit
def cut(fresh, values, COUNT: tl.constexpr):
    """0 in the rows of sequences that are reset; their values may be NaN."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.where(fresh[:, None], 0.0, values[i]),)
    return out


@triton.jit
def silence(quiet, values, silent, COUNT: tl.constexpr):
    """The products with a state of zeros in the rows that receive nothing."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.where(quiet[:, None], silent[i], values[i]),)
    return out


@triton.jit
def end_of(LENGTHS, rb, T, B, HAS_LENGTHS: tl.constexpr):
    """The step at which each sequence ends, [rows]."""
    if HAS_LENGTHS:
        return tl.load(LENGTHS + rb, mask=rb < B, other=0).to(tl.int32)
    else:
        return tl.full(rb.shape, 0, tl.int32) + T


@triton.jit
def add_products(
    sums, rows, valid, W, n, N, rd, I, S: tl.constexpr, D: tl.constexpr, BI: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add to S tiles [rows, BD] the products of vectors at ``rows`` with W [S, N, D, I]."""
    ri = tl.arange(0, BI)
    w_rows = W + (tl.cast(n, tl.int64) * D + rd)[None, :] * I
    apart = tl.cast(N, tl.int64) * D * I
    for start in range(0, I, BI):
        i = start + ri
        x = tl.load(rows + i[None, :], mask=valid[:, None] & (i < I)[None, :], other=0.0)
        x = x.to(W.dtype.element_ty)
        w_mask = (i < I)[:, None] & (rd < D)[None, :]
        more = ()
        for s in tl.static_range(S):
            w = tl.load(w_rows + s * apart + i[:, None], mask=w_mask, other=0.0)
            more = more + (tl.dot(x, w, sums[s], input_precision=PRECISION),)
        sums = more
    return sums


@triton.jit
def zero_tiles(BM: tl.constexpr, BD: tl.constexpr, COUNT: tl.constexpr):
    out = ()
    for _ in tl.static_range(COUNT):
        out = out + (tl.zeros((BM, BD), tl.float32),)
    return out


@triton.jit
def load_bias(BIAS, MORE, n, N, rd, S: tl.constexpr, D: tl.constexpr, ADDED: tl.constexpr):
    """Biases [S, N, D] of head n, as rows that broadcast over sequences.

    The first ``ADDED`` drives have a second bias, in ``MORE``; the sum has the dtype of both.
    """
    out = ()
    for s in tl.static_range(S):
        at = (s * N + n) * D + rd
        value = tl.load(BIAS + at, mask=rd < D, other=0.0).to(tl.float32)
        if s < ADDED:
            value += tl.load(MORE + at, mask=rd < D, other=0.0).to(tl.float32)
            value = value.to(BIAS.dtype.element_ty).to(tl.float32)
        out = out + (value[None, :],)
    return out


@triton.jit
def choose(condition, a, b, C: tl.constexpr):
    out = ()
    for i in tl.static_range(C):
        out = out + (tl.where(condition, a[i], b[i]),)
    return out


@triton.jit
def add(a, b, COUNT: tl.constexpr):
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (a[i] + b[i],)
    return out


@triton.jit
def zeros(like, COUNT: tl.constexpr):
    out = ()
    for _ in tl.static_range(COUNT):
        out = out + (tl.zeros_like(like),)
    return out


@triton.jit
def with_first(values, first, COUNT: tl.constexpr):
    """``values`` with another first entry."""
    out = (first,)
    for i in tl.static_range(1, COUNT):
        out = out + (values[i],)
    return out
