/* Decoding of operations. Nothing in a file is trusted: every number is checked before it is used.
 *
 * The functions that decode one kind of operation return 1 if the record is valid, 0 if not. */
#ifndef SURNN_READ_H
#define SURNN_READ_H

#include "model.h"

#include <string.h>

/* Arithmetic that saturates at the largest number instead of wrapping around. */
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

static inline float float_of(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

/* An operation as it is in the file. FORMAT.md calls the numbers p0 .. p11, the arrays d0 .. d7. */
typedef struct record {
    uint32_t kind, in, in2, out, number[12];
    uint64_t array[8]; /* offsets, 0 for no array */
} record;

/* The array of `count` elements at an offset of the file; NULL if it is not inside the file. */
const void *surnn_array(const surnn_model *m, uint64_t offset, uint64_t count, uint64_t element_size);

/* Checksum of a file. */
uint32_t surnn_crc32(const uint8_t *p, size_t n);

/* Whether a file of this version may have weights of this type, and this build reads them. */
int surnn_knows_weights(const surnn_model *m, uint32_t weight_type);

/* Bytes of the weights of a tile with `inputs` inputs. */
uint64_t surnn_tile_bytes(uint32_t lanes, uint32_t products, uint32_t weight_type, uint32_t inputs);

/* Decode the next operation. The operations before it have been decoded. */
int surnn_read_operation(surnn_model *m, operation *op, const uint8_t *bytes);
/* Whether the vector is the input, or an operation decoded so far writes it. */
int surnn_is_written(const surnn_model *m, uint32_t vector);

/* op->kind, vectors and gates have been decoded; these decode the rest. */
int surnn_read_gate(const surnn_model *m, operation *op, const record *r);
int surnn_read_sinusoids(const surnn_model *m, operation *op, const record *r);
int surnn_read_recurrent(const surnn_model *m, operation *op, const record *r);

#endif
