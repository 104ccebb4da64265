/* Phases and waves in integers, see phase.h. src/surnn/nn/gates/fixed_point.py is the same idea for
 * tensors. */
#include "config.h"

#include "phase.h"

#if SURNN_MICRO && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

typedef struct wide {
    uint64_t high, low;
} wide;

static wide multiply(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 both;
    both product = (both)a * b;
    wide result = {(uint64_t)(product >> 64), (uint64_t)product};
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)middle;
    wide result = {a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (uint32_t)low};
#endif
    return result;
}

/* ---------------------------------------------------------------- phases */

/* 128 zeros, then the first bits of 2 / pi. */
enum { ZEROS = 128 };
static const uint32_t two_over_pi[] = {
    0, 0, 0, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
    0xdebbc561, 0xb7246e3a, 0x424dd2e0,
};
enum { LAST_WINDOW = (int)(sizeof two_over_pi * 8) - 160 };

static unsigned bit_length(uint64_t x) {
#if defined(__GNUC__)
    return x ? 64 - (unsigned)__builtin_clzll(x) : 0;
#else
    unsigned n = 0;
    for (; x; x >>= 1) n++;
    return n;
#endif
}

/* Rounds to 53 bits, half to even. Returns how many bits were dropped. */
static int round_to_double(wide product, uint64_t *rounded) {
    unsigned length = product.high ? 64 + bit_length(product.high) : bit_length(product.low);
    if (length <= 53) {
        *rounded = product.low;
        return 0;
    }
    unsigned drop = length - 53; /* at most 50 */
    uint64_t whole = product.high << (64 - drop) | product.low >> drop;
    uint64_t rest = product.low << (64 - drop), half = (uint64_t)1 << 63;
    *rounded = whole + (rest > half || (rest == half && (whole & 1)));
    return (int)drop;
}

/* 64 bits of two_over_pi from a bit on. */
static uint64_t bits_at(const uint32_t *words, unsigned shift) {
    uint64_t two = (uint64_t)words[0] << 32 | words[1];
    return shift ? two << shift | words[2] >> (32 - shift) : two;
}

/* rounded * 2^exponent / 2 pi, modulo 1: the bits of 2 / pi that matter are those from weight 2^63 on,
 * 64 for whole units and 64 below. */
uint64_t surnn_turn(uint64_t omega, int64_t t) {
    const surnn_scaled number = scaled_of(omega);
    uint64_t rounded, size = (uint64_t)(number.whole < 0 ? -number.whole : number.whole);
    int place = round_to_double(multiply(size, (uint64_t)t), &rounded) + number.exponent - 2 + ZEROS;
    if (place < 0 || place > LAST_WINDOW) return 0; /* smaller than a unit, or larger than 2^130 */
    const uint32_t *words = two_over_pi + place / 32;
    uint64_t high = bits_at(words, (unsigned)place % 32), low = bits_at(words + 2, (unsigned)place % 32);
    uint64_t turn = rounded * high + multiply(rounded, low).high;
    return number.whole < 0 ? 0 - turn : turn;
}

/* ---------------------------------------------------------------- waves */

/* The rest after the nearest quarter turn, up to 2^61 on both sides. */
static int64_t rest_of(uint64_t turn, unsigned *quarter) {
    *quarter = (unsigned)((turn + ((uint64_t)1 << 61)) >> 62) & 3;
    return (int64_t)(turn - ((uint64_t)*quarter << 62));
}

static int32_t product30(int32_t a, int32_t b) { return (int32_t)((int64_t)a * b >> 30); }

/* With y the rest in units of an eighth of a turn, Taylor's series of sin(y pi/4) and cos(y pi/4). */
void surnn_wave(uint64_t turn, float *sine, float *cosine) {
    unsigned quarter;
    int32_t y = (int32_t)(rest_of(turn, &quarter) >> 31), z = product30(y, y);
    int32_t s = 0x150 + product30(-0x2, z), c = 0xf10 + product30(-0x1a, z);
    s = -0x9969 + product30(s, z), c = -0x5574f + product30(c, z);
    s = 0x28cd79 + product30(s, z), c = 0x103c1f1 + product30(c, z);
    s = -0x52aef3a + product30(s, z), c = -0x13bd3cca + product30(c, z);
    s = product30(0x3243f6a9 + product30(s, z), y), c = 0x40000000 + product30(c, z);
    int32_t odd = quarter & 1, first = odd ? c : s, second = odd ? s : c;
    *sine = (float)(quarter & 2 ? -first : first) * 0x1p-30f;
    *cosine = (float)((quarter + 1) & 2 ? -second : second) * 0x1p-30f;
}

/* Without the product of the low halves, which is below 4 units. */
int64_t surnn_product(int64_t a, int64_t b) {
    int64_t a1 = a >> 32, a0 = (uint32_t)a, b1 = b >> 32, b0 = (uint32_t)b;
    return a1 * b1 * 4 + (a1 * b0 >> 30) + (b1 * a0 >> 30);
}

void surnn_exact_wave(uint64_t turn, int64_t *sine, int64_t *cosine) {
    static const int64_t by_sine[] = {
        -0x16fae, 0x1e8f435, -0x1e3074fdf, 0x150783487ee, -0x9969667315ec, 0x28cd78ceeb55c4,
        -0x52aef39896f94b0, 0x3243f6a8885a308d,
    };
    static const int64_t by_cosine[] = {
        0x120c, -0x1b6e25, 0x1f9d38a3, -0x1a6d1f2a20, 0xf0fa83448dd, -0x5574f1f8f2ffe,
        0x103c1f081b5ac3b, -0x13bd3cc9be45de5a, 0x4000000000000000,
    };
    unsigned quarter;
    int64_t y = rest_of(turn, &quarter) * 2, z = surnn_product(y, y), s = 0, c = by_cosine[0];
    for (int i = 0; i < 8; i++) {
        s = by_sine[i] + surnn_product(s, z);
        c = by_cosine[i + 1] + surnn_product(c, z);
    }
    s = surnn_product(s, y);
    int64_t first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -first : first;
    *cosine = (quarter + 1) & 2 ? -second : second;
}
