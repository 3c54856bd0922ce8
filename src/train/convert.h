/* `convoy convert` inside: what a file holds, brought into one order, and the writers of the formats. */
#ifndef CVY_TRAIN_CONVERT_H
#define CVY_TRAIN_CONVERT_H

#include "convoy/convert.h"
#include "models/naming.h"
#include "train/checkpoint.h"

/* Tensors under Convoy's names without prefix, in state-dict order; data belongs to the input. */
struct cvy_tensor_list {
    struct cvy_named_tensor *tensors;
    size_t count;
};

struct cvy_conversion {
    const struct cvy_convert_options *options;
    enum cvy_naming naming;
    struct cvy_tensor_file file;     /* the input, under Convoy's names */
    struct cvy_checkpoint_info info; /* what it says about itself */
    const struct cvy_architecture *architecture;
    struct cvy_model_options model;           /* num_classes and what else the file decides; size, mean and std of its
                                               * preprocessing, or the architecture's */
    struct cvy_graph table;                   /* for its parameters */
    struct cvy_arena arena;                   /* of the lists */
    struct cvy_tensor_list weights;           /* every tensor of the network (with --ema its average) */
    struct cvy_tensor_list average, momentum; /* empty where there are none or they are not wanted */
};

/* A format: writes options->output. */
typedef cvy_status (*cvy_convert_writer)(struct cvy_conversion *conversion);
CVY_CHECKED cvy_status cvy_convert_safetensors(struct cvy_conversion *conversion);

/* Has the metadata entry a place in the output? Those of a training have none beside weights alone. */
bool cvy_convert_keeps(const struct cvy_conversion *conversion, const char *key);

#endif
