/* Runs single operations. An operation whose inputs have not changed since its last run is skipped. */
#include "model.h"

#include <math.h>
#include <string.h>

static void embed(const surnn_model *m, surnn_stream *s, const operation *op) {
    uint32_t token;
    memcpy(&token, vector_of(m, s, op->in), sizeof token);
    memcpy(vector_of(m, s, op->out), op->as.embed.table + (size_t)token * op->m, (size_t)op->m * 4);
}

static void affine(const struct affine *affine, float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] * affine->scale[i] + affine->shift[i];
}

#if SURNN_MEAN
/* Running mean. State: double [n] sums, uint64 number of time steps. The sums are in double because a
 * stream may be endless. */
static void mean(surnn_stream *s, const operation *op, float *y, const float *x) {
    double *sums = (double *)(void *)stream_at(s, op->state_offset);
    uint64_t *steps = (uint64_t *)(void *)(sums + op->n);
    double weight = 1.0 / (double)++*steps;
    for (uint32_t i = 0; i < op->n; i++) {
        sums[i] += x[i];
        y[i] = (float)(sums[i] * weight);
    }
}
#endif

/* State: float [n], the output of the time step before. */
static void leak(surnn_stream *s, const operation *op, float *y, const float *x) {
    const float *decay = op->as.leak.decay;
    float *memory = (float *)(void *)stream_at(s, op->state_offset);
    for (uint32_t i = 0; i < op->n; i++)
        y[i] = memory[i] = (1.0f - decay[i]) * x[i] + decay[i] * memory[i];
}

/* State: uint64 counter (see window_is_constant), float [taps - 1][n] earlier inputs, oldest first. */
static void convolve(surnn_stream *s, const operation *op, float *y, const float *x) {
    const float *weights = op->as.convolve.weights;
    float *earlier = (float *)(void *)(stream_at(s, op->state_offset) + 8);
    size_t n = op->n, count = op->as.convolve.taps - 1;
    for (size_t i = 0; i < n; i++) y[i] = weights[count * n + i] * x[i];
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < n; i++) y[i] += weights[k * n + i] * earlier[k * n + i];
    if (!count) return;
    memmove(earlier, earlier + n, (count - 1) * n * sizeof *earlier);
    memcpy(earlier + (count - 1) * n, x, n * sizeof *earlier);
}

/* State: uint64 counter (see window_is_constant), uint64 oldest row, float [rows][n] earlier inputs, a
 * ring of (taps - 1) * dilation rows. out[groups][taps][size]. */
static void window(surnn_stream *s, const operation *op, float *y, const float *x) {
    const struct window *window = &op->as.window;
    uint64_t *oldest = (uint64_t *)(void *)stream_at(s, op->state_offset) + 1;
    float *ring = (float *)(void *)(oldest + 1);
    size_t n = op->n, size = n / window->groups, rows = (window->taps - 1) * window->dilation;
    size_t first = rows ? (size_t)(*oldest % rows) : 0;
    for (size_t k = 0; k < window->taps; k++) {
        const float *row = x;
        if (k + 1 < window->taps) row = ring + (first + k * window->dilation) % rows * n;
        for (size_t g = 0; g < window->groups; g++)
            memcpy(y + (g * window->taps + k) * size, row + g * size, size * sizeof *y);
    }
    if (!rows) return;
    memcpy(ring + first * n, x, n * sizeof *ring);
    *oldest = (first + 1) % rows;
}

/* Time steps that the output of a convolution or window covers. */
static uint64_t span_of(const operation *op) {
    const struct window *window = &op->as.window;
    if (op->kind == OP_CONVOLVE) return op->as.convolve.taps;
    return (uint64_t)(window->taps - 1) * window->dilation + 1;
}

/* The output of a convolution is unchanged once its input has been the same at all the time steps
 * that this sum and the previous one cover. Counts these time steps. */
static int window_is_constant(surnn_stream *s, const operation *op, int same_input) {
    uint64_t *same_steps = (uint64_t *)(void *)stream_at(s, op->state_offset);
    uint64_t span = span_of(op);
    *same_steps = !same_input ? 0 : *same_steps < span ? *same_steps + 1 : span;
    return *same_steps == span;
}

static void multiply(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

/* For gates that read the input: NaN becomes 0 (such gates stay closed), infinity the largest float. */
static void clean(float *y, const float *x, size_t n) {
    const float largest = 3.40282347e38f;
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        y[i] = isnan(v) ? 0.0f : v > largest ? largest : v < -largest ? -largest : v;
    }
}

/* Operations that compute a vector, except recurrent layers. */
static void run_vector(const surnn_model *m, surnn_stream *s, const operation *op) {
    const float *x = vector_of(m, s, op->in);
    float *y = vector_of(m, s, op->out);
    const struct norm *norm = &op->as.norm;
    switch (op->kind) {
    case OP_EMBED: embed(m, s, op); break;
    case OP_LINEAR: s->macs_done += surnn_run_linear(m, s, op); break;
    case OP_NORM: m->k->norm(y, x, norm->weight, norm->bias, op->n, norm->epsilon, norm->rms); break;
    case OP_AFFINE: affine(&op->as.affine, y, x, op->n); break;
    case OP_GELU: m->k->gelu(y, x, op->n); break;
    case OP_GLU: m->k->glu(y, x, x + op->m, op->m, (int)op->as.glu.activation); break;
    case OP_ADD: m->k->add(y, x, vector_of(m, s, op->in2), op->m); break;
#if SURNN_MEAN
    case OP_MEAN: mean(s, op, y, x); break;
#endif
    case OP_LEAK: leak(s, op, y, x); break;
    case OP_CLEAN: clean(y, x, op->n); break;
    case OP_CONVOLVE:
        convolve(s, op, y, x);
        s->macs_done += op->macs;
        break;
    case OP_ACTIVATE: surnn_activate(m->k, &op->as.activate, y, x, op->n); break;
    case OP_MULTIPLY: multiply(y, x, vector_of(m, s, op->in2), op->m); break;
    case OP_PART: memcpy(y, x + op->as.part.first, (size_t)op->m * sizeof *y); break;
    case OP_WINDOW: window(s, op, y, x); break;
    case OP_SINUSOIDS: surnn_run_sinusoids(m, s, op, y, s->t + 1); break;
    default: break;
    }
}

/* Every frame of a chunk has its own copy of a vector: start from that of the frame before. */
static void copy_from_frame_before(const surnn_model *m, surnn_stream *s, uint32_t vector) {
    if (s->frame)
        memcpy(vector_of(m, s, vector), vector_at(m, s, vector, s->frame - 1),
               (size_t)m->vectors[vector].size * 4);
}

static uint64_t version_before(const surnn_model *m, surnn_stream *s, uint32_t vector) {
    return versions_at(m, s, s->frame ? s->frame - 1 : 0)[vector];
}

int surnn_needs_run(const surnn_model *m, surnn_stream *s, uint32_t index) {
    const operation *op = &m->operations[index];
    const uint64_t *version = versions_at(m, s, s->frame);
    uint64_t *seen = (uint64_t *)(void *)stream_at(s, m->inputs_seen) + 2 * (size_t)index;
    uint64_t first = version[op->in], second = reads_two_vectors(op->kind) ? version[op->in2] : 0;
    int same_input = seen[0] == first && seen[1] == second;
    int changed = !same_input || op->kind == OP_MEAN || op->kind == OP_LEAK;
    if (op->kind == OP_SINUSOIDS) changed = 1; /* the clock has */
    if (op->kind == OP_CONVOLVE || op->kind == OP_WINDOW) changed = !window_is_constant(s, op, same_input);
    if (!changed || (op->kind == OP_LINEAR && op->as.linear.incremental))
        copy_from_frame_before(m, s, op->out);
    seen[0] = first, seen[1] = second;
    return changed;
}

void surnn_note_change(const surnn_model *m, surnn_stream *s, uint32_t index, int changed) {
    const operation *op = &m->operations[index];
    uint64_t before = version_before(m, s, op->out);
    /* Version 0 means "never seen": a layer's first output counts as a change, whatever it is. */
    if (op->kind == OP_RECURRENT && !before) changed = 1;
    versions_at(m, s, s->frame)[op->out] = before + (changed != 0);
}

void surnn_run_operation(const surnn_model *m, surnn_stream *s, uint32_t index) {
    const operation *op = &m->operations[index];
    int changed;
    if (is_gate(op->kind)) {
        surnn_run_gate(m, s, op);
        return;
    }
    if (op->kind == OP_RECURRENT) {
        copy_from_frame_before(m, s, op->out);
        changed = surnn_run_recurrent(m, s, op);
    } else {
        changed = surnn_needs_run(m, s, index);
        if (changed) run_vector(m, s, op);
    }
    surnn_note_change(m, s, index, changed);
}
