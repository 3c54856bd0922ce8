/* Shared by classification, detection and evaluation: a network for inference with its evaluators, and images to read.
 */
#ifndef CVY_INFER_PREDICTOR_H
#define CVY_INFER_PREDICTOR_H

#include <stdatomic.h>

#include "convoy/infer.h"
#include "data/set/dataset.h"
#include "eval/evaluate.h"
#include "infer/class_names.h"
#include "infer/pixels.h"
#include "weights/checkpoint.h"

/* Evaluators of batches of 1, 2, 4, ... images, opened when first used; the largest is of the batch size. */
enum { CVY_BATCH_SIZES = 17 }; /* 65,536 images at most */
struct cvy_batch_evaluators {
    struct cvy_network network; /* of its own where the images are of another kind; else unused */
    struct cvy_evaluator of[CVY_BATCH_SIZES];
};

struct cvy_predictor {
    struct cvy_predictor *owner; /* of the weights; NULL: this one */
    atomic_int users;            /* contexts with these weights, and this predictor itself while it is open */
    atomic_bool stop, busy;      /* busy: a call is in progress */
    cvy_device *device;
    struct cvy_network network;
    struct cvy_checkpoint_info info; /* what the weights file says */
    struct cvy_class_names names;    /* of --class-names */
    float *quantizer_states;         /* where it computes in integers: what estimates of memory need; else NULL */
    struct cvy_preprocessing preprocessing;
    struct cvy_evaluator one, many; /* one image; batches. Opened when first used */
    int32_t batch_size, workers;    /* batch_size: CVY_BATCH_AUTO until one is chosen */
    bool precision_open;            /* fp32 was not asked for by name */
    double val_split;               /* of the training run: evaluate repeats its split */
    bool split_by_path;             /* its --val-split-rule path */
    uint64_t seed;
    struct cvy_decoder *decoder; /* for images in memory */
    struct cvy_resizer resizer;
    struct cvy_pixel_bytes buffer; /* for images that come as pixels */
    struct cvy_batch_evaluators images, tensors;
    struct cvy_evaluator *newest; /* of these; NULL: none is open */
    uint8_t *pixels;              /* (image_size, image_size, 3), of floats by TensorFlow's rules */
};

/* The weights of the options, from their file or from memory, and what they are called in errors. */
CVY_CHECKED cvy_status cvy_predictor_open_weights(struct cvy_tensor_file *file,
                                                  const struct cvy_classifier_options *options);
const char *cvy_predictor_weights_name(const struct cvy_classifier_options *options);
/* On failure it is closed. Zero-initialise for close, which accepts a zeroed one. */
CVY_CHECKED cvy_status cvy_predictor_open(struct cvy_predictor *predictor,
                                          const struct cvy_classifier_options *options);
void cvy_predictor_close(struct cvy_predictor *predictor);
/* Another one with the weights of `owner`: cvy_classifier_open_context. On failure it is closed. */
CVY_CHECKED cvy_status cvy_predictor_open_context(struct cvy_predictor *predictor, struct cvy_predictor *owner,
                                                  int threads);
/* Closes a predictor that begins a block of memory, and frees the block; those whose weights contexts use, with the
 * last of these. NULL is accepted. */
void cvy_predictor_release(struct cvy_predictor *predictor);
/* Around every call that computes: one at a time. CVY_USAGE where another thread (or a handler, from inside a call) has
 * begun one. The end returns `status`. */
CVY_CHECKED cvy_status cvy_predictor_begin(struct cvy_predictor *predictor);
CVY_CHECKED cvy_status cvy_predictor_end(struct cvy_predictor *predictor, cvy_status status);
/* Whether the call in progress continues, as a cvy_evaluate_progress and as a status: CVY_STOPPED. */
bool cvy_predictor_go_on(void *predictor, int64_t done);
CVY_CHECKED cvy_status cvy_predictor_stopped(struct cvy_predictor *predictor);
/* CVY_BAD_DATA for a detector. */
CVY_CHECKED cvy_status cvy_predictor_expect_classifier(const struct cvy_predictor *predictor);
/* What to call a class in answers: as --class-names says, as the weights do, or by the usual names of ImageNet and
 * COCO. NULL: it has no name. */
const char *cvy_predictor_class_name(const struct cvy_predictor *predictor, int index);
/* How images become the network's input. */
struct cvy_transform cvy_predictor_transform(const struct cvy_predictor *predictor);
/* A detector's image as its input: (image_size, image_size, 3) floats, and what size in pixels it has, turned where it
 * is turned for the network. */
CVY_CHECKED cvy_status cvy_predictor_read_detection(const struct cvy_predictor *predictor, struct cvy_decoder *decoder,
                                                    struct cvy_resizer *resizer, const struct cvy_encoded *encoded,
                                                    float *out, int32_t *width, int32_t *height);
/* The size alone. */
CVY_CHECKED cvy_status cvy_predictor_detection_size(const struct cvy_predictor *predictor, struct cvy_decoder *decoder,
                                                    const struct cvy_encoded *encoded, int32_t *width, int32_t *height);
/* Open the evaluator of single images, if it is not open yet. */
CVY_CHECKED cvy_status cvy_predictor_open_single(struct cvy_predictor *predictor);
/* CVY_NO_MEMORY where an evaluator of so many images does not fit beside what is there: before anything is allocated,
 * where a system that promises more memory than it has would end the program later. `network`: its own, or one beside
 * it. */
CVY_CHECKED cvy_status cvy_predictor_check_batch(const struct cvy_predictor *predictor,
                                                 const struct cvy_network *network, int64_t batch);
/* Open that of batches for a data set (NULL: random images in memory): the first one decides what --batch-size auto
 * means. */
CVY_CHECKED cvy_status cvy_predictor_open_batches(struct cvy_predictor *predictor, const struct cvy_dataset *dataset);
/* Batches of a data set, in its order. name_bad: unreadable images are warned of. */
CVY_CHECKED cvy_status cvy_predictor_open_source(const struct cvy_predictor *predictor,
                                                 const struct cvy_dataset *dataset, int32_t batch_size, bool name_bad,
                                                 struct cvy_source *source);
/* Files and folders as a data set without labels or objects; closed by the caller in any case. CVY_BAD_DATA: there is
 * no image. */
CVY_CHECKED cvy_status cvy_predictor_list(const struct cvy_predictor *predictor, const char *const *paths, size_t count,
                                          struct cvy_dataset *dataset);
/* Memory for the latencies of a pass over this source, freed with cvy_free, and what they come to: of all batches but
 * the first, which finds caches cold and memory untouched, unless it is the only one. */
CVY_CHECKED cvy_status cvy_predictor_time_batches(const struct cvy_source *source, struct cvy_pass *pass);
void cvy_predictor_set_latencies(const struct cvy_predictor *predictor, const struct cvy_pass *pass,
                                 struct cvy_evaluation *result);
/* That of a classifier. */
struct cvy_predictor *cvy_classifier_predictor(cvy_classifier *classifier);
/* The images for validation of DIR, as cvy_evaluate takes them, with the classes of the weights (classifier.c). */
CVY_CHECKED cvy_status cvy_predictor_open_validation(struct cvy_predictor *predictor, const char *folder,
                                                     struct cvy_dataset *val);
/* The same of a detector; with `training` the training part where DIR has one (detector_evaluate.c). */
CVY_CHECKED cvy_status cvy_predictor_open_detection(struct cvy_predictor *predictor, const char *folder, bool training,
                                                    struct cvy_dataset *dataset);
/* cvy_evaluate_with for a detector (detector_evaluate.c). */
CVY_CHECKED cvy_status cvy_predictor_evaluate_detector(struct cvy_predictor *predictor, const char *folder,
                                                       const struct cvy_evaluate_options *options,
                                                       struct cvy_evaluation *result);

#endif
