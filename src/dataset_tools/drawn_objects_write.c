/* convoy dataset shapes: the drawn objects as folders of JPEG files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
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
    const char *folder;
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

static cvy_status make_folders(const char *folder)
{
    cvy_status status = CVY_OK;
    for (int i = 0; status == CVY_OK && i < PART_COUNT * CVY_DRAWN_CLASSES; i++) {
        struct cvy_text path = {0};
        cvy_text_printf(&path, "%s/%s/%s", folder, part_names[i / CVY_DRAWN_CLASSES],
                        cvy_drawn_class_names[i % CVY_DRAWN_CLASSES]);
        status = path.failed ? cvy_fail_memory(strlen(folder) + 32, "a path") : cvy_make_directories(path.text);
        cvy_text_release(&path);
    }
    return status;
}

/* A new file; what could only be written in part is removed. Not synchronised: thousands of files would take minutes.
 */
static cvy_status write_new_file(const char *path, const uint8_t *data, size_t size)
{
    cvy_status status = CVY_OK;
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(path));
    while (status == CVY_OK && size > 0) {
        const ssize_t written = write(file, data, size);
        if (written < 0 && errno != EINTR)
            status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(path));
        if (written > 0) {
            data += written;
            size -= (size_t)written;
        }
    }
    if (close(file) != 0 && status == CVY_OK)
        status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(path));
    if (status != CVY_OK)
        unlink(path);
    return status;
}

cvy_status cvy_write_new_jpeg(struct cvy_text *path, const uint8_t *pixels, int32_t width, int32_t height, int quality)
{
    uint8_t *data = NULL;
    size_t size;
    cvy_status status = path->failed ? cvy_fail_memory(path->capacity, "a path")
                                     : cvy_jpeg_encode(pixels, width, height, quality, &data, &size);

    if (status == CVY_OK)
        status = write_new_file(path->text, data, size);
    cvy_text_release(path);
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
    struct cvy_text path = {0};

    cvy_draw_object(&rng, shape, options->image_size, pixels);
    cvy_text_printf(&path, "%s/%s/%s/%06d.jpg", writing->folder, part_names[part], cvy_drawn_class_names[shape],
                    number);
    return cvy_write_new_jpeg(&path, pixels, options->image_size, options->image_size, options->quality);
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
    struct writing writing = {folder, options, {options->train_per_class, options->val_per_class}};
    const struct cvy_parallel work = {.context = &writing, .begin = begin, .end = cvy_free, .each = write_image};

    CVY_TRY(check_options(options));
    CVY_TRY(cvy_folder_check_new(folder));
    CVY_TRY(make_folders(folder));
    return cvy_parallel_run(&work, ((int64_t)options->train_per_class + options->val_per_class) * CVY_DRAWN_CLASSES,
                            options->threads > 0 ? options->threads : cvy_default_threads());
}
