/* One validation pass in detail: hits by class, the confusion matrix, the most wrong images. Collected while the pass
 * runs, kept as JSON (validation.json, described in doc/training.md), shown on the page. */
#ifndef CVY_REPORT_VALIDATION_VALIDATION_H
#define CVY_REPORT_VALIDATION_VALIDATION_H

#include "base/memory.h"
#include "convoy/status.h"
#include "data/image/resize.h"

enum { CVY_WORST_IMAGES = 24, CVY_THUMBNAIL_SIZE = 112 };

/* `count` images of class `label` were taken for `predicted`. */
struct cvy_confusion_cell {
    int32_t label, predicted;
    int64_t count;
};
struct cvy_wrong_image {
    int32_t label, predicted;
    double loss;                           /* cross-entropy */
    double probability, label_probability; /* of what was predicted, and of the truth */
    const char *file;                      /* NULL: no file */
    const char *thumbnail;                 /* JPEG as base64, NULL: none */
};
/* Texts and arrays live in the arena. */
struct cvy_validation {
    struct cvy_arena arena;
    int64_t epoch; /* from 0; -1: no training continues */
    int64_t images, skipped;
    int32_t top_k, class_count;
    double top1, topk, loss;                              /* percent; mean cross-entropy */
    const char **classes;                                 /* NULL: without names */
    int64_t *class_images, *class_hits, *class_topk_hits; /* (class_count) */
    int64_t *class_predicted;                             /* (class_count): images taken for this class */
    struct cvy_confusion_cell *cells;                     /* most frequent first; count > 0 */
    size_t cell_count;
    struct cvy_wrong_image *worst; /* largest loss first */
    size_t worst_count;
};
void cvy_validation_release(struct cvy_validation *validation); /* accepts a zeroed one */
/* Class `index` as text: its name, or "class 7". */
const char *cvy_validation_class(const struct cvy_validation *validation, int32_t index, char buffer[32]);

/* Written whole or not at all. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_validation_write(const struct cvy_validation *validation, const char *path);
/* CVY_NO_INPUT, CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_validation_read(struct cvy_validation *validation, const char *path);

/* ---- collecting ---- */

/* The network's prediction for one image. */
struct cvy_validation_image {
    int32_t label, predicted;
    bool in_topk;
    double loss, probability, label_probability;
    const char *file;     /* NULL: none */
    int64_t offset;       /* of its record within the file; -1: the file is the image */
    const uint8_t *image; /* (size, size, 3) as the network saw it; NULL: none */
    int32_t size;
};
/* Eight bytes for each image, and the pixels of the worst. */
struct cvy_collector {
    int32_t class_count, top_k;
    int64_t *topk_hits; /* (class_count) */
    uint64_t *pairs;    /* label << 32 | predicted, one for each image */
    size_t pair_count, pair_capacity;
    struct cvy_worst {
        struct cvy_wrong_image image; /* file owned here; thumbnail NULL until the end */
        char *file;
        uint8_t *pixels;
        int32_t size;
    } worst[CVY_WORST_IMAGES];
    size_t worst_count;
    struct cvy_resizer resizer;
};
CVY_CHECKED cvy_status cvy_collector_open(struct cvy_collector *collector, int32_t class_count, int32_t top_k);
void cvy_collector_close(struct cvy_collector *collector); /* accepts a zeroed one */
/* Begin another pass. */
void cvy_collector_clear(struct cvy_collector *collector);
/* Whether it would keep this image's pixels; what it would not, may be added without them. */
bool cvy_collector_keeps(const struct cvy_collector *collector, const struct cvy_validation_image *image);
CVY_CHECKED cvy_status cvy_collector_add(struct cvy_collector *collector, const struct cvy_validation_image *image);
/* The result of a pass; `classes` (`named` names of the first classes, or NULL) are copied. The totals (epoch, images,
 * skipped, top1, topk, loss) are the caller's to set. */
CVY_CHECKED cvy_status cvy_collector_finish(struct cvy_collector *collector, const char *const *classes, int32_t named,
                                            struct cvy_validation *validation);

#endif
