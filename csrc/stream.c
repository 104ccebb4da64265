/* Streams: the steps of a model, the clock, and saved state. */
#include "model.h"

#include <string.h>

/* Runs each operation for all frames before the next one, while its weights are in the cache. */
static void run_operations(const surnn_model *m, surnn_stream *s, uint32_t frames) {
    const int64_t t = s->t;
    s->frames = frames;
    for (uint32_t i = 0; i < m->operation_count; i++) {
        const operation *op = &m->operations[i];
        if (CHUNK > 1 && frames > 1 && op->kind == OP_RECURRENT) surnn_project_inputs(m, s, op, frames);
        for (s->frame = 0; s->frame < frames; s->frame++) {
            s->t = t + s->frame;
            surnn_run_operation(m, s, i);
        }
        s->frame = 0;
    }
    s->frames = 0;
    s->t = t + frames, s->steps += frames;
    s->macs_all += frames * m->macs;
}

/* An input equal to the one before keeps its version. */
void surnn_set_input(const surnn_model *m, surnn_stream *s, const void *input) {
    size_t size = (size_t)m->vectors[0].size * 4;
    uint32_t previous = s->frame ? s->frame - 1 : 0;
    uint64_t version = versions_at(m, s, previous)[0];
    int same = version && memcmp(vector_at(m, s, 0, previous), input, size) == 0;
    memcpy(vector_of(m, s, 0), input, size);
    versions_at(m, s, s->frame)[0] = version + !same;
}

/* inputs[steps] of `size` bytes each, a chunk at a time. Between calls, frame 0 of the stream holds
 * the last frame of the chunk. */
static void run_steps(const surnn_model *m, surnn_stream *s, const void *inputs, size_t size,
                      size_t steps, float *out) {
    const uint8_t *input = inputs;
    size_t output_size = m->vectors[m->output].size;
    while (steps) {
        uint32_t frames = steps < CHUNK ? (uint32_t)steps : CHUNK;
        for (s->frame = 0; s->frame < frames; s->frame++, input += size)
            surnn_set_input(m, s, input);
        s->frame = 0;
        run_operations(m, s, frames);
        for (uint32_t j = 0; j < frames; j++, out += output_size)
            memcpy(out, vector_at(m, s, m->output, j), output_size * sizeof *out);
        if (frames > 1)
            memcpy(stream_at(s, m->versions), versions_at(m, s, frames - 1), (size_t)m->frame_size);
        steps -= frames;
    }
}

/* inputs: frames, or tokens if the model takes them. */
static surnn_status run(const surnn_model *m, surnn_workspace *workspace, surnn_stream *s,
                        const void *inputs, size_t steps, float *out) {
    surnn_status status = surnn_enter(m, s, workspace);
    if (status != SURNN_OK) return status;
    if (!s->workspace) status = SURNN_ARGUMENT;
    else if (steps > (uint64_t)(SURNN_MAX_CLOCK - s->t)) status = SURNN_CLOCK;
    else run_steps(m, s, inputs, (size_t)m->vectors[0].size * 4, steps, out);
    surnn_leave(s);
    return status;
}

static surnn_status check_tokens(const surnn_model *m, const uint32_t *tokens, size_t steps) {
    for (size_t i = 0; i < steps; i++)
        if (tokens[i] >= m->input_size) return SURNN_ARGUMENT;
    return SURNN_OK;
}

surnn_status surnn_run(const surnn_model *m, surnn_stream *s, const float *frames, size_t steps,
                       float *out) {
    if (!m || !frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    return run(m, NULL, s, frames, steps, out);
}

surnn_status surnn_run_tokens(const surnn_model *m, surnn_stream *s, const uint32_t *tokens,
                              size_t steps, float *out) {
    if (!m || !tokens || !out || !m->takes_tokens) return SURNN_ARGUMENT;
    surnn_status status = check_tokens(m, tokens, steps);
    return status == SURNN_OK ? run(m, NULL, s, tokens, steps, out) : status;
}

surnn_status surnn_run_in(const surnn_model *m, surnn_workspace *workspace, surnn_stream *s,
                          const float *frames, size_t steps, float *out) {
    if (!m || !frames || !out || m->takes_tokens) return SURNN_ARGUMENT;
    surnn_status status = surnn_enter_workspace(m, workspace);
    if (status != SURNN_OK) return status;
    status = run(m, workspace, s, frames, steps, out);
    surnn_leave_workspace(workspace);
    return status;
}

surnn_status surnn_run_tokens_in(const surnn_model *m, surnn_workspace *workspace, surnn_stream *s,
                                 const uint32_t *tokens, size_t steps, float *out) {
    if (!m || !tokens || !out || !m->takes_tokens) return SURNN_ARGUMENT;
    surnn_status status = check_tokens(m, tokens, steps);
    if (status == SURNN_OK) status = surnn_enter_workspace(m, workspace);
    if (status != SURNN_OK) return status;
    status = run(m, workspace, s, tokens, steps, out);
    surnn_leave_workspace(workspace);
    return status;
}

surnn_status surnn_step(const surnn_model *m, surnn_stream *s, const float *frame, float *out) {
    return surnn_run(m, s, frame, 1, out);
}

surnn_status surnn_step_token(const surnn_model *m, surnn_stream *s, uint32_t token, float *out) {
    return surnn_run_tokens(m, s, &token, 1, out);
}

/* ---------------------------------------------------------------- state */

/* What follows a stream's head, up to its workspace. */
static void *content_of(surnn_stream *s) { return s + 1; }
static size_t content_size(const surnn_model *m) { return (size_t)m->state_size - sizeof(surnn_stream); }

surnn_status surnn_reset(const surnn_model *m, surnn_stream *s) {
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    s->t = 0;
    s->steps = s->macs_done = s->macs_all = s->updates = 0;
    memset(content_of(s), 0, content_size(m));
    surnn_leave(s);
    return SURNN_OK;
}

surnn_status surnn_save(const surnn_model *m, const surnn_stream *stream, void *bytes, size_t size) {
    surnn_stream *s = (surnn_stream *)(uintptr_t)stream;
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    if (!bytes) status = SURNN_ARGUMENT;
    else if (size < m->state_size) status = SURNN_MEMORY;
    if (status == SURNN_OK) {
        surnn_stream head = *s;
        head.busy = 0, head.size = m->state_size, head.workspace = NULL;
        memcpy(bytes, &head, sizeof head);
        memcpy((uint8_t *)bytes + sizeof head, content_of(s), content_size(m));
    }
    surnn_leave(s);
    return status;
}

static int is_saved(const surnn_model *m, const surnn_stream *head) {
    return head->magic == STREAM_MAGIC && head->checksum == m->checksum &&
           head->size == m->state_size && head->t >= 0 && head->t <= SURNN_MAX_CLOCK;
}

surnn_status surnn_restore(const surnn_model *m, surnn_stream *s, const void *bytes, size_t size) {
    surnn_stream head;
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    if (!bytes) status = SURNN_ARGUMENT;
    else if (size != m->state_size) status = SURNN_STATE;
    if (status == SURNN_OK) {
        memcpy(&head, bytes, sizeof head);
        if (!is_saved(m, &head)) status = SURNN_STATE;
    }
    if (status == SURNN_OK) {
        s->t = head.t, s->steps = head.steps, s->macs_done = head.macs_done;
        s->macs_all = head.macs_all, s->updates = head.updates;
        memcpy(content_of(s), (const uint8_t *)bytes + sizeof head, content_size(m));
    }
    surnn_leave(s);
    return status;
}

int64_t surnn_clock(const surnn_stream *s) { return s ? s->t : 0; }

surnn_status surnn_set_clock(const surnn_model *m, surnn_stream *s, int64_t t) {
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    if (t < 0 || t > SURNN_MAX_CLOCK) status = SURNN_CLOCK;
    else s->t = t;
    surnn_leave(s);
    return status;
}

void surnn_work_done(const surnn_model *m, const surnn_stream *s, surnn_work *work) {
    work->steps = s->steps, work->macs_done = s->macs_done, work->macs_all = s->macs_all;
    work->updates_done = s->updates, work->updates_all = s->steps * m->units;
}

/* ---------------------------------------------------------------- recurrent layers */

/* The recurrent layer with this number; NULL if there is none. */
static const operation *find_layer(const surnn_model *m, uint32_t layer) {
    for (uint32_t i = 0; m && i < m->operation_count; i++)
        if (m->operations[i].kind == OP_RECURRENT && layer-- == 0) return &m->operations[i];
    return NULL;
}

surnn_status surnn_describe_layer(const surnn_model *m, uint32_t layer, surnn_layer_info *info) {
    const operation *op = find_layer(m, layer);
    if (!op || !info) return SURNN_ARGUMENT;
    info->units = (uint32_t)op->as.recurrent.units;
    info->gates = op->gates;
    info->components = (uint32_t)op->as.recurrent.components;
    return SURNN_OK;
}

surnn_status surnn_gates(const surnn_model *m, const surnn_stream *stream, uint32_t layer,
                         uint8_t *open) {
    surnn_stream *s = (surnn_stream *)(uintptr_t)stream;
    const operation *op = find_layer(m, layer);
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    if (op && open)
        for (uint32_t g = 0; g < op->gates; g++)
            open[g] = (uint8_t)is_open(mask_of(m, s, op->in2), g);
    surnn_leave(s);
    return op && open ? SURNN_OK : SURNN_ARGUMENT;
}

surnn_status surnn_hidden(const surnn_model *m, const surnn_stream *stream, uint32_t layer,
                          float *values) {
    surnn_stream *s = (surnn_stream *)(uintptr_t)stream;
    const operation *op = find_layer(m, layer);
    surnn_status status = surnn_enter(m, s, NULL);
    if (status != SURNN_OK) return status;
    if (op && values) {
        size_t units = op->as.recurrent.units, others = op->as.recurrent.components - 1;
        uint64_t offset = op->state_offset + op->as.recurrent.state.other_components;
        memcpy(values, vector_of(m, s, op->out), units * 4);
        memcpy(values + units, stream_at(s, offset), others * units * 4);
    }
    surnn_leave(s);
    return op && values ? SURNN_OK : SURNN_ARGUMENT;
}
