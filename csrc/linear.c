/* Linear maps. */
#include "internal.h"

#include <math.h>
#include <string.h>

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
    for (size_t u = 0; u < 16; u++) sum[u] = (float)whole[u] * (scales[u] * scale);
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
