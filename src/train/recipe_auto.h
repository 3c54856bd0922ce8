/* The automatic recipe: what to train and how, from what the data look like. */
#ifndef CVY_TRAIN_RECIPE_AUTO_H
#define CVY_TRAIN_RECIPE_AUTO_H

#include "convoy/train.h"
#include "data/dataset.h"

/* What the choice depends on. */
struct cvy_data_summary {
    int64_t images;          /* of the training set */
    int32_t median_side;     /* of the shorter sides of a sample of them, pixels; 0: unknown */
    size_t memory;           /* bytes that this process may use; 0: unknown */
    bool pretrained;         /* the network starts from weights that were trained before: options->arch is theirs */
    int32_t pretrained_size; /* side of the images they were trained on; 0: unknown */
};
/* Looks at the headers of a few images spread over the set; unreadable ones are passed over. */
CVY_CHECKED cvy_status cvy_data_summarize(const struct cvy_dataset *dataset, struct cvy_data_summary *summary);
/* Sets arch, image-size, eval-resize, batch-size, epochs, warmup, lr, weight-decay and what recipes/auto.recipe says,
 * with source CVY_FROM_AUTO: values from recipes and flags stay, and the others follow from them. */
CVY_CHECKED cvy_status cvy_auto_recipe(const struct cvy_data_summary *summary, struct cvy_train_options *options);

#endif
