/* Checkpoints of TensorFlow (tf.train.Saver), read in place. Two kinds, both tables (formats/weights/table.h) with an
 * entry for each tensor:
 *
 *   since 2016   NAME.index with types, shapes and places, and NAME.data-00000-of-0000n with the values
 *   before       one file with everything: values are protobuf's packed lists */
#ifndef CVY_FORMATS_WEIGHTS_TENSORFLOW_H
#define CVY_FORMATS_WEIGHTS_TENSORFLOW_H

#include "formats/weights/tensors.h"

#define CVY_TENSORFLOW_SUFFIX ".index"

/* By its last bytes: an index, or a whole checkpoint of the older kind. */
bool cvy_tensorflow_looks_like(const void *data, size_t size);
/* TensorFlow's number of an element type. */
uint64_t cvy_tensorflow_type(enum cvy_dtype dtype);
/* Tensors of texts are left out; of the older kind everything but f32 and f64. CVY_BAD_DATA says what is wrong. A
 * failed open leaves a closed object. `what` is the path of the file, beside which its data files are looked for;
 * `part`: these bytes stand for each of them instead (NULL: they are files). */
CVY_CHECKED cvy_status cvy_tensorflow_open_memory(struct cvy_tensor_file *file, const char *what, const void *data,
                                                  size_t size, const struct cvy_mapping *part);

#endif
