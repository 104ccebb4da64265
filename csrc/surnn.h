/* surnn: streaming inference of selective-update recurrent networks.
 *
 * C99, no dependencies. A unit whose gate is closed costs nothing: its weights are not read, and its
 * state is unchanged bit for bit. surnn.export.to_engine (Python) writes model files; FORMAT.md
 * describes them.
 *
 *     #include <surnn.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     int main(void) {
 *         surnn_model *model = NULL;
 *         surnn_stream *stream = NULL;
 *         surnn_info info;
 *         surnn_status status = surnn_load("model.surnn", &model);
 *         if (status == SURNN_OK) status = surnn_stream_new(model, &stream);
 *         if (status != SURNN_OK) {
 *             fprintf(stderr, "model.surnn: %s\n", surnn_message(status));
 *             return 1;
 *         }
 *         surnn_describe(model, &info);
 *         float *frame = calloc(info.input_size, sizeof *frame);
 *         float *out = calloc(info.output_size, sizeof *out);
 *         if (frame && out && surnn_step(model, stream, frame, out) == SURNN_OK)
 *             printf("after the first frame: %g ...\n", out[0]);
 *         free(frame);
 *         free(out);
 *         surnn_stream_free(stream);
 *         surnn_free(model);
 *         return 0;
 *     }
 *
 * Build it with all of the engine's files but main.c: cc -O2 -Icsrc
 * example.c csrc/[!m]*.c csrc/model.c -lm;
 * or with the library that CMake installs: find_package(surnn), then link surnn::surnn.
 *
 * A model is read-only once it is loaded: any number of threads may share it. A stream is the state of
 * one sequence, for one thread at a time: a call on a stream that another thread is using returns
 * SURNN_BUSY. Its size is fixed, and between calls it contains no pointers. Functions that end in
 * _load, _open, _new or _with allocate memory; those that end in _free release it. Those that end in
 * _place use the caller's memory instead. No function exits, aborts or prints.
 */
#ifndef SURNN_H
#define SURNN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && defined(SURNN_SHARED)
#define SURNN_API __declspec(dllexport)
#elif defined(__GNUC__)
#define SURNN_API __attribute__((visibility("default")))
#else
#define SURNN_API
#endif

typedef enum surnn_status {
    SURNN_OK = 0,
    SURNN_ARGUMENT,  /* a null pointer, an index or token out of range, tokens instead of frames */
    SURNN_FILE,      /* the file cannot be opened or read */
    SURNN_MAGIC,     /* not a surnn engine file */
    SURNN_VERSION,   /* the file has another version of the format */
    SURNN_TRUNCATED, /* the file is shorter or longer than its header says */
    SURNN_CHECKSUM,  /* the file is damaged */
    SURNN_FORMAT,    /* the file's contents contradict each other */
    SURNN_ALIGNMENT, /* memory does not begin at a multiple of 64 bytes */
    SURNN_MEMORY,    /* out of memory, or the caller's memory is too small */
    SURNN_HOST,      /* the machine is big-endian */
    SURNN_STATE,     /* the saved stream belongs to another model, or is damaged */
    SURNN_CLOCK,     /* the clock would leave 0 .. SURNN_MAX_CLOCK */
    SURNN_BUSY,      /* another thread is using the stream or workspace */
    SURNN_LIMIT      /* a stream would need more memory than allowed, see surnn_options */
} surnn_status;

/* A sentence for users. */
SURNN_API const char *surnn_message(surnn_status status);

/* Streams end at this time step, as clocks do in Python. Gates are exact up to here. */
#define SURNN_MAX_CLOCK ((int64_t)1 << 50)

typedef struct surnn_model surnn_model;
typedef struct surnn_stream surnn_stream;
typedef struct surnn_workspace surnn_workspace;

typedef struct surnn_info {
    uint32_t takes_tokens;   /* 1: use surnn_step_token; 0: use surnn_step */
    uint32_t input_size;     /* floats per frame, or size of the vocabulary */
    uint32_t output_size;    /* floats per output */
    uint32_t layers;         /* number of recurrent layers */
    uint64_t stream_size;    /* bytes of a stream with its own workspace */
    uint64_t state_size;     /* bytes of a stream without */
    uint64_t workspace_size; /* bytes of a workspace that streams share */
    uint64_t saved_size;     /* bytes of a saved stream */
    uint64_t macs_per_step;  /* multiply-accumulates per time step with all gates open */
    const char *simd;        /* "avx512", "avx2", "dotprod", "neon", "generic" or "scalar" */
} surnn_info;

typedef struct surnn_layer_info {
    uint32_t units, gates, components; /* component 0 of the state is the layer's output */
} surnn_layer_info;

typedef struct surnn_work {
    uint64_t steps;        /* time steps */
    uint64_t macs_done;    /* multiply-accumulates with weights */
    uint64_t macs_all;     /* the same with all gates open and nothing reused */
    uint64_t updates_done; /* updates of units of recurrent layers */
    uint64_t updates_all;  /* the same with all gates open */
} surnn_work;

/* ---- models */

typedef enum surnn_mapping {
    SURNN_MAP_LARGE = 0, /* copy files into memory, but map those of 64 MiB and more */
    SURNN_MAP_NEVER,     /* copy the file: nothing that happens to it later affects the model */
    SURNN_MAP_ALWAYS     /* map the file where the system can; it must not change while in use */
} surnn_mapping;

typedef struct surnn_options {
    surnn_mapping mapping; /* for surnn_load_with only */
    /* Most bytes that a stream and its workspace may need; a file that needs more is refused with
     * SURNN_LIMIT. 0: 16 MiB plus 64 times the file's size, at most 1 GiB. */
    uint64_t max_memory;
} surnn_options;

/* Load a file. */
SURNN_API surnn_status surnn_load(const char *path, surnn_model **model);
SURNN_API surnn_status surnn_load_with(const char *path, const surnn_options *options,
                                       surnn_model **model);
/* Use a file in memory that begins at a multiple of 64 bytes. The memory must outlive the model. */
SURNN_API surnn_status surnn_open(const void *bytes, size_t size, surnn_model **model);
SURNN_API surnn_status surnn_open_with(const void *bytes, size_t size, const surnn_options *options,
                                       surnn_model **model);
SURNN_API void surnn_free(surnn_model *model);
/* surnn_open in the caller's memory: *room bytes that begin at a multiple of 64 bytes. If memory is
 * NULL or too small, the status is SURNN_MEMORY and *room the size needed. Do not call surnn_free. */
SURNN_API surnn_status surnn_place(void *memory, size_t *room, const void *bytes, size_t size,
                                   surnn_model **model);
SURNN_API void surnn_describe(const surnn_model *model, surnn_info *info);
SURNN_API surnn_status surnn_describe_layer(const surnn_model *model, uint32_t layer,
                                            surnn_layer_info *info);

/* ---- streams */

/* A new stream: t = 0, all state zero. */
SURNN_API surnn_status surnn_stream_new(const surnn_model *model, surnn_stream **stream);
SURNN_API void surnn_stream_free(surnn_stream *stream);
/* surnn_stream_new in the caller's memory: info.stream_size bytes that begin at a multiple of 64. Do
 * not call surnn_stream_free. */
SURNN_API surnn_status surnn_stream_place(const surnn_model *model, void *memory, size_t room,
                                          surnn_stream **stream);
/* Return a stream to its beginning. */
SURNN_API surnn_status surnn_reset(const surnn_model *model, surnn_stream *stream);
/* One time step: frame[input_size] to out[output_size]. */
SURNN_API surnn_status surnn_step(const surnn_model *model, surnn_stream *stream,
                                  const float *frame, float *out);
SURNN_API surnn_status surnn_step_token(const surnn_model *model, surnn_stream *stream,
                                        uint32_t token, float *out);
/* Many time steps: frames[steps][input_size] to out[steps][output_size]. The results equal those of
 * single steps bit for bit. The call is faster, because each layer processes 16 frames at a time. */
SURNN_API surnn_status surnn_run(const surnn_model *model, surnn_stream *stream,
                                 const float *frames, size_t steps, float *out);
SURNN_API surnn_status surnn_run_tokens(const surnn_model *model, surnn_stream *stream,
                                        const uint32_t *tokens, size_t steps, float *out);
/* Copy the whole state to bytes[info.saved_size], and back. This is also the way to clone a stream.
 * The bytes are valid for the same model on the same kind of machine. */
SURNN_API surnn_status surnn_save(const surnn_model *model, const surnn_stream *stream,
                                  void *bytes, size_t size);
SURNN_API surnn_status surnn_restore(const surnn_model *model, surnn_stream *stream,
                                     const void *bytes, size_t size);
/* The clock t: the number of time steps taken, at most SURNN_MAX_CLOCK. Gates that depend on time read
 * it. Rhythms are computed in advance, so up to 32 time steps after surnn_set_clock take longer. */
SURNN_API int64_t surnn_clock(const surnn_stream *stream);
SURNN_API surnn_status surnn_set_clock(const surnn_model *model, surnn_stream *stream, int64_t t);
/* The work done since the stream was new or reset. */
SURNN_API void surnn_work_done(const surnn_model *model, const surnn_stream *stream,
                               surnn_work *work);

/* ---- many streams */

/* A stream needs memory for its state and for a workspace, which is used only during a call. The
 * streams of this section have no workspace of their own, so they are smaller: all streams of a
 * thread share one. All functions above work with them, except surnn_step, surnn_step_token,
 * surnn_run and surnn_run_tokens. surnn_stream_free releases them. */
SURNN_API surnn_status surnn_state_new(const surnn_model *model, surnn_stream **stream);
/* The same in the caller's memory: info.state_size bytes that begin at a multiple of 64. */
SURNN_API surnn_status surnn_state_place(const surnn_model *model, void *memory, size_t room,
                                         surnn_stream **stream);
/* A workspace for the streams of a thread. */
SURNN_API surnn_status surnn_workspace_new(const surnn_model *model, surnn_workspace **workspace);
SURNN_API void surnn_workspace_free(surnn_workspace *workspace);
/* The same in the caller's memory: info.workspace_size bytes that begin at a multiple of 64. */
SURNN_API surnn_status surnn_workspace_place(const surnn_model *model, void *memory, size_t room,
                                             surnn_workspace **workspace);
/* One time step of each stream: frames[count][input_size] to out[count][output_size]. The streams may
 * be at different time steps; none may occur twice. The results equal those of single steps bit for
 * bit. The call is faster: weights are read once for 32 streams, and streams at the same time step
 * share their clocks. After an error no stream has changed. */
SURNN_API surnn_status surnn_step_many(const surnn_model *model, surnn_workspace *workspace,
                                       surnn_stream *const *streams, size_t count,
                                       const float *frames, float *out);
SURNN_API surnn_status surnn_step_many_tokens(const surnn_model *model, surnn_workspace *workspace,
                                              surnn_stream *const *streams, size_t count,
                                              const uint32_t *tokens, float *out);
/* surnn_run and surnn_run_tokens with a workspace. */
SURNN_API surnn_status surnn_run_in(const surnn_model *model, surnn_workspace *workspace,
                                    surnn_stream *stream, const float *frames, size_t steps,
                                    float *out);
SURNN_API surnn_status surnn_run_tokens_in(const surnn_model *model, surnn_workspace *workspace,
                                           surnn_stream *stream, const uint32_t *tokens,
                                           size_t steps, float *out);

/* ---- the inside of recurrent layers, for tests and analysis */

/* The gates of the last time step: open[gates], 1 or 0. */
SURNN_API surnn_status surnn_gates(const surnn_model *model, const surnn_stream *stream,
                                   uint32_t layer, uint8_t *open);
/* The state: values[components][units]. */
SURNN_API surnn_status surnn_hidden(const surnn_model *model, const surnn_stream *stream,
                                    uint32_t layer, float *values);

#ifdef __cplusplus
}
#endif
#endif
