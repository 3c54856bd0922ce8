/* Model and momentum tensors between weights files of any format and a network's store. */
#ifndef CVY_WEIGHTS_WEIGHTS_H
#define CVY_WEIGHTS_WEIGHTS_H

#include "formats/weights/tensors.h"
#include "network/network.h"
#include "network/snapshot.h"

/* Open a weights file of any known format, a run's folder (its best weights, else the last) or, by their name,
 * published weights that were pulled; the tensors get Convoy's names and shapes, whatever naming the file uses. */
CVY_CHECKED cvy_status cvy_weights_open(struct cvy_tensor_file *file, const char *path);
/* The same for bytes in memory (cvy_tensor_file_open_memory). */
CVY_CHECKED cvy_status cvy_weights_open_memory(struct cvy_tensor_file *file, const char *name, const void *data,
                                               size_t size);

/* Identifies the network of an open file from its names and shapes. `arch` NULL: every architecture is tried; none that
 * fits is CVY_BAD_DATA, several are CVY_USAGE, and both sentences name --arch; else only that one, and whether it fits
 * is left to the load. Fills in what the file decides of *model (num_classes, unchanged without a classifier in the
 * file; squeeze_width), which the caller has made with cvy_model_options_make. */
CVY_CHECKED cvy_status cvy_weights_identify(const struct cvy_tensor_file *file, const char *what, const char *arch,
                                            const struct cvy_architecture **architecture,
                                            struct cvy_model_options *model);

/* Ends the names of quantizers' states: "conv1.weight_quantizer.observed". */
#define CVY_QUANTIZER_SUFFIX "_quantizer.observed"

struct cvy_weights_load_options {
    bool skip_head;      /* leave the classifier (fc.*) as it is, whatever the file has there: for new classes */
    bool can_reset_head; /* the caller has --reset-head: another class count names it as the remedy */
    /* The state of quantizers is left as it is where the file has none, and what the file has more is not examined. */
    bool any_quantizers;
    /* The network is a detector, and the file has only its backbone, with or without "backbone." before the names; a
     * classifier in it is not examined, and what else the network has stays as it is. */
    bool backbone;
    bool any_numbers;         /* also those that are not finite: for a training, which judges by its losses */
    const float *first_scale; /* backbone: factors (3) for the inputs of the first convolution; NULL: 1 */
};
#define CVY_WEIGHTS_LOAD_DEFAULTS ((struct cvy_weights_load_options){0})

/* What cvy_weights_load asks of a file, without loading: every parameter of the table is there, and nothing else. */
CVY_CHECKED cvy_status cvy_weights_check(const struct cvy_architecture *architecture, const struct cvy_graph *table,
                                         const struct cvy_tensor_file *file, const char *what,
                                         const struct cvy_weights_load_options *options);
/* The same for a network that is not open yet: before memory is allocated on a file's word. */
CVY_CHECKED cvy_status cvy_weights_check_model(const struct cvy_architecture *architecture,
                                               const struct cvy_model_options *model,
                                               const struct cvy_tensor_file *file, const char *what);
/* The state arena of a network of this table, of which only the quantizers' states are filled in from the file; freed
 * with cvy_free. */
CVY_CHECKED cvy_status cvy_weights_quantizer_states(const struct cvy_graph *table, const struct cvy_tensor_file *file,
                                                    float **states);
/* CVY_BAD_DATA: the state of a quantizer of the graph is in the file and is none that training writes: numbers that are
 * not finite, scales that would be negative or have no reciprocal. */
CVY_CHECKED cvy_status cvy_weights_check_quantizers(const struct cvy_graph *table, const struct cvy_tensor_file *file,
                                                    const char *what);
/* Load every model tensor by name. The file must hold the network and nothing else, apart from names under "optimizer."
 * and "ema."; num_batches_tracked may be missing (0 then). f64, f16 and bf16 are converted. CVY_BAD_DATA says what is
 * missing, unexpected, of another shape or not finite: kernels make numbers of NaN, and so answers. `what` names the
 * file. */
CVY_CHECKED cvy_status cvy_weights_load(struct cvy_network *network, const struct cvy_tensor_file *file,
                                        const char *what, const struct cvy_weights_load_options *options);
/* Load what the network has room for beside its weights: momentum, averages of squares, and the moving average, if the
 * file has one (*averaged). CVY_BAD_DATA when a tensor is missing or does not fit, or the average is not finite (but
 * with options->any_numbers, which is all that counts of the options). */
CVY_CHECKED cvy_status cvy_weights_load_training(struct cvy_network *network, const struct cvy_tensor_file *file,
                                                 const char *what, const struct cvy_weights_load_options *options,
                                                 bool *averaged);
/* Load the snapshot of the network that a checkpoint holds, if it holds one (snapshot->taken). CVY_BAD_DATA when a
 * tensor is missing or does not fit. */
CVY_CHECKED cvy_status cvy_weights_load_snapshot(struct cvy_network *network, const struct cvy_tensor_file *file,
                                                 const char *what, struct cvy_snapshot *snapshot);
/* CVY_BAD_DATA: the tensor's numbers, as floats in `values` of any alignment, are none that a network which answers can
 * have: they are not finite, or negative variances. `what` names the file. */
CVY_CHECKED cvy_status cvy_weights_check_numbers(const struct cvy_named_tensor *tensor, const void *values,
                                                 const char *what);
/* Is it a tensor of the model itself, neither the optimizer's nor the average's (EMA)? */
bool cvy_weights_is_model(const char *name);
/* Has the tensor the parameter's shape and a type that can be loaded? */
bool cvy_weights_fits(const struct cvy_param *param, const struct cvy_named_tensor *tensor);
/* Are these a residual network's tensors, with which a detector's backbone may start? */
bool cvy_weights_is_classifier(const struct cvy_tensor_file *file);
/* Are these a detector's backbone, without its head? What TF-slim's classifier becomes. */
bool cvy_weights_is_backbone(const struct cvy_tensor_file *file);
/* The rows of the classifier (fc.weight); 0 when there is none. */
int32_t cvy_weights_classes(const struct cvy_tensor_file *file);

/* The tensors of a network as host memory, ready for cvy_st_write. Zero-initialise before collecting. */
struct cvy_weights_view {
    struct cvy_named_tensor *tensors;
    size_t count;
    struct cvy_arena arena; /* names */
    float *copies[12];      /* of arenas, where the device's memory is not the host's */
    int copy_count;
};
enum cvy_weights_part {
    CVY_PART_WEIGHTS,
    CVY_PART_TRAINING, /* the weights, and everything needed to resume training */
    CVY_PART_AVERAGE   /* the moving average under the names of the weights */
};
CVY_CHECKED cvy_status cvy_weights_collect(struct cvy_network *network, enum cvy_weights_part part,
                                           struct cvy_weights_view *view);
/* Adds the tensors of a snapshot of the network, under CVY_LAST_GOOD_PREFIX. */
CVY_CHECKED cvy_status cvy_weights_collect_snapshot(struct cvy_network *network, const struct cvy_snapshot *snapshot,
                                                    struct cvy_weights_view *view);
void cvy_weights_view_release(struct cvy_weights_view *view);

#endif
