/* The automatic recipe. Its numbers were chosen on the built-in shapes and on small sets of photographs: see
 * doc/training.md. */
#include "options/recipe_auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "data/image/image.h"
#include "data/transform/transform.h"
#include "models/models.h"
#include "network/memory.h"
#include "options/options.h"

/* ---- looking at the data ---- */

enum { SAMPLED_IMAGES = 48 };

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Width and height of an image; 0 when it cannot be read. *turned is set where its EXIF orientation turns it. */
static void measure(struct cvy_decoder *decoder, const struct cvy_sample *sample, int32_t *width, int32_t *height,
                    bool *turned)
{
    struct cvy_encoded encoded;

    *width = *height = 0;
    if (cvy_sample_read(sample, &encoded) != CVY_OK)
        return;
    if (cvy_decoder_start(decoder, encoded.name, encoded.data, encoded.size, width, height) != CVY_OK)
        *width = *height = 0;
    else
        *turned |= cvy_decoder_orientation(decoder) != 1;
    cvy_encoded_release(&encoded);
}

cvy_status cvy_data_summarize(const struct cvy_dataset *dataset, struct cvy_data_summary *summary)
{
    const uint32_t count = dataset->sample_count < SAMPLED_IMAGES ? dataset->sample_count : SAMPLED_IMAGES;
    struct cvy_decoder *decoder = NULL;
    int32_t sides[SAMPLED_IMAGES];
    size_t known = 0;

    *summary = (struct cvy_data_summary){.images = dataset->sample_count};
    CVY_TRY(cvy_decoder_new(&decoder));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = (uint32_t)((uint64_t)i * dataset->sample_count / count);
        int32_t width, height;
        measure(decoder, &dataset->samples[index], &width, &height, &summary->turned);
        if (width < 1 || height < 1)
            continue;
        sides[known++] = width < height ? width : height;
        if ((int64_t)width * height > summary->largest_pixels)
            summary->largest_pixels = (int64_t)width * height;
    }
    cvy_decoder_free(decoder);
    if (known > 0) {
        qsort(sides, known, sizeof sides[0], by_value);
        summary->median_side = sides[known / 2];
    }
    return CVY_OK;
}

/* ---- choosing ---- */

/* FEW_STEPS: of an epoch, below which running statistics need help. */
enum { FEW_STEPS = 20, PRECISE_BATCHES = 8, USUAL_BATCH = 32 };

static cvy_status set_int(struct cvy_train_options *options, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    return cvy_train_options_set(options, name, text, CVY_FROM_AUTO);
}

static cvy_status set_real(struct cvy_train_options *options, const char *name, double value)
{
    char text[32];

    return cvy_train_options_set(options, name, cvy_double_text(value, text), CVY_FROM_AUTO);
}

/* What the weights know, else 224, but never more pixels than the images have. */
static int64_t choose_image_size(const struct cvy_data_summary *summary)
{
    const int32_t side = summary->median_side, best = summary->pretrained_size > 0 ? summary->pretrained_size : 224;

    if (side <= 0 || side >= best)
        return best;
    return side < 32 ? 32 : side < 64 ? side / 16 * 16 : side / 32 * 32;
}

/* Without room for the usual margin around the crop, validation takes the whole image. */
static int64_t choose_eval_resize(int64_t image_size, int32_t side)
{
    const int64_t usual = cvy_usual_resize(image_size);

    return side > 0 && side < usual ? image_size : usual;
}

/* Weights that were trained before need a third; of few images that would be too few steps. */
static int64_t choose_epochs(int64_t images, bool pretrained)
{
    const int64_t share = pretrained ? 3 : 1, epochs = 60000 / share / (images > 0 ? images : 1);
    const int64_t max = pretrained ? 40 : 60;

    if (images >= 100000)
        return 30 / share;
    return epochs < 15 / share ? 15 / share : epochs > max ? max : epochs;
}

/* Some steps an epoch, however few images there are for each rank: eight, then four, below 8 images a step. Larger
 * batches learn less in as many epochs, and the running statistics follow them too late (doc/training.md). */
static int64_t some_steps(int64_t batch, int64_t images)
{
    while (batch > 2 && batch * (batch > 8 ? 8 : 4) > images)
        batch /= 2;
    return batch;
}

int64_t cvy_auto_batch_max(int64_t images)
{
    return some_steps(CVY_AUTO_TRAINING_MAX, images);
}

static int64_t ranks_of(const struct cvy_data_summary *summary)
{
    return summary->ranks > 0 ? summary->ranks : 1;
}

/* Images of one optimizer step. */
static int64_t images_of_step(const struct cvy_data_summary *summary, const struct cvy_train_options *options)
{
    return options->optimizer_batch_size > 0 ? options->optimizer_batch_size : options->batch_size * ranks_of(summary);
}

static cvy_status choose_batch(const struct cvy_data_summary *summary, struct cvy_train_options *options)
{
    const int64_t images = summary->images;
    const bool largest = options->batch_size == CVY_BATCH_AUTO;
    const bool detector = cvy_architecture_find(options->arch)->task == CVY_TASK_DETECT;
    int64_t batch = images < 8000 ? USUAL_BATCH : images < 20000 ? 64 : images < 200000 ? 128 : 256;

    if (detector)
        batch = images < 2000 ? 8 : images < 20000 ? 16 : 32;
    if (!largest && cvy_option_source_of(options, "batch-size") > CVY_FROM_AUTO)
        return CVY_OK;
    batch = largest ? cvy_auto_batch_max(images / ranks_of(summary)) : some_steps(batch, images / ranks_of(summary));
    if (summary->fit)
        CVY_TRY(summary->fit(summary->fit_context, options, &batch));
    if (!largest)
        return set_int(options, "batch-size", batch);
    options->batch_size = batch; /* of the source that asked for it */
    return CVY_OK;
}

/* Running statistics that see little of an epoch are those of other weights than the ones that are validated: with a
 * tenth of a batch and five steps an epoch, they begin at losses of some hundred. They are to be those of half an
 * epoch. 0: the network's own share. */
static double choose_few_steps_momentum(int64_t steps_per_epoch)
{
    return steps_per_epoch >= FEW_STEPS ? 0 : steps_per_epoch < 7 ? 0.3 : round(200.0 / (double)steps_per_epoch) / 100;
}

/* Where an epoch has that few steps, any share is a compromise: validation gets the statistics of whole batches with
 * the weights as they are then. Half of such an epoch's batches are enough. Quantizers observe other things too. */
static int64_t choose_precise_batches(const struct cvy_train_options *options, int64_t steps_per_epoch)
{
    return steps_per_epoch < FEW_STEPS && !options->quantize ? PRECISE_BATCHES : 0;
}

/* The linear rule: 0.2 for 256 images of a step. From random weights on so few images that is more than they can bear:
 * for epochs the loss is above that of guessing. */
static double choose_rate(const struct cvy_data_summary *summary)
{
    return summary->images < FEW_STEPS * USUAL_BATCH && !summary->pretrained ? 0.1 : 0.2;
}

/* Whether it begins with what recipes/finetune.recipe says. */
static bool fine_tunes(const struct cvy_data_summary *summary)
{
    return summary->pretrained && summary->images < CVY_FEW_IMAGES;
}

cvy_status cvy_auto_recipe(const struct cvy_data_summary *summary, struct cvy_train_options *options)
{
    int64_t steps;

    if (cvy_recipe_text("auto"))
        CVY_TRY(cvy_recipe_apply(options, "auto", cvy_recipe_text("auto"), NULL, CVY_FROM_AUTO));
    if (fine_tunes(summary) && cvy_recipe_text("finetune"))
        CVY_TRY(cvy_recipe_apply(options, "finetune", cvy_recipe_text("finetune"), NULL, CVY_FROM_AUTO));
    CVY_TRY(set_int(options, "image-size", choose_image_size(summary)));
    CVY_TRY(set_int(options, "eval-resize", choose_eval_resize(options->image_size, summary->median_side)));
    if (!summary->pretrained)
        CVY_TRY(cvy_train_options_set(options, "arch",
                                      summary->images < 50000 || options->image_size < 128 ? "resnet18" : "resnet50",
                                      CVY_FROM_AUTO));
    if (summary->turned)
        CVY_TRY(cvy_train_options_set(options, "exif-orientation", "true", CVY_FROM_AUTO));
    CVY_TRY(choose_batch(summary, options));
    CVY_TRY(set_int(options, "epochs", choose_epochs(summary->images, summary->pretrained)));
    CVY_TRY(set_int(options, "warmup", options->epochs >= 10 ? 2 : 0));
    steps = summary->images / images_of_step(summary, options);
    CVY_TRY(set_real(options, "bn-momentum", choose_few_steps_momentum(steps)));
    CVY_TRY(set_int(options, "precise-bn", choose_precise_batches(options, steps)));
    /* Few images are seen too seldom to learn from small cut-outs of them. */
    CVY_TRY(set_real(options, "min-crop-area", summary->images < 20000 ? 0.35 : 0.08));
    CVY_TRY(set_real(options, "lr", choose_rate(summary) * (double)images_of_step(summary, options) / 256.0));
    return fine_tunes(summary) ? CVY_OK : set_real(options, "weight-decay", summary->images < 100000 ? 5e-4 : 1e-4);
}

/* ---- detectors ---- */

/* As often as COCO's recipe sees its images, 27 times; small sets more often, so that there are enough steps. */
static int64_t choose_detection_epochs(int64_t images)
{
    const int64_t epochs = 24000 / (images > 0 ? images : 1);

    return epochs < 27 ? 27 : epochs > 100 ? 100 : epochs;
}

/* The network's own 0.003 is for COCO: after 300 steps its running statistics would still be 0.4 parts of what they
 * began with. They are to be those of the last twentieth of a run. */
static double choose_bn_momentum(const struct cvy_train_options *options, int64_t steps_per_epoch)
{
    const int64_t steps = options->steps > 0 ? options->steps : options->epochs * steps_per_epoch;

    return steps >= 20 / 0.003 ? 0 : steps <= 20 / 0.1 ? 0.1 : round(20e4 / (double)steps) / 1e4;
}

cvy_status cvy_auto_recipe_detection(const struct cvy_data_summary *summary, struct cvy_train_options *options)
{
    int64_t images, steps;
    double rate;

    CVY_TRY(cvy_train_options_set(options, "lr-schedule", "cosine", CVY_FROM_AUTO));
    CVY_TRY(set_real(options, "momentum", 0.9));
    CVY_TRY(set_int(options, "rewinds", 8));
    CVY_TRY(set_real(options, "weight-decay", 4e-4));
    CVY_TRY(cvy_train_options_set(options, "weight-decay-rule", "weights", CVY_FROM_AUTO));
    CVY_TRY(set_int(options, "image-size", cvy_architecture_find(options->arch)->default_image_size));
    CVY_TRY(choose_batch(summary, options));
    images = images_of_step(summary, options);
    rate = 0.02 * (double)images / 32;
    steps = choose_detection_epochs(summary->images) * (summary->images / images);
    CVY_TRY(set_real(options, "lr", rate));
    /* A length that somebody said in epochs stays; the warm-up is one of steps all the same where it can be. */
    CVY_TRY(set_int(options, "epochs", choose_detection_epochs(summary->images)));
    CVY_TRY(set_int(options, "steps", steps > 2 ? steps : 2));
    if (options->steps > 0)
        CVY_TRY(set_int(options, "warmup-steps", options->steps * 8 / 100));
    CVY_TRY(set_real(options, "bn-momentum", choose_bn_momentum(options, summary->images / images)));
    rate = options->lr_per_256 > 0 ? options->lr_per_256 * (double)images / 256 : options->lr; /* what came of it */
    CVY_TRY(set_real(options, "warmup-lr", rate / 10));
    return set_int(options, "warmup", options->epochs >= 10 ? 1 : 0);
}
