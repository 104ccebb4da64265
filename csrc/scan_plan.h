/* Which units update: lists of open units for each head, time step and block of sequences. */
#ifndef SURNN_SCAN_PLAN_H
#define SURNN_SCAN_PLAN_H

#include "scan.h"

/* An update is a pair of a unit and a sequence. Pairs are numbered block by block, head by head, step
 * by step, unit by unit, sequence by sequence. A run is the pairs of one unit in one list. */
typedef struct scan_plan {
    int64_t steps, heads, width, blocks;
    int shared;       /* all sequences have the same gates: lists are those of block 0 */
    int64_t *bound;   /* [blocks + 1]: block k is the sequences from bound[k] to bound[k + 1] */
    int64_t *first;   /* [lists + 1]: first run of each list */
    int32_t *unit;    /* [runs] */
    int64_t *start;   /* [runs + 1]: first pair of each run; NULL if shared */
    int32_t *sequence; /* [pairs], or 0, 1, ... B - 1 if shared */
    int64_t pairs;
} scan_plan;

/* The open units of one head at one time step in one block. */
typedef struct scan_list {
    const int32_t *unit;
    size_t units;
    const int64_t *start; /* NULL if shared */
    const int32_t *sequence;
    size_t count; /* sequences of the block */
    size_t base;  /* number of the first pair */
    size_t pairs;
} scan_list;

/* Returns 0, or 1 if memory is short. */
int surnn_plan_open(scan_plan *plan, const surnn_scan *scan, int64_t lanes);
void surnn_plan_close(scan_plan *plan);

static inline scan_list list_at(const scan_plan *p, size_t block, size_t head, size_t t) {
    scan_list list;
    size_t at = ((p->shared ? 0 : block) * (size_t)p->heads + head) * (size_t)p->steps + t;
    size_t first = (size_t)p->first[at], last = (size_t)p->first[at + 1];
    list.unit = p->unit + first;
    list.units = last - first;
    list.count = (size_t)(p->bound[block + 1] - p->bound[block]);
    if (p->shared) {
        size_t runs = (size_t)p->first[p->heads * p->steps];
        list.start = NULL;
        list.sequence = p->sequence + p->bound[block];
        list.base = (size_t)p->bound[block] * runs + list.count * first;
        list.pairs = list.count * list.units;
    } else {
        list.start = p->start + first;
        list.base = (size_t)list.start[0];
        list.sequence = p->sequence + list.base;
        list.pairs = (size_t)p->start[last] - list.base;
    }
    return list;
}
/* Run i of a list: its pairs, counted from the list's first one, and their sequences. */
static inline size_t pairs_of_run(const scan_list *l, size_t i, size_t *count, const int32_t **sequence) {
    if (!l->start) {
        *count = l->count;
        *sequence = l->sequence;
        return i * l->count;
    }
    size_t at = (size_t)l->start[i] - l->base;
    *count = (size_t)(l->start[i + 1] - l->start[i]);
    *sequence = l->sequence + at;
    return at;
}

#endif
