/* BEGIN_TARGET("avx2,fma") ... END_TARGET: functions between them may use these instructions. */
#ifndef TARGET_H
#define TARGET_H

#define PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define BEGIN_TARGET(names) \
    PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define END_TARGET _Pragma("clang attribute pop")
#else
#define BEGIN_TARGET(names) PRAGMA(GCC target(names))
#define END_TARGET
#endif

#endif
