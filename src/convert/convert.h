/* `convoy convert` inside: what a file holds, brought into one order, and the writers of the formats. */
#ifndef CVY_CONVERT_CONVERT_H
#define CVY_CONVERT_CONVERT_H

#include "convoy/convert.h"
#include "models/naming.h"
#include "weights/checkpoint.h"

/* Tensors under Convoy's names without prefix, in state-dict order; data belongs to the input. */
struct cvy_tensor_list {
    struct cvy_named_tensor *tensors;
    size_t count;
};

enum { CVY_CONVERT_LISTS = 4 }; /* weights, momentum, squares, average: the order of a checkpoint */

struct cvy_conversion {
    const struct cvy_convert_options *options;
    enum cvy_naming naming;
    bool theirs;                     /* the format has the names of TensorFlow's programs, whichever has the network */
    struct cvy_tensor_file file;     /* the input, under Convoy's names */
    struct cvy_checkpoint_info info; /* what it says about itself */
    const struct cvy_architecture *architecture;
    struct cvy_model_options model;         /* num_classes and what else the file decides */
    bool folded;                            /* by cvy_convert_fold: the model is not that of the file any more */
    struct cvy_preprocessing preprocessing; /* the file's, or the architecture's */
    struct cvy_graph table;                 /* for inference, not fused */
    struct cvy_arena arena;                 /* of the lists */
    struct cvy_tensor_list weights;         /* every tensor of the network (with --ema its average) */
    /* Empty where there are none or they are not wanted. */
    struct cvy_tensor_list average, momentum, squares; /* squares: RMSprop's averages */
    /* The same of the state that a training which diverges goes back to, for which .safetensors alone has a place. */
    struct cvy_tensor_list last_good[CVY_CONVERT_LISTS];
};

/* A network whose weights are rounded after the batch norms are folded into them becomes the same one in the form that
 * every file can say: the weights are the folded ones, and the batch norms only add. Momentum and averages are left
 * out. Nothing for other networks. */
CVY_CHECKED cvy_status cvy_convert_fold(struct cvy_conversion *conversion);
/* A format: writes options->output. Those that have files of their own: */
typedef cvy_status (*cvy_convert_writer)(struct cvy_conversion *conversion);
CVY_CHECKED cvy_status cvy_convert_pth(struct cvy_conversion *conversion);     /* a bare state dict */
CVY_CHECKED cvy_status cvy_convert_pth_tar(struct cvy_conversion *conversion); /* a checkpoint of NVIDIA's programs */
CVY_CHECKED cvy_status cvy_convert_tensorflow(struct cvy_conversion *conversion);
CVY_CHECKED cvy_status cvy_convert_onnx(struct cvy_conversion *conversion);

/* The metadata of the output: that of the input whose keys begin with `prefix`, and the format and the network where
 * the input does not say them. What belongs to a training stays only with `training`. Lives in the conversion's arena.
 */
CVY_CHECKED cvy_status cvy_convert_metadata(struct cvy_conversion *conversion, bool training, const char *prefix,
                                            struct cvy_tensor_meta **metadata, size_t *count);
/* A number in the metadata of the input; false where it has none of that key. */
bool cvy_convert_number(const struct cvy_conversion *conversion, const char *key, double *value);
/* Gives a list the names and shapes of the output, with a prefix before its name. */
CVY_CHECKED cvy_status cvy_convert_names(struct cvy_conversion *conversion, struct cvy_tensor_list *list,
                                         const char *prefix);
/* All lists as one, under the names of the output; its array has entries for `more`. */
CVY_CHECKED cvy_status cvy_convert_everything(struct cvy_conversion *conversion, size_t more,
                                              struct cvy_tensor_list *all);

#endif
