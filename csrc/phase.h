/* Phases of clocks, and their sine and cosine, in integers alone: no processor needs doubles. */
#ifndef SURNN_PHASE_H
#define SURNN_PHASE_H

#include <stdint.h>

/* The phase omega t as a share of a turn, in units of 2^-64. It is that of the product in double, as
 * Python computes it: rounded to 53 bits. omega: the bits of a double; t: 0 .. 2^50. */
uint64_t surnn_turn(uint64_t omega, int64_t t);
/* Sine and cosine of a turn, within 2^-24. */
void surnn_wave(uint64_t turn, float *sine, float *cosine);
/* The same in units of 2^-62, within 2^-50. */
void surnn_exact_wave(uint64_t turn, int64_t *sine, int64_t *cosine);
/* a b / 2^62, within 6 units. */
int64_t surnn_product(int64_t a, int64_t b);

/* A double is whole * 2^exponent. Numbers below 2^-1022, infinity and NaN count as 0. */
typedef struct surnn_scaled {
    int64_t whole;
    int exponent;
} surnn_scaled;

static inline surnn_scaled scaled_of(uint64_t bits) {
    uint32_t exponent = (uint32_t)(bits >> 52) & 0x7ff;
    int64_t whole = (int64_t)((bits & 0xfffffffffffff) | (uint64_t)1 << 52);
    surnn_scaled zero = {0, -1074}, number = {bits >> 63 ? -whole : whole, (int)exponent - 1075};
    return exponent == 0 || exponent == 0x7ff ? zero : number;
}

#endif
