/* Loads damaged copies of a model file, and runs those that load. Build with sanitizers.
 * usage: engine_fuzz TRIES FILE */
#include "surnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 21 };
static uint64_t seed = 1;

static uint64_t draw(uint64_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

static uint32_t crc32_of(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (; n; n--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Where damage is most telling: the header, and the tables at the end. */
static size_t somewhere(size_t size) {
    switch (draw(4)) {
    case 0: return draw(size < 64 ? size : 64);
    case 1: return draw(size);
    default: {
        size_t tables = size < 6000 ? size : 6000;
        return size - 1 - draw(tables);
    }
    }
}

static const uint32_t hostile[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 255, 65535, 65536,
                                   1u << 24, (1u << 24) + 1, 0x7fffffff, 0x80000000, 0xffffffff,
                                   0x7fc00000, 0x7f800000};

static void damage(uint8_t *bytes, size_t size) {
    for (uint64_t times = 1 + draw(3); times; times--) {
        size_t place = somewhere(size);
        if (draw(2)) {
            bytes[place] ^= (uint8_t)(1u << draw(8));
        } else {
            uint32_t value = hostile[draw(sizeof hostile / sizeof *hostile)];
            place = place / 4 * 4;
            if (place + 4 <= size) memcpy(bytes + place, &value, 4);
        }
    }
}

static void run(const surnn_model *model) {
    surnn_info info;
    surnn_stream *stream, *other;
    surnn_describe(model, &info);
    if (info.stream_size > (1u << 26) || surnn_stream_new(model, &stream) != SURNN_OK) return;
    float *frame = calloc(info.input_size, sizeof *frame);
    float *out = malloc(info.output_size * sizeof *out);
    uint8_t *saved = malloc(info.saved_size);
    size_t wide = info.takes_tokens ? 1 : info.input_size;
    float *many = info.input_size < 1000 ? malloc(STEPS * wide * sizeof *many) : NULL;
    float *outs = info.output_size < 1000 ? malloc(STEPS * info.output_size * sizeof *outs) : NULL;
    uint32_t tokens[STEPS];
    if (frame && out && saved) {
        for (int t = 0; t < 6; t++) {
            frame[draw(info.input_size)] = (float)draw(100) / 30.0f - 1.5f;
            if (t == 3) surnn_set_clock(model, stream, 1000000000);
            if (info.takes_tokens) surnn_step_token(model, stream, (uint32_t)draw(info.input_size), out);
            else surnn_step(model, stream, frame, out);
        }
        if (many && outs) { /* and many steps at once */
            for (size_t i = 0; i < STEPS * wide; i++) many[i] = (float)draw(100) / 30.0f - 1.5f;
            if (info.takes_tokens) {
                for (size_t i = 0; i < STEPS; i++) tokens[i] = (uint32_t)draw(info.input_size);
                surnn_run_tokens(model, stream, tokens, STEPS, outs);
            } else {
                surnn_run(model, stream, many, STEPS, outs);
            }
        }
        /* A stream of arbitrary bytes, too: only its head is checked. */
        surnn_save(model, stream, saved, info.saved_size);
        for (size_t i = 64; i < info.saved_size; i++)
            if (!draw(8)) saved[i] = (uint8_t)draw(256);
        if (surnn_stream_new(model, &other) == SURNN_OK) {
            surnn_restore(model, other, saved, info.saved_size);
            if (info.takes_tokens) surnn_step_token(model, other, 0, out);
            else surnn_step(model, other, frame, out);
            surnn_stream_free(other);
        }
    }
    free(frame), free(out), free(saved), free(many), free(outs);
    surnn_stream_free(stream);
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (!file || fseek(file, 0, SEEK_END)) return fprintf(stderr, "cannot read the file\n"), 2;
    size_t size = (size_t)ftell(file), ran = 0, refused = 0;
    uint8_t *whole = malloc(size);
    rewind(file);
    if (!whole || fread(whole, 1, size, file) != size) return fprintf(stderr, "cannot read\n"), 2;
    fclose(file);
    for (long tries = atol(argv[1]); tries; tries--) {
        size_t kept = draw(8) ? size : draw(size); /* some are cut off */
        void *memory;
        if (posix_memalign(&memory, 64, kept ? kept : 1)) return 2;
        uint8_t *copy = memory;
        memcpy(copy, whole, kept);
        if (kept) damage(copy, kept);
        if (draw(10) && kept >= 64) { /* mostly with a checksum that is right again */
            uint64_t length = kept;
            memcpy(copy, whole, 12);
            if (draw(4)) memcpy(copy + 16, &length, 8);
            uint32_t crc = crc32_of(copy + 16, kept - 16);
            memcpy(copy + 12, &crc, 4);
        }
        surnn_model *model;
        if (surnn_open(copy, kept, &model) == SURNN_OK) {
            ran++;
            run(model);
            surnn_free(model);
        } else {
            refused++;
        }
        free(copy);
    }
    free(whole);
    printf("ran: %zu\nrefused: %zu\n", ran, refused);
    return 0;
}
