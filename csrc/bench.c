#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PRODUCTS = 3 };

/* A layer's weights, product by product: [3][tiles][n + D][lanes], and room for the sums. */
typedef struct apart {
    float *weights, *input, *recurrent; /* sums: [3][tiles][lanes] */
} apart;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_fit(const operation *op) {
    return op->p[0] == CELL_GRU && op->p[4] == WEIGHTS_FLOAT32 && op->p[3] > 1;
}

static size_t rows_of(const operation *op) { return (size_t)op->n + op->p[1] / op->p[2]; }

static int take_apart(const operation *op, apart *a) {
    size_t rows = rows_of(op), lanes = op->p[3], tiles = op->p[5];
    const float *w = op->data[0];
    a->weights = malloc(PRODUCTS * tiles * rows * lanes * sizeof(float));
    a->input = calloc(PRODUCTS * tiles * lanes, sizeof(float));
    a->recurrent = calloc(PRODUCTS * tiles * lanes, sizeof(float));
    if (!a->weights || !a->input || !a->recurrent) return 0;
    for (size_t i = 0; i < tiles; i++)
        for (size_t j = 0; j < rows; j++)
            for (size_t d = 0; d < PRODUCTS; d++, w += lanes)
                memcpy(a->weights + ((d * tiles + i) * rows + j) * lanes, w, lanes * sizeof(float));
    return 1;
}

static int is_open(const uint64_t *mask, uint32_t gate) { return mask[gate / 64] >> (gate % 64) & 1; }

static int any_open(const uint64_t *mask, uint32_t gates) {
    uint64_t bits = 0;
    for (uint32_t word = 0; word < words_of(gates); word++) bits |= mask[word];
    return bits != 0;
}

/* One product of all open units, or of all units if any is open. */
static void product(const surnn_model *m, surnn_stream *s, const operation *op, const apart *a,
                    size_t d, int all) {
    const uint64_t *mask = mask_of(m, s, op->in2);
    const tile_place *tile = op->data[2];
    const float *x = numbers(m, s, op->in), *h = numbers(m, s, op->out);
    size_t rows = rows_of(op), lanes = op->p[3], in_head = op->p[1] / op->p[2];
    all = all && any_open(mask, m->gate[op->in2].size);
    for (size_t i = 0; i < op->p[5]; i++) {
        if (!all && !is_open(mask, tile[i].gate)) continue;
        size_t place = d * op->p[5] + i;
        const float *w = a->weights + place * rows * lanes;
        const float *bias = (const float *)op->data[1] + (i * (PRODUCTS + 1) + d) * lanes;
        m->k->tile(a->input + place * lanes, w, x, op->n, 1, (int)lanes);
        for (size_t u = 0; u < lanes; u++) a->input[place * lanes + u] += bias[u];
        m->k->tile(a->recurrent + place * lanes, w + op->n * lanes, h + tile[i].head * in_head,
                   in_head, 1, (int)lanes);
    }
}

static int new_state(const surnn_model *m, surnn_stream *s, const operation *op, const apart *a) {
    const uint64_t *mask = mask_of(m, s, op->in2);
    const tile_place *tile = op->data[2];
    float *h = numbers(m, s, op->out);
    size_t lanes = op->p[3], bytes = lanes * sizeof(float);
    int any = 0;
    float x[PRODUCTS][PACKET], r[PRODUCTS][PACKET], unit[PACKET], state[PACKET];
    packet p = {{x[0], x[1], x[2], NULL}, {r[0], r[1], r[2], NULL}, {unit, NULL}, {state, NULL, NULL}};
    memset(x, 0, sizeof x), memset(r, 0, sizeof r);
    memset(unit, 0, sizeof unit), memset(state, 0, sizeof state);
    for (size_t i = 0; i < op->p[5]; i++) {
        if (!is_open(mask, tile[i].gate)) continue;
        for (size_t d = 0; d < PRODUCTS; d++) {
            memcpy(x[d], a->input + (d * op->p[5] + i) * lanes, bytes);
            memcpy(r[d], a->recurrent + (d * op->p[5] + i) * lanes, bytes);
        }
        memcpy(unit, (const float *)op->data[1] + (i * (PRODUCTS + 1) + PRODUCTS) * lanes, bytes);
        memcpy(state, h + tile[i].first, tile[i].count * sizeof(float));
        m->k->cell(&p, CELL_GRU, 0.0f, 0.0f);
        memcpy(h + tile[i].first, state, tile[i].count * sizeof(float));
        any = 1;
    }
    return any;
}

static int run_apart(const surnn_model *m, surnn_stream *s, const operation *op, const apart *a,
                     int reset_before, surnn_parts *parts) {
    double t0 = now();
    product(m, s, op, a, 0, reset_before);
    double t1 = now();
    product(m, s, op, a, 1, 0);
    double t2 = now();
    product(m, s, op, a, 2, 0);
    double t3 = now();
    int changed = new_state(m, s, op, a);
    double t4 = now();
    parts->reset += t1 - t0, parts->update += t2 - t1, parts->candidate += t3 - t2;
    parts->state += t4 - t3;
    return changed;
}

static void one_step(const surnn_model *m, surnn_stream *s, const apart *a, int reset_before,
                     surnn_parts *parts) {
    uint64_t *version = versions_at(m, s, 0);
    double begin = now(), before = parts->reset + parts->update + parts->candidate + parts->state;
    for (uint32_t i = 0; i < m->operations; i++) {
        const operation *op = &m->op[i];
        if (op->kind != OP_RECURRENT) surnn_run_operation(m, s, i);
        else if (run_apart(m, s, op, &a[i], reset_before, parts) || !version[op->out])
            version[op->out]++;
    }
    s->t++;
    double after = parts->reset + parts->update + parts->candidate + parts->state;
    parts->rest += now() - begin - (after - before);
}

static double time_of_clock(void) {
    double begin = now();
    for (int i = 0; i < 1000; i++) (void)now();
    return (now() - begin) / 1000;
}

surnn_status surnn_time_parts(const surnn_model *m, const float *frames, size_t steps, float *out,
                              int reset_before, surnn_parts *parts) {
    surnn_stream *s = NULL;
    if (!m || !frames || !out || !parts || m->takes_tokens) return SURNN_ARGUMENT;
    for (uint32_t i = 0; i < m->operations; i++)
        if (m->op[i].kind == OP_RECURRENT && !is_fit(&m->op[i])) return SURNN_ARGUMENT;
    memset(parts, 0, sizeof *parts);
    surnn_status status = surnn_stream_new(m, &s);
    apart *a = calloc(m->operations, sizeof *a);
    if (!a) status = SURNN_MEMORY;
    for (uint32_t i = 0; i < m->operations && status == SURNN_OK; i++)
        if (m->op[i].kind == OP_RECURRENT && !take_apart(&m->op[i], &a[i])) status = SURNN_MEMORY;
    for (size_t i = 0; i < steps && status == SURNN_OK; i++) {
        surnn_take_frame(m, s, frames + i * m->input_size);
        one_step(m, s, a, reset_before, parts);
        size_t size = m->buffer[m->output].size;
        memcpy(out + i * size, numbers(m, s, m->output), size * sizeof(float));
    }
    for (uint32_t i = 0; a && i < m->operations; i++)
        free(a[i].weights), free(a[i].input), free(a[i].recurrent);
    free(a);
    surnn_stream_free(s);
    parts->clock = (double)steps * (5.0 * m->layers + 2.0) * time_of_clock();
    return status;
}

surnn_status surnn_time_steps(const surnn_model *m, const float *frames, size_t steps, float *out,
                              double *seconds) {
    surnn_stream *s = NULL;
    if (!m || !frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    surnn_status status = surnn_stream_new(m, &s);
    size_t size = m->buffer[m->output].size;
    for (size_t i = 0; i < steps && status == SURNN_OK; i++) {
        double begin = seconds ? now() : 0.0;
        status = surnn_step(m, s, frames + i * m->input_size, out + i * size);
        if (seconds) seconds[i] = now() - begin;
    }
    surnn_stream_free(s);
    return status;
}
