/* The variables of a TensorFlow checkpoint with values that tell where each of them belongs. */
#ifndef SUPPORT_VARIABLES_H
#define SUPPORT_VARIABLES_H

#include "formats/weights/tensors.h"

enum { VARIABLES_MAX = 1024 };

/* Names and values live in the file's arena. Zero-initialise to use. */
struct variables {
    struct cvy_tensor_file file;
    struct cvy_named_tensor tensors[VARIABLES_MAX];
};
void variables_add(struct variables *v, struct cvy_shape shape, const char *scope, const char *leaf);
/* gamma, beta, moving_mean, moving_variance */
void variables_add_norm(struct variables *v, const char *scope, int64_t channels);
/* Gives all of them values, of type f16. */
void variables_fill(struct variables *v);
/* The tensor's values are those of variable `number`, whose order was (H,W,I,O), or (I,O). */
void variables_check_values(const struct cvy_named_tensor *tensor, size_t number);

#endif
