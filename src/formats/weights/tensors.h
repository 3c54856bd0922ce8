/* Files of named tensors, in any format: filled in by readers and used by the rest of the library. */
#ifndef CVY_FORMATS_WEIGHTS_TENSORS_H
#define CVY_FORMATS_WEIGHTS_TENSORS_H

#include "base/file.h"
#include "base/mapping.h"
#include "base/memory.h"
#include "base/types.h"

/* What stands before a model tensor's name where the tensor is the optimizer's, or of the moving average of the
 * weights. */
#define CVY_MOMENTUM_PREFIX "optimizer.momentum_buffer."
#define CVY_SQUARE_PREFIX   "optimizer.square_avg."
#define CVY_EMA_PREFIX      "ema."
/* Before all of these and the bare names, of the state that a training that diverges goes back to. */
#define CVY_LAST_GOOD_PREFIX "optimizer.last_good."

struct cvy_named_tensor {
    const char *name;
    enum cvy_dtype dtype;
    struct cvy_shape shape;
    const void *data; /* row-major, little-endian; NOT necessarily aligned: memcpy out */
    size_t bytes;
};

struct cvy_tensor_meta {
    const char *key, *value;
};

/* An open file. Names, tables and texts live in the arena, the data there or in a mapping. */
struct cvy_tensor_file {
    struct cvy_mapping mapping;
    struct cvy_mapping *parts; /* (part_count) of further files that belong to it, in the arena; NULL: none */
    size_t part_count;
    struct cvy_arena arena;
    struct cvy_named_tensor *tensors;
    size_t tensor_count;
    struct cvy_tensor_meta *metadata;
    size_t metadata_count;
};

/* Is there a file or folder, or a TensorFlow checkpoint, of that name? */
bool cvy_tensor_file_exists(const char *path);
/* Open a file of any format that is known, told apart by its bytes; a TensorFlow checkpoint also by the name that its
 * files begin with, as TensorFlow's programs call it ("model.ckpt-100" for "model.ckpt-100.index"). Errors name the
 * file and say what is wrong: CVY_NO_INPUT, CVY_BAD_DATA, CVY_NO_MEMORY. A failed open leaves a closed object. */
CVY_CHECKED cvy_status cvy_tensor_file_open(struct cvy_tensor_file *file, const char *path);
/* The same for bytes of a safetensors or PyTorch file in memory, which stay the caller's and as they are until the
 * close; `name` stands for the file in errors. */
CVY_CHECKED cvy_status cvy_tensor_file_open_memory(struct cvy_tensor_file *file, const char *name, const void *data,
                                                   size_t size);
void cvy_tensor_file_close(struct cvy_tensor_file *file); /* accepts a zeroed one */

/* cvy_mapping_check for all that the file is made of. */
CVY_CHECKED cvy_status cvy_tensor_file_check(const struct cvy_tensor_file *file, const char *what);
/* The same after its tensors were handed to something whose status this is (a write from where the file was cut off
 * fails, too): that of the file where it has changed, else `status`. */
CVY_CHECKED cvy_status cvy_tensor_file_changed(const struct cvy_tensor_file *file, const char *what, cvy_status status);

/* CVY_BAD_DATA when two tensors have the same name. `what` names the file. */
CVY_CHECKED cvy_status cvy_tensor_file_check_names(const struct cvy_tensor_file *file, const char *what);

/* NULL when there is none of that name. */
const struct cvy_named_tensor *cvy_tensor_find(const struct cvy_tensor_file *file, const char *name);
const char *cvy_tensor_metadata(const struct cvy_tensor_file *file, const char *key);

/* The values of an f32, f64, f16 or bf16 tensor as floats; `values` has room for all of them. */
void cvy_tensor_floats(const struct cvy_named_tensor *tensor, float *values);

#endif
