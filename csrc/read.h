/* Reading numbers that nobody has checked yet. */
#ifndef SURNN_READ_H
#define SURNN_READ_H

#include "internal.h"

#include <string.h>

/* Arithmetic that stays at the largest number instead of starting over. */
static inline uint64_t times(uint64_t a, uint64_t b) {
    return a && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static inline uint64_t plus(uint64_t a, uint64_t b) { return b > UINT64_MAX - a ? UINT64_MAX : a + b; }

static inline uint32_t u32_at(const uint8_t *bytes) {
    uint32_t v;
    memcpy(&v, bytes, 4);
    return v;
}

static inline uint64_t u64_at(const uint8_t *bytes) {
    uint64_t v;
    memcpy(&v, bytes, 8);
    return v;
}

/* The array of count elements that is said to be at an offset; NULL if it is not inside the file. */
const void *surnn_array(const surnn_model *m, uint64_t offset, uint64_t count, uint64_t each);
/* An operation from its record: how much of a stream it has for itself, and scratch memory. Whether
 * all is as it must be. */
int surnn_read_operation(surnn_model *m, operation *op, const uint8_t *record, uint64_t *own,
                         uint64_t *scratch);
/* Whether an operation read so far writes this vector, or it is the input. */
int surnn_is_written(const surnn_model *m, uint32_t buffer);

#endif
