/* Model and momentum tensors between safetensors files and a network's store. */
#ifndef CVY_TRAIN_WEIGHTS_H
#define CVY_TRAIN_WEIGHTS_H

#include "formats/safetensors.h"
#include "train/network.h"

#define CVY_MOMENTUM_PREFIX "optimizer.momentum_buffer."

/* Load every model tensor by name. The file must hold the network and nothing else, apart from names under "optimizer."
 * and "ema."; num_batches_tracked may be missing (0 then). f64, f16 and bf16 are converted. CVY_BAD_DATA says what is
 * missing, unexpected or of another shape. `what` names the file. */
CVY_CHECKED cvy_status cvy_weights_load(struct cvy_network *network, const struct cvy_tensor_file *file,
                                        const char *what);
/* Load the momentum buffer. CVY_BAD_DATA when a tensor is missing or does not fit. */
CVY_CHECKED cvy_status cvy_weights_load_momentum(struct cvy_network *network, const struct cvy_tensor_file *file,
                                                 const char *what);
/* The rows of the classifier (fc.weight); 0 when there is none. */
int32_t cvy_weights_classes(const struct cvy_tensor_file *file);

/* The tensors of a network as host memory, ready for cvy_st_write. Zero-initialise before collecting. */
struct cvy_weights_view {
    struct cvy_named_tensor *tensors;
    size_t count;
    struct cvy_arena arena;            /* names */
    float *weights, *state, *momentum; /* copies, where the device's memory is not the host's */
};
CVY_CHECKED cvy_status cvy_weights_collect(struct cvy_network *network, bool with_momentum,
                                           struct cvy_weights_view *view);
void cvy_weights_view_release(struct cvy_weights_view *view);

#endif
