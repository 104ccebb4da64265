/* Recurrent layers: a time step multiplies only the weights of open units. */
#include "recurrent.h"

static void begin_stream(const layer_step *st, layer_stream *stream, surnn_stream *s) {
    const struct recurrent *layer = st->layer;
    const operation *op = st->op;
    uint8_t *state = stream_at(s, op->state_offset);
    stream->s = s;
    stream->x = vector_of(st->m, s, op->in), stream->h = vector_of(st->m, s, op->out);
    stream->other_components = (float *)(void *)(state + layer->state.other_components);
    stream->multiplied[INPUT_PART] = stream->multiplied[RECURRENT_PART] = 0;
    if (!SURNN_KEEP_SUMS) return;
    stream->input_sums = (float *)(void *)(state + layer->state.input_sums);
    stream->input_version = versions_at(st->m, s, s->frame)[op->in];
    uint64_t *version = (uint64_t *)(void *)(state + layer->state.current);
    stream->current = version + 1;
    if (*version != stream->input_version)
        memset(stream->current, 0, (layer->tiles + 63) / 64 * 8);
    *version = stream->input_version;
}

static void count_work(const layer_step *st, const layer_stream *stream) {
    stream->s->updates += stream->multiplied[RECURRENT_PART];
    for (int part = 0; part < 2; part++)
        stream->s->macs_done += stream->multiplied[part] * st->layer->products * input_count(st, part);
}

static void begin_quantised(layer_stream *stream, const struct recurrent *layer, uint8_t *vectors,
                            uint8_t *numbers, size_t index) {
    size_t heads = quantised_heads(layer);
    stream->quantised = (quantised_vector *)(void *)vectors + index * (1 + heads);
    stream->numbers = numbers + index * layer->scratch.numbers_size;
    stream->quantised_head = 0;
    for (size_t i = 0; i <= heads; i++) stream->quantised[i].q = NULL;
}

static void begin_interleaved(layer_step *st, uint8_t *memory) {
    const struct recurrent *layer = st->layer;
    size_t vectors = GROUPS * (1 + layer->heads);
    st->interleaved = (interleaved_vectors *)(void *)(memory + layer->scratch.interleaved);
    st->interleaved_numbers = (uint8_t *)(st->interleaved + vectors);
    for (size_t i = 0; i < vectors; i++) st->interleaved[i].high = NULL;
}

/* All streams use the scratch memory of the first. */
static inline void begin_layer(layer_step *st, layer_stream *parts, const surnn_model *m,
                               surnn_stream *const *streams, const int count, const operation *op) {
    const struct recurrent *layer = &op->as.recurrent;
    const recurrent_scratch *scratch = &layer->scratch;
    uint8_t *memory = scratch_of(m, streams[0]);
    size_t times = (size_t)count;
    st->m = m, st->op = op, st->layer = layer, st->stream = parts, st->count = count, st->open_count = 0;
    st->recurrent_sums = (float *)(void *)(memory + times * scratch->recurrent_sums);
    st->input_sums = (float *)(void *)(memory + times * scratch->input_sums);
    st->next = (float *)(void *)(memory + times * scratch->next);
    st->open = (uint32_t *)(void *)(memory + times * scratch->open);
    st->open_frames = NULL, st->projections = NULL;
    if (layer->projects_chunks && streams[0]->frames > 1) {
        st->open_frames = (uint32_t *)(void *)(memory + scratch->open_frames);
        st->projections = (float *)(void *)(memory + scratch->projections);
    }
    if (layer->scratch.interleaved_size && count >= PACKET) begin_interleaved(st, memory);
    for (int i = 0; i < count; i++) {
        begin_stream(st, &st->stream[i], streams[i]);
        if (is_int8(layer->weight_type))
            begin_quantised(&st->stream[i], layer, memory + times * scratch->quantised,
                            memory + times * scratch->numbers, (size_t)i);
    }
}

void surnn_quantise_input(const layer_step *st, layer_stream *stream, int part, uint32_t head,
                          quantised_vector *v) {
    size_t n = input_count(st, part);
    uint8_t *numbers = stream->numbers;
    size_t place = st->layer->lanes == 1 ? head : 0;
    if (part == RECURRENT_PART) numbers += quantised_size(st->op->n) + place * quantised_size(n);
    quantise(st->m, v, st->layer->weight_type, input_of(st, stream, part, head), n, numbers);
}

/* ---------------------------------------------------------------- a time step */

/* Lists the tiles whose gate is open. opened[i]: whether any is, in stream i. */
static inline void find_open_tiles(layer_step *st, int *opened, const int count) {
    const uint32_t *first = st->layer->first_tile, words = words_of(st->op->gates);
    const uint64_t *mask[TOGETHER];
    uint32_t *open = st->open;
    for (int i = 0; i < count; i++)
        mask[i] = mask_of(st->m, st->stream[i].s, st->op->in2), opened[i] = 0;
    for (uint32_t word = 0; word < words; word++) {
        uint64_t any = 0;
        for (int i = 0; i < count; i++) any |= mask[i][word], opened[i] |= mask[i][word] != 0;
        for (; any; any &= any - 1) {
            uint32_t bit = lowest_bit(any), gate = word * 64 + bit, streams = 0;
            for (int i = 0; i < count; i++) streams |= (uint32_t)(mask[i][word] >> bit & 1) << i;
            for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++)
                for (uint32_t left = streams; left; left &= left - 1)
                    *open++ = tile * TOGETHER + lowest_bit(left);
        }
    }
    st->open_count = (size_t)(open - st->open);
}

/* Spiking units whose gate is closed emit nothing, and their adaptation may decay. Returns whether an
 * output changed; 0 for other cells. */
static int carry_spikes(const layer_step *st, const layer_stream *stream) {
    const struct recurrent *layer = st->layer;
    if (layer->cell < CELL_LIF) return 0;
    const uint64_t *mask = mask_of(st->m, stream->s, st->op->in2);
    float *adaptation = layer->adapts_while_closed ? state_component(st, stream, 2) : NULL;
    int changed = 0;
    for (size_t i = 0; i < layer->tiles; i++) {
        const tile_place place = layer->places[i];
        const float *rho = tile_biases(st, i) + 2 * layer->lanes; /* after the bias and alpha */
        if (is_open(mask, place.gate)) continue;
        for (uint32_t u = 0; u < place.count; u++) {
            changed |= stream->h[place.first + u] != 0.0f;
            stream->h[place.first + u] = 0.0f;
            if (adaptation) adaptation[place.first + u] *= rho[u];
        }
    }
    return changed;
}

/* `count` is a constant for one stream, so that compilers leave the loops over streams out. */
static inline void run(const surnn_model *m, layer_stream *parts, surnn_stream *const *streams,
                       const int count, const operation *op, int *changed) {
    layer_step st;
    begin_layer(&st, parts, m, streams, count, op);
    find_open_tiles(&st, changed, count);
    if (st.layer->lanes == 1) surnn_update_units(&st);
    else surnn_update_tiles(&st);
    for (int i = 0; i < count; i++) {
        changed[i] |= carry_spikes(&st, &st.stream[i]);
        count_work(&st, &st.stream[i]);
    }
}

int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op) {
    layer_stream part;
    int changed;
    run(m, &part, &s, 1, op, &changed);
    return changed;
}

void surnn_run_recurrent_together(const surnn_model *m, surnn_stream *const *streams, int count,
                                  const operation *op, int *changed) {
    layer_stream parts[TOGETHER];
    run(m, parts, streams, count, op, changed);
}

/* ---------------------------------------------------------------- the input products of a chunk */

/* Bit j of open_frames[gate]: the gate is open at frame j. */
static void find_open_frames(const layer_step *st, surnn_stream *s, uint32_t frames) {
    uint32_t gates = st->op->gates;
    memset(st->open_frames, 0, gates * sizeof *st->open_frames);
    for (uint32_t j = 0; j < frames; j++)
        for (uint32_t word = 0; word < words_of(gates); word++)
            for (uint64_t bits = mask_at(st->m, s, st->op->in2, j)[word]; bits; bits &= bits - 1)
                st->open_frames[word * 64 + lowest_bit(bits)] |= (uint32_t)1 << j;
}

/* Lists the frames at which a tile is open and its input differs from the one it used last. */
static int frames_to_project(const layer_step *st, size_t tile, uint32_t open_frames,
                             uint32_t *frames) {
    const layer_stream *stream = &st->stream[0];
    uint64_t last = stream->current[tile / 64] >> (tile % 64) & 1 ? stream->input_version : 0;
    int count = 0;
    for (uint32_t bits = open_frames; bits; bits &= bits - 1) {
        uint32_t j = lowest_bit(bits);
        uint64_t version = versions_at(st->m, stream->s, j)[st->op->in];
        if (version == last) continue;
        last = version;
        frames[count++] = j;
    }
    return count;
}

static void project_tile(layer_step *st, size_t tile, const uint32_t *frames, int count) {
    const struct recurrent *layer = st->layer;
    layer_stream *stream = &st->stream[0];
    const float *x[CHUNK], *w = (const float *)(const void *)tile_weights(st, tile, INPUT_PART);
    float *sum[CHUNK];
    for (int i = 0; i < count; i++) {
        x[i] = vector_at(st->m, stream->s, st->op->in, frames[i]);
        sum[i] = st->projections + (frames[i] * layer->tiles + tile) * layer->width;
    }
    st->m->k->tiles(sum, w, x, st->op->n, (int)layer->products, (int)layer->lanes, count);
    stream->multiplied[INPUT_PART] += (uint64_t)count * layer->places[tile].count;
}

void surnn_project_inputs(const surnn_model *m, surnn_stream *s, const operation *op,
                          uint32_t frames) {
    const uint32_t *first = op->as.recurrent.first_tile;
    uint32_t selection[CHUNK];
    layer_step st;
    layer_stream part;
    if (!op->as.recurrent.projects_chunks) return;
    begin_layer(&st, &part, m, &s, 1, op);
    find_open_frames(&st, s, frames);
    for (uint32_t gate = 0; gate < op->gates; gate++) {
        if (!st.open_frames[gate]) continue;
        for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++) {
            int count = frames_to_project(&st, tile, st.open_frames[gate], selection);
            if (count) project_tile(&st, tile, selection, count);
        }
    }
    count_work(&st, &st.stream[0]);
}
