/* Build options. Each can be set on the command line, as in -DSURNN_MICRO=1. Results do not depend on
 * them: they are those of SURNN_SIMD=scalar in a normal build, bit for bit. */
#ifndef SURNN_CONFIG_H
#define SURNN_CONFIG_H

/* 1: for microcontrollers. It is the default of the seven options below. */
#ifndef SURNN_MICRO
#if (defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M') || defined(__XTENSA__) || \
    (defined(__riscv) && __riscv_xlen == 32)
#define SURNN_MICRO 1
#else
#define SURNN_MICRO 0
#endif
#endif

/* 1: plain loops, without the kernels for vectors. */
#ifndef SURNN_SCALAR_ONLY
#define SURNN_SCALAR_ONLY SURNN_MICRO
#endif
/* Frames that pass through the model together, operation by operation: 1 to 16. A stream has room for
 * all of them. With 1, clocks compute each time step when it comes, and all steps take the same time. */
#ifndef SURNN_CHUNK
#define SURNN_CHUNK (SURNN_MICRO ? 1 : 16)
#endif
/* Streams that pass through the model together: 1 to 32. Arrays on the stack have room for all of them. */
#ifndef SURNN_TOGETHER
#define SURNN_TOGETHER (SURNN_MICRO ? 1 : 32)
#endif
/* 1: a stream keeps the input products of all units, for time steps with the same input. 0: it is smaller. */
#ifndef SURNN_KEEP_SUMS
#define SURNN_KEEP_SUMS !SURNN_MICRO
#endif
/* 1: the checksum of a file is computed without an 8 KiB table on the stack. */
#ifndef SURNN_SMALL_CHECKSUM
#define SURNN_SMALL_CHECKSUM SURNN_MICRO
#endif
/* 1: the environment variable SURNN_SIMD is not read. */
#ifndef SURNN_NO_ENVIRONMENT
#define SURNN_NO_ENVIRONMENT SURNN_MICRO
#endif
/* 1: no files and no malloc; use the functions that end in _place. */
#ifndef SURNN_NO_MALLOC
#define SURNN_NO_MALLOC SURNN_MICRO
#endif

/* 0: leave out a part; a file that needs it is refused. An export to C sets what its model needs. */
#ifndef SURNN_WARPED /* learned clocks; in double */
#define SURNN_WARPED 1
#endif
#ifndef SURNN_MEAN /* means over time; in double */
#define SURNN_MEAN 1
#endif
#ifndef SURNN_ACTIVATIONS /* all activations but relu, sigmoid, tanh and silu; with libm */
#define SURNN_ACTIVATIONS 1
#endif
#ifndef SURNN_INT8 /* 8-bit weights */
#define SURNN_INT8 1
#endif

#endif
