/* surnn: streaming inference of selective-update recurrent networks.
 *
 * C99, no dependencies. A unit whose gate is closed costs nothing: its weights are not read and its
 * state stays as it is, bit for bit. Models come from Python (surnn.export.to_engine); the file
 * format is in FORMAT.md.
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
 * A model is read-only once it is loaded: any number of threads may use it. A stream is the state of
 * one sequence, used by one thread at a time; it has a fixed size and holds no pointers. Nothing is
 * allocated but by surnn_load, surnn_open and surnn_stream_new, and their *_place twins allocate
 * nothing at all. What was made by the first three is freed by surnn_free and surnn_stream_free. No
 * function exits, aborts or prints.
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
    SURNN_ARGUMENT,  /* a null pointer, an index or a token out of range, a wrong kind of input */
    SURNN_FILE,      /* the file cannot be opened or read */
    SURNN_MAGIC,     /* not a surnn file */
    SURNN_VERSION,   /* made for another version of the engine */
    SURNN_TRUNCATED, /* shorter or longer than its header says */
    SURNN_CHECKSUM,  /* damaged */
    SURNN_FORMAT,    /* contents that contradict each other */
    SURNN_ALIGNMENT, /* memory that does not begin at a multiple of 64 bytes */
    SURNN_MEMORY,    /* out of memory, or the memory given is too small */
    SURNN_HOST,      /* a big-endian machine */
    SURNN_STATE      /* a saved stream of another model, or damaged */
} surnn_status;

/* What a status means, in words. */
SURNN_API const char *surnn_message(surnn_status status);

typedef struct surnn_model surnn_model;
typedef struct surnn_stream surnn_stream;

typedef struct surnn_info {
    uint32_t takes_tokens;   /* 1: surnn_step_token; 0: surnn_step */
    uint32_t input_size;     /* numbers of a frame, or the vocabulary's size */
    uint32_t output_size;    /* numbers of an output */
    uint32_t layers;         /* recurrent layers */
    uint64_t stream_size;    /* bytes of a stream */
    uint64_t saved_size;     /* bytes of a saved one */
    uint64_t macs_per_step;  /* multiply-accumulates of a step with all gates open */
    const char *simd;        /* "avx512", "avx2", "neon", "generic" or "scalar" */
} surnn_info;

typedef struct surnn_layer_info {
    uint32_t units, gates, components; /* component 0 of the state is the layer's output */
} surnn_layer_info;

typedef struct surnn_work {
    uint64_t steps;
    uint64_t macs_done;    /* multiply-accumulates of weights */
    uint64_t macs_all;     /* what they would be with all gates open and nothing reused */
    uint64_t updates_done; /* of single units of recurrent layers */
    uint64_t updates_all;  /* with all gates open */
} surnn_work;

/* ---- models */

/* A model from a file, mapped into memory where the system can. */
SURNN_API surnn_status surnn_load(const char *path, surnn_model **model);
/* A model from memory that begins at a multiple of 64 bytes and outlives it. */
SURNN_API surnn_status surnn_open(const void *bytes, size_t size, surnn_model **model);
SURNN_API void surnn_free(surnn_model *model);
/* The same in memory of the caller's (at a multiple of 64 bytes), of which *room bytes are there; if
 * that is too little, or memory is NULL, *room becomes what is needed and SURNN_MEMORY is returned.
 * Such a model is not freed. */
SURNN_API surnn_status surnn_place(void *memory, size_t *room, const void *bytes, size_t size,
                                   surnn_model **model);
SURNN_API void surnn_describe(const surnn_model *model, surnn_info *info);
SURNN_API surnn_status surnn_describe_layer(const surnn_model *model, uint32_t layer,
                                            surnn_layer_info *info);

/* ---- streams */

/* A stream before its first step. */
SURNN_API surnn_status surnn_stream_new(const surnn_model *model, surnn_stream **stream);
SURNN_API void surnn_stream_free(surnn_stream *stream);
/* The same in memory of the caller's (at a multiple of 64 bytes), of info.stream_size bytes. */
SURNN_API surnn_status surnn_stream_place(const surnn_model *model, void *memory, size_t room,
                                          surnn_stream **stream);
/* Back to before the first step. */
SURNN_API surnn_status surnn_reset(const surnn_model *model, surnn_stream *stream);
/* One step: frame[input_size] to out[output_size]. */
SURNN_API surnn_status surnn_step(const surnn_model *model, surnn_stream *stream,
                                  const float *frame, float *out);
SURNN_API surnn_status surnn_step_token(const surnn_model *model, surnn_stream *stream,
                                        uint32_t token, float *out);
/* Many steps: frames[steps][input_size] to out[steps][output_size]. The same numbers, bit for bit, as
 * so many single steps, and faster: 16 frames at a time go through each layer. */
SURNN_API surnn_status surnn_run(const surnn_model *model, surnn_stream *stream,
                                 const float *frames, size_t steps, float *out);
SURNN_API surnn_status surnn_run_tokens(const surnn_model *model, surnn_stream *stream,
                                        const uint32_t *tokens, size_t steps, float *out);
/* All of a stream as plain bytes (info.saved_size), and back; also how to clone one. The bytes are
 * of this model, on this kind of machine. */
SURNN_API surnn_status surnn_save(const surnn_model *model, const surnn_stream *stream,
                                  void *bytes, size_t size);
SURNN_API surnn_status surnn_restore(const surnn_model *model, surnn_stream *stream,
                                     const void *bytes, size_t size);
/* The clock: steps taken so far. Gates that go by time read it. */
SURNN_API int64_t surnn_clock(const surnn_stream *stream);
SURNN_API surnn_status surnn_set_clock(const surnn_model *model, surnn_stream *stream, int64_t t);
/* Work done, and what all of it would be, since the stream was new or reset. */
SURNN_API void surnn_work_done(const surnn_model *model, const surnn_stream *stream,
                               surnn_work *work);

/* ---- what happened in a recurrent layer, for tests and curiosity */

/* Gates at the last step: open[gates], 1 or 0. */
SURNN_API surnn_status surnn_gates(const surnn_model *model, const surnn_stream *stream,
                                   uint32_t layer, uint8_t *open);
/* State: values[components][units]. */
SURNN_API surnn_status surnn_hidden(const surnn_model *model, const surnn_stream *stream,
                                    uint32_t layer, float *values);

#ifdef __cplusplus
}
#endif
#endif
