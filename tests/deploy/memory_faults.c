/* Allocations that fail, each in turn: the engine and the scan report it, and leak nothing. Link with
 * -Wl,--wrap=malloc,--wrap=calloc and run it under sanitizers.
 * usage: memory_faults MODEL... */
#include "bench.h"
#include "scan.h"
#include "surnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, MOST = 1000 };

/* ---------------------------------------------------------------- faults */

static long left = -1; /* allocations until one fails; negative: none does */
static int happened;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

/* Threads count together, so that which one fails is not fixed; that one does is. */
static int fails(void) {
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) < 0) return 0;
    if (__atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED) != 0) return 0;
    __atomic_store_n(&happened, 1, __ATOMIC_RELAXED);
    return 1;
}

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

static const char *subject;

static void require(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", subject, what);
    exit(1);
}

/* Runs `work` with its first, second ... allocation failing, until there is none left to fail. Returns
 * how many failed. `work` returns whether memory was short. */
static int fail_each(int (*work)(void *), void *context) {
    for (long number = 0; number < MOST; number++) {
        happened = 0, left = number;
        int was_short = work(context);
        left = -1;
        if (!happened) {
            require(!was_short, "memory was short without a fault");
            return (int)number;
        }
        require(was_short, "a failed allocation was not reported");
    }
    require(0, "the allocations do not end");
    return 0;
}

/* ---------------------------------------------------------------- the engine */

typedef struct engine_case {
    const char *path;
    surnn_mapping mapping;
    float *frames, *out, *expected;
    double seconds[STEPS];
} engine_case;

static surnn_status run(const surnn_model *model, surnn_workspace *workspace, surnn_stream *stream,
                        const surnn_info *info, engine_case *c, float *out) {
    uint32_t tokens[STEPS] = {0, 1, 2, 1, 0};
    if (info->takes_tokens) return surnn_run_tokens_in(model, workspace, stream, tokens, STEPS, out);
    return surnn_run_in(model, workspace, stream, c->frames, STEPS, out);
}

static surnn_status benchmark(const surnn_model *model, engine_case *c) {
    surnn_parts parts;
    surnn_status status = surnn_time_parts(model, c->frames, 2, c->out, 0, 0, &parts);
    if (status == SURNN_ARGUMENT) status = SURNN_OK; /* it has no such layer */
    if (status == SURNN_OK) status = surnn_time_steps(model, c->frames, 2, c->out, 0, c->seconds);
    if (status == SURNN_OK)
        status = surnn_time_streams(model, c->frames, 2, 2, 0, 1, c->seconds);
    return status;
}

static int live(void *context) {
    engine_case *c = context;
    const surnn_options options = {c->mapping, 0};
    surnn_model *model = NULL;
    surnn_workspace *workspace = NULL;
    surnn_stream *own = NULL, *state = NULL;
    surnn_info info = {0};
    surnn_status status = surnn_load_with(c->path, &options, &model);
    if (status == SURNN_OK) surnn_describe(model, &info);
    if (status == SURNN_OK) status = surnn_workspace_new(model, &workspace);
    if (status == SURNN_OK) status = surnn_stream_new(model, &own);
    if (status == SURNN_OK) status = surnn_state_new(model, &state);
    if (status == SURNN_OK) status = run(model, workspace, state, &info, c, c->out);
    if (status == SURNN_OK && !info.takes_tokens) status = benchmark(model, c);
    require(status == SURNN_OK || status == SURNN_MEMORY, surnn_message(status));
    surnn_stream_free(state), surnn_stream_free(own);
    surnn_workspace_free(workspace);
    surnn_free(model);
    return status == SURNN_MEMORY;
}

static void test_engine(const char *path) {
    engine_case c = {.path = path, .frames = calloc(STEPS * 1000, 4), .out = calloc(STEPS * 1000, 4)};
    subject = path;
    require(c.frames && c.out, "no memory");
    for (int mapping = SURNN_MAP_LARGE; mapping <= SURNN_MAP_ALWAYS; mapping++) {
        c.mapping = (surnn_mapping)mapping;
        printf("%s: %d allocations failed\n", path, fail_each(live, &c));
    }
    free(c.frames), free(c.out);
}

/* ---------------------------------------------------------------- the scan */

enum { T = 9, B = 19, N = 2, D = 5, I = 3, S = 4, C = 3, P = 2, ROOM = 1 << 16 };

static float *numbers(size_t count, float scale) {
    static uint32_t state = 1;
    float *values = malloc(count * sizeof *values);
    require(values != NULL, "no memory");
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = ((float)(state >> 8) / (float)(1 << 23) - 1.0f) * scale;
    }
    return values;
}

static int scan_forward(void *context) { return surnn_scan_forward(context); }
static int scan_backward(void *context) {
    const surnn_scan *s = context;
    memset(s->by_gate, 0, (size_t)(T * s->gate_batch * N * s->gate_width) * sizeof *s->by_gate);
    return surnn_scan_backward(s);
}
static int scan_step(void *context) { return surnn_scan_step(context); }

static void test_scan(int64_t cell, int64_t gate_batch, int64_t gate_width, int64_t threads) {
    float *inputs[9], *results[14], decay[N * C * D];
    const size_t sizes[9] = {T * B * I, N * S * D * I, N * S * D, N * S * D * D, P * N * D,
                             (size_t)(T * gate_batch * N * gate_width), B * N * C * D, T * B * N * D,
                             B * N * C * D};
    for (int i = 0; i < 9; i++) inputs[i] = numbers(sizes[i], 0.5f);
    for (int i = 0; i < 14; i++) memset(results[i] = numbers(ROOM, 0), 0, ROOM * sizeof(float));
    for (size_t i = 0; i < sizes[5]; i++) inputs[5][i] = inputs[5][i] > 0 ? 1.0f : 0.0f;
    for (size_t i = 0; i < N * C * D; i++) decay[i] = i / D % C ? 0.9f : 0.0f;
    surnn_scan s = {
        .steps = T, .batch = B, .heads = N, .width = D, .features = I, .cell = cell,
        .gate_batch = gate_batch, .gate_width = gate_width, .binary = 1, .blocks = threads,
        .threads = threads, .chunk = 4, .threshold = 1, .beta = 1.8, .slope = 2,
        .surrogate = SURROGATE_TRIANGLE, .x = inputs[0], .weight = inputs[1], .bias = inputs[2],
        .recurrent = inputs[3], .unit = inputs[4], .gate = inputs[5], .state = inputs[6],
        .grad_y = inputs[7], .grad_last = inputs[8], .y = results[0], .last = results[1],
        .saved = results[2], .marks = results[3], .by_x = results[4], .by_weight = results[5],
        .by_bias = results[6], .by_recurrent = results[7], .by_unit = results[8],
        .by_gate = results[9], .by_state = results[10],
    };
    if (cell == 4 || cell == 5) s.decay = decay, s.by_decay = results[11];
    s.updates = surnn_scan_updates(&s);
    int forward = fail_each(scan_forward, &s), backward = fail_each(scan_backward, &s), step = 0;
    if (cell < 4) {
        surnn_frame frame = {
            .batch = B, .heads = N, .width = D, .features = I, .cell = cell, .gate_batch = gate_batch,
            .gate_width = gate_width, .binary = 1, .x = inputs[0], .weight_ih = inputs[1],
            .weight_hh = inputs[3], .gate = inputs[5], .state = inputs[6], .next = results[12],
        };
        step = fail_each(scan_step, &frame);
    }
    printf("cell %d: %d allocations failed forwards, %d backwards, %d in a step\n", (int)cell, forward,
           backward, step);
    for (int i = 0; i < 9; i++) free(inputs[i]);
    for (int i = 0; i < 14; i++) free(results[i]);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) test_engine(argv[i]);
    subject = "the scan";
    for (int64_t cell = 0; cell < 6 && surnn_scan_simd(); cell++)
        for (int kind = 0; kind < 8; kind++)
            test_scan(cell, kind & 1 ? B : 1, kind & 2 ? D : 1, kind & 4 ? 3 : 1);
    return 0;
}
