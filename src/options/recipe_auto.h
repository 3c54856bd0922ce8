/* The automatic recipe: what to train and how, from what the data look like. */
#ifndef CVY_OPTIONS_RECIPE_AUTO_H
#define CVY_OPTIONS_RECIPE_AUTO_H

#include "convoy/train.h"
#include "data/set/dataset.h"

/* Asks for the largest batch up to *batch that memory allows, for options whose network and image size are chosen. */
typedef cvy_status (*cvy_batch_fitting)(void *context, const struct cvy_train_options *options, int64_t *batch);

/* Training images below which a network had better start from trained weights, and is fine-tuned when it does. */
enum { CVY_FEW_IMAGES = 3000 };

/* What the choice depends on. */
struct cvy_data_summary {
    int64_t images;          /* of the training set */
    int64_t ranks;           /* processes, each with a batch of its own; 0: 1 */
    int32_t median_side;     /* of the shorter sides of a sample of them, pixels; 0: unknown */
    int64_t largest_pixels;  /* of a sample of them */
    bool turned;             /* one of a sample of them is to be shown turned (EXIF) */
    bool pretrained;         /* the network starts from weights that were trained before: options->arch is theirs */
    int32_t pretrained_size; /* side of the images they were trained on; 0: unknown */
    cvy_batch_fitting fit;   /* NULL: memory sets no limit */
    void *fit_context;
};
/* Looks at the headers of a few images spread over the set; unreadable ones are skipped. */
CVY_CHECKED cvy_status cvy_data_summarize(const struct cvy_dataset *dataset, struct cvy_data_summary *summary);
/* The largest batch that --batch-size auto may choose for a training set of this many images: some steps an epoch. */
int64_t cvy_auto_batch_max(int64_t images);
/* Sets arch, image-size, eval-resize, batch-size, epochs, warmup, lr, weight-decay and what recipes/auto.recipe says,
 * with source CVY_FROM_AUTO: values from recipes and flags stay, and the others follow from them.
 * A batch size of CVY_BATCH_AUTO becomes a number, whoever gave it. */
CVY_CHECKED cvy_status cvy_auto_recipe(const struct cvy_data_summary *summary, struct cvy_train_options *options);
/* The same for a detector, whose arch is chosen: image-size, batch-size, steps or epochs with their warm-up, lr,
 * momentum and weight decay. */
CVY_CHECKED cvy_status cvy_auto_recipe_detection(const struct cvy_data_summary *summary,
                                                 struct cvy_train_options *options);

#endif
