/* Models: reading a file, and trusting nothing in it. */
#define _POSIX_C_SOURCE 200809L
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#define HAS_MMAP 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

const cell_shape surnn_cell_shapes[CELLS] = {
    {1, 0, 1}, {1, 0, 1}, {3, 1, 1}, {4, 0, 2}, {1, 1, 2}, {1, 2, 3},
};

const char *surnn_message(surnn_status status) {
    switch (status) {
    case SURNN_OK: return "no error";
    case SURNN_ARGUMENT: return "an argument is NULL, out of range, or of the wrong kind (tokens or frames)";
    case SURNN_FILE: return "the file cannot be opened or read";
    case SURNN_MAGIC: return "this is not a surnn engine file; make one with surnn.export.to_engine";
    case SURNN_VERSION: return "the file is of another version of the format; export the model again";
    case SURNN_TRUNCATED: return "the file is not as long as its header says: it was cut off or added to";
    case SURNN_CHECKSUM: return "the file is damaged: its checksum is another; copy or export it again";
    case SURNN_FORMAT: return "the file's contents contradict each other; export the model again";
    case SURNN_ALIGNMENT: return "memory for the engine must begin at a multiple of 64 bytes";
    case SURNN_MEMORY: return "not enough memory";
    case SURNN_HOST: return "the engine needs a little-endian machine";
    case SURNN_STATE: return "the saved stream is of another model, or damaged";
    }
    return "unknown status";
}

/* ---------------------------------------------------------------- checked arithmetic */

static uint64_t times(uint64_t a, uint64_t b) {
    return a && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b) { return b > UINT64_MAX - a ? UINT64_MAX : a + b; }

static uint32_t u32_at(const uint8_t *bytes) {
    uint32_t v;
    memcpy(&v, bytes, 4);
    return v;
}

static uint64_t u64_at(const uint8_t *bytes) {
    uint64_t v;
    memcpy(&v, bytes, 8);
    return v;
}

/* The array of count elements that is said to be at an offset; NULL if it is not inside the file. */
static const void *array(const surnn_model *m, uint64_t offset, uint64_t count, uint64_t each) {
    uint64_t size = times(count, each);
    if (offset < HEADER_SIZE || offset % ALIGNMENT || offset > m->size) return NULL;
    if (size > m->size - offset) return NULL;
    return m->bytes + offset;
}

/* CRC-32 as in zlib and PNG, eight bytes at a time. */
static uint32_t crc32_of(const uint8_t *p, size_t n) {
    uint32_t table[8][256], crc = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (c & 1 ? 0xedb88320u : 0);
        table[0][i] = c;
    }
    for (int j = 1; j < 8; j++)
        for (int i = 0; i < 256; i++)
            table[j][i] = (table[j - 1][i] >> 8) ^ table[0][table[j - 1][i] & 255];
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a = u32_at(p) ^ crc, b = u32_at(p + 4);
        crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^
              table[4][a >> 24] ^ table[3][b & 255] ^ table[2][b >> 8 & 255] ^
              table[1][b >> 16 & 255] ^ table[0][b >> 24];
    }
    for (; n; n--, p++) crc = (crc >> 8) ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

/* ---------------------------------------------------------------- operations */

void surnn_tile_sizes(uint32_t lanes, uint32_t drives, uint32_t weights, uint32_t inputs,
                      uint32_t recurrent, uint64_t *input_bytes, uint64_t *recurrent_bytes) {
    uint64_t width = (uint64_t)lanes * drives;
    uint64_t pad = weights == WEIGHTS_FLOAT32 ? 1 : lanes == 1 ? 64 : 4;
    uint64_t each = weights == WEIGHTS_FLOAT32 ? 4 : 1;
    *input_bytes = round_up(inputs, pad) * width * each;
    *recurrent_bytes = round_up(recurrent, pad) * width * each;
}

static int check_tiles(const operation *op, uint32_t heads, uint32_t gates, uint32_t lanes) {
    const tile_place *tile = op->data[2];
    const uint32_t *first = op->data[3];
    uint32_t units = op->p[1], tiles = op->p[5], in_head = units / heads, reached = 0;
    for (uint32_t i = 0; i < tiles; i++) {
        if (tile[i].first != reached || !tile[i].count || tile[i].count > lanes) return 0;
        if (tile[i].count > units - reached || tile[i].gate >= gates) return 0;
        reached += tile[i].count;
        if (tile[i].head != tile[i].first / in_head || tile[i].head != (reached - 1) / in_head)
            return 0;
    }
    if (reached != units || first[0] != 0 || first[gates] != tiles) return 0;
    for (uint32_t g = 0; g < gates; g++) {
        if (first[g] > first[g + 1] || first[g + 1] > tiles) return 0;
        for (uint32_t i = first[g]; i < first[g + 1]; i++)
            if (tile[i].gate != g) return 0;
    }
    return 1;
}

uint64_t surnn_recurrent_state_size(const operation *op) {
    cell_shape shape = surnn_cell_shapes[op->p[0]];
    uint64_t rest = round_up((uint64_t)(shape.components - 1) * op->p[1] * 4, ALIGNMENT);
    uint64_t input = round_up((uint64_t)op->p[5] * shape.drives * op->p[3] * 4, ALIGNMENT);
    return rest + input + round_up((uint64_t)op->p[5] * 8, ALIGNMENT);
}

recurrent_state surnn_recurrent_state(const operation *op, surnn_stream *stream) {
    cell_shape shape = surnn_cell_shapes[op->p[0]];
    uint8_t *own = at(stream, op->state);
    recurrent_state s;
    s.rest = (float *)(void *)own;
    own += round_up((uint64_t)(shape.components - 1) * op->p[1] * 4, ALIGNMENT);
    s.input = (float *)(void *)own;
    own += round_up((uint64_t)op->p[5] * shape.drives * op->p[3] * 4, ALIGNMENT);
    s.input_at = (uint64_t *)(void *)own;
    return s;
}

static int read_recurrent(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own,
                          uint64_t *scratch) {
    uint32_t cell = op->p[0], units = op->p[1], heads = op->p[2], lanes = op->p[3];
    uint32_t weights = op->p[4], tiles = op->p[5], gates;
    uint64_t inputs, recurrent, width;
    if (cell >= CELLS || !units || units != op->m || !heads || units % heads) return 0;
    if (op->in2 >= m->gates || weights > WEIGHTS_INT8 || (op->p[6] && cell != CELL_ALIF)) return 0;
    if ((lanes != 1 && lanes != 8 && lanes != 16) || !tiles || tiles > units) return 0;
    if (weights == WEIGHTS_INT8 && (op->n > MOST_QUANTISED || units > MOST_QUANTISED)) return 0;
    gates = m->gate[op->in2].size;
    if (!gates) return 0; /* no operation before this one makes them */
    cell_shape shape = surnn_cell_shapes[cell];
    surnn_tile_sizes(lanes, shape.drives, weights, op->n, units / heads, &inputs, &recurrent);
    width = (uint64_t)lanes * shape.drives;
    op->data[0] = array(m, offset[0], times(tiles, inputs + recurrent), 1);
    op->data[1] = array(m, offset[1], times(tiles, (shape.drives + shape.parameters) * lanes), 4);
    op->data[2] = array(m, offset[2], tiles, sizeof(tile_place));
    op->data[3] = array(m, offset[3], (uint64_t)gates + 1, 4);
    if (!op->data[0] || !op->data[1] || !op->data[2] || !op->data[3]) return 0;
    if (weights == WEIGHTS_INT8) {
        op->data[4] = array(m, offset[4], times(tiles, 2 * width), 4);
        op->data[5] = array(m, offset[5], times(tiles, 2 * width), 4);
        if (!op->data[4] || !op->data[5]) return 0;
    }
    if (!check_tiles(op, heads, gates, lanes)) return 0;
    op->macs = (uint64_t)units * shape.drives * ((uint64_t)op->n + units / heads);
    *own = surnn_recurrent_state_size(op);
    *scratch = (uint64_t)shape.components * units * 4 + ALIGNMENT; /* proposals */
    if (weights == WEIGHTS_INT8) {
        uint64_t vectors = round_up(op->n, 64) + heads * round_up(units / heads, 64);
        *scratch += 4 * vectors + round_up((uint64_t)heads * 8, ALIGNMENT);
    }
    return 1;
}

static int read_linear(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *scratch) {
    uint32_t groups = op->p[0], weights = op->p[1];
    if (!groups || op->n % groups || op->m % groups || weights > WEIGHTS_INT8) return 0;
    uint32_t inputs = op->n / groups, outputs = op->m / groups;
    uint64_t tiles = (uint64_t)groups * ((outputs + 15) / 16), bytes, none;
    surnn_tile_sizes(16, 1, weights, inputs, 0, &bytes, &none);
    op->data[0] = array(m, offset[0], times(tiles, bytes), 1);
    if (!op->data[0]) return 0;
    if (offset[1] && !(op->data[1] = array(m, offset[1], op->m, 4))) return 0;
    if (weights == WEIGHTS_INT8) {
        if (inputs > MOST_QUANTISED) return 0;
        op->data[2] = array(m, offset[2], times(tiles, 16), 4);
        op->data[3] = array(m, offset[3], times(tiles, 16), 4);
        if (!op->data[2] || !op->data[3]) return 0;
        *scratch = 4 * round_up(inputs, 64);
    }
    op->macs = (uint64_t)op->m * inputs;
    return 1;
}

static int read_rhythm(surnn_model *m, operation *op, const uint64_t *offset, uint64_t *own,
                       uint64_t *scratch) {
    uint32_t gates = op->p[0], count = op->p[2], known = op->p[3], bins = op->p[4];
    uint64_t wide = round_up(gates, 8);
    int each = op->p[6] != 0;
    if (!count || count > MOST_NUMBERS || bins > MOST_NUMBERS) return 0;
    if ((bins && !op->p[5]) || (each && !bins)) return 0;
    op->data[0] = array(m, offset[0], count, 8);
    op->data[1] = each ? array(m, offset[1], times(gates, count), 8)
                       : array(m, offset[1], times(times(2, count), wide), 8);
    op->data[2] = array(m, offset[2], wide, 8);
    if (!op->data[0] || !op->data[1] || !op->data[2]) return 0;
    if (known && !(op->data[3] = array(m, offset[3], times(known, words_of(gates)), 8))) return 0;
    if (!bins) {
        op->data[4] = array(m, offset[4], times(2 * BLOCK, count), 8);
        if (!op->data[4]) return 0;
    } else {
        op->data[5] = array(m, offset[5], times(each ? gates : 1, (uint64_t)bins + 1), 8);
        if (!op->data[5]) return 0;
    }
    if (each && !(op->data[6] = array(m, offset[6], times(gates, count), 8))) return 0;
    *own = round_up(16 + (uint64_t)BLOCK * words_of(gates) * 8, ALIGNMENT);
    *scratch = plus(times(times(2 * BLOCK, count), 8), times(times(BLOCK, wide), 8)) + ALIGNMENT;
    return 1;
}

/* Gates that an operation makes: their number is known from here on. */
static int makes_gates(surnn_model *m, operation *op) {
    uint32_t gates = op->p[0];
    if (op->out >= m->gates || !gates || gates > MOST_NUMBERS || op->p[1] > gates) return 0;
    if (m->gate[op->out].size) return 0; /* made twice */
    m->gate[op->out].size = gates;
    return 1;
}

static int read_operation(surnn_model *m, operation *op, const uint8_t *record, uint64_t *own,
                          uint64_t *scratch) {
    uint64_t offset[8];
    int is_gate;
    memset(op, 0, sizeof *op);
    op->kind = u32_at(record), op->in = u32_at(record + 4);
    op->in2 = u32_at(record + 8), op->out = u32_at(record + 12);
    for (int i = 0; i < 12; i++) op->p[i] = u32_at(record + 16 + 4 * i);
    for (int i = 0; i < 8; i++) offset[i] = u64_at(record + 64 + 8 * i);
    is_gate = op->kind >= GATE_PERIODIC && op->kind <= GATE_LEVEL;
    if (op->in >= m->buffers) return 0;
    op->n = m->buffer[op->in].size;
    if (is_gate) {
        if (!makes_gates(m, op)) return 0;
    } else {
        if (op->out >= m->buffers || op->out == op->in || op->out == 0) return 0;
        op->m = m->buffer[op->out].size;
    }
    if (op->kind == OP_ADD || op->kind == GATE_ABOVE) {
        if (op->in2 >= m->buffers) return 0;
        op->n2 = m->buffer[op->in2].size;
    }
    switch (op->kind) {
    case OP_EMBED:
        op->data[0] = array(m, offset[0], times(m->input_size, op->m), 4);
        return m->takes_tokens && op->data[0] != NULL;
    case OP_LINEAR: return read_linear(m, op, offset, scratch);
    case OP_NORM:
        op->data[0] = array(m, offset[0], op->m, 4);
        if (offset[1] && !(op->data[1] = array(m, offset[1], op->m, 4))) return 0;
        return op->n == op->m && op->data[0] != NULL;
    case OP_AFFINE:
        op->data[0] = array(m, offset[0], op->m, 4);
        op->data[1] = array(m, offset[1], op->m, 4);
        return op->n == op->m && op->data[0] && op->data[1];
    case OP_GELU:
    case OP_CLEAN: return op->n == op->m;
    case OP_GLU: return op->n == 2 * (uint64_t)op->m && op->p[0] < GLUS;
    case OP_ADD: return op->n == op->m && op->n2 == op->m;
    case OP_MEAN: *own = round_up((uint64_t)op->n * 8 + 8, ALIGNMENT); return op->n == op->m;
    case OP_LEAK:
        op->data[0] = array(m, offset[0], op->m, 4);
        *own = round_up((uint64_t)op->n * 4, ALIGNMENT);
        return op->n == op->m && op->data[0] != NULL;
    case GATE_PERIODIC:
        op->data[0] = array(m, offset[0], times(op->p[2], words_of(op->p[0])), 8);
        return op->p[2] && op->data[0] != NULL;
    case GATE_RHYTHM: return read_rhythm(m, op, offset, own, scratch);
    case GATE_HASH: op->data[0] = array(m, offset[0], 2, 8); return op->data[0] != NULL;
    case GATE_ABOVE: return op->n == op->p[0];
    case GATE_LEVEL: return 1;
    case OP_RECURRENT:
        m->layers++;
        return read_recurrent(m, op, offset, own, scratch);
    default: return 0;
    }
}

/* ---------------------------------------------------------------- whole files */

static surnn_status check_header(const uint8_t *bytes, size_t size) {
    const uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) return SURNN_HOST;
    if (size < 8 || memcmp(bytes, "SURNN\r\n\x1a", 8) != 0) return SURNN_MAGIC;
    if (size < 12 || u32_at(bytes + 8) != FORMAT_VERSION) return size < 12 ? SURNN_TRUNCATED : SURNN_VERSION;
    if (size < HEADER_SIZE || u64_at(bytes + 16) != size) return SURNN_TRUNCATED;
    if (u32_at(bytes + 12) != crc32_of(bytes + 16, size - 16)) return SURNN_CHECKSUM;
    if (u32_at(bytes + 24) > MOST_OPERATIONS || u32_at(bytes + 28) > MOST_OPERATIONS ||
        u32_at(bytes + 32) > MOST_OPERATIONS || !u32_at(bytes + 28))
        return SURNN_FORMAT;
    return SURNN_OK;
}

static size_t room_for(const uint8_t *bytes) {
    size_t operations = u32_at(bytes + 24), vectors = (size_t)u32_at(bytes + 28) + u32_at(bytes + 32);
    return round_up(sizeof(surnn_model), ALIGNMENT) +
           round_up(operations * sizeof(operation), ALIGNMENT) + vectors * sizeof(vector_place);
}

static int read_buffers(surnn_model *m) {
    const uint8_t *sizes = array(m, u64_at(m->bytes + 56), m->buffers, 4);
    if (!sizes) return 0;
    for (uint32_t i = 0; i < m->buffers; i++) {
        m->buffer[i].size = u32_at(sizes + 4 * (size_t)i);
        if (!m->buffer[i].size || m->buffer[i].size > MOST_NUMBERS) return 0;
    }
    return m->output < m->buffers && m->input_size &&
           m->buffer[0].size == (m->takes_tokens ? 1 : m->input_size);
}

/* A place in the stream for `bytes` more. */
static uint64_t lay_out(surnn_model *m, uint64_t bytes) {
    uint64_t offset = m->stream_size;
    m->stream_size = plus(offset, plus(bytes, ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static surnn_status read_model(surnn_model *m) {
    const uint8_t *records = array(m, u64_at(m->bytes + 48), m->operations, RECORD_SIZE);
    if (!records || m->takes_tokens > 1 || !read_buffers(m)) return SURNN_FORMAT;
    m->stream_size = round_up(sizeof(surnn_stream), ALIGNMENT);
    m->versions = lay_out(m, (uint64_t)m->buffers * 8);
    m->seen = lay_out(m, (uint64_t)m->operations * 16);
    for (uint32_t i = 0; i < m->buffers; i++)
        m->buffer[i].offset = lay_out(m, (uint64_t)m->buffer[i].size * 4);
    for (uint32_t i = 0; i < m->operations; i++) {
        uint64_t own = 0, scratch = 0;
        operation *op = &m->op[i];
        if (!read_operation(m, op, records + (size_t)i * RECORD_SIZE, &own, &scratch))
            return SURNN_FORMAT;
        if (own) op->state = lay_out(m, own);
        if (op->kind >= GATE_PERIODIC && op->kind <= GATE_LEVEL)
            m->gate[op->out].offset = lay_out(m, (uint64_t)words_of(op->p[0]) * 8);
        if (scratch > m->scratch_size) m->scratch_size = scratch;
        m->macs += op->macs;
        if (m->stream_size > MOST_STREAM || m->scratch_size > MOST_STREAM) return SURNN_FORMAT;
    }
    m->scratch = lay_out(m, m->scratch_size);
    return m->stream_size > MOST_STREAM ? SURNN_FORMAT : SURNN_OK;
}

surnn_status surnn_place(void *memory, size_t *room, const void *bytes, size_t size,
                         surnn_model **model) {
    surnn_status status;
    const uint8_t *b = bytes;
    if (model) *model = NULL;
    if (!room || !bytes || !model) return SURNN_ARGUMENT;
    if ((uintptr_t)bytes % ALIGNMENT || (uintptr_t)memory % ALIGNMENT) return SURNN_ALIGNMENT;
    if ((status = check_header(b, size)) != SURNN_OK) return status;
    size_t needed = room_for(b);
    if (!memory || *room < needed) {
        *room = needed;
        return SURNN_MEMORY;
    }
    surnn_model *m = memory;
    memset(memory, 0, needed);
    m->bytes = b, m->size = size, m->k = surnn_choose_kernels();
    m->checksum = u32_at(b + 12), m->operations = u32_at(b + 24), m->buffers = u32_at(b + 28);
    m->gates = u32_at(b + 32), m->takes_tokens = u32_at(b + 36), m->input_size = u32_at(b + 40);
    m->output = u32_at(b + 44);
    uint8_t *next = (uint8_t *)memory + round_up(sizeof *m, ALIGNMENT);
    m->op = (operation *)(void *)next;
    m->buffer = (vector_place *)(void *)(next + round_up(m->operations * sizeof(operation), ALIGNMENT));
    m->gate = m->buffer + m->buffers;
    status = read_model(m);
    if (status == SURNN_OK) *model = m;
    return status;
}

/* Memory that begins at a multiple of 64 bytes; the pointer for free() lies just before it. */
static void *aligned_alloc64(size_t size) {
    size_t extra = ALIGNMENT + sizeof(void *);
    uint8_t *whole = size > SIZE_MAX - extra ? NULL : malloc(size + extra);
    if (!whole) return NULL;
    uint8_t *begin = whole + extra;
    begin -= (uintptr_t)begin % ALIGNMENT;
    memcpy(begin - sizeof(void *), &whole, sizeof(void *));
    return begin;
}

static void aligned_free64(void *begin) {
    void *whole;
    if (!begin) return;
    memcpy(&whole, (uint8_t *)begin - sizeof(void *), sizeof(void *));
    free(whole);
}

surnn_status surnn_open(const void *bytes, size_t size, surnn_model **model) {
    size_t room = 0;
    surnn_status status = surnn_place(NULL, &room, bytes, size, model);
    if (status != SURNN_MEMORY) return status;
    void *memory = aligned_alloc64(room);
    if (!memory) return SURNN_MEMORY;
    status = surnn_place(memory, &room, bytes, size, model);
    if (status != SURNN_OK) {
        aligned_free64(memory);
        return status;
    }
    (*model)->owned = 1;
    return SURNN_OK;
}

#ifdef HAS_MMAP
static surnn_status take_file(const char *path, void **bytes, size_t *size) {
    struct stat about;
    int file = open(path, O_RDONLY);
    if (file < 0) return SURNN_FILE;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(file);
        return SURNN_FILE;
    }
    if (about.st_size < 8) {
        close(file);
        return SURNN_MAGIC;
    }
    *size = (size_t)about.st_size;
    *bytes = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return *bytes == MAP_FAILED ? SURNN_MEMORY : SURNN_OK;
}
static void give_file_back(void *bytes, size_t size) { munmap(bytes, size); }
#else
static surnn_status take_file(const char *path, void **bytes, size_t *size) {
    FILE *file = fopen(path, "rb");
    long length;
    if (!file) return SURNN_FILE;
    if (fseek(file, 0, SEEK_END) || (length = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
        fclose(file);
        return SURNN_FILE;
    }
    *size = (size_t)length;
    *bytes = aligned_alloc64(*size);
    size_t got = *bytes ? fread(*bytes, 1, *size, file) : 0;
    fclose(file);
    if (*bytes && got == *size) return SURNN_OK;
    surnn_status status = *bytes ? SURNN_FILE : SURNN_MEMORY;
    aligned_free64(*bytes);
    return status;
}
static void give_file_back(void *bytes, size_t size) {
    (void)size;
    aligned_free64(bytes);
}
#endif

surnn_status surnn_load(const char *path, surnn_model **model) {
    void *bytes;
    size_t size;
    if (model) *model = NULL;
    if (!path || !model) return SURNN_ARGUMENT;
    surnn_status status = take_file(path, &bytes, &size);
    if (status != SURNN_OK) return status;
    status = surnn_open(bytes, size, model);
    if (status != SURNN_OK) {
        give_file_back(bytes, size);
        return status;
    }
    (*model)->mapped = bytes;
    return SURNN_OK;
}

void surnn_free(surnn_model *model) {
    if (!model || !model->owned) return;
    if (model->mapped) give_file_back(model->mapped, model->size);
    aligned_free64(model);
}

void surnn_describe(const surnn_model *m, surnn_info *info) {
    info->takes_tokens = m->takes_tokens;
    info->input_size = m->input_size;
    info->output_size = m->buffer[m->output].size;
    info->layers = m->layers;
    info->stream_size = m->stream_size;
    info->macs_per_step = m->macs;
    info->simd = m->k->name;
}

/* ---------------------------------------------------------------- memory of streams */

surnn_status surnn_stream_place(const surnn_model *model, void *memory, size_t room,
                                surnn_stream **stream) {
    if (!model || !memory || !stream) return SURNN_ARGUMENT;
    if ((uintptr_t)memory % ALIGNMENT) return SURNN_ALIGNMENT;
    if (room < model->stream_size) return SURNN_MEMORY;
    *stream = memory;
    memset(memory, 0, (size_t)model->stream_size);
    (*stream)->magic = STREAM_MAGIC;
    (*stream)->checksum = model->checksum;
    (*stream)->size = model->stream_size;
    return SURNN_OK;
}

surnn_status surnn_stream_new(const surnn_model *model, surnn_stream **stream) {
    if (!model || !stream) return SURNN_ARGUMENT;
    *stream = NULL;
    void *memory = aligned_alloc64((size_t)model->stream_size);
    if (!memory) return SURNN_MEMORY;
    return surnn_stream_place(model, memory, (size_t)model->stream_size, stream);
}

void surnn_stream_free(surnn_stream *stream) { aligned_free64(stream); }
