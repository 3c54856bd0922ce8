/* convoy dataset shapes --boxes: drawn objects, several on an image, with their boxes as COCO files. */
#include <stdio.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/resources.h"
#include "convoy/program/shapes.h"
#include "dataset_tools/drawn_objects.h"

enum { MAX_IMAGES = 1 << 24, FIRST_EPOCH = 2 }; /* of the stream: after those of the parts of single objects */
enum part { TRAIN, VAL, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"train", "val"};

struct scene {
    int width, height, count;
    struct cvy_scene_object objects[CVY_SCENE_OBJECTS];
};

struct writing {
    const struct cvy_new_folder *folder;
    const struct cvy_shape_boxes_options *options;
    int images[PART_COUNT];
    struct scene *scenes; /* training, then validation */
};

static cvy_status check_options(const struct cvy_shape_boxes_options *options)
{
    if (options->train_images < 1 || options->train_images > MAX_IMAGES || options->val_images < 1 ||
        options->val_images > MAX_IMAGES)
        return cvy_fail(CVY_USAGE, "%d training and %d validation images: each must be between 1 and %d",
                        options->train_images, options->val_images, MAX_IMAGES);
    if (options->classes < 1 || options->classes > CVY_DRAWN_CLASSES)
        return cvy_fail(CVY_USAGE, "--classes must be between 1 and %d, not %d", CVY_DRAWN_CLASSES, options->classes);
    if (options->image_size < 64 || options->image_size > 1024)
        return cvy_fail(CVY_USAGE, "--image-size must be between 64 and 1024 with --boxes, not %d",
                        options->image_size);
    if (options->quality < 1 || options->quality > 100)
        return cvy_fail(CVY_USAGE, "--quality must be between 1 and 100, not %d", options->quality);
    return CVY_OK;
}

/* ---- images ---- */

static cvy_status write_image(void *context, void *pixels, int64_t index)
{
    const struct writing *writing = context;
    const struct cvy_shape_boxes_options *options = writing->options;
    const enum part part = index < writing->images[TRAIN] ? TRAIN : VAL;
    const uint32_t number = (uint32_t)(part == TRAIN ? index : index - writing->images[TRAIN]);
    struct scene *scene = &writing->scenes[index];
    struct cvy_rng rng = cvy_rng_new(options->seed, CVY_RNG_DRAWN_OBJECTS, FIRST_EPOCH + (uint32_t)part, number);
    const uint32_t form = cvy_rng_below(&rng, 3); /* as high as wide, wide, high */
    struct cvy_text name = {0};

    scene->width = form == 2 ? options->image_size * 3 / 4 : options->image_size;
    scene->height = form == 1 ? options->image_size * 3 / 4 : options->image_size;
    scene->count = cvy_draw_scene(&rng, options->classes, scene->width, scene->height, pixels, scene->objects);
    cvy_text_printf(&name, "%s/%06u.jpg", part_names[part], number + 1);
    return cvy_write_new_jpeg(writing->folder, &name, pixels, scene->width, scene->height, options->quality);
}

static cvy_status begin(void *context, void **pixels)
{
    const struct writing *writing = context;
    const size_t side = (size_t)writing->options->image_size;

    *pixels = cvy_calloc(side * side, 3);
    return *pixels ? CVY_OK : cvy_fail_memory(side * side * 3, "an image");
}

/* ---- annotations ---- */

static void put_image(struct cvy_json *json, const struct scene *scene, int64_t id)
{
    char name[32];

    snprintf(name, sizeof name, "%06lld.jpg", (long long)id);
    cvy_json_begin_object(json);
    cvy_json_put_int(json, "id", id);
    cvy_json_put_string(json, "file_name", name);
    cvy_json_put_int(json, "width", scene->width);
    cvy_json_put_int(json, "height", scene->height);
    cvy_json_end_object(json);
}

static void put_object(struct cvy_json *json, const struct cvy_scene_object *object, int64_t image_id, int64_t id)
{
    const int32_t bbox[] = {object->box.x, object->box.y, object->box.width, object->box.height};

    cvy_json_begin_object(json);
    cvy_json_put_int(json, "id", id);
    cvy_json_put_int(json, "image_id", image_id);
    cvy_json_put_int(json, "category_id", object->kind + 1);
    cvy_json_key(json, "bbox");
    cvy_json_begin_array(json);
    for (int i = 0; i < 4; i++)
        cvy_json_int(json, bbox[i]);
    cvy_json_end_array(json);
    cvy_json_put_int(json, "area", object->area);
    cvy_json_put_int(json, "iscrowd", 0);
    cvy_json_end_object(json);
}

static void put_categories(struct cvy_json *json, int classes)
{
    cvy_json_key(json, "categories");
    cvy_json_begin_array(json);
    for (int c = 0; c < classes; c++) {
        cvy_json_begin_object(json);
        cvy_json_put_int(json, "id", c + 1);
        cvy_json_put_string(json, "name", cvy_drawn_class_names[cvy_scene_classes[c]]);
        cvy_json_end_object(json);
    }
    cvy_json_end_array(json);
}

static cvy_status write_annotations(const struct writing *writing, enum part part)
{
    const struct scene *scenes = writing->scenes + (part == TRAIN ? 0 : writing->images[TRAIN]);
    struct cvy_text text = {0};
    char name[64];
    struct cvy_json json = {.text = &text};
    int64_t id = 0;

    cvy_json_begin_object(&json);
    cvy_json_key(&json, "images");
    cvy_json_begin_array(&json);
    for (int i = 0; i < writing->images[part]; i++)
        put_image(&json, &scenes[i], i + 1);
    cvy_json_end_array(&json);
    cvy_json_key(&json, "annotations");
    cvy_json_begin_array(&json);
    for (int i = 0; i < writing->images[part]; i++)
        for (int o = 0; o < scenes[i].count; o++)
            put_object(&json, &scenes[i].objects[o], i + 1, ++id);
    cvy_json_end_array(&json);
    put_categories(&json, writing->options->classes);
    cvy_json_end_object(&json);
    cvy_text_puts(&text, "\n");
    snprintf(name, sizeof name, "annotations/instances_%s.json", part_names[part]);
    cvy_status status = text.failed ? cvy_fail_memory(text.capacity, "a list of objects")
                                    : cvy_new_folder_write(writing->folder, name, text.text, text.length);
    cvy_text_release(&text);
    return status;
}

/* ---- the set ---- */

cvy_status cvy_write_shape_boxes(const char *folder, const struct cvy_shape_boxes_options *options)
{
    CVY_REQUIRE(folder);
    CVY_REQUIRE(options);
    cvy_status status = CVY_OK;
    static const char *const parts[] = {"train", "val", "annotations"};
    struct cvy_new_folder output;
    struct writing writing = {&output, options, {options->train_images, options->val_images}, NULL};
    const struct cvy_parallel work = {.context = &writing, .begin = begin, .end = cvy_free, .each = write_image};

    CVY_TRY(check_options(options));
    CVY_TRY(cvy_new_folder_begin(&output, folder, parts, sizeof parts / sizeof *parts));
    const int64_t count = (int64_t)options->train_images + options->val_images;
    writing.scenes = cvy_calloc((size_t)count, sizeof *writing.scenes);
    if (!writing.scenes) {
        status = cvy_fail_memory((size_t)count * sizeof *writing.scenes, "a list of objects");
        goto fail;
    }
    CVY_GOTO(cvy_parallel_run(&work, count, options->threads > 0 ? options->threads : cvy_default_threads()));
    CVY_GOTO(write_annotations(&writing, TRAIN));
    CVY_GOTO(write_annotations(&writing, VAL));
    CVY_GOTO(cvy_new_folder_commit(&output));
fail:
    cvy_new_folder_abort(&output);
    cvy_free(writing.scenes);
    return status;
}
