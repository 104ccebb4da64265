/* Streams: a step is the model's operations, one after another. What reads only vectors that did not
 * change since it last ran is not run again. */
#include "internal.h"

#include <math.h>
#include <string.h>

static void embed(const surnn_model *m, surnn_stream *s, const operation *op) {
    const float *table = op->data[0];
    memcpy(numbers(m, s, op->out), table + (size_t)s->token * op->m, (size_t)op->m * 4);
}

static void affine(float *y, const float *x, const float *scale, const float *shift, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] * scale[i] + shift[i];
}

/* Running mean; summed in double, since a stream may be endless. */
static void mean(surnn_stream *s, const operation *op, float *y, const float *x) {
    double *sum = (double *)(void *)at(s, op->state);
    uint64_t *steps = (uint64_t *)(void *)(sum + op->n);
    double share = 1.0 / (double)++*steps;
    for (uint32_t i = 0; i < op->n; i++) {
        sum[i] += x[i];
        y[i] = (float)(sum[i] * share);
    }
}

static void leak(surnn_stream *s, const operation *op, float *y, const float *x) {
    const float *decay = op->data[0];
    float *memory = (float *)(void *)at(s, op->state);
    for (uint32_t i = 0; i < op->n; i++)
        y[i] = memory[i] = (1.0f - decay[i]) * x[i] + decay[i] * memory[i];
}

/* What gates read: NaN as 0 (it keeps them closed anyway), infinity as the largest number. */
static void clean(float *y, const float *x, size_t n) {
    const float most = 3.40282347e38f;
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        y[i] = isnan(v) ? 0.0f : v > most ? most : v < -most ? -most : v;
    }
}

static void run_plain(const surnn_model *m, surnn_stream *s, const operation *op) {
    const float *x = numbers(m, s, op->in);
    float *y = numbers(m, s, op->out), eps;
    switch (op->kind) {
    case OP_EMBED: embed(m, s, op); break;
    case OP_LINEAR: s->done += surnn_run_linear(m, s, op); break;
    case OP_NORM:
        memcpy(&eps, &op->p[1], 4);
        m->k->norm(y, x, op->data[0], op->data[1], op->n, eps, op->p[0] != 0);
        break;
    case OP_AFFINE: affine(y, x, op->data[0], op->data[1], op->n); break;
    case OP_GELU: m->k->gelu(y, x, op->n); break;
    case OP_GLU: m->k->glu(y, x, x + op->m, op->m, (int)op->p[0]); break;
    case OP_ADD: {
        const float *x2 = numbers(m, s, op->in2);
        for (uint32_t i = 0; i < op->m; i++) y[i] = x[i] + x2[i];
        break;
    }
    case OP_MEAN: mean(s, op, y, x); break;
    case OP_LEAK: leak(s, op, y, x); break;
    case OP_CLEAN: clean(y, x, op->n); break;
    default: break;
    }
}

void surnn_run_operation(const surnn_model *m, surnn_stream *s, uint32_t index) {
    uint64_t *version = (uint64_t *)(void *)at(s, m->versions);
    uint64_t *seen = (uint64_t *)(void *)at(s, m->seen) + 2 * (size_t)index;
    const operation *op = &m->op[index];
    if (op->kind >= GATE_PERIODIC && op->kind <= GATE_LEVEL) {
        surnn_run_gate(m, s, op);
    } else if (op->kind == OP_RECURRENT) {
        /* Version 0 has never been seen: the first step's output is new, whatever it is. */
        if (surnn_run_recurrent(m, s, op) || !version[op->out]) version[op->out]++;
    } else {
        uint64_t second = op->kind == OP_ADD ? version[op->in2] : 0;
        int same = seen[0] == version[op->in] && seen[1] == second;
        if (same && op->kind != OP_MEAN && op->kind != OP_LEAK) return;
        run_plain(m, s, op);
        seen[0] = version[op->in], seen[1] = second;
        version[op->out]++;
    }
}

static void run_all(const surnn_model *m, surnn_stream *s) {
    for (uint32_t i = 0; i < m->operations; i++) surnn_run_operation(m, s, i);
    s->t++, s->steps++;
    s->all += m->macs;
}

static surnn_status check(const surnn_model *m, const surnn_stream *s) {
    if (!m || !s) return SURNN_ARGUMENT;
    if (s->magic != STREAM_MAGIC || s->checksum != m->checksum || s->size != m->stream_size)
        return SURNN_STATE;
    return SURNN_OK;
}

static void put_out(const surnn_model *m, surnn_stream *s, float *out) {
    memcpy(out, numbers(m, s, m->output), (size_t)m->buffer[m->output].size * 4);
}

static void take_in(const surnn_model *m, surnn_stream *s, const void *input, size_t size) {
    uint64_t *version = (uint64_t *)(void *)at(s, m->versions);
    float *x = numbers(m, s, 0);
    if (version[0] && memcmp(x, input, size) == 0) return;
    memcpy(x, input, size);
    version[0]++;
}

void surnn_take_frame(const surnn_model *m, surnn_stream *s, const float *frame) {
    take_in(m, s, frame, (size_t)m->input_size * 4);
}

surnn_status surnn_run(const surnn_model *m, surnn_stream *s, const float *frames, size_t steps,
                       float *out) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    for (size_t i = 0; i < steps; i++) {
        surnn_take_frame(m, s, frames + i * m->input_size);
        run_all(m, s);
        put_out(m, s, out + i * m->buffer[m->output].size);
    }
    return SURNN_OK;
}

surnn_status surnn_run_tokens(const surnn_model *m, surnn_stream *s, const uint32_t *tokens,
                              size_t steps, float *out) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!tokens || !out || !m->takes_tokens) return SURNN_ARGUMENT;
    for (size_t i = 0; i < steps; i++) {
        if (tokens[i] >= m->input_size) return SURNN_ARGUMENT;
        s->token = tokens[i];
        take_in(m, s, &tokens[i], 4);
        run_all(m, s);
        put_out(m, s, out + i * m->buffer[m->output].size);
    }
    return SURNN_OK;
}

surnn_status surnn_step(const surnn_model *m, surnn_stream *s, const float *frame, float *out) {
    return surnn_run(m, s, frame, 1, out);
}

surnn_status surnn_step_token(const surnn_model *m, surnn_stream *s, uint32_t token, float *out) {
    return surnn_run_tokens(m, s, &token, 1, out);
}

surnn_status surnn_reset(const surnn_model *m, surnn_stream *s) {
    surnn_status status = check(m, s);
    return status == SURNN_OK ? surnn_stream_place(m, s, (size_t)m->stream_size, &s) : status;
}

surnn_status surnn_save(const surnn_model *m, const surnn_stream *s, void *bytes, size_t size) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!bytes) return SURNN_ARGUMENT;
    if (size < m->stream_size) return SURNN_MEMORY;
    memcpy(bytes, s, (size_t)m->stream_size);
    return SURNN_OK;
}

surnn_status surnn_restore(const surnn_model *m, surnn_stream *s, const void *bytes, size_t size) {
    surnn_stream head;
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!bytes) return SURNN_ARGUMENT;
    if (size != m->stream_size) return SURNN_STATE;
    memcpy(&head, bytes, sizeof head);
    if (check(m, &head) != SURNN_OK || head.t < 0 || head.t > FURTHEST_CLOCK) return SURNN_STATE;
    if (m->takes_tokens && head.token >= m->input_size) return SURNN_STATE;
    memcpy(s, bytes, (size_t)m->stream_size);
    return SURNN_OK;
}

int64_t surnn_clock(const surnn_stream *s) { return s ? s->t : 0; }

surnn_status surnn_set_clock(const surnn_model *m, surnn_stream *s, int64_t t) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (t < 0 || t > FURTHEST_CLOCK) return SURNN_ARGUMENT;
    s->t = t;
    return SURNN_OK;
}

void surnn_work_done(const surnn_stream *s, surnn_work *work) {
    work->steps = s->steps, work->macs_done = s->done, work->macs_all = s->all;
}

/* ---------------------------------------------------------------- looking inside */

static const operation *layer_of(const surnn_model *m, uint32_t layer) {
    for (uint32_t i = 0; m && i < m->operations; i++)
        if (m->op[i].kind == OP_RECURRENT && layer-- == 0) return &m->op[i];
    return NULL;
}

surnn_status surnn_describe_layer(const surnn_model *m, uint32_t layer, surnn_layer_info *info) {
    const operation *op = layer_of(m, layer);
    if (!op || !info) return SURNN_ARGUMENT;
    info->units = op->p[1];
    info->gates = m->gate[op->in2].size;
    info->components = surnn_cell_shapes[op->p[0]].components;
    return SURNN_OK;
}

surnn_status surnn_gates(const surnn_model *m, const surnn_stream *s, uint32_t layer,
                         uint8_t *open) {
    const operation *op = layer_of(m, layer);
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!op || !open) return SURNN_ARGUMENT;
    const uint64_t *mask = mask_of(m, (surnn_stream *)(uintptr_t)s, op->in2);
    for (uint32_t g = 0; g < m->gate[op->in2].size; g++) open[g] = mask[g / 64] >> (g % 64) & 1;
    return SURNN_OK;
}

surnn_status surnn_hidden(const surnn_model *m, const surnn_stream *s, uint32_t layer,
                          float *values) {
    const operation *op = layer_of(m, layer);
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!op || !values) return SURNN_ARGUMENT;
    surnn_stream *stream = (surnn_stream *)(uintptr_t)s;
    size_t units = op->p[1], rest = surnn_cell_shapes[op->p[0]].components - 1;
    memcpy(values, numbers(m, stream, op->out), units * 4);
    memcpy(values + units, surnn_recurrent_state(op, stream).rest, rest * units * 4);
    return SURNN_OK;
}
