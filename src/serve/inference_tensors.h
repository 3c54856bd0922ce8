/* What a network takes and gives by the Open Inference Protocol, and images as text. */
#ifndef CVY_SERVE_INFERENCE_TENSORS_H
#define CVY_SERVE_INFERENCE_TENSORS_H

#include <stdint.h>

#include "base/memory.h"
#include "convoy/status.h"
#include "serve/served.h"

struct cvy_encoded_image {
    const uint8_t *data;
    size_t size;
};
/* Base64 (RFC 4648, with or without padding) to bytes in the arena. CVY_BAD_DATA: other characters. */
CVY_CHECKED cvy_status cvy_base64_decode(const char *text, size_t length, struct cvy_arena *arena,
                                         struct cvy_encoded_image *image);

/* The network's output `index`; NULL past the last one. And the index of a name; -1: there is none. */
const char *cvy_inference_output_name(const struct cvy_served *served, int index);
int cvy_inference_output_find(const struct cvy_served *served, const char *name);

#endif
