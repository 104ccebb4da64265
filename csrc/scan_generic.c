/* The scan for any processor: vectors of four floats. */
#if defined(__GNUC__)
#define WIDE 4
#define NAME surnn_scan_generic
#include "scan_vector.inc"
#else
typedef int nothing_here;
#endif
