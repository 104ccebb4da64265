/* surnn-run: runs a model over the numbers of standard input, and prints one prediction per line. */
#include "surnn.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SURNN_EMBEDDED
#include "surnn_model.h"
#define MODEL_ARGUMENT ""
#else
#define MODEL_ARGUMENT " MODEL"
#endif

static int usage(FILE *to, const char *name) {
    fprintf(to,
            "usage: %s [--work]" MODEL_ARGUMENT " < input > output\n\n"
            "Reads frames or tokens as numbers separated by spaces or newlines, and writes the\n"
            "prediction after each time step as one line of numbers.\n\n"
            "  --work  finally print to standard error how much work was skipped\n",
            name);
    return to == stderr ? 2 : 0;
}

static int print_error(surnn_status status, const char *context) {
    fprintf(stderr, "error: %s: %s\n", context, surnn_message(status));
    return 1;
}

enum { LONGEST_NUMBER = 4000 }; /* characters; the exact value of a double has at most 1077 */

/* Reads up to the next space. Returns the length, 0 at the end of the input, -1 for an error. */
static int read_word(char *word, int room) {
    int c = getchar(), length = 0;
    while (isspace(c)) c = getchar();
    for (; c != EOF && !isspace(c); c = getchar()) {
        if (length < room - 1) word[length] = c ? (char)c : '?'; /* a zero byte would end the word */
        length++;
    }
    word[length < room ? length : room - 1] = 0;
    if (ferror(stdin)) {
        fprintf(stderr, "error: the input cannot be read: %s\n", strerror(errno));
        return -1;
    }
    if (length < room) return length;
    fprintf(stderr, "error: the input has a number of more than %d characters: %.40s...\n", room - 1,
            word);
    return -1;
}

/* Returns 1 for a number, 0 at the end of the input, -1 for anything else. */
static int read_number(double *value) {
    char word[LONGEST_NUMBER + 1], *end;
    int length = read_word(word, sizeof word);
    if (length <= 0) return length;
    *value = strtod(word, &end);
    if (!*end && (fabs(*value) <= FLT_MAX || !strpbrk(word, "0123456789"))) return 1;
    if (!*end) {
        fprintf(stderr, "error: the input has %.80s, which is too large for float32\n", word);
        return -1;
    }
    fprintf(stderr, "error: the input has %.80s where a number was expected\n", word);
    return -1;
}

static int run(const surnn_model *model, surnn_stream *stream, float *frame, float *out) {
    surnn_info info;
    surnn_describe(model, &info);
    size_t frame_size = info.takes_tokens ? 1 : info.input_size, count = 0;
    double value;
    int state;
    while ((state = read_number(&value)) == 1) {
        surnn_status status;
        frame[count++] = (float)value;
        if (count < frame_size) continue;
        count = 0;
        if (!info.takes_tokens) {
            status = surnn_step(model, stream, frame, out);
        } else if (value >= 0 && value < info.input_size && value == (double)(uint32_t)value) {
            status = surnn_step_token(model, stream, (uint32_t)value, out);
        } else {
            fprintf(stderr, "error: %g is not a token; tokens are 0 to %u\n", value,
                    info.input_size - 1);
            return 1;
        }
        if (status != SURNN_OK) return print_error(status, "step");
        for (uint32_t i = 0; i < info.output_size; i++) printf(i ? " %.9g" : "%.9g", out[i]);
        putchar('\n');
        if (fflush(stdout) != 0) { /* the reader may be waiting */
            fprintf(stderr, "error: the output cannot be written: %s\n", strerror(errno));
            return 1;
        }
    }
    if (state == 0 && count) {
        fprintf(stderr, "error: the last frame has %zu of %zu numbers\n", count, frame_size);
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
    if (status != SURNN_OK) return print_error(status, path);
    surnn_describe(model, &info);
    float *frame = malloc(info.input_size * sizeof *frame);
    float *out = malloc(info.output_size * sizeof *out);
    int result = 1;
    status = frame && out ? surnn_stream_new(model, &stream) : SURNN_MEMORY;
    if (status != SURNN_OK) print_error(status, path);
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
