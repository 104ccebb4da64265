/* Models: a file in memory, checked as a whole; and memory for streams. */
#define _POSIX_C_SOURCE 200809L
#include "read.h"

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
    const uint8_t *sizes = surnn_array(m, u64_at(m->bytes + 56), m->buffers, 4);
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
    const uint8_t *records = surnn_array(m, u64_at(m->bytes + 48), m->operations, RECORD_SIZE);
    if (!records || m->takes_tokens > 1 || !read_buffers(m)) return SURNN_FORMAT;
    m->stream_size = round_up(sizeof(surnn_stream), ALIGNMENT);
    m->seen = lay_out(m, (uint64_t)m->operations * 16);
    for (uint32_t i = 0; i < m->operations; i++) {
        uint64_t own = 0, scratch = 0;
        operation *op = &m->op[i];
        if (!surnn_read_operation(m, op, records + (size_t)i * RECORD_SIZE, &own, &scratch))
            return SURNN_FORMAT;
        if (own) op->state = lay_out(m, own);
        if (scratch > m->scratch_size) m->scratch_size = scratch;
        m->macs += op->macs;
    }
    if (!surnn_is_written(m, m->output)) return SURNN_FORMAT;
    m->versions = lay_out(m, (uint64_t)m->buffers * 8);
    for (uint32_t i = 0; i < m->buffers; i++)
        m->buffer[i].offset = lay_out(m, (uint64_t)m->buffer[i].size * 4);
    for (uint32_t i = 0; i < m->gates; i++)
        m->gate[i].offset = lay_out(m, (uint64_t)words_of(m->gate[i].size) * 8);
    m->saved_size = m->stream_size;
    m->frame_size = m->stream_size - m->versions;
    m->scratch = lay_out(m, m->scratch_size);
    m->more_frames = lay_out(m, times(CHUNK - 1, m->frame_size));
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
    info->saved_size = m->saved_size;
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
