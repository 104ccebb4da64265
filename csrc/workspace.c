/* The memory of streams and workspaces, and who uses it. */
#include "model.h"

#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

/* Whether the flag was free; it is taken then. */
static int take(uint32_t *busy) {
#if defined(__GNUC__)
    return __atomic_exchange_n(busy, 1, __ATOMIC_ACQUIRE) == 0;
#elif defined(_MSC_VER)
    return _InterlockedExchange((volatile long *)busy, 1) == 0;
#else
    uint32_t before = *busy;
    *busy = 1;
    return before == 0;
#endif
}

static void give_back(uint32_t *busy) {
#if defined(__GNUC__)
    __atomic_store_n(busy, 0, __ATOMIC_RELEASE);
#elif defined(_MSC_VER)
    _InterlockedExchange((volatile long *)busy, 0);
#else
    *busy = 0;
#endif
}

/* ---------------------------------------------------------------- streams */

static uint64_t size_with_workspace(const surnn_model *m) { return m->state_size + m->own_workspace; }

surnn_status surnn_enter(const surnn_model *m, surnn_stream *s, surnn_workspace *workspace) {
    if (!m || !s) return SURNN_ARGUMENT;
    if (s->magic != STREAM_MAGIC || s->checksum != m->checksum) return SURNN_STATE;
    if (s->size != m->state_size && s->size != size_with_workspace(m)) return SURNN_STATE;
    if (!take(&s->busy)) return SURNN_BUSY;
    if (workspace) s->workspace = (uint8_t *)workspace + WORKSPACE_HEAD;
    else if (s->size != m->state_size) s->workspace = stream_at(s, m->state_size);
    return SURNN_OK;
}

void surnn_leave(surnn_stream *s) {
    s->workspace = NULL;
    give_back(&s->busy);
}

static surnn_status place_stream(const surnn_model *model, void *memory, size_t room, uint64_t size,
                                 surnn_stream **stream) {
    if (!model || !memory || !stream) return SURNN_ARGUMENT;
    if ((uintptr_t)memory % ALIGNMENT) return SURNN_ALIGNMENT;
    if (room < size) return SURNN_MEMORY;
    memset(memory, 0, (size_t)size);
    *stream = memory;
    (*stream)->magic = STREAM_MAGIC;
    (*stream)->checksum = model->checksum;
    (*stream)->size = size;
    return SURNN_OK;
}

#if !SURNN_NO_MALLOC
static surnn_status new_stream(const surnn_model *model, uint64_t size, surnn_stream **stream) {
    *stream = NULL;
    void *memory = surnn_allocate((size_t)size);
    if (!memory) return SURNN_MEMORY;
    return place_stream(model, memory, (size_t)size, size, stream);
}
#endif

surnn_status surnn_stream_place(const surnn_model *model, void *memory, size_t room,
                                surnn_stream **stream) {
    uint64_t size = model ? size_with_workspace(model) : 0;
    return place_stream(model, memory, room, size, stream);
}

#if !SURNN_NO_MALLOC
surnn_status surnn_stream_new(const surnn_model *model, surnn_stream **stream) {
    if (!model || !stream) return SURNN_ARGUMENT;
    return new_stream(model, size_with_workspace(model), stream);
}
#endif

surnn_status surnn_state_place(const surnn_model *model, void *memory, size_t room,
                               surnn_stream **stream) {
    return place_stream(model, memory, room, model ? model->state_size : 0, stream);
}

#if !SURNN_NO_MALLOC
surnn_status surnn_state_new(const surnn_model *model, surnn_stream **stream) {
    if (!model || !stream) return SURNN_ARGUMENT;
    return new_stream(model, model->state_size, stream);
}

void surnn_stream_free(surnn_stream *stream) { surnn_release(stream); }
#endif

/* ---------------------------------------------------------------- workspaces */

surnn_status surnn_enter_workspace(const surnn_model *m, surnn_workspace *workspace) {
    if (!m || !workspace) return SURNN_ARGUMENT;
    if (workspace->magic != WORKSPACE_MAGIC || workspace->checksum != m->checksum) return SURNN_STATE;
    if (workspace->size != m->shared_workspace) return SURNN_STATE;
    return take(&workspace->busy) ? SURNN_OK : SURNN_BUSY;
}

void surnn_leave_workspace(surnn_workspace *workspace) { give_back(&workspace->busy); }

surnn_status surnn_workspace_place(const surnn_model *model, void *memory, size_t room,
                                   surnn_workspace **workspace) {
    if (!model || !memory || !workspace) return SURNN_ARGUMENT;
    if ((uintptr_t)memory % ALIGNMENT) return SURNN_ALIGNMENT;
    if (room < model->shared_workspace) return SURNN_MEMORY;
    memset(memory, 0, (size_t)model->shared_workspace);
    *workspace = memory;
    (*workspace)->magic = WORKSPACE_MAGIC;
    (*workspace)->checksum = model->checksum;
    (*workspace)->size = model->shared_workspace;
    return SURNN_OK;
}

#if !SURNN_NO_MALLOC
surnn_status surnn_workspace_new(const surnn_model *model, surnn_workspace **workspace) {
    if (!model || !workspace) return SURNN_ARGUMENT;
    *workspace = NULL;
    void *memory = surnn_allocate((size_t)model->shared_workspace);
    if (!memory) return SURNN_MEMORY;
    return surnn_workspace_place(model, memory, (size_t)model->shared_workspace, workspace);
}

void surnn_workspace_free(surnn_workspace *workspace) { surnn_release(workspace); }
#endif
