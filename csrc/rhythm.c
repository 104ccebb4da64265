/* Rhythms: gates that are sums of sinusoids of the clock.
 *
 * Python decides by sums in double. Here phases are integers, exact at any clock, and sums are in float;
 * the few that are too close to 0 for float are computed again: in double where the build has doubles,
 * and in integers where that is not enough. Decisions are the same without doubles.
 *
 * Where frames come in chunks, prepare_next_block computes BLOCK time steps together, which takes less.
 * Its work is spread over the time steps of the block before, so that no time step is slow. */
#include "model.h"
#include "phase.h"

#include <math.h>
#include <string.h>

static uint64_t bits_of(const double *number) {
    uint64_t bits;
    memcpy(&bits, number, 8);
    return bits;
}

/* waves[2][K]: sin and cos of omega t; those of frequencies `from` to `to` - 1. */
static void compute_waves(const struct rhythm *rhythm, float *waves, size_t from, size_t to, int64_t t) {
    size_t count = rhythm->frequencies;
    for (size_t k = from; k < to; k++)
        surnn_wave(surnn_turn(bits_of(rhythm->omega + k), t), waves + k, waves + count + k);
}

static const struct slice *slice_at(const struct rhythm *rhythm, size_t index) {
    size_t floats = sizeof(struct slice) / sizeof(float) + rhythm->frequencies * 2 * SLICE;
    return (const struct slice *)(const void *)(rhythm->slices + index * floats);
}

/* Bit i for each gate first + i that exists. */
static uint32_t gates_of_slice(size_t gates, size_t first) {
    return gates - first < SLICE ? (1u << (gates - first)) - 1 : (1u << SLICE) - 1;
}

/* ---------------------------------------------------------------- sums in integers */

/* The sums of a column of 2K weights and a bias, in units of 2^(scale - 62). */
typedef struct integer_sum {
    int64_t sum;
    int scale;
} integer_sum;

/* number * 2^(62 - scale), rounded down; |number| < 2^scale */
static int64_t rescaled(const double *number, int scale) {
    surnn_scaled v = scaled_of(bits_of(number));
    int shift = v.exponent + 62 - scale; /* at most 9 */
    return shift >= 0 ? v.whole * ((int64_t)1 << shift) : shift > -63 ? v.whole >> -shift : 0;
}

/* A scale so large that no sum overflows. */
static int scale_of(const struct rhythm *rhythm, size_t gate) {
    size_t numbers = 2 * rhythm->frequencies + 1;
    int scale = scaled_of(bits_of(rhythm->bias + gate)).exponent;
    for (size_t k = 0; k < numbers - 1; k++) {
        int exponent = scaled_of(bits_of(rhythm->weights + k * rhythm->width + gate)).exponent;
        if (exponent > scale) scale = exponent;
    }
    for (scale += 54; numbers; numbers >>= 1) scale++;
    return scale;
}

static void sum_in_integers(const struct rhythm *rhythm, integer_sum *sums, size_t first,
                            uint32_t chosen, int64_t t) {
    for (uint32_t i = 0; i < SLICE; i++) {
        if (!(chosen >> i & 1)) continue;
        sums[i].scale = scale_of(rhythm, first + i);
        sums[i].sum = rescaled(rhythm->bias + first + i, sums[i].scale);
    }
    for (size_t k = 0; k < rhythm->frequencies; k++) {
        const double *by_sine = rhythm->weights + k * rhythm->width + first;
        const double *by_cosine = by_sine + rhythm->frequencies * rhythm->width;
        int64_t sine, cosine;
        surnn_exact_wave(surnn_turn(bits_of(rhythm->omega + k), t), &sine, &cosine);
        for (uint32_t i = 0; i < SLICE; i++) {
            if (!(chosen >> i & 1)) continue;
            sums[i].sum += surnn_product(rescaled(by_sine + i, sums[i].scale), sine);
            sums[i].sum += surnn_product(rescaled(by_cosine + i, sums[i].scale), cosine);
        }
    }
}

/* Those of the chosen gates that are open. */
static uint32_t decide_in_integers(const struct rhythm *rhythm, size_t first, uint32_t chosen,
                                   int64_t t) {
    integer_sum sums[SLICE];
    uint32_t open = 0;
    sum_in_integers(rhythm, sums, first, chosen, t);
    for (uint32_t i = 0; i < SLICE; i++)
        if (chosen >> i & 1) open |= (uint32_t)(sums[i].sum > 0) << i;
    return open;
}

/* ---------------------------------------------------------------- sums in double */

/* From here on rounded products of frequency and time make most sums of blocks uncertain. */
#define FAR_CLOCK ((int64_t)1 << 40)

#if SURNN_WARPED && SURNN_CHUNK > 1
/* Those of the chosen gates that are open. *chosen becomes those whose sums are too close to 0 for double:
 * an error is 2^-29 of one in float, and some more for sines of the library. */
static uint32_t decide_in_double(const surnn_model *m, const struct rhythm *rhythm, size_t first,
                                 uint32_t *chosen, int64_t t) {
    enum { ANGLES = 64 };
    double angles[ANGLES], sines[ANGLES], cosines[ANGLES], by_sine[SLICE] = {0}, by_cosine[SLICE] = {0};
    const struct slice *slice = slice_at(rhythm, first / SLICE);
    size_t width = rhythm->width, count = rhythm->frequencies;
    uint32_t open = 0, unsure = 0;
    for (size_t from = 0, n; from < count; from += n) {
        n = count - from < ANGLES ? count - from : ANGLES;
        for (size_t k = 0; k < n; k++) angles[k] = rhythm->omega[from + k] * (double)t;
        m->k->turns(sines, cosines, angles, n);
        for (uint32_t bits = *chosen; bits; bits &= bits - 1) {
            uint32_t i = lowest_bit(bits);
            const double *w = rhythm->weights + from * width + first + i, *v = w + count * width;
            for (size_t k = 0; k < n; k++, w += width, v += width)
                by_sine[i] += *w * sines[k], by_cosine[i] += *v * cosines[k];
        }
    }
    for (uint32_t bits = *chosen; bits; bits &= bits - 1) {
        uint32_t i = lowest_bit(bits);
        double sum = rhythm->bias[first + i] + by_sine[i] + by_cosine[i];
        if (fabs(sum) > 0x1p-24 * (double)slice->rounding[i]) open |= (uint32_t)(sum > 0.0) << i;
        else unsure |= (uint32_t)1 << i;
    }
    *chosen = unsure;
    return open;
}
#endif

/* Those of the chosen gates that are open: their sums in float are too close to 0. */
static uint32_t decide_again(const surnn_model *m, const struct rhythm *rhythm, size_t first,
                             uint32_t chosen, int64_t t) {
    uint32_t open = 0;
#if SURNN_WARPED && SURNN_CHUNK > 1
    if (rhythm->slices && t < FAR_CLOCK) open = decide_in_double(m, rhythm, first, &chosen, t);
#else
    (void)m;
#endif
    return chosen ? open | decide_in_integers(rhythm, first, chosen, t) : open;
}

/* ---------------------------------------------------------------- one time step */

/* Files of version 0.1 have no slices. */
static uint32_t decide_slice(const surnn_model *m, const struct rhythm *rhythm, const float *waves,
                             size_t gates, size_t index, int64_t t) {
    uint32_t open = 0, unsure = gates_of_slice(gates, index * SLICE);
    if (rhythm->slices) {
        const struct slice *slice = slice_at(rhythm, index);
        float sums[SLICE];
        m->k->sums(sums, slice, waves, rhythm->frequencies);
        for (uint32_t i = 0; i < SLICE; i++) {
            if (!(fabsf(sums[i]) > slice->rounding[i])) continue;
            open |= (uint32_t)(sums[i] > 0.0f) << i;
            unsure &= ~(1u << i);
        }
    }
    return unsure ? open | decide_again(m, rhythm, index * SLICE, unsure, t) : open;
}

static void compute_row(const surnn_model *m, const operation *op, float *waves, uint64_t *row,
                        int64_t t) {
    memset(row, 0, words_of(op->gates) * 8);
    compute_waves(&op->as.rhythm, waves, 0, op->as.rhythm.frequencies, t);
    for (size_t index = 0; index * SLICE < op->gates; index++)
        row[index / 4] |= (uint64_t)decide_slice(m, &op->as.rhythm, waves, op->gates, index, t)
                          << index % 4 * SLICE;
}

/* 2^n; 0 or infinity beyond the range of a float. */
static float power_of_two(int n) {
    uint32_t bits = n < -126 ? 0 : n > 127 ? 0x7f800000 : (uint32_t)(n + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return power;
}

/* Sums as numbers. Without slices they are computed in integers. */
void surnn_run_sinusoids(const surnn_model *m, surnn_stream *s, const operation *op, float *y,
                         int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    float *waves = (float *)(void *)scratch_of(m, s), sums[SLICE];
    compute_waves(rhythm, waves, 0, rhythm->frequencies, t);
    for (size_t first = 0; first < op->m; first += SLICE) {
        size_t count = op->m - first < SLICE ? op->m - first : SLICE;
        if (rhythm->slices) {
            m->k->sums(sums, slice_at(rhythm, first / SLICE), waves, rhythm->frequencies);
        } else {
            integer_sum whole[SLICE];
            sum_in_integers(rhythm, whole, first, gates_of_slice(op->m, first), t);
            for (size_t i = 0; i < count; i++) {
                float high = (float)(int32_t)(whole[i].sum >> 32), low = (float)(uint32_t)whole[i].sum;
                sums[i] = (high * 0x1p32f + low) * power_of_two(whole[i].scale - 62);
            }
        }
        memcpy(y + first, sums, count * sizeof *y);
    }
}

/* ---------------------------------------------------------------- a block, in float */

#if SURNN_CHUNK > 1
enum { AT_ONCE = 2 }; /* slices that are prepared at a time step, or none */
enum { SLICE_SHARE = 6 };

/* A rhythm's part of a stream. Block b has the time steps from b * BLOCK + 1 on. */
typedef struct rhythm_state {
    uint64_t block;  /* the block in rows[0], plus 1; 0: none */
    uint64_t next;   /* the block in rows[1], plus 1 */
    uint64_t done;   /* of it: waves that are computed; then K, plus slices that are prepared */
    uint64_t rows[]; /* [2][BLOCK][words]; then float [2][K]: the waves of the next block's middle */
} rhythm_state;

/* Prepares one slice of the gates of BLOCK time steps, from `first` on. */
static void prepare_slice(const surnn_model *m, const operation *op, uint64_t *rows,
                          const float *waves, size_t index, int64_t first) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t words = words_of(op->gates), gate = index * SLICE, shift = gate % 64;
    uint32_t valid = gates_of_slice(op->gates, gate);
    uint16_t open[BLOCK], unsure[BLOCK];
    m->k->look_ahead(open, unsure, slice_at(rhythm, index), rhythm->rotations, waves,
                     rhythm->frequencies, (float)(first + BLOCK));
    for (size_t j = 0; j < BLOCK; j++) {
        uint64_t *word = rows + j * words + gate / 64, bits = open[j];
        if (unsure[j] & valid) {
            bits &= ~(uint64_t)unsure[j];
            bits |= decide_again(m, rhythm, gate, unsure[j] & valid, first + (int64_t)j);
        }
        *word = (*word & ~((uint64_t)0xffff << shift)) | bits << shift;
    }
}

/* At each time step of a block, the same share of the next one: first its waves, then its slices. A block is prepared from the first
 * time step of the one before, or not at all. */
static void prepare_next_block(const surnn_model *m, const operation *op, rhythm_state *state,
                               int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t all = (op->gates + SLICE - 1) / SLICE, words = words_of(op->gates);
    float *waves = (float *)(void *)(state->rows + 2 * BLOCK * words);
    uint64_t next = (uint64_t)(t - 1) / BLOCK + 1, position = (uint64_t)(t - 1) % BLOCK;
    int64_t first = (int64_t)(next * BLOCK) + 1;
    if ((uint64_t)first + BLOCK <= rhythm->stored_steps) return;
    if (position == 0) state->next = next + 1, state->done = 0;
    if (state->next != next + 1) return;
    /* Work is counted in waves, of which a slice takes as long as K / SLICE_SHARE. */
    size_t count = rhythm->frequencies, slice = count / SLICE_SHARE + 1, work = count + all * slice;
    size_t target = work * ((size_t)position + 1) / BLOCK, slices = 0;
    if (target > count) slices = (size_t)round_up((target - count) / slice, AT_ONCE), target = count;
    if (state->done < target) {
        compute_waves(rhythm, waves, (size_t)state->done, target, first + HALF_BLOCK);
        state->done = target;
    }
    if (state->done < count) return;
    if (slices > all) slices = all;
    for (; state->done < count + slices; state->done++)
        prepare_slice(m, op, state->rows + BLOCK * words, waves, (size_t)state->done - count, first);
}

static int is_prepared(const operation *op, const rhythm_state *state) {
    size_t count = op->as.rhythm.frequencies;
    return state->done >= count && (state->done - count) * SLICE >= op->gates;
}

/* The row of time step t, if it has been prepared; NULL if not. */
static const uint64_t *prepared_row(const surnn_model *m, surnn_stream *s, const operation *op,
                                    int64_t t) {
    rhythm_state *state = (rhythm_state *)(void *)stream_at(s, op->state_offset);
    size_t words = words_of(op->gates);
    uint64_t number = (uint64_t)(t - 1) / BLOCK + 1, row = (uint64_t)(t - 1) % BLOCK;
    if (!op->as.rhythm.slices || t >= FAR_CLOCK) return NULL;
    if (row == 0 && state->next == number && is_prepared(op, state)) {
        memcpy(state->rows, state->rows + BLOCK * words, BLOCK * words * 8);
        state->block = number;
    }
    prepare_next_block(m, op, state, t);
    return state->block == number ? state->rows + row * words : NULL;
}

uint64_t surnn_rhythm_state_size(const operation *op) {
    uint64_t rows = 24 + 2 * (uint64_t)BLOCK * words_of(op->gates) * 8;
    return round_up(rows + 8 * (uint64_t)op->as.rhythm.frequencies, ALIGNMENT);
}
#else
static const uint64_t *prepared_row(const surnn_model *m, surnn_stream *s, const operation *op,
                                    int64_t t) {
    (void)m, (void)s, (void)op, (void)t;
    return NULL;
}

uint64_t surnn_rhythm_state_size(const operation *op) {
    (void)op;
    return 0;
}
#endif

void surnn_run_rhythm(const surnn_model *m, surnn_stream *s, const operation *op, uint64_t *mask,
                      int64_t t) {
    const struct rhythm *rhythm = &op->as.rhythm;
    size_t words = words_of(op->gates);
    const uint64_t *row = rhythm->bins ? NULL : prepared_row(m, s, op, t);
    if ((uint64_t)t <= rhythm->stored_steps) row = rhythm->rows + (size_t)(t - 1) * words;
    if (row) memcpy(mask, row, words * 8);
#if SURNN_WARPED
    else if (rhythm->bins) surnn_compute_warped_row(m, s, op, mask, t);
#endif
    else compute_row(m, op, (float *)(void *)scratch_of(m, s), mask, t);
}
