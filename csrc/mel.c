/* Log-mel features in integers, see mel.h. All numbers are in units of a sample times 2^-FRACTION. */
#include "config.h"

#include "mel.h"

#include "mel_tables.inc"

#include <string.h>

#if SURNN_MICRO && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2")
#endif

enum { HALF = SURNN_MEL_WINDOW / 2, FRACTION = 6 };

typedef struct complex_number {
    int32_t re, im;
} complex_number;

/* cos(2 pi k / 640) in units of 2^-30, k < 1280 */
static int32_t cosine(unsigned k) {
    if (k >= 640) k -= 640;
    if (k > 320) k = 640 - k;
    return k > 160 ? -cosines[320 - k] : cosines[k];
}

static int32_t sine(unsigned k) { return cosine(k + 480); }

static int32_t scaled(int32_t a, int32_t b) {
    return (int32_t)(((int64_t)a * b + (1 << 29)) >> 30);
}

/* x times exp(-2 pi i k / 640) */
static complex_number turned(complex_number x, unsigned k) {
    int32_t c = cosine(k), s = sine(k);
    complex_number y = {(int32_t)(((int64_t)x.re * c + (int64_t)x.im * s + (1 << 29)) >> 30),
                        (int32_t)(((int64_t)x.im * c - (int64_t)x.re * s + (1 << 29)) >> 30)};
    return y;
}

static complex_number sum(complex_number a, complex_number b) {
    complex_number c = {a.re + b.re, a.im + b.im};
    return c;
}

static complex_number difference(complex_number a, complex_number b) {
    complex_number c = {a.re - b.re, a.im - b.im};
    return c;
}

/* a - i b */
static complex_number minus_i(complex_number a, complex_number b) {
    complex_number c = {a.re + b.im, a.im - b.re};
    return c;
}

/* ---------------------------------------------------------------- the transform of 320 numbers */

/* One stage for each of the factors 4, 4, 4 of 320: output q of a block goes to its quarter q. */
static void quarter_blocks(complex_number *z, unsigned length) {
    unsigned quarter = length / 4, step = 640 / length;
    for (unsigned begin = 0; begin < HALF; begin += length)
        for (unsigned j = 0; j < quarter; j++) {
            complex_number *p = z + begin + j, *q = p + quarter, *r = q + quarter, *s = r + quarter;
            complex_number even = sum(*p, *r), odd = difference(*p, *r);
            complex_number other = sum(*q, *s), rest = difference(*q, *s), back = {-rest.re, -rest.im};
            *p = sum(even, other);
            *q = turned(minus_i(odd, rest), j * step);
            *r = turned(difference(even, other), 2 * j * step);
            *s = turned(minus_i(odd, back), 3 * j * step);
        }
}

/* The last stage: blocks of 5. */
static void transform_five(complex_number *z) {
    const int32_t c1 = cosine(128), c2 = cosine(256), s1 = sine(128), s2 = sine(256);
    complex_number a = sum(z[1], z[4]), b = sum(z[2], z[3]);
    complex_number c = difference(z[1], z[4]), d = difference(z[2], z[3]);
    complex_number u = {z[0].re + scaled(a.re, c1) + scaled(b.re, c2),
                        z[0].im + scaled(a.im, c1) + scaled(b.im, c2)};
    complex_number v = {z[0].re + scaled(a.re, c2) + scaled(b.re, c1),
                        z[0].im + scaled(a.im, c2) + scaled(b.im, c1)};
    complex_number e = {scaled(c.re, s1) + scaled(d.re, s2), scaled(c.im, s1) + scaled(d.im, s2)};
    complex_number f = {scaled(c.re, s2) - scaled(d.re, s1), scaled(c.im, s2) - scaled(d.im, s1)};
    complex_number back_e = {-e.re, -e.im}, back_f = {-f.re, -f.im};
    z[0] = sum(z[0], sum(a, b));
    z[1] = minus_i(u, e), z[4] = minus_i(u, back_e);
    z[2] = minus_i(v, f), z[3] = minus_i(v, back_f);
}

static void transform(complex_number *z) {
    quarter_blocks(z, 320);
    quarter_blocks(z, 80);
    quarter_blocks(z, 20);
    for (unsigned begin = 0; begin < HALF; begin += 5) transform_five(z + begin);
}

/* Where the transform leaves frequency k. */
static unsigned place_of(unsigned k) { return k % 4 * 80 + k / 4 % 4 * 20 + k / 16 % 4 * 5 + k / 64; }

/* The power of the window's frequency k, 1 to 319, from the transform of its even and odd samples: z is
 * even + i odd. */
static uint64_t power_at(const complex_number *z, unsigned k) {
    complex_number a = z[place_of(k)], b = z[place_of(HALF - k)];
    complex_number even = {(a.re + b.re) >> 1, (a.im - b.im) >> 1};
    complex_number odd = {(a.im + b.im) >> 1, (b.re - a.re) >> 1};
    complex_number x = sum(even, turned(odd, k));
    return (uint64_t)((int64_t)x.re * x.re) + (uint64_t)((int64_t)x.im * x.im);
}

/* ---------------------------------------------------------------- bands and logarithms */

static unsigned length_of(uint64_t x) {
#if defined(__GNUC__)
    return 64 - (unsigned)__builtin_clzll(x);
#else
    unsigned n = 0;
    for (; x; x >>= 1) n++;
    return n;
#endif
}

/* The stored integer of a power in units of sample^2 * 2^-8. */
static uint8_t stored(uint64_t power) {
    power += FLOOR;
    unsigned length = length_of(power); /* at least 19 */
    uint32_t rest = (uint32_t)(power << (64 - length) >> 32) & 0x7fffffff; /* after the first bit */
    uint32_t index = rest >> 26, inside = rest >> 10 & 0xffff;
    uint32_t low = logarithms[index], high = logarithms[index + 1];
    /* log2 in units of 2^-20; (log2 - 38) ln 2 is ln of the power of samples / 32768 */
    int32_t log2 = (int32_t)((length - 1) << 20) + (int32_t)(low + ((high - low) * inside >> 16));
    int64_t value = (int64_t)(log2 - (38 << 20)) * PER_OCTAVE + OFFSET; /* in units of 2^-40 */
    int32_t rounded = (int32_t)((value + ((int64_t)1 << 39)) >> 40);
    return (uint8_t)(rounded < 0 ? 0 : rounded > 255 ? 255 : rounded);
}

/* Between two edges the weights of a band fall as those of the next one rise; together they are 1. */
static void sum_bands(const complex_number *z, uint8_t *bands) {
    uint64_t falling = 0;
    for (unsigned i = 0; i <= SURNN_MEL_BANDS; i++) {
        uint64_t all = 0, rising = 0;
        for (unsigned k = first_bins[i]; k < first_bins[i + 1]; k++) {
            uint64_t power = power_at(z, k);
            all += power;
            rising += (power >> 32) * weights[k] + ((power & 0xffffffff) * weights[k] >> 32);
        }
        if (i) bands[i - 1] = stored((falling + all - rising) >> (2 * FRACTION - 8));
        falling = rising;
    }
}

int surnn_mel_push(surnn_mel *mel, const int16_t *samples, uint8_t *bands) {
    int started = mel->started != 0;
    if (started) {
        for (unsigned n = 0; n < SURNN_MEL_WINDOW; n++) {
            int32_t sample = n < HALF ? mel->before[n] : samples[n - HALF];
            int32_t window = (1 << 29) - (cosine(n) >> 1); /* 1/2 - cos / 2 */
            mel->work[n] = scaled(sample * (1 << FRACTION), window);
        }
        transform((complex_number *)(void *)mel->work);
        sum_bands((const complex_number *)(const void *)mel->work, bands);
    }
    memcpy(mel->before, samples, sizeof mel->before);
    mel->started = 1;
    return started;
}
