/* Runs a model over numbers from standard input: one prediction a line to standard output. */
#include "surnn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SURNN_EMBEDDED
extern const unsigned char surnn_model_bytes[];
extern const size_t surnn_model_size;
#define MODEL_ARGUMENT ""
#else
#define MODEL_ARGUMENT " MODEL"
#endif

static int usage(FILE *to, const char *name) {
    fprintf(to,
            "usage: %s [--work]" MODEL_ARGUMENT " < input > output\n\n"
            "Reads frames (numbers between blanks or line ends, as many as the model takes for each)\n"
            "or tokens, and writes the prediction after each step as a line of numbers.\n\n"
            "  --work  at the end, print to standard error how much work was skipped\n",
            name);
    return to == stderr ? 2 : 0;
}

static int complain(surnn_status status, const char *about) {
    fprintf(stderr, "error: %s: %s\n", about, surnn_message(status));
    return 1;
}

/* 1: read; 0: the input is over; -1: not a number. */
static int read_number(double *value) {
    char text[64], *end;
    if (scanf("%63s", text) != 1) return 0;
    errno = 0;
    *value = strtod(text, &end);
    if (end != text && !*end) return 1;
    fprintf(stderr, "error: the input has %s where a number was expected\n", text);
    return -1;
}

static int run(const surnn_model *model, surnn_stream *stream, float *frame, float *out) {
    surnn_info info;
    surnn_describe(model, &info);
    size_t wanted = info.takes_tokens ? 1 : info.input_size, got = 0;
    double value;
    int state;
    while ((state = read_number(&value)) == 1) {
        surnn_status status;
        frame[got++] = (float)value;
        if (got < wanted) continue;
        got = 0;
        if (!info.takes_tokens) {
            status = surnn_step(model, stream, frame, out);
        } else if (value >= 0 && value < info.input_size && value == (double)(uint32_t)value) {
            status = surnn_step_token(model, stream, (uint32_t)value, out);
        } else {
            fprintf(stderr, "error: %g is no token; they are 0 to %u\n", value, info.input_size - 1);
            return 1;
        }
        if (status != SURNN_OK) return complain(status, "step");
        for (uint32_t i = 0; i < info.output_size; i++) printf(i ? " %.9g" : "%.9g", out[i]);
        putchar('\n');
        if (fflush(stdout) != 0) return 1; /* a stream is read as it goes */
    }
    if (state == 0 && got) {
        fprintf(stderr, "error: the last frame has %zu of %zu numbers\n", got, wanted);
        return 1;
    }
    return state == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    surnn_model *model = NULL;
    surnn_stream *stream = NULL;
    surnn_status status;
    surnn_info info;
    surnn_work work;
    const char *path = NULL;
    int show_work = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return usage(stdout, argv[0]);
        if (!strcmp(argv[i], "--work")) show_work = 1;
        else if (path || argv[i][0] == '-') return usage(stderr, argv[0]);
        else path = argv[i];
    }
#ifdef SURNN_EMBEDDED
    if (path) return usage(stderr, argv[0]);
    path = "the model";
    status = surnn_open(surnn_model_bytes, surnn_model_size, &model);
#else
    if (!path) return usage(stderr, argv[0]);
    status = surnn_load(path, &model);
#endif
    if (status != SURNN_OK) return complain(status, path);
    surnn_describe(model, &info);
    float *frame = malloc(info.input_size * sizeof *frame);
    float *out = malloc(info.output_size * sizeof *out);
    int result = 1;
    status = frame && out ? surnn_stream_new(model, &stream) : SURNN_MEMORY;
    if (status != SURNN_OK) complain(status, path);
    else result = run(model, stream, frame, out);
    if (result == 0 && show_work) {
        surnn_work_done(model, stream, &work);
        double share = work.macs_all ? 1.0 - (double)work.macs_done / (double)work.macs_all : 0.0;
        double rate = work.updates_all ? (double)work.updates_done / (double)work.updates_all : 0.0;
        fprintf(stderr, "%llu steps, %.1f %% of the work skipped, %.1f %% of updates done (%s)\n",
                (unsigned long long)work.steps, 100.0 * share, 100.0 * rate, info.simd);
    }
    surnn_stream_free(stream);
    surnn_free(model);
    free(frame);
    free(out);
    return result;
}
