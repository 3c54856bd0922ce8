/* Weights files of PyTorch: a zip file of a pickle and the storages that it speaks of; before 1.6 pickles and storages
 * one after the other. */
#ifndef CVY_FORMATS_WEIGHTS_PYTORCH_H
#define CVY_FORMATS_WEIGHTS_PYTORCH_H

#include "formats/weights/tensors.h"

/* The state dict of the file, bare or inside a training checkpoint, in its order, prefixes of wrappers ("module.")
 * removed; the moving average of the weights under CVY_EMA_PREFIX and the momentum of SGD under CVY_MOMENTUM_PREFIX
 * where the checkpoint has them. What stands beside becomes metadata: "pytorch.epoch", "pytorch.arch",
 * "pytorch.best_prec1", ... (texts of JSON), and the texts that cvy_pytorch_commit stored. Nothing is ever executed.
 * CVY_BAD_DATA, CVY_NO_MEMORY; a failed open leaves a closed object. The bytes are not copied: they must outlive it. */
CVY_CHECKED cvy_status cvy_pytorch_open_memory(struct cvy_tensor_file *file, const char *what, const void *data,
                                               size_t size);

/* Do the bytes begin like a file that PyTorch wrote, in its format of today or before 1.6? */
bool cvy_pytorch_looks_like(const void *data, size_t size);

#endif
