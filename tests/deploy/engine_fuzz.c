/* A fuzz target of the engine: opens any bytes as a model, and calls every function on those that it
 * accepts. It has libFuzzer's interface, with a mutator that knows the format: it damages fields of
 * the header, of operations and of arrays, and then makes the size and the checksum right.
 * engine_fuzz_main.c runs it without libFuzzer. Build it with sanitizers. */
#include "bench.h"
#include "surnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 21, HEADER = 64, RECORD = 128 };
#define SMALL_MEMORY ((uint64_t)1 << 18) /* larger models would only be slow */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state = 1;

static uint64_t draw(uint64_t below) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

static float draw_float(void) { return (float)draw(100) / 30.0f - 1.5f; }

/* ---------------------------------------------------------------- damage */

static uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return value;
}

static uint64_t get64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, 8); }

static uint32_t crc32(const uint8_t *p, size_t n) {
    static uint32_t table[256];
    for (uint32_t i = 0; !table[255] && i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (c & 1 ? 0xedb88320u : 0);
        table[i] = c;
    }
    uint32_t crc = 0xffffffffu;
    for (; n; n--, p++) crc = crc >> 8 ^ table[(crc ^ *p) & 255];
    return ~crc;
}

static const uint32_t hostile[] = {
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 65535, 65536, 1u << 24,
    (1u << 24) + 1, 1u << 30, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff,
    0x7fc00000, 0x7f800000, 0xff800000, 0x7f7fffff, 1, 0x80000001, 0x3f800000 /* floats */
};

static uint32_t damaged(uint32_t value) {
    switch (draw(4)) {
    case 0: return value + 1;
    case 1: return value - 1;
    case 2: return (uint32_t)draw(24);
    default: return hostile[draw(sizeof hostile / sizeof *hostile)];
    }
}

/* The tables of a file, or none where they are not inside of it. */
typedef struct tables {
    uint8_t *records, *vectors;
    uint32_t record_count, vector_count;
} tables;

static tables find_tables(uint8_t *data, size_t size) {
    tables found = {NULL, NULL, get32(data + 24), get32(data + 28)};
    uint64_t records = get64(data + 48), vectors = get64(data + 56);
    if (records < size && found.record_count <= (size - records) / RECORD) found.records = data + records;
    if (vectors < size && found.vector_count <= (size - vectors) / 4) found.vectors = data + vectors;
    if (!found.records) found.record_count = 0;
    if (!found.vectors) found.vector_count = 0;
    return found;
}

static uint8_t *draw_record(const tables *t) { return t->records + draw(t->record_count) * RECORD; }

/* Another place for an array: that of another one, its own and 64 bytes more or less, any. */
static uint64_t draw_offset(const tables *t, uint64_t offset, size_t size) {
    switch (draw(5)) {
    case 0: return get64(draw_record(t) + 64 + 8 * draw(8));
    case 1: return offset + 64;
    case 2: return offset - 64;
    case 3: return draw(size / 64 + 2) * 64;
    default: return (uint64_t)hostile[draw(20)] << draw(33);
    }
}

static void damage_record(const tables *t, size_t size) {
    uint8_t *record = draw_record(t), *other = draw_record(t), copy[RECORD];
    switch (draw(6)) {
    case 0: put32(record + 4 * draw(4), (uint32_t)draw(t->vector_count + 2)); break;
    case 1: {
        uint8_t *at = record + 64 + 8 * draw(8);
        put64(at, draw_offset(t, get64(at), size));
        break;
    }
    case 2:
        memcpy(copy, record, RECORD), memmove(record, other, RECORD), memcpy(other, copy, RECORD);
        break;
    case 3: memmove(record, other, RECORD); break;
    default: {
        uint8_t *at = record + 4 * draw(16);
        put32(at, damaged(get32(at)));
    }
    }
}

/* Moves both tables to the end of the file, with one more vector, and one more operation that
 * writes it. Returns the new size. */
static size_t grow(uint8_t *data, size_t size, size_t max_size) {
    tables t = find_tables(data, size);
    size_t begin = (size + 63) / 64 * 64, vectors = begin + (t.record_count + 1) * (size_t)RECORD;
    size_t end = vectors + 4 * ((size_t)t.vector_count + 1);
    if (!t.record_count || !t.vector_count || end > max_size) return size;
    memset(data + size, 0, begin - size);
    memmove(data + begin, t.records, t.record_count * (size_t)RECORD);
    memmove(data + vectors, t.vectors, 4 * (size_t)t.vector_count);
    uint8_t *record = data + begin + t.record_count * (size_t)RECORD;
    memmove(record, data + begin + draw(t.record_count) * RECORD, RECORD);
    put32(record + 4, (uint32_t)draw(t.vector_count));
    put32(record + 12, t.vector_count);
    put32(data + vectors + 4 * (size_t)t.vector_count,
          get32(data + vectors + 4 * draw(t.vector_count)));
    put32(data + 24, t.record_count + 1), put32(data + 28, t.vector_count + 1);
    put64(data + 48, begin), put64(data + 56, vectors);
    if (draw(2)) put32(data + 44, t.vector_count); /* it is the output */
    return end;
}

static size_t damage(uint8_t *data, size_t size, size_t max_size) {
    static const uint8_t header_fields[] = {8, 24, 28, 32, 36, 40, 44, 48, 56};
    tables t = find_tables(data, size);
    uint8_t *at;
    switch (draw(12)) {
    case 0:
        at = data + header_fields[draw(sizeof header_fields)];
        put32(at, damaged(get32(at)));
        return size;
    case 1:
        if (!t.vector_count) return size;
        at = t.vectors + 4 * draw(t.vector_count);
        put32(at, damaged(get32(at)));
        return size;
    case 2: return grow(data, size, max_size);
    case 3: return draw(4) ? size : HEADER + draw(size - HEADER + 1);
    case 4: return LLVMFuzzerMutate(data, size, max_size);
    case 5:
    case 6: /* in any array */
        at = data + HEADER + draw((size - HEADER) / 4 + 1) * 4;
        if (at + 4 <= data + size) put32(at, damaged(get32(at)));
        return size;
    default:
        if (t.record_count) damage_record(&t, size);
        return size;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) {
    static const uint8_t magic[] = {0x53, 0x55, 0x52, 0x4e, 0x4e, 0x0d, 0x0a, 0x1a, 1, 0, 0, 0};
    random_state = seed;
    draw(2);
    for (uint64_t times = 1 + draw(3); times; times--)
        size = size < HEADER || max_size < HEADER ? LLVMFuzzerMutate(data, size, max_size)
                                                  : damage(data, size, max_size);
    if (size >= HEADER && draw(32)) {
        memcpy(data, magic, sizeof magic);
        put64(data + 16, size);
        put32(data + 12, crc32(data + 16, size - 16));
    }
    return size;
}

/* ---------------------------------------------------------------- calls */

/* Room for STEPS time steps of a model. */
typedef struct room {
    surnn_info info;
    float *frames, *out;
    uint32_t tokens[STEPS];
    uint8_t *saved;
    double seconds[STEPS];
} room;

static int open_room(room *r, const surnn_model *model) {
    surnn_describe(model, &r->info);
    size_t frame = r->info.takes_tokens ? 1 : r->info.input_size;
    r->frames = malloc(STEPS * frame * sizeof *r->frames);
    r->out = malloc(STEPS * r->info.output_size * sizeof *r->out);
    r->saved = malloc(r->info.saved_size);
    if (!r->frames || !r->out || !r->saved) return 0;
    for (size_t i = 0; i < STEPS * frame; i++) r->frames[i] = draw_float();
    for (size_t i = 0; i < STEPS; i++) r->tokens[i] = (uint32_t)draw(r->info.input_size);
    return 1;
}

static void close_room(room *r) { free(r->frames), free(r->out), free(r->saved); }

static void run_steps(const surnn_model *model, surnn_stream *stream, room *r, size_t steps) {
    if (r->info.takes_tokens) surnn_run_tokens(model, stream, r->tokens, steps, r->out);
    else surnn_run(model, stream, r->frames, steps, r->out);
}

/* Steps, chunks, a late clock, the inside of the layers. */
static void use_stream(const surnn_model *model, surnn_stream *stream, room *r) {
    surnn_layer_info layer;
    surnn_work work;
    for (int t = 0; t < 3; t++) run_steps(model, stream, r, 1);
    surnn_set_clock(model, stream, draw(3) ? 1000000000 : SURNN_MAX_CLOCK - 2);
    run_steps(model, stream, r, STEPS);
    run_steps(model, stream, r, 2);
    for (uint32_t i = 0; surnn_describe_layer(model, i, &layer) == SURNN_OK && i < 4; i++) {
        uint8_t *open = malloc(layer.gates);
        float *values = malloc((size_t)layer.components * layer.units * sizeof *values);
        if (open) surnn_gates(model, stream, i, open);
        if (values) surnn_hidden(model, stream, i, values);
        free(open), free(values);
    }
    surnn_work_done(model, stream, &work);
}

/* A saved stream of arbitrary bytes: only its beginning is checked. */
static void use_saved(const surnn_model *model, surnn_stream *stream, room *r) {
    surnn_save(model, stream, r->saved, r->info.saved_size);
    for (size_t i = draw(8) ? 96 : 0; i < r->info.saved_size; i++)
        if (!draw(8)) r->saved[i] = (uint8_t)draw(256);
    surnn_restore(model, stream, r->saved, r->info.saved_size);
    run_steps(model, stream, r, STEPS);
    surnn_reset(model, stream);
    run_steps(model, stream, r, 1);
}

/* Streams without workspaces of their own, together and alone. */
static void use_many(const surnn_model *model, room *r) {
    surnn_stream *streams[STEPS] = {0};
    surnn_workspace *workspace = NULL;
    surnn_status status = surnn_workspace_new(model, &workspace);
    for (int i = 0; i < STEPS && status == SURNN_OK; i++) {
        status = surnn_state_new(model, &streams[i]);
        if (status == SURNN_OK) surnn_set_clock(model, streams[i], (int64_t)draw(4) * 1000000007);
    }
    size_t count = draw(2) ? STEPS : 2;
    for (int t = 0; t < 3 && status == SURNN_OK; t++)
        status = r->info.takes_tokens
                     ? surnn_step_many_tokens(model, workspace, streams, count, r->tokens, r->out)
                     : surnn_step_many(model, workspace, streams, count, r->frames, r->out);
    if (status == SURNN_OK && r->info.takes_tokens)
        surnn_run_tokens_in(model, workspace, streams[0], r->tokens, STEPS, r->out);
    else if (status == SURNN_OK) surnn_run_in(model, workspace, streams[0], r->frames, STEPS, r->out);
    for (int i = 0; i < STEPS; i++) surnn_stream_free(streams[i]);
    surnn_workspace_free(workspace);
}

static void use_benchmarks(const surnn_model *model, room *r) {
    surnn_parts parts;
    surnn_time_parts(model, r->frames, 3, r->out, 5, draw(2) != 0, &parts);
    surnn_time_steps(model, r->frames, 2, r->out, 7, r->seconds);
    surnn_time_streams(model, r->frames, 3, 2, 9, draw(2) != 0, r->seconds);
}

/* Models and streams in memory of exactly the right size. */
static void use_own_memory(const uint8_t *bytes, size_t size, room *r) {
    size_t needed = 0, stream_size = (size_t)r->info.stream_size;
    void *model_memory = NULL, *stream_memory = NULL;
    surnn_model *model;
    surnn_stream *stream;
    surnn_place(NULL, &needed, bytes, size, &model);
    if (posix_memalign(&model_memory, 64, needed)) model_memory = NULL;
    if (posix_memalign(&stream_memory, 64, stream_size)) stream_memory = NULL;
    if (model_memory && stream_memory &&
        surnn_place(model_memory, &needed, bytes, size, &model) == SURNN_OK &&
        surnn_stream_place(model, stream_memory, stream_size - 1, &stream) == SURNN_MEMORY &&
        surnn_stream_place(model, stream_memory, stream_size, &stream) == SURNN_OK)
        run_steps(model, stream, r, STEPS);
    free(model_memory), free(stream_memory);
}

static void use_model(const surnn_model *model, const uint8_t *bytes, size_t size) {
    surnn_stream *stream = NULL;
    room r = {.frames = NULL};
    if (open_room(&r, model) && surnn_stream_new(model, &stream) == SURNN_OK) {
        use_stream(model, stream, &r);
        use_saved(model, stream, &r);
        use_many(model, &r);
        if (!draw(4)) use_benchmarks(model, &r);
        if (!draw(4)) use_own_memory(bytes, size, &r);
    }
    surnn_stream_free(stream);
    close_room(&r);
}

/* Returns 1 if the bytes were refused; libFuzzer reserves other numbers than 0 and -1. */
static int test_bytes(const uint8_t *data, size_t size) {
    void *memory; /* of exactly this size: a read past its end is seen */
    surnn_model *model;
    surnn_stream *stream;
    if (posix_memalign(&memory, 64, size ? size : 1)) return 1;
    if (size) memcpy(memory, data, size);
    random_state = crc32(data, size) | 1;
    const surnn_options small = {SURNN_MAP_LARGE, SMALL_MEMORY};
    int refused = surnn_open_with(memory, size, &small, &model) != SURNN_OK;
    if (!refused) {
        use_model(model, memory, size);
        surnn_free(model);
    } else if (surnn_open(memory, size, &model) == SURNN_OK) { /* it needs more memory */
        if (surnn_stream_new(model, &stream) == SURNN_OK) surnn_stream_free(stream);
        surnn_free(model);
    }
    free(memory);
    return refused;
}

#ifdef SURNN_FUZZ_MAIN
#include "engine_fuzz_main.c"
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    test_bytes(data, size);
    return 0;
}
#endif
