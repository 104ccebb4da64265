/* The scan's passes: packing, chunks, and the tasks of a team of threads. */
#define _DEFAULT_SOURCE /* madvise */
#include "scan.h"

#include "scan_team.h"
#include "scan_work.h"

#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

static const scan_cell CELLS[CELL_COUNT] = {
    [CELL_RNN_TANH] = {1, 1, 0, 2, 0, 1, {0}, {0}, {0}},
    [CELL_RNN_RELU] = {1, 1, 0, 2, 0, 1, {0}, {0}, {0}},
    /* r, z, the candidate, and its recurrent product */
    [CELL_GRU] = {3, 1, 1, 5, 0, 4, {0, 1, 2}, {0, 1, 3}, {3}},
    [CELL_LSTM] = {4, 2, 0, 6, 4, 4, {0, 1, 2, 3}, {0, 1, 2, 3}, {0}},
    [CELL_LIF] = {1, 2, 1, 3, 1, 2, {0}, {0}, {1}},
    [CELL_ALIF] = {1, 3, 2, 4, 1, 3, {0}, {0}, {1, 2}},
};

/* Lanes pay from this many sequences on. */
enum { LEAST_LANES = 16, UNITS_A_TASK = 8 };

#if defined(__GNUC__)
extern const scan_kernels surnn_scan_generic;
#if defined(__x86_64__)
extern const scan_kernels surnn_scan_avx2, surnn_scan_avx512;
#endif

static const scan_kernels *choose_scan(void) {
    const char *name = surnn_choose_kernels()->name;
#if defined(__x86_64__)
    if (!strcmp(name, "avx512")) return &surnn_scan_avx512;
    if (!strcmp(name, "avx2")) return &surnn_scan_avx2;
#endif
    (void)name;
    return &surnn_scan_generic;
}

const char *surnn_scan_simd(void) { return surnn_choose_kernels()->name; }

/* ---------------------------------------------------------------- packing */

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
static float *zeros(scan_work *w, size_t n) {
    float *memory = w->memory[w->memories++] = calloc(n + MARGIN, sizeof *memory);
    return memory ? align(memory) : NULL;
}

/* from[N, S, D, n] <-> rows[N, D, S, padded]; `back` copies to `from`. */
static void pack_rows(const scan_work *w, float *rows, float *from, size_t n, size_t padded, int back) {
    size_t S = (size_t)w->cell.drives, D = w->width;
    for (size_t h = 0; h < w->heads; h++)
        for (size_t s = 0; s < S; s++)
            for (size_t u = 0; u < D; u++) {
                float *row = rows + ((h * D + u) * S + s) * padded, *plain = from + ((h * S + s) * D + u) * n;
                if (back) memcpy(plain, row, n * sizeof *row);
                else memcpy(row, plain, n * sizeof *row);
            }
}

/* from[N, S, D, n] -> tiles[N, unit_blocks, n, S, block_units]. */
static void pack_tiles(const scan_work *w, float *tiles, const float *from, size_t n) {
    size_t S = (size_t)w->cell.drives, D = w->width, units = w->block_units;
    for (size_t h = 0; h < w->heads; h++)
        for (size_t s = 0; s < S; s++)
            for (size_t u = 0; u < D; u++) {
                const float *row = from + ((h * S + s) * D + u) * n;
                float *to = tiles + ((h * w->unit_blocks + u / units) * n * S + s) * units + u % units;
                for (size_t k = 0; k < n; k++) to[k * S * units] = row[k];
            }
}

static void free_work(scan_work *w) {
    surnn_plan_close(&w->plan);
    while (w->memories) free(w->memory[--w->memories]);
    free(w->slot_first);
    free(w->entries);
    free(w->entry_first);
    free(w->dense);
    free(w->turned);
    free(w->turned_first);
}

static int open_work(scan_work *w, const surnn_scan *s, const scan_kernels *k) {
    memset(w, 0, sizeof *w);
    w->s = s;
    w->cell = CELLS[s->cell];
    w->steps = (size_t)s->steps, w->batch = (size_t)s->batch, w->heads = (size_t)s->heads;
    w->width = (size_t)s->width, w->features = (size_t)s->features;
    w->wide = k->wide;
    w->padded = round_up(w->width, k->wide);
    w->padded_in = round_up(w->features, k->wide);
    w->lanes = s->gate_batch == 1 && s->batch >= LEAST_LANES ? w->batch / 8 * 8 : 0;
    if (surnn_plan_open(&w->plan, s, (int64_t)w->lanes)) return 1;
    size_t rows = w->heads * w->width * (size_t)w->cell.drives;
    w->rec_rows = zeros(w, rows * w->padded);
    w->in_rows = zeros(w, rows * w->padded_in);
    if (!w->rec_rows || !w->in_rows) return 1;
    pack_rows(w, w->rec_rows, (float *)s->recurrent, w->width, w->padded, 0);
    pack_rows(w, w->in_rows, (float *)s->weight, w->features, w->padded_in, 0);
    if (s->cell != CELL_GRU) return 0;
    w->recurrent_bias = zeros(w, rows);
    if (!w->recurrent_bias) return 1;
    for (size_t h = 0; h < w->heads; h++)
        memcpy(w->recurrent_bias + (h * 3 + 2) * w->width, s->unit + h * w->width, w->width * sizeof(float));
    return 0;
}

/* ---------------------------------------------------------------- forwards */

typedef struct job {
    scan_work *w;
    const scan_kernels *k;
    size_t weight_tasks, step_tasks; /* of the backward pass's gradients, before the closed tasks */
} job;

static void run_forward(void *context, size_t task) {
    job *j = context;
    j->k->forward(j->w, task);
}

static void walk_all(scan_team *team, void *context) {
    job *j = context;
    surnn_team_run(team, run_forward, j, (size_t)j->w->plan.blocks * j->w->heads);
}

/* Asks for large pages where a tensor is about to be written: a fault for each small page takes as
 * long as the rest of a sparse pass. It is advice, so its result does not matter. */
static void use_large_pages(void *memory, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    uintptr_t size = (uintptr_t)1 << 21, first = ((uintptr_t)memory + size - 1) / size * size;
    uintptr_t end = ((uintptr_t)memory + bytes) / size * size;
    if (end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

int surnn_scan_forward(const surnn_scan *s) {
    scan_work w;
    job j = {&w, choose_scan(), 0, 0};
    use_large_pages(s->y, (size_t)(s->steps * s->batch * s->heads * s->width) * sizeof *s->y);
    if (s->saved)
        use_large_pages(s->saved, (size_t)(s->updates * CELLS[s->cell].saved) * sizeof *s->saved);
    if (open_work(&w, s, j.k)) w.failed = 1;
    else surnn_team_use((size_t)s->threads, walk_all, &j);
    free_work(&w);
    return w.failed;
}

int surnn_scan_step(const surnn_frame *s) { return choose_scan()->step(s, &CELLS[s->cell]); }

/* ---------------------------------------------------------------- gates */

enum { GATES_A_TASK = 1 << 16 };

typedef struct gates_job {
    const surnn_surrogate *gates;
    void (*run)(const surnn_surrogate *g, size_t from, size_t to);
} gates_job;

static void run_gates(void *context, size_t task) {
    gates_job *j = context;
    size_t from = task * GATES_A_TASK, to = from + GATES_A_TASK, size = (size_t)j->gates->size;
    j->run(j->gates, from, to < size ? to : size);
}

static void compute_gates(scan_team *team, void *context) {
    const surnn_surrogate *g = ((gates_job *)context)->gates;
    use_large_pages(g->to, (size_t)g->size * sizeof *g->to);
    surnn_team_run(team, run_gates, context, ((size_t)g->size + GATES_A_TASK - 1) / GATES_A_TASK);
}

void surnn_surrogate_sample(const surnn_surrogate *g) {
    gates_job j = {g, choose_scan()->sample};
    surnn_team_use((size_t)g->threads, compute_gates, &j);
}

void surnn_surrogate_gradient(const surnn_surrogate *g) {
    gates_job j = {g, choose_scan()->gradient};
    surnn_team_use((size_t)g->threads, compute_gates, &j);
}

/* ---------------------------------------------------------------- backwards */

static size_t pairs_in_chunk(const scan_work *w, size_t block, size_t head, size_t from, size_t to) {
    scan_list last = list_at(&w->plan, block, head, to - 1);
    return last.base + last.pairs - list_at(&w->plan, block, head, from).base;
}

static int open_backward(scan_work *w, const scan_kernels *k) {
    const surnn_scan *s = w->s;
    const size_t S = (size_t)w->cell.drives, C = (size_t)w->cell.components;
    const size_t units = w->heads * w->width, padded = w->heads * w->padded;
    size_t chunk = (size_t)s->chunk, most = 0, lists = (size_t)w->plan.blocks * w->heads;
    if (chunk > w->steps) chunk = w->steps;
    w->extras = s->by_gate || s->by_decay;
    w->slots = w->cell.gradients + (w->extras ? (int)C + 1 : 0);
    for (size_t from = 0; from < w->steps; from += (size_t)s->chunk) {
        size_t to = from + chunk < w->steps ? from + chunk : w->steps, pairs = 0;
        for (size_t i = 0; i < lists; i++)
            pairs += pairs_in_chunk(w, i / w->heads, i % w->heads, from, to);
        if (pairs > most) most = pairs;
    }
    w->slot_values = zeros(w, most * (size_t)w->slots);
    w->slot_first = malloc(lists * sizeof *w->slot_first);
    w->entries = malloc((most + 1) * sizeof *w->entries);
    w->entry_first = malloc((units + 2) * sizeof *w->entry_first);
    w->adjoint = zeros(w, w->batch * padded * C);
    w->outputs = zeros(w, chunk * w->batch * padded);
    w->by_rec_rows = zeros(w, units * S * w->padded);
    w->by_in_rows = zeros(w, units * S * w->padded_in);
    w->by_sums = zeros(w, units * (S + (size_t)w->cell.parameters));
    if (!w->slot_values || !w->slot_first || !w->entries || !w->entry_first || !w->adjoint ||
        !w->outputs || !w->by_rec_rows || !w->by_in_rows || !w->by_sums)
        return 1;
    if (w->features != w->padded_in && !(w->inputs = zeros(w, chunk * w->batch * w->padded_in))) return 1;
    if (!w->extras) return 0;
    w->block_units = S == 1 && w->padded > k->wide ? 2 * k->wide : k->wide;
    w->unit_blocks = (w->width + w->block_units - 1) / w->block_units;
    size_t tile = w->heads * w->unit_blocks * S * w->block_units, b = (size_t)s->gate_batch;
    w->adjoints = zeros(w, chunk * C * w->batch * padded);
    w->rec_tiles = zeros(w, tile * w->width);
    w->in_tiles = zeros(w, tile * w->features);
    w->dense = malloc(chunk * b * w->heads);
    w->changes = zeros(w, chunk * b * padded);
    w->by_decay_rows = zeros(w, C * padded);
    if (!w->plan.shared) {
        size_t bounds = chunk * w->heads * (w->batch + (size_t)w->plan.blocks);
        w->turned = malloc((most + 1) * sizeof *w->turned);
        w->turned_first = malloc(bounds * sizeof *w->turned_first);
        if (!w->turned || !w->turned_first) return 1;
    }
    if (!w->adjoints || !w->rec_tiles || !w->in_tiles || !w->dense || !w->changes || !w->by_decay_rows)
        return 1;
    pack_tiles(w, w->rec_tiles, s->recurrent, w->width);
    pack_tiles(w, w->in_tiles, s->weight, w->features);
    return 0;
}

/* The chunk's lists by unit: a unit's entries are in the order of time and sequences. */
static void list_entries(scan_work *w) {
    const size_t units = w->heads * w->width;
    size_t *place = w->entry_first, total = 0;
    memset(place, 0, (units + 2) * sizeof *place);
    for (int fill = 0; fill < 2; fill++) {
        /* First place[u + 2] counts; then place[u + 1] is the next entry of u, and in the end its end. */
        for (size_t n = 0; n < w->heads; n++)
            for (size_t t = w->from; t < w->to; t++)
                for (size_t k = 0; k < (size_t)w->plan.blocks; k++) {
                    scan_list list = list_at(&w->plan, k, n, t);
                    const float *slots = fill ? slots_of(w, k, n, &list) : NULL;
                    for (size_t i = 0; i < list.units; i++) {
                        size_t u = n * w->width + (size_t)list.unit[i];
                        if (!fill) {
                            place[u + 2]++;
                            continue;
                        }
                        scan_entry *e = &w->entries[place[u + 1]++];
                        size_t at = pairs_of_run(&list, i, &e->count, &e->sequence);
                        e->t = t;
                        e->slots = slots + at;
                        e->stride = list.pairs;
                    }
                }
        for (size_t u = 0; !fill && u < units + 2; u++) total += place[u], place[u] = total;
    }
}

static void pack_chunk(scan_work *w) {
    const surnn_scan *s = w->s;
    for (size_t t = w->from; t < w->to && w->inputs; t++)
        for (size_t b = 0; b < w->batch; b++)
            memcpy(w->inputs + ((t - w->from) * w->batch + b) * w->padded_in,
                   s->x + (t * w->batch + b) * w->features, w->features * sizeof(float));
}

/* Where proposals of closed units are needed; returns whether anywhere in the chunk. */
static int find_dense(scan_work *w) {
    const surnn_scan *s = w->s;
    size_t gates = (size_t)s->gate_width, rows = (size_t)s->gate_batch * w->heads, count = (w->to - w->from) * rows;
    const float *gate = s->gate + w->from * rows * gates;
    const uint8_t *relevant = s->relevant ? s->relevant + w->from * rows : NULL;
    int any = 0;
    for (size_t i = 0; i < count; i++) {
        int closed = 0;
        for (size_t g = 0; g < gates; g++) closed |= gate[i * gates + g] == 0.0f;
        w->dense[i] = (uint8_t)(closed && (!relevant || relevant[i]));
        any |= w->dense[i];
    }
    return any;
}

static void take_changes(void *context, size_t task) {
    scan_work *w = ((job *)context)->w;
    const surnn_scan *s = w->s;
    size_t gates = (size_t)s->gate_width, rows = (size_t)s->gate_batch * w->heads;
    for (size_t r = task * rows; r < (task + 1) * rows; r++) {
        const float *change = w->changes + r * w->padded;
        float *to = s->by_gate + (w->from * rows + r) * gates, sum = 0.0f;
        if (!w->dense[r]) continue;
        if (gates > 1) memcpy(to, change, gates * sizeof *to);
        for (size_t u = 0; gates == 1 && u < w->width; u++) sum += change[u];
        if (gates == 1) *to = sum;
    }
}

static void run_backward(void *context, size_t task) {
    job *j = context;
    j->k->backward(j->w, task);
}

static void run_gradients(void *context, size_t task) {
    job *j = context;
    size_t units = j->w->heads * j->w->width;
    if (task < j->weight_tasks) {
        for (size_t u = task * UNITS_A_TASK; u < (task + 1) * UNITS_A_TASK && u < units; u++)
            j->k->by_weights(j->w, u);
    } else if (task < j->weight_tasks + j->step_tasks) {
        j->k->by_x(j->w, task - j->weight_tasks);
    } else {
        j->k->closed(j->w, task - j->weight_tasks - j->step_tasks);
    }
}

static void run_chunk(job *j, scan_team *team, size_t from, size_t to) {
    scan_work *w = j->w;
    const surnn_scan *s = w->s;
    size_t offset = 0, closed = 0, gates = (size_t)(s->gate_batch * s->heads * s->gate_width);
    if (s->by_gate) memset(s->by_gate + from * gates, 0, (to - from) * gates * sizeof *s->by_gate);
    w->from = from, w->to = to;
    for (size_t i = 0; i < (size_t)w->plan.blocks * w->heads; i++) {
        w->slot_first[i] = offset;
        offset += pairs_in_chunk(w, i / w->heads, i % w->heads, from, to);
    }
    list_entries(w);
    pack_chunk(w);
    int dense = s->by_gate && find_dense(w);
    if (dense || s->by_decay) closed = w->heads * w->unit_blocks;
    surnn_team_run(team, run_backward, j, (size_t)w->plan.blocks * w->heads);
    if (w->failed) return; /* what follows would read lists that were not written */
    j->weight_tasks = (w->heads * w->width + UNITS_A_TASK - 1) / UNITS_A_TASK;
    j->step_tasks = to - from;
    surnn_team_run(team, run_gradients, j, j->weight_tasks + j->step_tasks + closed);
    if (dense) surnn_team_run(team, take_changes, j, to - from);
}

static void write_gradients(const scan_work *w) {
    const surnn_scan *s = w->s;
    const size_t S = (size_t)w->cell.drives, P = (size_t)w->cell.parameters, C = (size_t)w->cell.components;
    pack_rows(w, w->by_rec_rows, s->by_recurrent, w->width, w->padded, 1);
    pack_rows(w, w->by_in_rows, s->by_weight, w->features, w->padded_in, 1);
    for (size_t n = 0; n < w->heads; n++)
        for (size_t u = 0; u < w->width; u++) {
            const float *sums = w->by_sums + (n * w->width + u) * (S + P);
            for (size_t i = 0; i < S; i++) s->by_bias[(n * S + i) * w->width + u] = sums[i];
            for (size_t p = 0; p < P; p++) s->by_unit[(p * w->heads + n) * w->width + u] = sums[S + p];
        }
    for (size_t r = 0; s->by_decay && r < w->heads * C; r++)
        memcpy(s->by_decay + r * w->width, w->by_decay_rows + r * w->padded, w->width * sizeof(float));
}

static void run_chunks(scan_team *team, void *context) {
    job *j = context;
    size_t steps = j->w->steps, chunk = (size_t)j->w->s->chunk;
    for (size_t at = (steps + chunk - 1) / chunk * chunk; !j->w->failed && at > 0; at -= chunk)
        run_chunk(j, team, at - chunk, at < steps ? at : steps);
}

int surnn_scan_backward(const surnn_scan *s) {
    scan_work w;
    job j = {&w, choose_scan(), 0, 0};
    size_t gates = (size_t)(s->steps * s->gate_batch * s->heads * s->gate_width);
    if (s->by_gate) use_large_pages(s->by_gate, gates * sizeof *s->by_gate);
    if (s->by_x) use_large_pages(s->by_x, (size_t)(s->steps * s->batch * s->features) * sizeof *s->by_x);
    if (open_work(&w, s, j.k) || open_backward(&w, j.k)) w.failed = 1;
    else surnn_team_use((size_t)s->threads, run_chunks, &j);
    if (!w.failed) write_gradients(&w);
    free_work(&w);
    return w.failed;
}

#else /* no vector arithmetic in this compiler */

const char *surnn_scan_simd(void) { return NULL; }
int surnn_scan_forward(const surnn_scan *s) { return s != NULL; }
int surnn_scan_backward(const surnn_scan *s) { return s != NULL; }
int surnn_scan_step(const surnn_frame *s) { return s != NULL; }
void surnn_surrogate_sample(const surnn_surrogate *g) { (void)g; }
void surnn_surrogate_gradient(const surnn_surrogate *g) { (void)g; }

#endif
