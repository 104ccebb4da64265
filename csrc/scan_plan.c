/* Lists of open units. */
#include "scan_plan.h"

#include <stdlib.h>
#include <string.h>

/* open[width] of one head, from its gates [m]; returns whether any is open. */
static int read_gates(uint8_t *open, const float *gate, size_t gates, size_t width) {
    uint8_t any = 0;
    if (gates == 1) {
        any = gate[0] != 0.0f;
        memset(open, any, width);
        return any;
    }
    for (size_t u = 0; u < width; u++) open[u] = gate[u] != 0.0f;
    for (size_t u = 0; u < width; u++) any |= open[u];
    return any;
}

static void divide(scan_plan *p, int64_t batch, int64_t lanes) {
    /* Sequences that are computed as lanes of vectors stay in eights. */
    for (int64_t k = 0; k <= p->blocks; k++) {
        int64_t at = batch * k / p->blocks;
        if (lanes && k < p->blocks) {
            int64_t size = lanes / p->blocks >= 16 ? 16 : 8;
            at = (lanes * k / p->blocks + size - 1) / size * size;
            if (at > lanes) at = lanes;
        }
        p->bound[k] = at;
    }
}

static void list_shared(scan_plan *p, const surnn_scan *s, uint8_t *open) {
    size_t width = (size_t)s->width, gates = (size_t)s->gate_width, heads = (size_t)s->heads;
    int64_t runs = 0;
    for (size_t n = 0; n < heads; n++)
        for (size_t t = 0; t < (size_t)s->steps; t++) {
            p->first[n * (size_t)s->steps + t] = runs;
            if (!read_gates(open, s->gate + (t * heads + n) * gates, gates, width)) continue;
            for (size_t u = 0; u < width; u++) {
                p->unit[runs] = (int32_t)u;
                runs += open[u];
            }
        }
    p->first[heads * (size_t)s->steps] = runs;
    p->pairs = runs * s->batch;
    for (int64_t b = 0; b < s->batch; b++) p->sequence[b] = (int32_t)b;
}

/* Bit u is 1 where gate u is open, of at most 64. */
static uint64_t open_units(const float *gate, size_t count) {
    uint8_t open[64] = {0};
    uint64_t units = 0;
    for (size_t u = 0; u < count; u++) open[u] = gate[u] != 0.0f;
    for (size_t u = 0; u < count; u += 8) {
        uint64_t eight = 0; /* a byte each; the product moves their bits together */
        for (size_t i = 0; i < 8; i++) eight |= (uint64_t)open[u + i] << 8 * i;
        units |= (eight * 0x0102040810204080u >> 56) << u;
    }
    return units;
}

static size_t lowest_bit(uint64_t bits) {
#if defined(__GNUC__)
    return (size_t)__builtin_ctzll(bits);
#else
    size_t place = 0;
    while (!(bits >> place & 1)) place++;
    return place;
#endif
}

/* One list of a plan with a schedule for each sequence: units in order, and for each its sequences.
 * Most units are closed: only those that are open take time, with a bit for each. */
static void list_each(scan_plan *p, const surnn_scan *s, const float *gate, int64_t from, int64_t to,
                      uint64_t *open, uint32_t *number, int64_t *place, int64_t *runs, int64_t *pairs) {
    size_t width = (size_t)s->width, words = (width + 63) / 64, stride = (size_t)s->heads * width;
    uint64_t any = 0;
    memset(number, 0, width * sizeof *number);
    for (size_t i = 0; i < (size_t)(to - from) * words; i++) {
        size_t first = i % words * 64, left = width - first;
        const float *row = gate + ((size_t)from + i / words) * stride;
        any |= open[i] = open_units(row + first, left < 64 ? left : 64);
        for (uint64_t bits = open[i]; bits; bits &= bits - 1) number[first + lowest_bit(bits)]++;
    }
    for (size_t u = 0; u < width && any; u++) {
        place[u] = *pairs;
        p->unit[*runs] = (int32_t)u;
        p->start[*runs] = *pairs;
        *runs += number[u] > 0;
        *pairs += number[u];
    }
    for (size_t i = 0; i < (size_t)(to - from) * words && any; i++)
        for (uint64_t bits = open[i]; bits; bits &= bits - 1)
            p->sequence[place[i % words * 64 + lowest_bit(bits)]++] = (int32_t)((size_t)from + i / words);
}

/* The same where a head has one gate: all its units have the same sequences. */
static void list_head(scan_plan *p, const surnn_scan *s, const float *gate, int64_t from, int64_t to,
                      int64_t *runs, int64_t *pairs) {
    int32_t *sequence = p->sequence + *pairs;
    size_t count = 0;
    for (int64_t b = from; b < to; b++)
        if (gate[b * s->heads] != 0.0f) sequence[count++] = (int32_t)b;
    if (!count) return;
    for (int64_t u = 0; u < s->width; u++) {
        p->unit[*runs] = (int32_t)u;
        p->start[(*runs)++] = *pairs;
        if (u) memcpy(p->sequence + *pairs, sequence, count * sizeof *sequence);
        *pairs += (int64_t)count;
    }
}

static void list_all(scan_plan *p, const surnn_scan *s, uint64_t *open, uint32_t *number,
                     int64_t *place) {
    size_t heads = (size_t)s->heads, steps = (size_t)s->steps, gates = (size_t)s->gate_width;
    int64_t runs = 0, pairs = 0;
    size_t list = 0;
    for (int64_t k = 0; k < p->blocks; k++)
        for (size_t n = 0; n < heads; n++)
            for (size_t t = 0; t < steps; t++) {
                const float *gate = s->gate + (t * (size_t)s->gate_batch * heads + n) * gates;
                p->first[list++] = runs;
                p->start[runs] = pairs;
                if (gates == 1) list_head(p, s, gate, p->bound[k], p->bound[k + 1], &runs, &pairs);
                else list_each(p, s, gate, p->bound[k], p->bound[k + 1], open, number, place, &runs, &pairs);
            }
    p->first[list] = runs;
    p->start[runs] = pairs;
    p->pairs = pairs;
}

int surnn_plan_open(scan_plan *p, const surnn_scan *s, int64_t lanes) {
    size_t width = (size_t)s->width, batch = (size_t)s->batch, lists, open_size;
    int64_t updates = s->updates;
    int failed;
    memset(p, 0, sizeof *p);
    p->steps = s->steps, p->heads = s->heads, p->width = s->width, p->blocks = s->blocks;
    p->shared = s->gate_batch == 1;
    lists = (size_t)(p->shared ? 1 : s->blocks) * (size_t)s->heads * (size_t)s->steps;
    open_size = p->shared ? width + 1 : (width + 63) / 64 * batch * sizeof(uint64_t);
    void *open = malloc(open_size);
    int64_t *place = malloc((width + 8) * sizeof *place);
    uint32_t *number = malloc((width + 8) * sizeof *number); /* sequences of a block, of each unit */
    size_t runs = (size_t)updates / (p->shared ? batch : 1);
    p->bound = malloc((size_t)(p->blocks + 1) * sizeof *p->bound);
    p->first = malloc((lists + 1) * sizeof *p->first);
    p->unit = malloc((runs + 1) * sizeof *p->unit);
    p->start = p->shared ? NULL : malloc((runs + 1) * sizeof *p->start);
    p->sequence = malloc((p->shared ? batch : (size_t)updates + 1) * sizeof *p->sequence);
    failed = !open || !place || !number || !p->bound || !p->first || !p->unit || !p->sequence;
    failed = failed || (!p->shared && !p->start);
    if (!failed) {
        divide(p, s->batch, lanes);
        if (p->shared) list_shared(p, s, open);
        else list_all(p, s, open, number, place);
    }
    free(open);
    free(place);
    free(number);
    if (failed) surnn_plan_close(p);
    return failed;
}

void surnn_plan_close(scan_plan *p) {
    free(p->bound);
    free(p->first);
    free(p->unit);
    free(p->start);
    free(p->sequence);
    memset(p, 0, sizeof *p);
}

int64_t surnn_scan_updates(const surnn_scan *s) {
    size_t count = (size_t)(s->steps * s->gate_batch * s->heads * s->gate_width);
    int64_t open = 0;
    for (size_t first = 0; first < count; first += 4096) {
        const float *gate = s->gate + first;
        size_t size = count - first < 4096 ? count - first : 4096;
        int32_t here = 0; /* narrow, so that a vector holds many */
        for (size_t i = 0; i < size; i++) here += gate[i] != 0.0f;
        open += here;
    }
    return open * (s->width / s->gate_width) * (s->batch / s->gate_batch);
}

int surnn_scan_equal(const void *a, const void *b, int64_t size) { return !memcmp(a, b, (size_t)size); }
