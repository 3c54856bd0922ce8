/* convoy dataset shapes: the drawn objects as folders of JPEG files. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "convoy/program/shapes.h"
#include "data/image/codec.h"
#include "dataset_tools/drawn_objects.h"

enum { MAX_PER_CLASS = 1 << 20 };
enum part { TRAIN, VAL, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"train", "val"};

struct writing {
    const struct cvy_new_folder *folder;
    const struct cvy_shapes_options *options;
    int per_class[PART_COUNT];
};

static cvy_status check_options(const struct cvy_shapes_options *options)
{
    if (options->train_per_class < 1 || options->train_per_class > MAX_PER_CLASS || options->val_per_class < 1 ||
        options->val_per_class > MAX_PER_CLASS)
        return cvy_fail(CVY_USAGE, "%d training and %d validation images a class: each must be between 1 and %d",
                        options->train_per_class, options->val_per_class, MAX_PER_CLASS);
    if (options->image_size < 32 || options->image_size > 1024)
        return cvy_fail(CVY_USAGE, "--image-size must be between 32 and 1024, not %d", options->image_size);
    if (options->quality < 1 || options->quality > 100)
        return cvy_fail(CVY_USAGE, "--quality must be between 1 and 100, not %d", options->quality);
    return CVY_OK;
}

static cvy_status make_class_folders(const struct cvy_new_folder *folder)
{
    cvy_status status = CVY_OK;

    for (int i = 0; status == CVY_OK && i < PART_COUNT * CVY_DRAWN_CLASSES; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s/%s", part_names[i / CVY_DRAWN_CLASSES],
                 cvy_drawn_class_names[i % CVY_DRAWN_CLASSES]);
        status = cvy_new_folder_make(folder, name);
    }
    return status;
}

cvy_status cvy_write_new_jpeg(const struct cvy_new_folder *folder, struct cvy_text *name, const uint8_t *pixels,
                              int32_t width, int32_t height, int quality)
{
    uint8_t *data = NULL;
    size_t size;
    cvy_status status = name->failed ? cvy_fail_memory(name->capacity, "a path")
                                     : cvy_jpeg_encode(pixels, width, height, quality, &data, &size);

    if (status == CVY_OK)
        status = cvy_new_folder_write(folder, name->text, data, size);
    cvy_text_release(name);
    free(data);
    return status;
}

/* Image `index` of all: first the training images class by class, then the validation images. */
static cvy_status write_image(void *context, void *pixels, int64_t index)
{
    const struct writing *writing = context;
    const struct cvy_shapes_options *options = writing->options;
    const int64_t train_total = (int64_t)writing->per_class[TRAIN] * CVY_DRAWN_CLASSES;
    const enum part part = index < train_total ? TRAIN : VAL;
    const int64_t within = part == TRAIN ? index : index - train_total;
    const int shape = (int)(within / writing->per_class[part]), number = (int)(within % writing->per_class[part]);
    /* The stream depends on part, class and number alone: a larger set begins with the smaller one. */
    struct cvy_rng rng =
        cvy_rng_new(options->seed, CVY_RNG_DRAWN_OBJECTS, (uint32_t)part, (uint32_t)(shape * MAX_PER_CLASS + number));
    struct cvy_text name = {0};

    cvy_draw_object(&rng, shape, options->image_size, pixels);
    cvy_text_printf(&name, "%s/%s/%06d.jpg", part_names[part], cvy_drawn_class_names[shape], number);
    return cvy_write_new_jpeg(writing->folder, &name, pixels, options->image_size, options->image_size,
                              options->quality);
}

static cvy_status begin(void *context, void **pixels)
{
    const struct writing *writing = context;
    const size_t side = (size_t)writing->options->image_size;

    *pixels = cvy_calloc(side * side, 3);
    return *pixels ? CVY_OK : cvy_fail_memory(side * side * 3, "an image");
}

cvy_status cvy_write_shapes(const char *folder, const struct cvy_shapes_options *options)
{
    CVY_REQUIRE(folder);
    CVY_REQUIRE(options);
    struct cvy_new_folder output;
    struct writing writing = {&output, options, {options->train_per_class, options->val_per_class}};
    const struct cvy_parallel work = {.context = &writing, .begin = begin, .end = cvy_free, .each = write_image};
    cvy_status status;

    CVY_TRY(check_options(options));
    CVY_TRY(cvy_new_folder_begin(&output, folder, part_names, PART_COUNT));
    CVY_GOTO(make_class_folders(&output));
    CVY_GOTO(cvy_parallel_run(&work, ((int64_t)options->train_per_class + options->val_per_class) * CVY_DRAWN_CLASSES,
                              options->threads > 0 ? options->threads : cvy_default_threads()));
    CVY_GOTO(cvy_new_folder_commit(&output));
fail:
    cvy_new_folder_abort(&output);
    return status;
}
