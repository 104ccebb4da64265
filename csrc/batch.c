/* Several streams of one model together, a time step each. */
#include "model.h"

#include <string.h>

/* Gates that depend on the clock alone. */
static int is_clock(uint32_t kind) { return is_gate(kind) && kind != GATE_ABOVE && kind != GATE_LEVEL; }

/* Streams at the same time step have the same gates. */
static void copy_gates(const surnn_model *m, surnn_stream *to, surnn_stream *from, const operation *op) {
    memcpy(mask_of(m, to, op->out), mask_of(m, from, op->out), words_of(op->gates) * 8);
    if (op->state_size)
        memcpy(stream_at(to, op->state_offset), stream_at(from, op->state_offset),
               (size_t)op->state_size);
}

static void run_gates(const surnn_model *m, surnn_stream *const *streams, int count,
                      const operation *op) {
    for (int i = 0; i < count; i++) {
        int same_clock = i && streams[i]->t == streams[i - 1]->t && is_clock(op->kind);
        if (same_clock) copy_gates(m, streams[i], streams[i - 1], op);
        else surnn_run_gate(m, streams[i], op);
    }
}

static void run_layer(const surnn_model *m, surnn_stream *const *streams, int count, uint32_t index) {
    int changed[TOGETHER];
    surnn_run_recurrent_together(m, streams, count, &m->operations[index], changed);
    for (int i = 0; i < count; i++) surnn_note_change(m, streams[i], index, changed[i]);
}

static void run_linear(const surnn_model *m, surnn_stream *const *streams, int count, uint32_t index) {
    surnn_stream *changed[TOGETHER];
    int changed_count = 0;
    for (int i = 0; i < count; i++) {
        int needed = surnn_needs_run(m, streams[i], index);
        if (needed) changed[changed_count++] = streams[i];
        surnn_note_change(m, streams[i], index, needed);
    }
    if (changed_count) surnn_run_linear_together(m, changed, changed_count, &m->operations[index]);
}

/* inputs[count][size bytes], out[count][output]. */
static void step_together(const surnn_model *m, surnn_stream *const *streams, int count,
                          const uint8_t *inputs, size_t size, float *out) {
    size_t output_size = m->vectors[m->output].size;
    for (int i = 0; i < count; i++) surnn_set_input(m, streams[i], inputs + (size_t)i * size);
    for (uint32_t index = 0; index < m->operation_count; index++) {
        const operation *op = &m->operations[index];
        if (is_gate(op->kind)) run_gates(m, streams, count, op);
        else if (op->kind == OP_RECURRENT) run_layer(m, streams, count, index);
        else if (op->kind == OP_LINEAR) run_linear(m, streams, count, index);
        else for (int i = 0; i < count; i++) surnn_run_operation(m, streams[i], index);
    }
    for (int i = 0; i < count; i++, out += output_size) {
        surnn_stream *s = streams[i];
        s->t++, s->steps++, s->macs_all += m->macs;
        memcpy(out, vector_of(m, s, m->output), output_size * sizeof *out);
    }
}

/* Enters all streams, or none. A stream that is named twice is busy the second time. */
static surnn_status enter_all(const surnn_model *m, surnn_workspace *workspace,
                              surnn_stream *const *streams, size_t count) {
    surnn_status status = SURNN_OK;
    size_t entered = 0;
    for (; entered < count; entered++) {
        status = surnn_enter(m, streams[entered], workspace);
        if (status != SURNN_OK) break;
        if (streams[entered]->t >= SURNN_MAX_CLOCK) {
            status = SURNN_CLOCK;
            surnn_leave(streams[entered]);
            break;
        }
    }
    if (status != SURNN_OK)
        while (entered) surnn_leave(streams[--entered]);
    return status;
}

static surnn_status step_many(const surnn_model *m, surnn_workspace *workspace,
                              surnn_stream *const *streams, size_t count, const void *inputs,
                              size_t size, float *out) {
    surnn_status status = surnn_enter_workspace(m, workspace);
    if (status != SURNN_OK) return status;
    status = enter_all(m, workspace, streams, count);
    size_t output_size = m->vectors[m->output].size;
    for (size_t first = 0; status == SURNN_OK && first < count; first += TOGETHER) {
        int together = count - first < TOGETHER ? (int)(count - first) : TOGETHER;
        step_together(m, streams + first, together, (const uint8_t *)inputs + first * size, size,
                      out + first * output_size);
    }
    for (size_t i = 0; status == SURNN_OK && i < count; i++) surnn_leave(streams[i]);
    surnn_leave_workspace(workspace);
    return status;
}

surnn_status surnn_step_many(const surnn_model *m, surnn_workspace *workspace,
                             surnn_stream *const *streams, size_t count, const float *frames,
                             float *out) {
    if (!m || !streams || !frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    return step_many(m, workspace, streams, count, frames, (size_t)m->input_size * 4, out);
}

surnn_status surnn_step_many_tokens(const surnn_model *m, surnn_workspace *workspace,
                                    surnn_stream *const *streams, size_t count,
                                    const uint32_t *tokens, float *out) {
    if (!m || !streams || !tokens || !out || !m->takes_tokens) return SURNN_ARGUMENT;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] >= m->input_size) return SURNN_ARGUMENT;
    return step_many(m, workspace, streams, count, tokens, sizeof *tokens, out);
}
