/* Models from files, and the engine's memory. */
#define _POSIX_C_SOURCE 200809L
#include "model.h"

#if !SURNN_NO_MALLOC

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#define HAS_MMAP 1
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#define LARGE_FILE ((uint64_t)1 << 26) /* from here on, files are mapped unless the caller objects */

/* The pointer for free() is stored just before the memory. */
void *surnn_allocate(size_t size) {
    size_t extra = ALIGNMENT + sizeof(void *);
    uint8_t *block = size > SIZE_MAX - extra ? NULL : malloc(size + extra);
    if (!block) return NULL;
    uint8_t *begin = block + extra;
    begin -= (uintptr_t)begin % ALIGNMENT;
    memcpy(begin - sizeof(void *), &block, sizeof(void *));
    return begin;
}

void surnn_release(void *memory) {
    void *block;
    if (!memory) return;
    memcpy(&block, (uint8_t *)memory - sizeof(void *), sizeof(void *));
    free(block);
}

typedef struct file_memory {
    void *bytes;
    size_t size;
    int mapped; /* 1: unmap it; 0: release it */
} file_memory;

#ifdef HAS_MMAP
/* Reads exactly `size` bytes. A file that ends before was cut off meanwhile. */
static surnn_status copy_file(int file, void *bytes, size_t size) {
    uint8_t *to = bytes;
    while (size) {
        ssize_t count = read(file, to, size < (1u << 30) ? size : 1u << 30);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return SURNN_FILE;
        if (count == 0) return SURNN_TRUNCATED;
        to += count, size -= (size_t)count;
    }
    return SURNN_OK;
}

static surnn_status read_open_file(int file, surnn_mapping mapping, file_memory *memory) {
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) return SURNN_FILE;
    if (info.st_size < 8) return SURNN_MAGIC;
    memory->size = (size_t)info.st_size;
    memory->mapped = mapping == SURNN_MAP_ALWAYS ||
                     (mapping == SURNN_MAP_LARGE && memory->size >= LARGE_FILE);
    if (memory->mapped) {
        memory->bytes = mmap(NULL, memory->size, PROT_READ, MAP_PRIVATE, file, 0);
        return memory->bytes == MAP_FAILED ? SURNN_MEMORY : SURNN_OK;
    }
    memory->bytes = surnn_allocate(memory->size);
    if (!memory->bytes) return SURNN_MEMORY;
    surnn_status status = copy_file(file, memory->bytes, memory->size);
    if (status != SURNN_OK) surnn_release(memory->bytes);
    return status;
}

/* O_NONBLOCK: a pipe without a writer is refused instead of waited for. */
static surnn_status read_file(const char *path, surnn_mapping mapping, file_memory *memory) {
    int file = open(path, O_RDONLY | O_NONBLOCK);
    if (file < 0) return SURNN_FILE;
    surnn_status status = read_open_file(file, mapping, memory);
    close(file);
    return status;
}

static void release_file(const file_memory *memory) {
    if (memory->mapped) munmap(memory->bytes, memory->size);
    else surnn_release(memory->bytes);
}
#else
static surnn_status read_file(const char *path, surnn_mapping mapping, file_memory *memory) {
    FILE *file = fopen(path, "rb");
    long length;
    (void)mapping;
    if (!file) return SURNN_FILE;
    if (fseek(file, 0, SEEK_END) || (length = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
        fclose(file);
        return SURNN_FILE;
    }
    memory->size = (size_t)length, memory->mapped = 0;
    memory->bytes = surnn_allocate(memory->size);
    size_t count = memory->bytes ? fread(memory->bytes, 1, memory->size, file) : 0;
    fclose(file);
    if (memory->bytes && count == memory->size) return SURNN_OK;
    surnn_status status = memory->bytes ? SURNN_FILE : SURNN_MEMORY;
    surnn_release(memory->bytes);
    return status;
}

static void release_file(const file_memory *memory) { surnn_release(memory->bytes); }
#endif

surnn_status surnn_load_with(const char *path, const surnn_options *options, surnn_model **model) {
    file_memory memory;
    if (model) *model = NULL;
    if (!path || !model) return SURNN_ARGUMENT;
    surnn_status status = read_file(path, options ? options->mapping : SURNN_MAP_LARGE, &memory);
    if (status != SURNN_OK) return status;
    status = surnn_open_with(memory.bytes, memory.size, options, model);
    if (status != SURNN_OK) {
        release_file(&memory);
        return status;
    }
    if (memory.mapped) (*model)->mapped = memory.bytes;
    else (*model)->copied = memory.bytes;
    return SURNN_OK;
}

surnn_status surnn_load(const char *path, surnn_model **model) {
    return surnn_load_with(path, NULL, model);
}

void surnn_free(surnn_model *model) {
    if (!model || !model->owned) return;
    const file_memory memory = {model->mapped ? model->mapped : model->copied, model->size,
                                model->mapped != NULL};
    release_file(&memory);
    surnn_release(model);
}
#else
typedef int nothing_here;
#endif
