/* Streams: a step is the model's operations, one after another. What reads only vectors that did not
 * change since it last ran is not run again. */
#include "internal.h"

#include <math.h>
#include <string.h>

static void embed(const surnn_model *m, surnn_stream *s, const operation *op) {
    const float *table = op->data[0];
    uint32_t token;
    memcpy(&token, numbers(m, s, op->in), sizeof token);
    memcpy(numbers(m, s, op->out), table + (size_t)token * op->m, (size_t)op->m * 4);
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

/* Its own part of a stream: a count of steps, then the inputs before this one, the oldest first. */
static void convolve(surnn_stream *s, const operation *op, float *y, const float *x) {
    const float *tap = op->data[0];
    float *before = (float *)(void *)(at(s, op->state) + 8);
    size_t n = op->n, kept = op->p[0] - 1;
    for (size_t i = 0; i < n; i++) y[i] = tap[kept * n + i] * x[i];
    for (size_t k = 0; k < kept; k++)
        for (size_t i = 0; i < n; i++) y[i] += tap[k * n + i] * before[k * n + i];
    if (!kept) return;
    memmove(before, before + n, (kept - 1) * n * sizeof *before);
    memcpy(before + (kept - 1) * n, x, n * sizeof *before);
}

/* An input that is the same as before does not leave a convolution's output so, but one that has been
 * the same for all the steps that this sum and the last are of does. */
static int sums_the_same(surnn_stream *s, const operation *op, int same) {
    uint64_t *alike = (uint64_t *)(void *)at(s, op->state), taps = op->p[0];
    *alike = !same ? 0 : *alike < taps ? *alike + 1 : taps; /* steps before this one */
    return *alike == taps;
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
    case OP_CONVOLVE:
        convolve(s, op, y, x);
        s->done += op->macs;
        break;
    default: break;
    }
}

/* At all frames but the first, what is written has a place of its own: put there what was before. */
static void carry(const surnn_model *m, surnn_stream *s, uint32_t buffer) {
    if (s->frame)
        memcpy(numbers(m, s, buffer), numbers_at(m, s, buffer, s->frame - 1),
               (size_t)m->buffer[buffer].size * 4);
}

static uint64_t version_before(const surnn_model *m, surnn_stream *s, uint32_t buffer) {
    return versions_at(m, s, s->frame ? s->frame - 1 : 0)[buffer];
}

void surnn_run_operation(const surnn_model *m, surnn_stream *s, uint32_t index) {
    uint64_t *version = versions_at(m, s, s->frame);
    uint64_t *seen = (uint64_t *)(void *)at(s, m->seen) + 2 * (size_t)index;
    const operation *op = &m->op[index];
    if (is_gate(op->kind)) {
        surnn_run_gate(m, s, op);
        return;
    }
    uint64_t before = version_before(m, s, op->out), second = 0;
    int changed = 1;
    if (op->kind == OP_RECURRENT) {
        carry(m, s, op->out);
        /* Version 0 has never been seen: the first step's output is new, whatever it is. */
        changed = surnn_run_recurrent(m, s, op) || !before;
    } else {
        if (op->kind == OP_ADD) second = version[op->in2];
        int same = seen[0] == version[op->in] && seen[1] == second;
        changed = !same || op->kind == OP_MEAN || op->kind == OP_LEAK;
        if (op->kind == OP_CONVOLVE) changed = !sums_the_same(s, op, same);
        if (!changed || (op->kind == OP_LINEAR && op->p[2])) carry(m, s, op->out);
        if (changed) run_plain(m, s, op);
        seen[0] = version[op->in], seen[1] = second;
    }
    version[op->out] = before + (changed != 0);
}

/* Each operation for all frames before the next one: its weights are still in the cache then. */
static void run_operations(const surnn_model *m, surnn_stream *s, uint32_t frames) {
    const int64_t t = s->t;
    s->frames = frames;
    for (uint32_t i = 0; i < m->operations; i++) {
        if (frames > 1 && m->op[i].kind == OP_RECURRENT) surnn_project(m, s, &m->op[i], frames);
        for (s->frame = 0; s->frame < frames; s->frame++) {
            s->t = t + s->frame;
            surnn_run_operation(m, s, i);
        }
        s->frame = 0;
    }
    s->frames = 0;
    s->t = t + frames, s->steps += frames;
    s->all += frames * m->macs;
}

static surnn_status check(const surnn_model *m, const surnn_stream *s) {
    if (!m || !s) return SURNN_ARGUMENT;
    if (s->magic != STREAM_MAGIC || s->checksum != m->checksum || s->size != m->stream_size)
        return SURNN_STATE;
    return SURNN_OK;
}

static void take_in(const surnn_model *m, surnn_stream *s, const void *input, size_t size) {
    const float *x = numbers_at(m, s, 0, s->frame ? s->frame - 1 : 0);
    uint64_t before = version_before(m, s, 0);
    int same = before && memcmp(x, input, size) == 0;
    memcpy(numbers(m, s, 0), input, size);
    versions_at(m, s, s->frame)[0] = before + !same;
}

void surnn_take_frame(const surnn_model *m, surnn_stream *s, const float *frame) {
    take_in(m, s, frame, (size_t)m->input_size * 4);
}

/* inputs[steps] of `size` bytes each, a chunk at a time. What a frame has for itself is, between
 * calls, that of the last one. */
static void run_all(const surnn_model *m, surnn_stream *s, const void *inputs, size_t size,
                    size_t steps, float *out) {
    const uint8_t *input = inputs;
    size_t wide = m->buffer[m->output].size;
    while (steps) {
        uint32_t frames = steps < CHUNK ? (uint32_t)steps : CHUNK;
        for (s->frame = 0; s->frame < frames; s->frame++, input += size) take_in(m, s, input, size);
        s->frame = 0;
        run_operations(m, s, frames);
        for (uint32_t j = 0; j < frames; j++, out += wide)
            memcpy(out, numbers_at(m, s, m->output, j), wide * sizeof *out);
        if (frames > 1)
            memcpy(at(s, m->versions), versions_at(m, s, frames - 1), (size_t)m->frame_size);
        steps -= frames;
    }
}

surnn_status surnn_run(const surnn_model *m, surnn_stream *s, const float *frames, size_t steps,
                       float *out) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    run_all(m, s, frames, (size_t)m->input_size * 4, steps, out);
    return SURNN_OK;
}

surnn_status surnn_run_tokens(const surnn_model *m, surnn_stream *s, const uint32_t *tokens,
                              size_t steps, float *out) {
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!tokens || !out || !m->takes_tokens) return SURNN_ARGUMENT;
    for (size_t i = 0; i < steps; i++)
        if (tokens[i] >= m->input_size) return SURNN_ARGUMENT;
    run_all(m, s, tokens, sizeof *tokens, steps, out);
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
    if (size < m->saved_size) return SURNN_MEMORY;
    memcpy(bytes, s, (size_t)m->saved_size);
    return SURNN_OK;
}

surnn_status surnn_restore(const surnn_model *m, surnn_stream *s, const void *bytes, size_t size) {
    surnn_stream head;
    surnn_status status = check(m, s);
    if (status != SURNN_OK) return status;
    if (!bytes) return SURNN_ARGUMENT;
    if (size != m->saved_size) return SURNN_STATE;
    memcpy(&head, bytes, sizeof head);
    if (check(m, &head) != SURNN_OK || head.t < 0 || head.t > FURTHEST_CLOCK) return SURNN_STATE;
    memcpy(s, bytes, (size_t)m->saved_size);
    s->frame = s->frames = 0;
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

void surnn_work_done(const surnn_model *m, const surnn_stream *s, surnn_work *work) {
    work->steps = s->steps, work->macs_done = s->done, work->macs_all = s->all;
    work->updates_done = s->updates, work->updates_all = s->steps * m->units;
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
