/* Recurrent layers: a time step multiplies only the weights of open units. */
#include "recurrent.h"

void surnn_begin_layer(layer_step *st, const surnn_model *m, surnn_stream *s, const operation *op,
                       uint8_t *scratch) {
    const struct recurrent *layer = &op->as.recurrent;
    uint8_t *state = stream_at(s, op->state_offset);
    st->open_frames = NULL, st->projections = NULL, st->quantised = NULL, st->numbers = NULL;
    st->m = m, st->s = s, st->op = op, st->layer = layer;
    st->x = vector_of(m, s, op->in), st->h = vector_of(m, s, op->out);
    st->other_components = (float *)(void *)(state + layer->state.other_components);
    st->input_sums = (float *)(void *)(state + layer->state.input_sums);
    st->input_version = versions_at(m, s, s->frame)[op->in];
    uint64_t *version = (uint64_t *)(void *)(state + layer->state.current);
    st->current = version + 1;
    if (*version != st->input_version) memset(st->current, 0, (layer->tiles + 63) / 64 * 8);
    *version = st->input_version;
    st->recurrent_sums = (float *)(void *)(scratch + layer->scratch.recurrent_sums);
    st->open = (uint32_t *)(void *)(scratch + layer->scratch.open);
    if (layer->projects_chunks && s->frames > 1) {
        st->open_frames = (uint32_t *)(void *)(scratch + layer->scratch.open_frames);
        st->projections = (float *)(void *)(scratch + layer->scratch.projections);
    }
    if (!is_int8(layer->weight_type)) return;
    st->quantised = (quantised_vector *)(void *)(scratch + layer->scratch.quantised);
    for (size_t i = 0; i <= layer->heads; i++) st->quantised[i].q = NULL;
    st->numbers = scratch + layer->scratch.numbers;
}

/* ---------------------------------------------------------------- a time step */

/* Lists the tiles whose gate is open. Returns their number. */
static size_t find_open_tiles(layer_step *st) {
    const uint64_t *mask = mask_of(st->m, st->s, st->op->in2);
    const uint32_t *first = st->layer->first_tile, words = words_of(st->op->gates);
    size_t open = 0;
    for (uint32_t word = 0; word < words; word++)
        for (uint64_t bits = mask[word]; bits; bits &= bits - 1) {
            uint32_t gate = word * 64 + lowest_bit(bits);
            for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++) {
                st->open[open++] = tile;
                st->s->updates += st->layer->places[tile].count;
            }
        }
    return open;
}

int surnn_carry_spikes(layer_step *st) {
    const struct recurrent *layer = st->layer;
    if (layer->cell < CELL_LIF) return 0;
    const uint64_t *mask = mask_of(st->m, st->s, st->op->in2);
    float *adaptation = layer->adapts_while_closed ? state_component(st, 2) : NULL;
    int changed = 0;
    for (size_t i = 0; i < layer->tiles; i++) {
        const tile_place place = layer->places[i];
        const float *rho = tile_biases(st, i) + 2 * layer->lanes; /* after the bias and alpha */
        if (is_open(mask, place.gate)) continue;
        for (uint32_t u = 0; u < place.count; u++) {
            changed |= st->h[place.first + u] != 0.0f;
            st->h[place.first + u] = 0.0f;
            if (adaptation) adaptation[place.first + u] *= rho[u];
        }
    }
    return changed;
}

/* All products come before all updates: weights are read without a pause, and no unit needs the state
 * of another once that has been updated. */
int surnn_run_recurrent(const surnn_model *m, surnn_stream *s, const operation *op) {
    layer_step st;
    surnn_begin_layer(&st, m, s, op, scratch_of(m, s));
    int single_units = st.layer->lanes == 1;
    size_t open = find_open_tiles(&st);
    if (single_units) surnn_multiply_units(&st, open);
    else surnn_multiply_tiles(&st, open);
    int changed = surnn_carry_spikes(&st);
    if (single_units) surnn_update_units(&st, open);
    else surnn_update_tiles(&st, open);
    return changed || open;
}

/* ---------------------------------------------------------------- the input products of a chunk */

/* Bit j of open_frames[gate]: the gate is open at frame j. */
static void find_open_frames(layer_step *st, uint32_t frames) {
    uint32_t gates = st->op->gates;
    memset(st->open_frames, 0, gates * sizeof *st->open_frames);
    for (uint32_t j = 0; j < frames; j++)
        for (uint32_t word = 0; word < words_of(gates); word++)
            for (uint64_t bits = mask_at(st->m, st->s, st->op->in2, j)[word]; bits; bits &= bits - 1)
                st->open_frames[word * 64 + lowest_bit(bits)] |= (uint32_t)1 << j;
}

/* Lists the frames at which a tile is open and its input differs from the one it used last. */
static int frames_to_project(layer_step *st, size_t tile, uint32_t open_frames, uint32_t *frames) {
    uint64_t last = st->current[tile / 64] >> (tile % 64) & 1 ? st->input_version : 0;
    int count = 0;
    for (uint32_t bits = open_frames; bits; bits &= bits - 1) {
        uint32_t j = lowest_bit(bits);
        uint64_t version = versions_at(st->m, st->s, j)[st->op->in];
        if (version == last) continue;
        last = version;
        frames[count++] = j;
    }
    return count;
}

static void project_tile(layer_step *st, size_t tile, const uint32_t *frames, int count) {
    const struct recurrent *layer = st->layer;
    const float *x[CHUNK], *w = (const float *)(const void *)tile_weights(st, tile, INPUT_PART);
    float *sum[CHUNK];
    for (int i = 0; i < count; i++) {
        x[i] = vector_at(st->m, st->s, st->op->in, frames[i]);
        sum[i] = st->projections + (frames[i] * layer->tiles + tile) * layer->width;
    }
    st->m->k->tiles(sum, w, x, st->op->n, (int)layer->products, (int)layer->lanes, count);
    count_macs(st, (size_t)count * layer->places[tile].count, st->op->n);
}

void surnn_project_inputs(const surnn_model *m, surnn_stream *s, const operation *op,
                          uint32_t frames) {
    const uint32_t *first = op->as.recurrent.first_tile;
    uint32_t selection[CHUNK];
    layer_step st;
    if (!op->as.recurrent.projects_chunks) return;
    surnn_begin_layer(&st, m, s, op, scratch_of(m, s));
    find_open_frames(&st, frames);
    for (uint32_t gate = 0; gate < op->gates; gate++) {
        if (!st.open_frames[gate]) continue;
        for (uint32_t tile = first[gate]; tile < first[gate + 1]; tile++) {
            int count = frames_to_project(&st, tile, st.open_frames[gate], selection);
            if (count) project_tile(&st, tile, selection, count);
        }
    }
}
