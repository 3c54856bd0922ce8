/* The automatic recipe. Its numbers were chosen on the built-in shapes and on small sets of photographs: see
 * doc/training.md. */
#include "train/recipe_auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "data/image.h"
#include "train/network.h"
#include "train/options.h"

/* ---- looking at the data ---- */

enum { SAMPLED_IMAGES = 48, HEADER_LIMIT = 256 << 20 /* bytes of one file */ };

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Shorter side of an image file; 0 when it cannot be read. */
static int32_t shorter_side(struct cvy_decoder *decoder, const char *path)
{
    void *data = NULL;
    size_t size;
    int32_t width = 0, height = 0;

    if (cvy_file_read(path, HEADER_LIMIT, &data, &size) != CVY_OK)
        return 0;
    if (cvy_decoder_start(decoder, path, data, size, &width, &height) != CVY_OK)
        width = height = 0;
    cvy_free(data);
    return width < height ? width : height;
}

/* Physical memory, cut to the container's limit. */
static size_t usable_memory(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t memory = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;

    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        unsigned long long limit = 0;
        FILE *file = fopen(limits[i], "r");
        if (!file)
            continue;
        if (fscanf(file, "%llu", &limit) == 1 && limit > 0 && (memory == 0 || limit < memory))
            memory = (size_t)limit;
        fclose(file);
    }
    return memory;
}

cvy_status cvy_data_summarize(const struct cvy_dataset *dataset, struct cvy_data_summary *summary)
{
    const uint32_t count = dataset->sample_count < SAMPLED_IMAGES ? dataset->sample_count : SAMPLED_IMAGES;
    struct cvy_decoder *decoder = NULL;
    int32_t sides[SAMPLED_IMAGES];
    size_t known = 0;

    *summary = (struct cvy_data_summary){.images = dataset->sample_count, .memory = usable_memory()};
    CVY_TRY(cvy_decoder_new(&decoder));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = (uint32_t)((uint64_t)i * dataset->sample_count / count);
        const int32_t side = shorter_side(decoder, dataset->samples[index].path);
        if (side > 0)
            sides[known++] = side;
    }
    cvy_decoder_free(decoder);
    if (known > 0) {
        qsort(sides, known, sizeof sides[0], by_value);
        summary->median_side = sides[known / 2];
    }
    return CVY_OK;
}

/* ---- choosing ---- */

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
    const int64_t usual = (int64_t)lround((double)image_size * 256.0 / 224.0);

    return side > 0 && side < usual ? image_size : usual;
}

/* Weights that were trained before need a third. */
static int64_t choose_epochs(int64_t images, bool pretrained)
{
    const int64_t share = pretrained ? 3 : 1, epochs = 60000 / share / (images > 0 ? images : 1);

    if (images >= 100000)
        return 30 / share;
    return epochs < 15 / share ? 15 / share : epochs > 60 / share ? 60 / share : epochs;
}

/* Bytes of activations that training keeps for one image. */
static cvy_status activation_bytes(const struct cvy_train_options *options, size_t *bytes, size_t *parameters)
{
    const struct cvy_model_options model = cvy_model_options_make(1000, (int32_t)options->image_size);
    struct cvy_graph graph;

    *bytes = 0;
    CVY_TRY(cvy_model_graph(cvy_architecture_find(options->arch), &model, CVY_MODEL_TRAIN, true, &graph));
    *parameters = (size_t)graph.trainable_elements * sizeof(float);
    for (int32_t i = 0; i < graph.value_count; i++) {
        const struct cvy_value *value = &graph.values[i];
        struct cvy_shape one = cvy_shape_bind(&value->shape, 1);
        if (value->producer >= 0 && !graph.nodes[value->producer].backward && value->shape.rank == 4 &&
            value->shape.dim[0] == CVY_BATCH)
            *bytes += (size_t)cvy_shape_elements(&one) * cvy_dtype_size(value->dtype);
    }
    cvy_graph_release(&graph);
    return CVY_OK;
}

static cvy_status choose_batch(const struct cvy_data_summary *summary, const struct cvy_train_options *options,
                               int64_t *batch)
{
    const int64_t images = summary->images;
    size_t bytes, parameters;

    *batch = images < 8000 ? 32 : images < 20000 ? 64 : images < 200000 ? 128 : 256;
    while (*batch > 2 && *batch * 4 > images) /* some steps an epoch, however few images there are */
        *batch /= 2;
    if (summary->memory == 0)
        return CVY_OK;
    CVY_TRY(activation_bytes(options, &bytes, &parameters));
    /* Half of the memory for weights, gradients, momentum, packed copies and activations with their gradients. */
    while (*batch > 8 && (double)bytes * 1.2 * (double)*batch + (double)parameters * 5 > 0.5 * (double)summary->memory)
        *batch /= 2;
    return CVY_OK;
}

cvy_status cvy_auto_recipe(const struct cvy_data_summary *summary, struct cvy_train_options *options)
{
    int64_t batch;

    if (cvy_recipe_text("auto"))
        CVY_TRY(cvy_recipe_apply(options, "auto", cvy_recipe_text("auto"), CVY_FROM_AUTO));
    CVY_TRY(set_int(options, "image-size", choose_image_size(summary)));
    CVY_TRY(set_int(options, "eval-resize", choose_eval_resize(options->image_size, summary->median_side)));
    if (!summary->pretrained)
        CVY_TRY(cvy_train_options_set(options, "arch",
                                      summary->images < 50000 || options->image_size < 128 ? "resnet18" : "resnet50",
                                      CVY_FROM_AUTO));
    CVY_TRY(choose_batch(summary, options, &batch));
    CVY_TRY(set_int(options, "batch-size", batch));
    CVY_TRY(set_int(options, "epochs", choose_epochs(summary->images, summary->pretrained)));
    CVY_TRY(set_int(options, "warmup", options->epochs >= 10 ? 2 : 0));
    /* Few images are seen too seldom to learn from small cut-outs of them. */
    CVY_TRY(set_real(options, "min-crop-area", summary->images < 20000 ? 0.35 : 0.08));
    /* The linear rule: 0.2 for 256 images. */
    CVY_TRY(set_real(options, "lr", 0.2 * (double)options->batch_size / 256.0));
    return set_real(options, "weight-decay", summary->images < 100000 ? 5e-4 : 1e-4);
}
