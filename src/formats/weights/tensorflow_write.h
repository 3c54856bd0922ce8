/* Writing a checkpoint of TensorFlow's newer kind (formats/weights/tensorflow.h): NAME.index and
 * NAME.data-00000-of-00001, which tf.train.Saver restores. */
#ifndef CVY_FORMATS_WEIGHTS_TENSORFLOW_WRITE_H
#define CVY_FORMATS_WEIGHTS_TENSORFLOW_WRITE_H

#include "formats/weights/tensors.h"

/* `path` ends with ".index". Tensors come in any order, `data` of each holds shape * size bytes; CVY_USAGE where a name
 * is too long. An old checkpoint of that name is gone before the new one is there: the index, by which a checkpoint is
 * found, goes first and comes last. */
CVY_CHECKED cvy_status cvy_tensorflow_write(const char *path, const struct cvy_named_tensor *tensors, size_t count);
/* As cvy_st_write_from. */
CVY_CHECKED cvy_status cvy_tensorflow_write_from(const struct cvy_tensor_file *source, const char *what,
                                                 const char *path, const struct cvy_named_tensor *tensors,
                                                 size_t count);

#endif
