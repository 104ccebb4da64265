/* Functions of single numbers, and softmax. FORMAT.md has the formulas. */
#include "model.h"

#include <math.h>

#if SURNN_ACTIVATIONS
static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static float softplus(float x) { return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x)); }

static float gelu_by_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
}

static float value_of(const struct activate *f, float x) {
    switch (f->function) {
    case ACTIVATION_GELU_TANH: return gelu_by_tanh(x);
    case ACTIVATION_ELU: return f->b * (x > 0.0f ? x : f->a * expm1f(x));
    case ACTIVATION_LEAKY_RELU: return x > 0.0f ? x : f->a * x;
    case ACTIVATION_SOFTPLUS: return f->a * x > f->b ? x : softplus(f->a * x) / f->a;
    case ACTIVATION_CLAMP: return clamp(x, f->a, f->b);
    case ACTIVATION_HARD_SIGMOID: return clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case ACTIVATION_HARD_SWISH: return x * clamp(x + 3.0f, 0.0f, 6.0f) / 6.0f;
    case ACTIVATION_MISH: return x * tanhf(softplus(x));
    case ACTIVATION_SOFTSIGN: return x / (1.0f + fabsf(x));
    case ACTIVATION_LOG_SIGMOID: return -softplus(-x);
    default: return x;
    }
}

/* Softmax, or its logarithm. The largest number is subtracted first, so that no power overflows. */
static void softmax(float *y, const float *x, size_t n, int logarithm) {
    float largest = x[0], sum = 0.0f, rest = 0.0f; /* rest: what rounding took from sum */
    for (size_t i = 1; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (size_t i = 0; i < n; i++) {
        y[i] = logarithm ? x[i] - largest : expf(x[i] - largest);
        float term = (logarithm ? expf(y[i]) : y[i]) + rest, before = sum;
        sum = before + term;
        rest = term - (sum - before);
    }
    float by = logarithm ? logf(sum) : 1.0f / sum;
    for (size_t i = 0; i < n; i++) y[i] = logarithm ? y[i] - by : y[i] * by;
}
#endif

void surnn_activate(const kernels *k, const struct activate *f, float *y, const float *x, size_t n) {
    if (f->function <= ACTIVATION_SILU) {
        k->activate(y, x, n, (int)f->function);
#if SURNN_ACTIVATIONS
    } else if (f->function >= ACTIVATION_SOFTMAX) {
        softmax(y, x, n, f->function == ACTIVATION_LOG_SOFTMAX);
    } else {
        for (size_t i = 0; i < n; i++) y[i] = value_of(f, x[i]);
#endif
    }
}
