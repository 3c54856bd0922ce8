/* Lists of images in batches of powers of two: what classification and detection share. */
#ifndef CVY_INFER_BATCHES_H
#define CVY_INFER_BATCHES_H

#include "infer/predictor.h"

/* ---- evaluators ---- */

/* Images computed together at most. */
int32_t cvy_batches_largest(const struct cvy_predictor *predictor);
/* The images of the smallest evaluator for `count` of them, up to the largest batch. */
int32_t cvy_batches_padded(const struct cvy_predictor *predictor, int64_t count);
/* That evaluator, opened when first used. `network` is the one of `evaluators`, or the predictor's. */
CVY_CHECKED cvy_status cvy_batches_evaluator(struct cvy_predictor *predictor, struct cvy_batch_evaluators *evaluators,
                                             struct cvy_network *network, int64_t count, struct cvy_evaluator **found);

/* ---- bad images ---- */

/* What is said of them: to each one's rows, and by the first one's sentence and status. */
struct cvy_image_notes {
    cvy_status *status; /* (N); NULL: the first bad image ends the work */
    char *errors;       /* (N, CVY_ERROR_SIZE); NULL: not wanted */
    cvy_status worst;
    char sentence[CVY_ERROR_SIZE];
};
/* CVY_USAGE: errors without status. */
CVY_CHECKED cvy_status cvy_image_notes_begin(struct cvy_image_notes *notes, cvy_status *status, char *errors);
/* Called for every image, in their order; `sentence` is a bad one's. */
void cvy_image_notes_put(struct cvy_image_notes *notes, int64_t number, cvy_status status, const char *sentence);
/* Records the first bad image's sentence and returns its status. */
CVY_CHECKED cvy_status cvy_image_notes_end(const struct cvy_image_notes *notes);
/* This thread's recorded sentence; a long one ends with its last whole character. */
void cvy_image_sentence(char sentence[CVY_ERROR_SIZE]);

/* ---- images ---- */

/* One of the list after its batch is computed. */
struct cvy_image_result {
    int64_t number;        /* in the list */
    int32_t index;         /* in the evaluator's batch */
    cvy_status status;     /* not CVY_OK: there is no answer */
    int32_t width, height; /* of a detector's image, as cvy_predictor_read_detection says */
};
/* What a program wants to know of which images. */
struct cvy_image_work {
    const struct cvy_image *images; /* (count) as the program has them: of the size that its header says */
    int count;
    cvy_status *status; /* as in its outputs */
    char *errors;
    void (*take)(void *context, const struct cvy_evaluator *evaluator, const struct cvy_image_result *result);
    void *context; /* of take */
};
/* Decodes the images in threads, computes them in batches and gives each one's result to `take`, in order. A call of
 * the predictor's: it is begun and ended here. */
CVY_CHECKED cvy_status cvy_predictor_compute_images(struct cvy_predictor *predictor, const struct cvy_image_work *work);

#endif
