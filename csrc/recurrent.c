/* Recurrent layers: products with the weights of open units only. */
#include "internal.h"

#include <string.h>

/* Whether the input products of a chunk's frames are made together. Weights of 8 bits and of single
 * units are so few that they are still in the cache for the next frame. */
static int projects(const operation *op) { return op->p[4] == WEIGHTS_FLOAT32 && op->p[3] > 1; }

/* Where things lie in scratch memory, as offsets. */
recurrent_scratch surnn_recurrent_scratch(const surnn_model *m, const operation *op) {
    cell_shape shape = surnn_cell_shapes[op->p[0]];
    uint64_t units = op->p[1], heads = op->p[2], end = 0;
    uint64_t wide_x = round_up(op->n, 64), wide_h = heads * round_up(units / heads, 64);
    recurrent_scratch s;
    memset(&s, 0, sizeof s);
    s.products = end;
    end += round_up((uint64_t)op->p[5] * op->p[3], PACKET) * shape.drives * 4;
    s.open = end, end = round_up(end + ((uint64_t)op->p[5] + PACKET) * 4, ALIGNMENT);
    if (op->p[4] == WEIGHTS_INT8) {
        s.scales = end, s.made = end + heads * 4, end = round_up(end + heads * 8, ALIGNMENT);
        s.q = end, s.high = s.q + 2 * (wide_x + wide_h), s.low = s.high + wide_x + wide_h;
        end = s.low + wide_x + wide_h;
    }
    if (projects(op)) {
        s.frames_of = end, end = round_up(end + (uint64_t)m->gate[op->in2].size * 4, ALIGNMENT);
        s.projected = end, end += CHUNK * (uint64_t)op->p[5] * shape.drives * op->p[3] * 4;
    }
    s.size = end;
    return s;
}

/* All that the tiles of a layer share during one step. */
typedef struct step {
    const surnn_model *m;
    surnn_stream *s;
    const operation *op;
    const tile_place *place;
    cell_shape shape;
    size_t lanes, width, in_head, units, tiles; /* width: S * lanes */
    uint64_t input_bytes, recurrent_bytes;
    const float *x;
    float *h;
    recurrent_state own;
    uint64_t input_version;
    float *products;        /* recurrent ones: of tiles [open][S][lanes], of units [packets][S][PACKET] */
    uint32_t *open;         /* tiles that are */
    uint32_t *frames_of;    /* bits: frames of the chunk at which a gate is open */
    float *projected;       /* [CHUNK][tiles][S][lanes]: input products and biases */
    /* 8-bit weights: the input and each head's state, made when first needed. */
    quantised qx, qh;
    float x_scale, *h_scale;
    uint32_t *h_made;
    int x_made;
} step;

static void begin(step *st, const surnn_model *m, surnn_stream *s, const operation *op) {
    const recurrent_scratch part = surnn_recurrent_scratch(m, op);
    uint32_t heads = op->p[2];
    uint8_t *scratch = at(s, m->scratch);
    size_t wide_x = round_up(op->n, 64);
    memset(st, 0, sizeof *st);
    st->m = m, st->s = s, st->op = op, st->shape = surnn_cell_shapes[op->p[0]];
    st->place = op->data[2], st->tiles = op->p[5];
    st->units = op->p[1], st->in_head = st->units / heads, st->lanes = op->p[3];
    st->width = st->lanes * st->shape.drives;
    surnn_tile_sizes(op->p[3], st->shape.drives, op->p[4], op->n, (uint32_t)st->in_head,
                     &st->input_bytes, &st->recurrent_bytes);
    st->x = numbers(m, s, op->in), st->h = numbers(m, s, op->out);
    st->own = surnn_recurrent_state(op, s);
    st->input_version = versions_at(m, s, s->frame)[op->in];
    st->products = (float *)(void *)(scratch + part.products);
    st->open = (uint32_t *)(void *)(scratch + part.open);
    if (projects(op) && s->frames > 1) {
        st->frames_of = (uint32_t *)(void *)(scratch + part.frames_of);
        st->projected = (float *)(void *)(scratch + part.projected);
    }
    if (op->p[4] == WEIGHTS_FLOAT32) return;
    st->h_scale = (float *)(void *)(scratch + part.scales);
    st->h_made = (uint32_t *)(void *)(scratch + part.made);
    memset(st->h_made, 0, heads * 4);
    st->qx.q = (int16_t *)(void *)(scratch + part.q), st->qh.q = st->qx.q + wide_x;
    st->qx.high = scratch + part.high, st->qh.high = st->qx.high + wide_x;
    st->qx.low = scratch + part.low, st->qh.low = st->qx.low + wide_x;
}

static const uint8_t *weights_of(const step *st, size_t tile, int part) {
    return (const uint8_t *)st->op->data[0] + tile * (st->input_bytes + st->recurrent_bytes) +
           (part ? st->input_bytes : 0);
}

/* Of a tile's or unit's products; then come the cell's parameters. */
static const float *biases_of(const step *st, size_t tile) {
    return (const float *)st->op->data[1] +
           tile * (st->shape.drives + st->shape.parameters) * st->lanes;
}

static float quantise(const step *st, const float *x, size_t n, quantised v) {
    return st->m->k->quantise(x, n, round_up(n, 64), (int16_t *)(uintptr_t)v.q,
                              (uint8_t *)(uintptr_t)v.high, (uint8_t *)(uintptr_t)v.low);
}

/* What 8-bit weights of a part (0: input, 1: recurrent) are multiplied with, and its scale. */
static quantised quantised_of(step *st, int part, uint32_t head, float *scale) {
    if (!part) {
        if (!st->x_made) st->x_scale = quantise(st, st->x, st->op->n, st->qx), st->x_made = 1;
        *scale = st->x_scale;
        return st->qx;
    }
    size_t wide = head * round_up(st->in_head, 64);
    quantised v = {st->qh.q + wide, st->qh.high + wide, st->qh.low + wide};
    if (!st->h_made[head]) {
        st->h_scale[head] = quantise(st, st->h + head * st->in_head, st->in_head, v);
        st->h_made[head] = 1;
    }
    *scale = st->h_scale[head];
    return v;
}

static const float *vector_of(const step *st, int part, uint32_t head) {
    return part ? st->h + head * st->in_head : st->x;
}

static void count_work(step *st, size_t units, size_t inputs) {
    st->s->done += (uint64_t)units * st->shape.drives * inputs;
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

/* ---------------------------------------------------------------- tiles: 8 or 16 units side by side */

static void add(float *sum, const float *a, const float *b, size_t width) {
    for (size_t i = 0; i < width; i += 8)
        for (size_t u = i; u < i + 8; u++) sum[u] = a[u] + b[u];
}

static void product_of_tile(step *st, float *sum, size_t tile, int part) {
    size_t n = part ? st->in_head : st->op->n;
    uint32_t head = st->place[tile].head;
    const uint8_t *w = weights_of(st, tile, part);
    int drives = (int)st->shape.drives, lanes = (int)st->lanes;
    count_work(st, st->place[tile].count, n);
    if (st->op->p[4] == WEIGHTS_FLOAT32) {
        const float *x = vector_of(st, part, head);
        st->m->k->tile(sum, (const float *)(const void *)w, x, n, drives, lanes);
        return;
    }
    int32_t whole[MOST_DRIVES * PACKET];
    size_t place = (tile * 2 + (size_t)part) * st->width;
    const float *scales = (const float *)st->op->data[4] + place;
    const int32_t *sums = (const int32_t *)st->op->data[5] + place;
    float scale;
    quantised v = quantised_of(st, part, head, &scale);
    st->m->k->tile8(whole, (const int8_t *)w, v, sums, round_up(n, 4), drives, lanes);
    for (size_t i = 0; i < st->width; i += 8)
        for (size_t u = i; u < i + 8; u++) sum[u] = (float)whole[u] * (scales[u] * scale);
}

/* Bias and input product of a tile: kept while the input is the same. */
static void input_of_tile(step *st, size_t tile) {
    float *sum = st->own.input + tile * st->width;
    if (st->own.input_at[tile] == st->input_version) return;
    if (st->projected) {
        const float *made = st->projected + (st->s->frame * st->tiles + tile) * st->width;
        add(sum, made, biases_of(st, tile), st->width);
    } else {
        product_of_tile(st, sum, tile, 0);
        add(sum, sum, biases_of(st, tile), st->width);
    }
    st->own.input_at[tile] = st->input_version;
}

/* Frames of a chunk take turns in going up and down: what was read last is still in the cache. */
static void products_of_tiles(step *st, size_t open) {
    for (size_t k = 0; k < open; k++) {
        size_t i = st->s->frame % 2 ? open - 1 - k : k;
        input_of_tile(st, st->open[i]);
        product_of_tile(st, st->products + i * st->width, st->open[i], 1);
    }
}

static void update(const step *st, const packet *p) {
    float threshold, beta;
    memcpy(&threshold, &st->op->p[7], 4);
    memcpy(&beta, &st->op->p[8], 4);
    st->m->k->cell(p, (int)st->op->p[0], threshold, beta);
}

/* A packet in memory of its own. */
typedef struct copies {
    float x[MOST_DRIVES][PACKET], h[MOST_DRIVES][PACKET], unit[2][PACKET], state[MOST_PARTS][PACKET];
} copies;

static packet packet_of(copies *c) {
    packet p;
    for (int d = 0; d < MOST_DRIVES; d++) p.x[d] = c->x[d], p.h[d] = c->h[d];
    for (int k = 0; k < 2; k++) p.unit[k] = c->unit[k];
    for (int k = 0; k < MOST_PARTS; k++) p.state[k] = c->state[k];
    return p;
}

/* A component of the state, [units]. */
static float *state_of(const step *st, size_t component) {
    return component ? st->own.rest + (component - 1) * st->units : st->h;
}

/* A full tile, in place. */
static void update_tile(step *st, size_t tile, const float *products) {
    const float *input = st->own.input + tile * st->width, *unit = biases_of(st, tile) + st->width;
    packet p;
    memset(&p, 0, sizeof p);
    for (size_t d = 0; d < st->shape.drives; d++)
        p.x[d] = input + d * PACKET, p.h[d] = products + d * PACKET;
    for (size_t k = 0; k < st->shape.parameters; k++) p.unit[k] = unit + k * PACKET;
    for (size_t c = 0; c < st->shape.components; c++) p.state[c] = state_of(st, c) + st->place[tile].first;
    update(st, &p);
}

/* A tile with fewer units than a packet has lanes. */
static void update_small_tile(step *st, size_t tile, const float *products) {
    const float *input = st->own.input + tile * st->width, *unit = biases_of(st, tile) + st->width;
    size_t first = st->place[tile].first, lanes = st->lanes * 4, count = st->place[tile].count * 4;
    copies c;
    packet p = packet_of(&c);
    memset(&c, 0, sizeof c);
    for (size_t d = 0; d < st->shape.drives; d++) {
        memcpy(c.x[d], input + d * st->lanes, lanes);
        memcpy(c.h[d], products + d * st->lanes, lanes);
    }
    for (size_t k = 0; k < st->shape.parameters; k++) memcpy(c.unit[k], unit + k * st->lanes, lanes);
    for (size_t k = 0; k < st->shape.components; k++) memcpy(c.state[k], state_of(st, k) + first, count);
    update(st, &p);
    for (size_t k = 0; k < st->shape.components; k++) memcpy(state_of(st, k) + first, c.state[k], count);
}

static void update_tiles(step *st, size_t open) {
    for (size_t i = 0; i < open; i++) {
        const float *products = st->products + i * st->width;
        if (st->place[st->open[i]].count == PACKET) update_tile(st, st->open[i], products);
        else update_small_tile(st, st->open[i], products);
    }
}

/* ---------------------------------------------------------------- single units: a tile is a unit */

/* sum[S][PACKET] of some units with 8-bit weights. */
static void products8(step *st, float *sum, const uint32_t *unit, int count, int part) {
    int32_t whole[MOST_DRIVES * PACKET];
    const int8_t *w[PACKET];
    const int32_t *sums[PACKET];
    const float *scales[PACKET];
    quantised v[PACKET];
    float scale[PACKET];
    size_t n = part ? st->in_head : st->op->n, drives = st->shape.drives;
    v[0] = quantised_of(st, part, st->place[unit[0]].head, &scale[0]);
    for (int i = 0; i < count; i++) {
        size_t place = (unit[i] * 2 + (size_t)part) * drives;
        w[i] = (const int8_t *)weights_of(st, unit[i], part);
        scales[i] = (const float *)st->op->data[4] + place;
        sums[i] = (const int32_t *)st->op->data[5] + place;
        if (st->op->p[2] == 1 || !part) v[i] = v[0], scale[i] = scale[0];
        else v[i] = quantised_of(st, part, st->place[unit[i]].head, &scale[i]);
    }
    st->m->k->rows8(whole, w, v, sums, round_up(n, 64), (int)drives, count);
    for (size_t d = 0; d < drives; d++)
        for (int i = 0; i < count; i++)
            sum[d * PACKET + i] = (float)whole[d * PACKET + i] * (scales[i][d] * scale[i]);
}

/* sum[S][PACKET] of some units. */
static void products_of_units(step *st, float *sum, const uint32_t *unit, int count, int part) {
    const float *w[PACKET], *x[PACKET];
    size_t n = part ? st->in_head : st->op->n;
    int one_head = st->op->p[2] == 1;
    count_work(st, (size_t)count, n);
    if (st->op->p[4] == WEIGHTS_INT8) {
        products8(st, sum, unit, count, part);
        return;
    }
    for (int i = 0; i < count; i++) {
        w[i] = (const float *)(const void *)weights_of(st, unit[i], part);
        x[i] = vector_of(st, part, one_head ? 0 : st->place[unit[i]].head);
    }
    st->m->k->rows(sum, w, x, n, (int)st->shape.drives, count);
}

/* Bias and input product of units, [S][units]: kept while the input is the same. */
static void inputs_of_units(step *st, const uint32_t *unit, int count) {
    uint32_t stale[PACKET];
    float sum[MOST_DRIVES * PACKET], *input = st->own.input;
    size_t stride = st->shape.drives + st->shape.parameters;
    int found = 0;
    for (int i = 0; i < count; i++) {
        stale[found] = unit[i];
        found += st->own.input_at[unit[i]] != st->input_version;
        st->own.input_at[unit[i]] = st->input_version;
    }
    if (!found) return;
    products_of_units(st, sum, stale, found, 0);
    for (size_t d = 0; d < st->shape.drives; d++, input += st->units) {
        const float *bias = (const float *)st->op->data[1] + d;
        for (int i = 0; i < found; i++)
            input[stale[i]] = sum[d * PACKET + i] + bias[stale[i] * stride];
    }
}

/* Units of a packet that begins at the open one `first`. */
static int units_from(size_t first, size_t open) {
    return open - first < PACKET ? (int)(open - first) : PACKET;
}

/* The last packet is filled up with copies of its last unit, so that all lanes have numbers. */
static void products_of_all(step *st, size_t open) {
    float *products = st->products;
    for (size_t i = open; i % PACKET; i++) st->open[i] = st->open[open - 1];
    for (size_t i = 0; i < open; i += PACKET, products += st->shape.drives * PACKET) {
        inputs_of_units(st, st->open + i, units_from(i, open));
        products_of_units(st, products, st->open + i, units_from(i, open), 1);
    }
}

static void gather(float *to, const float *from, const uint32_t *unit, size_t stride) {
    for (int i = 0; i < PACKET; i++) to[i] = from[unit[i] * stride];
}

static void update_units(step *st, size_t open) {
    size_t drives = st->shape.drives, stride = drives + st->shape.parameters;
    const float *parameters = (const float *)st->op->data[1] + drives, *products = st->products;
    copies c;
    packet p = packet_of(&c);
    for (size_t first = 0; first < open; first += PACKET, products += drives * PACKET) {
        const uint32_t *unit = st->open + first;
        int count = units_from(first, open);
        for (size_t d = 0; d < drives; d++) {
            gather(c.x[d], st->own.input + d * st->units, unit, 1);
            p.h[d] = products + d * PACKET;
        }
        for (size_t k = 0; k < st->shape.parameters; k++) gather(c.unit[k], parameters + k, unit, stride);
        for (size_t k = 0; k < st->shape.components; k++) gather(c.state[k], state_of(st, k), unit, 1);
        update(st, &p);
        for (size_t k = 0; k < st->shape.components; k++)
            for (int i = 0; i < count; i++) state_of(st, k)[unit[i]] = c.state[k][i];
    }
}

/* ---------------------------------------------------------------- a step */

static size_t find_open(step *st) {
    const uint64_t *mask = mask_of(st->m, st->s, st->op->in2);
    const uint32_t *first = st->op->data[3];
    uint32_t words = words_of(st->m->gate[st->op->in2].size);
    size_t open = 0;
    for (uint32_t word = 0; word < words; word++)
        for (uint64_t bits = mask[word]; bits; bits &= bits - 1) {
            uint32_t gate = word * 64 + lowest(bits);
            for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++) {
                st->open[open++] = tile;
                st->s->updates += st->place[tile].count;
            }
        }
    return open;
}

/* Spiking units that carry emit nothing, and their adaptation may go on. */
static int carry_spikes(step *st) {
    const uint64_t *mask = mask_of(st->m, st->s, st->op->in2);
    float *decaying = st->op->p[6] ? state_of(st, 2) : NULL;
    int any = 0;
    for (size_t i = 0; i < st->tiles; i++) {
        const tile_place place = st->place[i];
        const float *rho = biases_of(st, i) + 2 * st->lanes;
        if (mask[place.gate / 64] >> (place.gate % 64) & 1) continue;
        for (uint32_t u = 0; u < place.count; u++) {
            any |= st->h[place.first + u] != 0.0f;
            st->h[place.first + u] = 0.0f;
            if (decaying) decaying[place.first + u] *= rho[u];
        }
    }
    return any;
}

/* All products first, so that weights stream without a pause; and then nobody needs the old state. */
int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op) {
    step st;
    begin(&st, m, s, op);
    size_t open = find_open(&st);
    if (st.lanes == 1) products_of_all(&st, open);
    else products_of_tiles(&st, open);
    int changed = op->p[0] >= CELL_LIF ? carry_spikes(&st) : 0;
    if (st.lanes == 1) update_units(&st, open);
    else update_tiles(&st, open);
    return changed || open;
}

/* ---------------------------------------------------------------- a chunk's input products */

/* The frames, of those at which a tile is open, whose input differs from that of the one before. */
static int frames_to_project(step *st, size_t tile, uint32_t bits, uint32_t *frame) {
    uint64_t last = st->own.input_at[tile];
    int count = 0;
    for (; bits; bits &= bits - 1) {
        uint32_t j = lowest(bits);
        uint64_t version = versions_at(st->m, st->s, j)[st->op->in];
        if (version == last) continue;
        last = version;
        frame[count++] = j;
    }
    return count;
}

static void project_tile(step *st, size_t tile, const uint32_t *frame, int count) {
    const float *x[CHUNK], *w = (const float *)(const void *)weights_of(st, tile, 0);
    float *sum[CHUNK];
    for (int i = 0; i < count; i++) {
        x[i] = numbers_at(st->m, st->s, st->op->in, frame[i]);
        sum[i] = st->projected + (frame[i] * st->tiles + tile) * st->width;
    }
    st->m->k->tiles(sum, w, x, st->op->n, (int)st->shape.drives, (int)st->lanes, count);
}

void surnn_project(const surnn_model *m, surnn_stream *s, const operation *op, uint32_t frames) {
    const uint32_t *first = op->data[3];
    uint32_t gates = m->gate[op->in2].size, frame[CHUNK];
    step st;
    if (!projects(op)) return;
    begin(&st, m, s, op);
    memset(st.frames_of, 0, gates * sizeof *st.frames_of);
    for (uint32_t j = 0; j < frames; j++)
        for (uint32_t word = 0; word < words_of(gates); word++)
            for (uint64_t bits = mask_at(m, s, op->in2, j)[word]; bits; bits &= bits - 1)
                st.frames_of[word * 64 + lowest(bits)] |= (uint32_t)1 << j;
    for (uint32_t gate = 0; gate < gates; gate++)
        for (uint32_t tile = first[gate]; st.frames_of[gate] && tile < first[gate + 1]; tile++) {
            int count = frames_to_project(&st, tile, st.frames_of[gate], frame);
            if (!count) continue;
            project_tile(&st, tile, frame, count);
            count_work(&st, (size_t)count * st.place[tile].count, op->n);
        }
}
