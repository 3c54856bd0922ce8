/* Inference: load weights, classify images, evaluate a data set. */
#ifndef CONVOY_INFER_H
#define CONVOY_INFER_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_classifier_options {
    size_t size;           /* sizeof(struct cvy_classifier_options) */
    const char *weights;   /* file to load (required) */
    const char *arch;      /* NULL: from the file */
    int num_classes;       /* 0: from the file */
    const char *padding;   /* "torch" or "same"; NULL: from the file, else "torch" */
    const char *device;    /* NULL or "auto", "cpu", "cuda", "cuda:1", ..., "ref", "check:cpu" */
    const char *precision; /* NULL or "auto", "fp32", "bf16", "tf32" and "fp16" (GPUs only), "fp64" (ref only) */
    int threads;           /* <= 0: all cores the process may use; at most 4096 */
    int batch_size; /* images of a folder computed together; 0: 32, or CVY_BATCH_AUTO. A single image goes alone */
    int image_size; /* 0: from the file, else the architecture's */
    int resize;     /* shorter side before the centre crop; 0: from the file, else round(image_size * 256 / 224) */
    int workers;    /* decoding threads; < 0: chosen */
    const char *backbone_strides; /* detectors only: "slim" or "torchvision"; NULL: from the file, else "slim" */
    const char *class_names;      /* file of names for answers, one for each class; NULL: those in the weights */
    const void *weights_data;     /* bytes of a safetensors or PyTorch file instead of `weights`, which then is the */
    size_t weights_size;          /* name of it in errors; the caller's again after the call */
    const char *data_backend; /* classifiers only: "pytorch", "tensorflow", "dali-cpu" or "dali-gpu": whose rules crop
                               * and resize; NULL: from the file, else "pytorch" */
    bool features;            /* classifiers only: answers have the features that the last layer reads */
    /* With `features`: what this layer makes, instead: "layer1" to "layer4", a block of one of them ("layer3.0"), or
     * whatever else `convoy info WEIGHTS --plan` names. NULL: what the last layer reads. */
    const char *feature_layer;
    const char *interpolation; /* classifiers only: "bilinear" or "bicubic"; NULL: from the file, else "bilinear" */
};
#ifdef __cplusplus
#define CVY_CLASSIFIER_DEFAULTS                                                                                        \
    ([] {                                                                                                              \
        struct cvy_classifier_options cvy_options_ = CVY_SIZED(cvy_classifier_options);                                \
        cvy_options_.workers = -1;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_CLASSIFIER_DEFAULTS                                                                                        \
    ((struct cvy_classifier_options){.size = sizeof(struct cvy_classifier_options), .workers = -1})
#endif

/* A network with its weights, ready to answer. One thread uses it at a time: a call while another one is in progress is
 * refused (CVY_USAGE). */
typedef struct cvy_classifier cvy_classifier;

CVY_API CVY_CHECKED cvy_status cvy_classifier_open(const struct cvy_classifier_options *options,
                                                   cvy_classifier **classifier);
CVY_API void cvy_classifier_close(cvy_classifier *classifier); /* accepts NULL */
/* Another classifier on the same weights, for another thread: it costs the memory of its activations, and none waits
 * for another. `threads` that compute together, as many as the first one's for 0; with another number, the prepared
 * weights may have to be made again. CVY_UNAVAILABLE on a GPU. Call it while nobody uses `classifier`. Contexts are
 * closed like classifiers, in any order: what they share goes with the last one. */
CVY_API CVY_CHECKED cvy_status cvy_classifier_open_context(cvy_classifier *classifier, int threads,
                                                           cvy_classifier **context);
/* Ends the call that another thread has begun with this classifier after its current batch: CVY_STOPPED. Calls for one
 * image or tensor are not ended. May be called from a signal handler. */
CVY_API void cvy_classifier_stop(cvy_classifier *classifier);
CVY_API int cvy_classifier_classes(const cvy_classifier *classifier);
/* Side of the square images that the network sees, pixels. */
CVY_API int cvy_classifier_image_size(const cvy_classifier *classifier);
/* How a pixel's channels R, G, B from 0 to 255 become the network's input: (x - mean) / deviation. Either may be NULL;
 * NaN of no classifier. */
CVY_API void cvy_classifier_normalization(const cvy_classifier *classifier, float mean[3], float deviation[3]);
/* Features of an image: 512 or 2048 before the last layer of ResNets; of a `feature_layer` all numbers of its map. 0
 * without the option `features`. */
CVY_API int cvy_classifier_features(const cvy_classifier *classifier);
/* Channels, height and width of these, which lie in this order; {512, 1, 1} where there is no map, 0 without features.
 */
CVY_API void cvy_classifier_feature_shape(const cvy_classifier *classifier, int shape[3]);
/* The name of `class_names`, else of the weights; where these carry none, ImageNet's for 1,000 classes (of a detector
 * COCO's for 90). NULL: there is none. */
CVY_API const char *cvy_classifier_class_name(const cvy_classifier *classifier, int index);
CVY_API const char *cvy_classifier_arch(const cvy_classifier *classifier);

/* Classify one encoded image in memory, of any format that is read (doc/data.md): JPEG, PNG, WebP, HEIC, AVIF, TIFF,
 * BMP, GIF, PPM. logits, probabilities: (cvy_classifier_classes()) floats each, or NULL: not wanted.
 * `name` stands for the image in errors. CVY_BAD_DATA for an unreadable image. */
CVY_API CVY_CHECKED cvy_status cvy_classify_memory(cvy_classifier *classifier, const char *name, const void *data,
                                                   size_t size, float *logits, float *probabilities);

/* An image as pixels in memory, 8 bits a channel, the top row first. Alpha is ignored. */
enum cvy_pixel_format { CVY_PIXELS_RGB, CVY_PIXELS_BGR, CVY_PIXELS_RGBA, CVY_PIXELS_BGRA, CVY_PIXELS_GREY };
struct cvy_pixels {
    size_t size; /* sizeof(struct cvy_pixels): says which fields the program knows */
    const void *data;
    enum cvy_pixel_format format;
    int width, height;
    size_t stride; /* bytes from one row to the next; 0: the rows follow one another */
};
/* cvy_classify_memory for pixels: the answer is the one for a lossless file that holds them. `pixels` stays the
 * caller's and is only read during the call. CVY_USAGE for a size, format or stride that is not possible. */
CVY_API CVY_CHECKED cvy_status cvy_classify_pixels(cvy_classifier *classifier, const char *name,
                                                   const struct cvy_pixels *pixels, float *logits,
                                                   float *probabilities);

/* An image, encoded or as pixels. */
struct cvy_image {
    size_t size;                     /* sizeof(struct cvy_image) */
    const char *name;                /* stands for the image in errors; NULL: its number */
    const void *data;                /* an encoded image, as cvy_classify_memory reads it; NULL: pixels */
    size_t bytes;                    /* of data */
    const struct cvy_pixels *pixels; /* read where data is NULL */
};
enum { CVY_ERROR_SIZE = 512 }; /* bytes of a sentence in outputs, its end included; a longer one is cut */
/* Where the answers for N images go. */
struct cvy_outputs {
    size_t size;                   /* sizeof(struct cvy_outputs) */
    float *logits, *probabilities; /* (N, classes); NULL: not wanted */
    float *features;               /* (N, features), with the option `features`; NULL: not wanted */
    /* (N) of each image; those that cannot be read then get NaN for numbers and do not stop the rest. NULL: the first
     * one of them ends the call. */
    cvy_status *status;
    /* (N, CVY_ERROR_SIZE), with `status` only: the sentence of each image that has no answer, "" of the others. NULL:
     * not wanted. */
    char *errors;
};
/* Classify images of any sizes, in batches; decoding runs in `workers` threads. Status and cvy_error() are those of the
 * first image which cannot be read. */
CVY_API CVY_CHECKED cvy_status cvy_classify_images(cvy_classifier *classifier, const struct cvy_image *images,
                                                   int count, const struct cvy_outputs *outputs);

/* Images that are the network's input already: floats, RGB, normalised as cvy_classifier_normalization says. */
enum cvy_tensor_order { CVY_ORDER_NCHW, CVY_ORDER_NHWC };
struct cvy_input_tensor {
    size_t size; /* sizeof(struct cvy_input_tensor) */
    const float *data;
    enum cvy_tensor_order order;
    int images, height, width; /* height and width: the network's image size */
};
/* Classify a batch of any number of images. CVY_USAGE for another size of images and with precision fp64; CVY_BAD_DATA
 * is the status of an image with numbers that are NaN or infinite, as of one that cannot be read in a list of images.
 */
CVY_API CVY_CHECKED cvy_status cvy_classify_tensor(cvy_classifier *classifier, const struct cvy_input_tensor *tensor,
                                                   const struct cvy_outputs *outputs);

/* The indices of the `k` largest of `count` values, the largest first, of equal ones the lower index; NaN is below all
 * numbers. Returns how many there are: the smaller one of k and count. */
CVY_API int cvy_top_k(const float *values, int count, int k, int *indices);

/* The answer for one file; valid during the call. status != CVY_OK: `error` says why and there are no numbers. */
struct cvy_answer {
    const char *file;
    cvy_status status;
    const char *error;
    const float *logits, *probabilities; /* (cvy_classifier_classes()) */
    const float *features;               /* (cvy_classifier_features()), with the option `features`; else NULL */
};
typedef void (*cvy_answer_handler)(void *context, const struct cvy_answer *answer);
/* Classify files and folders (read recursively, sorted bytewise), in order, in batches. Bad files are reported to the
 * handler and do not stop the rest; the status is then the first bad one's. */
CVY_API CVY_CHECKED cvy_status cvy_classify_paths(cvy_classifier *classifier, const char *const *paths, size_t count,
                                                  cvy_answer_handler handler, void *context);

struct cvy_evaluation {
    double top1, top5; /* percent of the images read (top5: top-k with k = min(5, classes)) */
    double loss;       /* mean plain cross-entropy */
    int64_t images, skipped;
    double images_per_second;
    int32_t batch_size;
    /* ms of a batch, from its images to its results, without waiting for data; the first batch counts only if there is
     * no other */
    double latency_average, latency_p50, latency_p90, latency_p95, latency_p99;
    bool detection;   /* a detector's: top1, top5 and loss are 0 */
    double stats[12]; /* and these are COCO's (doc/detection.md), fractions; -1 where there is nothing to find */
};
/* Detectors: one pass over the images of DIR that its COCO file for validation lists, or over its records. Classifiers:
 * one pass over DIR/val (or DIR/<class> when there is no val, or the images of the list DIR). Classes must agree with
 * the weights' by name where the weights carry names; else there may be no more than the weights have, and they are
 * taken for the first ones in order (CVY_BAD_DATA). */
CVY_API CVY_CHECKED cvy_status cvy_evaluate(cvy_classifier *classifier, const char *folder,
                                            struct cvy_evaluation *result);
/* The same, and files about it. Both are written whole or not at all; NULL: not wanted. */
struct cvy_evaluate_options {
    size_t size;           /* sizeof(struct cvy_evaluate_options) */
    const char *report;    /* one HTML page: accuracy by class, confusion matrix, the most wrong images */
    const char *details;   /* the same numbers as JSON, as in a run's validation.json (doc/training.md) */
    const char *area_rule; /* detectors only: "annotation" (NULL means that) or "box" */
};
#define CVY_EVALUATE_DEFAULTS CVY_SIZED(cvy_evaluate_options)
CVY_API CVY_CHECKED cvy_status cvy_evaluate_with(cvy_classifier *classifier, const char *folder,
                                                 const struct cvy_evaluate_options *options,
                                                 struct cvy_evaluation *result);

/* Weights files are mapped. One that another program cuts off while it is read raises SIGBUS, which ends a process that
 * does not handle it. After this call it is an error of the function that reads (CVY_BAD_DATA), as is a disk that
 * fails: a handler for SIGBUS is installed, and passes to the former one what is not about the library's files. For the
 * whole process, for good; further calls do nothing. The library does not do it unasked; the `convoy` program asks. */
CVY_API void cvy_guard_mapped_files(void);

#ifdef __cplusplus
}
#endif
#endif
