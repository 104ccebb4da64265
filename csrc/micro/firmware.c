/* Runs the model on the frames or samples of a file of the host, and counts time. For qemu: semihosting
 * reads frames.bin and writes answers.bin.
 *
 *   frames.bin    int64 clock, float32 scale, float32 shift; then float32 [frames][input] if scale is 0,
 *                 else int16 [frames][320] at 16 kHz: frames are then scale * log-mel bands + shift
 *   answers.bin   for each frame uint32 SysTick ticks of the model and of the log-mel bands, uint32
 *                 updates, float32 [output]; then uint32 bytes of the stream, of the model's room and
 *                 of the stack used, and of surnn_mel */
#include "mel.h"
#include "surnn.h"
#include "surnn_model.h"

#include <string.h>

enum { MOST_INPUTS = 1024, MODEL_ROOM = 16384, STREAM_ROOM = 65536, STACK_ROOM = 16384 };
enum { OPEN = 1, CLOSE = 2, PRINT = 4, WRITE = 5, READ = 6 };

void surnn_exit(int failed);

static int call(int operation, const void *arguments) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static int open_file(const char *name, uint32_t mode, uint32_t length) {
    const uint32_t arguments[3] = {(uint32_t)(uintptr_t)name, mode, length};
    return call(OPEN, arguments);
}

/* Returns 1 if all bytes were read or written. */
static int transfer(int operation, int file, const void *bytes, uint32_t size) {
    const uint32_t arguments[3] = {(uint32_t)file, (uint32_t)(uintptr_t)bytes, size};
    return call(operation, arguments) == 0;
}

static void fail(const char *why) {
    call(PRINT, "error: ");
    call(PRINT, why);
    call(PRINT, "\n");
    surnn_exit(1);
}

static void check(surnn_status status) {
    if (status != SURNN_OK) fail(surnn_message(status));
}

/* ---------------------------------------------------------------- counting */

#define SYSTICK ((volatile uint32_t *)0xe000e010) /* control, reload, value: counts down, 24 bits */

static uint32_t ticks(void) { return SYSTICK[2]; }

/* Bytes of stack that calls have used so far, of those below this function's. */
static uint8_t *paint_stack(void) {
    uint8_t here, *from = (uint8_t *)(((uintptr_t)&here - 256) & ~(uintptr_t)7);
    for (uint32_t i = 1; i <= STACK_ROOM; i++) *(volatile uint8_t *)(from - i) = 0xa5;
    return from;
}

static uint32_t used_stack(const uint8_t *from) {
    uint32_t used = STACK_ROOM;
    while (used && *(const volatile uint8_t *)(from - used) == 0xa5) used--;
    return used;
}

static uint8_t model_memory[MODEL_ROOM] __attribute__((aligned(64)));
static uint8_t stream_memory[STREAM_ROOM] __attribute__((aligned(64)));
static float frame[MOST_INPUTS], out[MOST_INPUTS];
static surnn_mel mel;
static int16_t samples[SURNN_MEL_HOP];
static uint8_t bands[SURNN_MEL_BANDS];

static size_t room_of_model(void) {
    size_t room = 0;
    surnn_model *model;
    (void)surnn_place(NULL, &room, surnn_model_bytes, surnn_model_size, &model);
    return room;
}

int main(void) {
    surnn_model *model;
    surnn_stream *stream;
    surnn_info info;
    surnn_work work;
    int64_t clock;
    float scaling[2];
    uint32_t sizes[4];
    uint64_t updates = 0;
    size_t room = sizeof model_memory;
    check(surnn_place(model_memory, &room, surnn_model_bytes, surnn_model_size, &model));
    surnn_describe(model, &info);
    sizes[0] = (uint32_t)info.stream_size, sizes[1] = (uint32_t)room_of_model(), sizes[3] = sizeof mel;
    if (info.takes_tokens || info.input_size > MOST_INPUTS || info.output_size > MOST_INPUTS)
        fail("this program takes frames of at most 1024 numbers");
    check(surnn_stream_place(model, stream_memory, sizeof stream_memory, &stream));
    int from = open_file("frames.bin", 1, 10), to = open_file("answers.bin", 5, 11);
    if (from < 0 || to < 0) fail("frames.bin or answers.bin cannot be opened");
    if (!transfer(READ, from, &clock, sizeof clock) || !transfer(READ, from, scaling, sizeof scaling))
        fail("frames.bin is too short");
    check(surnn_set_clock(model, stream, clock));
    SYSTICK[1] = 0xffffff, SYSTICK[2] = 0, SYSTICK[0] = 5; /* the processor's clock */
    while (!ticks()) {}
    uint32_t before = ticks(), overhead = (before - ticks()) & 0xffffff;
    uint8_t *stack = paint_stack();
    for (;;) {
        uint32_t row[3] = {0, 0, 0};
        if (scaling[0] != 0.0f) {
            if (!transfer(READ, from, samples, sizeof samples)) break;
            before = ticks();
            int complete = surnn_mel_push(&mel, samples, bands);
            row[1] = ((before - ticks()) & 0xffffff) - overhead;
            if (!complete) continue;
            for (int i = 0; i < SURNN_MEL_BANDS; i++)
                frame[i] = (float)bands[i] * scaling[0] + scaling[1];
        } else if (!transfer(READ, from, frame, info.input_size * 4)) {
            break;
        }
        before = ticks();
        surnn_status status = surnn_step(model, stream, frame, out);
        row[0] = ((before - ticks()) & 0xffffff) - overhead;
        check(status);
        surnn_work_done(model, stream, &work);
        row[2] = (uint32_t)(work.updates_done - updates), updates = work.updates_done;
        transfer(WRITE, to, row, sizeof row);
        transfer(WRITE, to, out, info.output_size * 4);
    }
    sizes[2] = used_stack(stack);
    transfer(WRITE, to, sizes, sizeof sizes);
    return 0;
}
