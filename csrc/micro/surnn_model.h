/* The model of this folder, for surnn_place (without malloc) or surnn_open. surnn.h is the interface. */
#ifndef SURNN_MODEL_BYTES_H
#define SURNN_MODEL_BYTES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
extern const unsigned char surnn_model_bytes[];
extern const size_t surnn_model_size;
#ifdef __cplusplus
}
#endif
#endif
