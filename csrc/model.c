/* Decoding of models. */
#include "read.h"

#include <string.h>

const char *surnn_message(surnn_status status) {
    switch (status) {
    case SURNN_OK: return "no error";
    case SURNN_ARGUMENT:
        return "an argument is NULL, out of range, or of the wrong kind (tokens or frames)";
    case SURNN_FILE: return "the file cannot be opened or read";
    case SURNN_MAGIC: return "this is not a surnn engine file; make one with surnn.export.to_engine";
    case SURNN_VERSION: return "the file has another version of the format; export the model again";
    case SURNN_TRUNCATED:
        return "the file's length differs from its header: it was cut off or added to";
    case SURNN_CHECKSUM: return "the file is damaged: its checksum is wrong; copy or export it again";
    case SURNN_FORMAT: return "the file's contents contradict each other; export the model again";
    case SURNN_ALIGNMENT: return "memory for the engine must begin at a multiple of 64 bytes";
    case SURNN_MEMORY: return "not enough memory";
    case SURNN_HOST: return "the engine needs a little-endian machine";
    case SURNN_STATE: return "the saved stream belongs to another model, or is damaged";
    case SURNN_CLOCK: return "the clock counts from 0 to 2^50 time steps, and cannot pass either end";
    case SURNN_BUSY: return "another thread is using this stream; give each thread its own";
    case SURNN_LIMIT:
        return "a stream of this model needs more memory than its file's size justifies; if you "
               "trust the file, allow more (max_memory)";
    }
    return "unknown status";
}

/* ---------------------------------------------------------------- decoding */

static surnn_status check_header(const uint8_t *bytes, size_t size) {
    const uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) return SURNN_HOST;
    if (size < 8 || memcmp(bytes, "SURNN\r\n\x1a", 8) != 0) return SURNN_MAGIC;
    if (size < 12) return SURNN_TRUNCATED;
    if (!u32_at(bytes + 8) || u32_at(bytes + 8) > NEWEST_VERSION) return SURNN_VERSION;
    if (size < HEADER_SIZE || u64_at(bytes + 16) != size) return SURNN_TRUNCATED;
    if (u32_at(bytes + 12) != surnn_crc32(bytes + 16, size - 16)) return SURNN_CHECKSUM;
    if (u32_at(bytes + 24) > MAX_OPERATIONS || u32_at(bytes + 28) > MAX_OPERATIONS ||
        u32_at(bytes + 32) > MAX_OPERATIONS || !u32_at(bytes + 28))
        return SURNN_FORMAT;
    /* Records and sizes lie in the file, and an operation writes at most one set of gates. */
    if (u32_at(bytes + 24) > size / RECORD_SIZE || u32_at(bytes + 28) > size / 4 ||
        u32_at(bytes + 32) > u32_at(bytes + 24))
        return SURNN_FORMAT;
    return SURNN_OK;
}

/* Bytes of memory that a model needs. */
static size_t model_size(const uint8_t *bytes) {
    size_t operations = u32_at(bytes + 24), vectors = (size_t)u32_at(bytes + 28) + u32_at(bytes + 32);
    return round_up(sizeof(surnn_model), ALIGNMENT) +
           round_up(operations * sizeof(operation), ALIGNMENT) + vectors * sizeof(vector_place);
}

static int read_vectors(surnn_model *m) {
    const uint8_t *sizes = surnn_array(m, u64_at(m->bytes + 56), m->vector_count, 4);
    if (!sizes) return 0;
    for (uint32_t i = 0; i < m->vector_count; i++) {
        m->vectors[i].size = u32_at(sizes + 4 * (size_t)i);
        if (!m->vectors[i].size || m->vectors[i].size > MAX_LENGTH) return 0;
    }
    return m->output < m->vector_count && m->input_size &&
           m->vectors[0].size == (m->takes_tokens ? 1 : m->input_size);
}

/* Append `bytes` to a layout, and return their offset. */
static uint64_t reserve(uint64_t *layout, uint64_t bytes) {
    uint64_t offset = *layout;
    *layout = plus(offset, plus(bytes, ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static int read_operations(surnn_model *m) {
    const uint8_t *records = surnn_array(m, u64_at(m->bytes + 48), m->operation_count, RECORD_SIZE);
    if (!records) return 0;
    for (uint32_t i = 0; i < m->operation_count; i++) {
        operation *op = &m->operations[i];
        if (!surnn_read_operation(m, op, records + (size_t)i * RECORD_SIZE)) return 0;
        if (op->state_size) op->state_offset = reserve(&m->state_size, op->state_size);
        m->scratch_size = larger(m->scratch_size, op->scratch_size);
        m->shared_scratch_size = larger(m->shared_scratch_size, op->shared_scratch_size);
        m->macs += op->macs;
    }
    return surnn_is_written(m, m->output);
}

/* The order is that of the comment at struct surnn_stream. */
static surnn_status read_model(surnn_model *m, uint64_t max_memory) {
    if (m->takes_tokens > 1 || !read_vectors(m)) return SURNN_FORMAT;
    m->state_size = round_up(sizeof(surnn_stream), ALIGNMENT);
    m->inputs_seen = reserve(&m->state_size, (uint64_t)m->operation_count * 16);
    if (!read_operations(m)) return SURNN_FORMAT;
    m->versions = reserve(&m->state_size, (uint64_t)m->vector_count * 8);
    for (uint32_t i = 0; i < m->vector_count; i++)
        m->vectors[i].offset = reserve(&m->state_size, (uint64_t)m->vectors[i].size * 4);
    for (uint32_t i = 0; i < m->gate_set_count; i++)
        m->gate_sets[i].offset = reserve(&m->state_size, (uint64_t)words_of(m->gate_sets[i].size) * 8);
    m->frame_size = m->state_size - m->versions;
    reserve(&m->scratch, times(CHUNK - 1, m->frame_size)); /* the later frames */
    m->own_workspace = m->shared_workspace = m->scratch;
    reserve(&m->own_workspace, m->scratch_size);
    if (!m->own_workspace) m->own_workspace = ALIGNMENT; /* a stream without one is smaller */
    reserve(&m->shared_workspace, larger(m->scratch_size, m->shared_scratch_size));
    reserve(&m->shared_workspace, WORKSPACE_HEAD);
    return plus(m->state_size, larger(m->own_workspace, m->shared_workspace)) > max_memory
               ? SURNN_LIMIT
               : SURNN_OK;
}

static uint64_t memory_limit(size_t file_size) {
    uint64_t limit = plus(MEMORY_OF_ANY_FILE, times(file_size, MEMORY_PER_FILE_BYTE));
    return limit < MAX_MEMORY ? limit : MAX_MEMORY;
}

static surnn_status place(void *memory, size_t *room, const void *bytes, size_t size,
                          uint64_t max_memory, surnn_model **model) {
    surnn_status status;
    const uint8_t *header = bytes;
    if (model) *model = NULL;
    if (!room || !bytes || !model) return SURNN_ARGUMENT;
    if ((uintptr_t)bytes % ALIGNMENT || (uintptr_t)memory % ALIGNMENT) return SURNN_ALIGNMENT;
    if ((status = check_header(header, size)) != SURNN_OK) return status;
    size_t needed = model_size(header);
    if (!memory || *room < needed) {
        *room = needed;
        return SURNN_MEMORY;
    }
    surnn_model *m = memory;
    memset(memory, 0, needed);
    m->bytes = bytes, m->size = size, m->k = surnn_choose_kernels();
    m->checksum = u32_at(header + 12), m->version = u32_at(header + 8);
    m->operation_count = u32_at(header + 24);
    m->vector_count = u32_at(header + 28);
    m->gate_set_count = u32_at(header + 32);
    m->takes_tokens = u32_at(header + 36);
    m->input_size = u32_at(header + 40);
    m->output = u32_at(header + 44);
    uint8_t *next = (uint8_t *)memory + round_up(sizeof *m, ALIGNMENT);
    m->operations = (operation *)(void *)next;
    next += round_up(m->operation_count * sizeof(operation), ALIGNMENT);
    m->vectors = (vector_place *)(void *)next;
    m->gate_sets = m->vectors + m->vector_count;
    status = read_model(m, max_memory ? max_memory : memory_limit(size));
    if (status == SURNN_OK) *model = m;
    return status;
}

surnn_status surnn_place(void *memory, size_t *room, const void *bytes, size_t size,
                         surnn_model **model) {
    return place(memory, room, bytes, size, 0, model);
}

#if !SURNN_NO_MALLOC
surnn_status surnn_open_with(const void *bytes, size_t size, const surnn_options *options,
                             surnn_model **model) {
    uint64_t max_memory = options ? options->max_memory : 0;
    size_t room = 0;
    surnn_status status = place(NULL, &room, bytes, size, max_memory, model);
    if (status != SURNN_MEMORY) return status;
    void *memory = surnn_allocate(room);
    if (!memory) return SURNN_MEMORY;
    status = place(memory, &room, bytes, size, max_memory, model);
    if (status != SURNN_OK) {
        surnn_release(memory);
        return status;
    }
    (*model)->owned = 1;
    return SURNN_OK;
}

surnn_status surnn_open(const void *bytes, size_t size, surnn_model **model) {
    return surnn_open_with(bytes, size, NULL, model);
}
#endif

void surnn_describe(const surnn_model *m, surnn_info *info) {
    info->takes_tokens = m->takes_tokens;
    info->input_size = m->input_size;
    info->output_size = m->vectors[m->output].size;
    info->layers = m->layers;
    info->stream_size = m->state_size + m->own_workspace;
    info->saved_size = info->state_size = m->state_size;
    info->workspace_size = m->shared_workspace;
    info->macs_per_step = m->macs;
    info->simd = m->k->name;
}
