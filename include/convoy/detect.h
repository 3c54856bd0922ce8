/* Detection: where objects are on images, and of which class. */
#ifndef CONVOY_DETECT_H
#define CONVOY_DETECT_H

#include <stdint.h>

#include "convoy/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A detector with its weights, ready to answer. One thread uses it at a time: a call while another one is in progress
 * is refused (CVY_USAGE). */
typedef struct cvy_detector cvy_detector;

/* The options are those of a classifier; `resize` must be 0, since detectors take the whole image. CVY_BAD_DATA: the
 * file is damaged, or its network classifies. */
CVY_API CVY_CHECKED cvy_status cvy_detector_open(const struct cvy_classifier_options *options, cvy_detector **detector);
CVY_API void cvy_detector_close(cvy_detector *detector); /* accepts NULL */
/* Another detector on the same weights, for another thread, as cvy_classifier_open_context says. */
CVY_API CVY_CHECKED cvy_status cvy_detector_open_context(cvy_detector *detector, int threads, cvy_detector **context);
/* Ends the call of cvy_detect_images or cvy_detect_paths that another thread has begun, as cvy_classifier_stop does. */
CVY_API void cvy_detector_stop(cvy_detector *detector);
CVY_API int cvy_detector_classes(const cvy_detector *detector);
/* NULL where the weights have no name for this class; owned by the detector. */
CVY_API const char *cvy_detector_class_name(const cvy_detector *detector, int index);
/* The id of the category in the data of the training; index + 1 where the weights do not say it. */
CVY_API int64_t cvy_detector_class_id(const cvy_detector *detector, int index);
CVY_API const char *cvy_detector_arch(const cvy_detector *detector);

/* An object that was found on an image. */
struct cvy_detected_object {
    int class_index;        /* 0 to cvy_detector_classes() - 1 */
    int64_t class_id;       /* cvy_detector_class_id() of it */
    const char *class_name; /* NULL without a name; owned by the detector */
    float score;            /* 0..1 */
    float box[4];           /* x, y, width, height in pixels of the image; within it */
};
enum { CVY_DETECTED_OBJECTS_MAX = 100 }; /* on one image */
/* Detect on one encoded image in memory, of the formats that cvy_classify_memory reads: *count objects that score
 * `threshold` or more, the best first.
 * width, height: of the image, in pixels; may be NULL. `name` stands for the image in errors. CVY_BAD_DATA for an
 * unreadable image. */
CVY_API CVY_CHECKED cvy_status cvy_detect_memory(cvy_detector *detector, const char *name, const void *data,
                                                 size_t size, double threshold,
                                                 struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX],
                                                 int *count, int *width, int *height);

/* cvy_detect_memory for pixels, as cvy_classify_pixels is cvy_classify_memory for them. */
CVY_API CVY_CHECKED cvy_status cvy_detect_pixels(cvy_detector *detector, const char *name,
                                                 const struct cvy_pixels *pixels, double threshold,
                                                 struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX],
                                                 int *count);

/* Where the answers for N images go. */
struct cvy_detect_outputs {
    size_t size;                         /* sizeof(struct cvy_detect_outputs) */
    struct cvy_detected_object *objects; /* (N, CVY_DETECTED_OBJECTS_MAX): of each image the best first */
    int *count;                          /* (N): how many these are; 0 of an image that cannot be read */
    int *width, *height;                 /* (N): of the images, pixels, or 0 as above; NULL: not wanted */
    cvy_status *status;                  /* (N) as in struct cvy_outputs; NULL: the first bad image ends the call */
    char *errors;                        /* (N, CVY_ERROR_SIZE) as there; NULL: not wanted */
};
/* Detect on images of any sizes, in batches, as cvy_classify_images classifies them. */
CVY_API CVY_CHECKED cvy_status cvy_detect_images(cvy_detector *detector, const struct cvy_image *images, int count,
                                                 double threshold, const struct cvy_detect_outputs *outputs);

/* The answer for one file; valid during the call. status != CVY_OK: `error` says why, and nothing else is set. */
struct cvy_detect_answer {
    const char *file;
    cvy_status status;
    const char *error;
    int width, height; /* of the image, in pixels */
    int count;
    const struct cvy_detected_object *objects; /* (count), the best first */
};
typedef void (*cvy_detect_handler)(void *context, const struct cvy_detect_answer *answer);
struct cvy_detect_options {
    size_t size;      /* sizeof(struct cvy_detect_options) */
    double threshold; /* objects that score less are left out; 0..1 */
    /* A folder for copies of the images with the objects drawn on them, in their own formats, under the names that they
     * have within the given folders; made if it is missing. Two of one name get numbers. NULL: none are drawn. */
    const char *draw;
};
#ifdef __cplusplus
#define CVY_DETECT_DEFAULTS                                                                                            \
    ([] {                                                                                                              \
        struct cvy_detect_options cvy_options_ = CVY_SIZED(cvy_detect_options);                                        \
        cvy_options_.threshold = 0.5;                                                                                  \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_DETECT_DEFAULTS ((struct cvy_detect_options){.size = sizeof(struct cvy_detect_options), .threshold = 0.5})
#endif
/* Detect on files and folders (read recursively, sorted bytewise), in order, in batches. Bad files are reported to the
 * handler and do not stop the rest; the status is then the first bad one's. A copy that cannot be written ends the
 * work; copies appear whole or not at all. CVY_USAGE: a copy would replace one of the images;
 * CVY_UNAVAILABLE: copies are wanted, and cairo (libcairo.so.2) is not there. */
CVY_API CVY_CHECKED cvy_status cvy_detect_paths(cvy_detector *detector, const char *const *paths, size_t count,
                                                const struct cvy_detect_options *options, cvy_detect_handler handler,
                                                void *context);

#ifdef __cplusplus
}
#endif
#endif
