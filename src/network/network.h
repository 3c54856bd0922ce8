/* A network on a device: its parameters in one store, the host's counters, and the plans that share them. */
#ifndef CVY_NETWORK_NETWORK_H
#define CVY_NETWORK_NETWORK_H

#include "backend/plan.h"
#include "models/models.h"
#include "network/precision.h"
#include "network/split.h"

struct cvy_network {
    const struct cvy_architecture *architecture;
    struct cvy_model_options model;
    enum cvy_dtype dtype;     /* of the arithmetic: CVY_F32, CVY_F64, or CVY_BF16 (mixed) */
    cvy_device *device;       /* borrowed */
    struct cvy_store store;   /* weights, running statistics; in training gradients and momentum too */
    struct cvy_store average; /* their moving average (EMA); empty without cvy_network_extend */
    bool int8;     /* inference plans compute in integers: the quantizers' states stay as they are from then on */
    bool constant; /* its parameters stay as they are once a plan was made; owners of inference alone set it */
    struct cvy_workspace workspace; /* of the plans that fit into it; empty without cvy_network_reserve */
    int64_t *counters;              /* num_batches_tracked values, by cvy_param.offset */
    struct cvy_graph table;         /* kept for its parameter table */
};

/* Mean and standard deviation of ImageNet in the 0..255 scale, R G B. */
extern const float cvy_imagenet_mean[3], cvy_imagenet_std[3];
extern const float cvy_tensorflow_mean[3], cvy_tensorflow_std[3]; /* of TensorFlow's program */
/* num_classes, image_size and ImageNet's normalisation; everything else zero. */
struct cvy_model_options cvy_model_options_make(int32_t num_classes, int32_t image_size);
/* The model of an architecture as its data sets have it: 1000 classes of ImageNet or COCO's 90, its usual image size;
 * num_classes and image_size where they are not 0. */
struct cvy_model_options cvy_model_options_usual(const struct cvy_architecture *architecture, int32_t num_classes,
                                                 int32_t image_size);
/* Settings specific to an architecture: a detector takes floats of 0..255 minus its mean. */
void cvy_model_options_adapt(struct cvy_model_options *model, const struct cvy_architecture *architecture);

/* Parameters are zero until cvy_network_initialize or a load. A failed open leaves a closed network. */
CVY_CHECKED cvy_status cvy_network_open(struct cvy_network *network, cvy_device *device,
                                        const struct cvy_architecture *architecture,
                                        const struct cvy_model_options *model, enum cvy_dtype dtype, bool training);
void cvy_network_close(struct cvy_network *network); /* accepts a zeroed one */
/* Another network for inference over the parameters of `owner`, which outlives it and does not change them. `device` is
 * `owner`'s or one of the same kind, for which memory of `owner`'s is its own: the host's. `model` may have other
 * images than `owner`'s. A failed open leaves a closed network. */
CVY_CHECKED cvy_status cvy_network_open_beside(struct cvy_network *network, cvy_device *device,
                                               const struct cvy_model_options *model, const struct cvy_network *owner);

/* Adds the memory that some training rules need (CVY_EXTRA_...), and that of a moving average of weights and running
 * statistics. What is there already stays. */
CVY_CHECKED cvy_status cvy_network_extend(struct cvy_network *network, int extras, bool average);
/* Initialises the average with the current values. */
CVY_CHECKED cvy_status cvy_network_start_average(struct cvy_network *network);

/* Whether inference of a quantised network computes in integers: where the device has them, and no other precision was
 * asked for by name. */
bool cvy_network_wants_int8(const char *precision, const cvy_device *device, const struct cvy_model_options *model);
/* The graph of a mode in the network's precision. int8_state: the values of its state parameters, for inference of a
 * quantised network in integers (cvy_rewrite_int8); NULL: in floats. */
CVY_CHECKED cvy_status cvy_network_graph(const struct cvy_architecture *architecture,
                                         const struct cvy_model_options *model, const cvy_device *device,
                                         enum cvy_dtype dtype, enum cvy_model_mode mode, const float *int8_state,
                                         struct cvy_graph *graph);
/* Reserves memory shared by the network's plans opened after it: training and validation never run at the same time. */
CVY_CHECKED cvy_status cvy_network_reserve(struct cvy_network *network, size_t bytes);
/* How inference of a batch is computed (split.h). */
CVY_CHECKED cvy_status cvy_network_split(const struct cvy_network *network, int64_t batch, struct cvy_split *split);
/* A plan over the network's store, in the reserved memory where it fits, else in memory of its own. */
CVY_CHECKED cvy_status cvy_network_plan(struct cvy_network *network, enum cvy_model_mode mode, int64_t batch,
                                        struct cvy_plan *plan);

/* A plan for inference that reads the constants of `beside`, a plan of the network that this one was opened beside,
 * where both want the same (cvy_plan_allocate_beside). */
CVY_CHECKED cvy_status cvy_network_plan_beside(struct cvy_network *network, int64_t batch, struct cvy_plan *beside,
                                               struct cvy_plan *plan);

/* Random start values of every parameter, a function of the seed alone. */
CVY_CHECKED cvy_status cvy_network_initialize(struct cvy_network *network, uint64_t seed);
/* Weights, as published tables count parameters; those that training leaves as they are among them. */
int64_t cvy_network_parameters(const struct cvy_network *network);
int64_t cvy_network_frozen(const struct cvy_network *network);
/* A parameter that belongs to the classes: of the classifier, fc, or of a detector, head.class_predictor. */
bool cvy_is_head(const char *name);

/* Read a named result of f32 or f64 values as floats. */
CVY_CHECKED cvy_status cvy_plan_read_floats(struct cvy_plan *plan, const char *name, float *values, size_t count);
/* The type of a graph input; CVY_F32 when there is none of that name. */
enum cvy_dtype cvy_plan_input_dtype(const struct cvy_plan *plan, const char *name);

#endif
