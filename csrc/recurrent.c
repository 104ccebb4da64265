/* Products with weights: only those of open units. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* A tile has 8 or more numbers, the products of a single unit are 1, 3 or 4: too few for a loop. */
static void add(float *sum, const float *more, size_t width) {
    if (width >= 8) {
        for (size_t i = 0; i < width; i += 8)
            for (size_t u = i; u < i + 8; u++) sum[u] += more[u];
        return;
    }
    sum[0] += more[0];
    if (width >= 3) sum[1] += more[1], sum[2] += more[2];
    if (width == 4) sum[3] += more[3];
}

static void to_floats(float *sum, const int32_t *whole, const float *scales, float scale,
                      size_t width) {
    if (width >= 8) {
        for (size_t i = 0; i < width; i += 8)
            for (size_t u = i; u < i + 8; u++) sum[u] = (float)whole[u] * (scales[u] * scale);
        return;
    }
    sum[0] = (float)whole[0] * (scales[0] * scale);
    if (width >= 3) {
        sum[1] = (float)whole[1] * (scales[1] * scale);
        sum[2] = (float)whole[2] * (scales[2] * scale);
    }
    if (width == 4) sum[3] = (float)whole[3] * (scales[3] * scale);
}

/* ---------------------------------------------------------------- linear maps */

static void linear_tile(const surnn_model *m, const operation *op, const uint8_t *w, const float *x,
                        quantised q, float scale, size_t inputs, size_t tile, float *sum) {
    if (op->p[1] == WEIGHTS_FLOAT32) {
        m->k->tile(sum, (const float *)(const void *)w, x, inputs, 1, 16);
        return;
    }
    int32_t whole[16];
    const float *scales = (const float *)op->data[2] + tile * 16;
    m->k->tile8(whole, (const int8_t *)w, q, (const int32_t *)op->data[3] + tile * 16,
                round_up(inputs, 4), 1, 16);
    to_floats(sum, whole, scales, scale, 16);
}

/* Of an input most of which is as it was, as a selective layer's output is, only the changes are
 * multiplied and added. Rounding errors of these sums are swept out: at each step one tile, in turn,
 * is computed anew. Returns how many numbers changed, or n + 1 if it is better to begin afresh. */
static size_t find_changes(const float *x, float *old, size_t n, uint32_t *place, float *change) {
    size_t count = 0;
    int bad = 0;
    for (size_t j = 0; j < n; j++) {
        change[count] = x[j] - old[j];
        place[count] = (uint32_t)j;
        count += x[j] != old[j]; /* NaN too */
        bad |= !(fabsf(x[j] - old[j]) <= 3.40282347e38f);
    }
    memcpy(old, x, n * sizeof *x);
    return bad || count > n / 2 ? n + 1 : count;
}

static int add_changes(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *macs) {
    uint32_t *own = (uint32_t *)(void *)at(s, op->state); /* begun?, next tile, then the input before */
    uint32_t *place = (uint32_t *)(void *)at(s, m->scratch), begun = own[0];
    float *change = (float *)(void *)(place + op->n), *y = numbers(m, s, op->out), sum[16];
    const float *x = numbers(m, s, op->in), *bias = op->data[1];
    size_t n = op->n, tiles = ((size_t)op->m + 15) / 16, next = own[1] % tiles;
    size_t count = find_changes(x, (float *)(void *)(own + 2), n, place, change);
    own[0] = 1;
    if (begun != 1 || count > n) return 0;
    own[1] = (uint32_t)(next + 1);
    for (size_t tile = 0; tile < tiles; tile++) {
        const float *w = (const float *)op->data[0] + tile * n * 16;
        size_t first = tile * 16, lanes = op->m - first < 16 ? op->m - first : 16;
        if (tile == next) {
            m->k->tile(sum, w, x, n, 1, 16);
            for (size_t u = 0; u < lanes; u++) y[first + u] = sum[u] + (bias ? bias[first + u] : 0.0f);
        } else {
            m->k->columns(sum, w, place, change, count);
            for (size_t u = 0; u < lanes; u++) y[first + u] += sum[u];
        }
        *macs += lanes * (tile == next ? n : count);
    }
    return 1;
}

uint64_t surnn_run_linear(const surnn_model *m, surnn_stream *s, const operation *op) {
    uint64_t macs = 0;
    if (op->p[2] && add_changes(m, s, op, &macs)) return macs;
    size_t groups = op->p[0], inputs = op->n / groups, outputs = op->m / groups;
    size_t tiles = (outputs + 15) / 16, padded = round_up(inputs, 64);
    const float *x = numbers(m, s, op->in), *bias = op->data[1];
    const uint8_t *w = op->data[0];
    float *y = numbers(m, s, op->out), sum[16], scale = 0.0f;
    int16_t *q = (int16_t *)(void *)at(s, m->scratch);
    uint8_t *high = (uint8_t *)(q + padded), *low = high + padded;
    uint64_t bytes, none;
    surnn_tile_sizes(16, 1, op->p[1], (uint32_t)inputs, 0, &bytes, &none);
    for (size_t g = 0; g < groups; g++, x += inputs, y += outputs) {
        quantised v = {q, high, low};
        if (op->p[1] == WEIGHTS_INT8) scale = m->k->quantise(x, inputs, padded, q, high, low);
        for (size_t tile = 0; tile < tiles; tile++, w += bytes) {
            size_t count = outputs - tile * 16 < 16 ? outputs - tile * 16 : 16;
            linear_tile(m, op, w, x, v, scale, inputs, g * tiles + tile, sum);
            for (size_t u = 0; u < count; u++)
                y[tile * 16 + u] = sum[u] + (bias ? bias[g * outputs + tile * 16 + u] : 0.0f);
        }
    }
    return op->macs;
}

/* ---------------------------------------------------------------- recurrent layers */

/* All that the tiles of a layer share during one step. */
typedef struct step {
    const surnn_model *m;
    surnn_stream *s;
    const operation *op;
    cell_shape shape;
    size_t lanes, width, in_head, units; /* width: S * lanes */
    uint64_t input_bytes, recurrent_bytes;
    const float *x;
    float *h;
    recurrent_state own;
    uint64_t input_version;
    float *proposals; /* [components][units] */
    /* 8-bit weights: the input and each head's state, made when first needed. */
    quantised qx, qh;
    float x_scale, *h_scale;
    uint32_t *h_made;
    int x_made;
} step;

static void begin(step *st, const surnn_model *m, surnn_stream *s, const operation *op) {
    const uint64_t *version = (const uint64_t *)(const void *)at(s, m->versions);
    uint32_t heads = op->p[2];
    memset(st, 0, sizeof *st);
    st->m = m, st->s = s, st->op = op, st->shape = surnn_cell_shapes[op->p[0]];
    st->units = op->p[1], st->in_head = st->units / heads, st->lanes = op->p[3];
    st->width = st->lanes * st->shape.drives;
    surnn_tile_sizes(op->p[3], st->shape.drives, op->p[4], op->n, (uint32_t)st->in_head,
                     &st->input_bytes, &st->recurrent_bytes);
    st->x = numbers(m, s, op->in), st->h = numbers(m, s, op->out);
    st->own = surnn_recurrent_state(op, s);
    st->input_version = version[op->in];
    uint8_t *scratch = at(s, m->scratch);
    st->proposals = (float *)(void *)scratch;
    if (op->p[4] != WEIGHTS_INT8) return;
    scratch += round_up(st->shape.components * st->units * 4, ALIGNMENT);
    st->h_scale = (float *)(void *)scratch, st->h_made = (uint32_t *)(void *)(st->h_scale + heads);
    memset(st->h_made, 0, heads * 4);
    scratch += round_up((uint64_t)heads * 8, ALIGNMENT);
    size_t wide_x = round_up(op->n, 64), wide_h = heads * round_up(st->in_head, 64);
    st->qx.q = (int16_t *)(void *)scratch, st->qh.q = st->qx.q + wide_x;
    st->qx.high = (uint8_t *)(st->qh.q + wide_h), st->qx.low = st->qx.high + wide_x;
    st->qh.high = st->qx.low + wide_x, st->qh.low = st->qh.high + wide_h;
}

static float quantise(const step *st, const float *x, size_t n, quantised v) {
    return st->m->k->quantise(x, n, round_up(n, 64), (int16_t *)(uintptr_t)v.q,
                              (uint8_t *)(uintptr_t)v.high, (uint8_t *)(uintptr_t)v.low);
}

/* One product of a tile with 8-bit weights, as floats. */
static void product8(const step *st, float *sum, const uint8_t *w, quantised v, float scale,
                     size_t tile, int part, size_t n) {
    int32_t whole[MOST_DRIVES * PACKET];
    size_t place = (tile * 2 + (size_t)part) * st->width;
    const float *scales = (const float *)st->op->data[4] + place;
    const int32_t *sums = (const int32_t *)st->op->data[5] + place;
    int drives = (int)st->shape.drives;
    if (st->lanes == 1)
        st->m->k->row8(whole, (const int8_t *)w, v, sums, round_up(n, 64), drives);
    else
        st->m->k->tile8(whole, (const int8_t *)w, v, sums, round_up(n, 4), drives, (int)st->lanes);
    to_floats(sum, whole, scales, scale, st->width);
}

static void product(const step *st, float *sum, const uint8_t *w, const float *x, size_t n) {
    const float *weights = (const float *)(const void *)w;
    if (st->lanes == 1) st->m->k->row(sum, weights, x, n, (int)st->shape.drives);
    else st->m->k->tile(sum, weights, x, n, (int)st->shape.drives, (int)st->lanes);
}

/* Bias and input product of a tile: kept while the input is the same. */
static const float *input_part(step *st, size_t tile, const uint8_t *w, uint32_t count) {
    float *sum = st->own.input + tile * st->width;
    if (st->own.input_at[tile] == st->input_version) return sum;
    if (st->op->p[4] == WEIGHTS_FLOAT32) {
        product(st, sum, w, st->x, st->op->n);
    } else {
        if (!st->x_made) st->x_scale = quantise(st, st->x, st->op->n, st->qx), st->x_made = 1;
        product8(st, sum, w, st->qx, st->x_scale, tile, 0, st->op->n);
    }
    const float *bias = (const float *)st->op->data[1] +
                        tile * (st->shape.drives + st->shape.parameters) * st->lanes;
    add(sum, bias, st->width);
    st->own.input_at[tile] = st->input_version;
    st->s->done += (uint64_t)count * st->shape.drives * st->op->n;
    return sum;
}

static void recurrent_part(step *st, float *sum, size_t tile, const uint8_t *w, uint32_t head) {
    if (st->op->p[4] == WEIGHTS_FLOAT32) {
        product(st, sum, w, st->h + head * st->in_head, st->in_head);
        return;
    }
    size_t wide = round_up(st->in_head, 64);
    quantised v = {st->qh.q + head * wide, st->qh.high + head * wide, st->qh.low + head * wide};
    if (!st->h_made[head]) {
        st->h_scale[head] = quantise(st, st->h + head * st->in_head, st->in_head, v);
        st->h_made[head] = 1;
    }
    product8(st, sum, w, v, st->h_scale[head], tile, 1, st->in_head);
}

/* Copies of the sizes that tiles really have are worth knowing to the compiler. */
static inline void copy(float *to, const float *from, uint32_t count) {
    if (count == 1) *to = *from;
    else if (count == 16) memcpy(to, from, 16 * sizeof *to);
    else memcpy(to, from, count * sizeof *to);
}

/* A tile's numbers into places `slot`, `slot + 1`, ... of a packet. */
static void fill(step *st, packet *p, size_t tile, int slot) {
    const tile_place place = ((const tile_place *)st->op->data[2])[tile];
    const uint8_t *w = (const uint8_t *)st->op->data[0] +
                       tile * (st->input_bytes + st->recurrent_bytes);
    float recurrent[MOST_DRIVES * PACKET];
    const float *input = input_part(st, tile, w, place.count);
    recurrent_part(st, recurrent, tile, w + st->input_bytes, place.head);
    st->s->done += (uint64_t)place.count * st->shape.drives * st->in_head;
    const float *unit = (const float *)st->op->data[1] +
                        (tile * (st->shape.drives + st->shape.parameters) + st->shape.drives) * st->lanes;
    for (size_t d = 0; d < st->shape.drives; d++) {
        copy(&p->x[d][slot], input + d * st->lanes, place.count);
        copy(&p->h[d][slot], recurrent + d * st->lanes, place.count);
    }
    for (size_t i = 0; i < st->shape.parameters; i++)
        copy(&p->unit[i][slot], unit + i * st->lanes, place.count);
    copy(&p->state[0][slot], st->h + place.first, place.count);
    for (size_t c = 1; c < st->shape.components; c++)
        copy(&p->state[c][slot], st->own.rest + (c - 1) * st->units + place.first, place.count);
}

/* Compute a packet and put its units' proposals aside: others still read the old state. */
static void propose(step *st, packet *p, const uint32_t *unit, int filled) {
    float threshold, beta;
    memcpy(&threshold, &st->op->p[7], 4);
    memcpy(&beta, &st->op->p[8], 4);
    st->m->k->cell(p, (int)st->op->p[0], threshold, beta);
    for (size_t c = 0; c < st->shape.components; c++)
        for (int i = 0; i < filled; i++) st->proposals[c * st->units + unit[i]] = p->state[c][i];
}

/* Number of the lowest bit that is set. */
static unsigned lowest(uint64_t bits) {
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned n = 0;
    for (; !(bits & 1); bits >>= 1) n++;
    return n;
#endif
}

typedef void (*tile_visitor)(step *st, size_t tile, void *with);

static int visit_open(step *st, const uint64_t *mask, tile_visitor visit, void *with) {
    const uint32_t *first = st->op->data[3];
    uint32_t words = words_of(st->m->gate[st->op->in2].size);
    int any = 0;
    for (uint32_t word = 0; word < words; word++)
        for (uint64_t bits = mask[word]; bits; bits &= bits - 1) {
            uint32_t gate = word * 64 + lowest(bits);
            for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++) visit(st, tile, with);
            any = 1;
        }
    return any;
}

typedef struct gathering {
    packet p;
    uint32_t unit[PACKET];
    int filled;
} gathering;

static void compute_tile(step *st, size_t tile, void *with) {
    const tile_place place = ((const tile_place *)st->op->data[2])[tile];
    gathering *g = with;
    if (g->filled + (int)place.count > PACKET) {
        propose(st, &g->p, g->unit, g->filled);
        g->filled = 0;
    }
    fill(st, &g->p, tile, g->filled);
    for (uint32_t u = 0; u < place.count; u++) g->unit[g->filled++] = place.first + u;
}

static void commit_tile(step *st, size_t tile, void *with) {
    const tile_place place = ((const tile_place *)st->op->data[2])[tile];
    (void)with;
    copy(st->h + place.first, st->proposals + place.first, place.count);
    for (size_t c = 1; c < st->shape.components; c++)
        copy(st->own.rest + (c - 1) * st->units + place.first,
             st->proposals + c * st->units + place.first, place.count);
}

/* Spiking units that carry emit nothing, and their adaptation may go on. Open ones are overwritten
 * afterwards, so that all may be treated alike. */
static int carry_spikes(step *st) {
    int any = 0;
    for (size_t i = 0; i < st->units; i++) any |= st->h[i] != 0.0f;
    memset(st->h, 0, st->units * sizeof *st->h);
    if (!st->op->p[6]) return any;
    float *b = st->own.rest + st->units;
    const tile_place *tile = st->op->data[2];
    for (size_t i = 0; i < st->op->p[5]; i++) {
        const float *rho = (const float *)st->op->data[1] + (i * 3 + 2) * st->lanes;
        for (uint32_t u = 0; u < tile[i].count; u++) b[tile[i].first + u] *= rho[u];
    }
    return any;
}

int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op) {
    const uint64_t *mask = mask_of(m, s, op->in2);
    step st;
    gathering g;
    begin(&st, m, s, op);
    memset(&g, 0, sizeof g);
    int changed = visit_open(&st, mask, compute_tile, &g);
    if (g.filled) propose(&st, &g.p, g.unit, g.filled);
    if (op->p[0] >= CELL_LIF) changed |= carry_spikes(&st);
    visit_open(&st, mask, commit_tile, NULL);
    return changed;
}
