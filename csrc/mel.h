/* surnn_mel: the log-mel features of speech models, from 16-bit samples at 16 kHz, in integers.
 *
 * Every 320 samples (20 ms) give the 40 bands of the last 640: periodic Hann window, 640-point FFT,
 * triangular mel bands from 20 to 8000 Hz, and the integer round((ln(power + 1e-6) + 14) * 255 / 24),
 * from 0 to 255, where power is that of samples / 32768. Results are within 1 of those in double.
 *
 *     static surnn_mel mel;                     // zeros: silence before the first sample
 *     int16_t samples[SURNN_MEL_HOP];
 *     uint8_t bands[SURNN_MEL_BANDS];
 *     while (read_microphone(samples)) {
 *         if (!surnn_mel_push(&mel, samples, bands)) continue;
 *         for (int i = 0; i < SURNN_MEL_BANDS; i++) frame[i] = ...; // as the model was trained
 *         surnn_step(model, stream, frame, out);
 *     }
 */
#ifndef SURNN_MEL_H
#define SURNN_MEL_H

#include "surnn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SURNN_MEL_HOP = 320, SURNN_MEL_WINDOW = 640, SURNN_MEL_BANDS = 40 };

/* 3.2 kB. `work` is used only during a call, so other code may use it in between. */
typedef struct surnn_mel {
    uint32_t started;
    int16_t before[SURNN_MEL_HOP];
    int32_t work[SURNN_MEL_WINDOW];
} surnn_mel;

/* The next 320 samples. Returns 1 and writes the bands, except for the first call, which returns 0: its
 * samples are half a window. */
SURNN_API int surnn_mel_push(surnn_mel *mel, const int16_t *samples, uint8_t *bands);

#ifdef __cplusplus
}
#endif
#endif
