/* convoy dataset KIND: writes a data set. Kinds: shapes, tfrecord, index, pack. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convoy/dataset.h"
#include "convoy/program/program.h"
#include "convoy/program/shapes.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

/* With --boxes: scenes of several objects instead of one object an image. */
static cvy_status write_scenes(const char *folder, const struct cvy_shape_boxes_options *scenes)
{
    const cvy_status status = cvy_write_shape_boxes(folder, scenes);

    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote %d training and %s with boxes around objects of %s to %s\n", scenes->train_images,
                  cvy_counted(scenes->val_images, "validation image"), cvy_counted(scenes->classes, "class"),
                  quoted(folder));
    return CVY_OK;
}

static cvy_status write_single(const char *folder, const struct cvy_shapes_options *shapes)
{
    const cvy_status status = cvy_write_shapes(folder, shapes);

    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote 10 classes with %d training and %s each to %s\n", shapes->train_per_class,
                  cvy_counted(shapes->val_per_class, "validation image"), quoted(folder));
    return CVY_OK;
}

/* `value`, or what is usual where none was given. */
static int or_default(int value, int usual)
{
    return value > 0 ? value : usual;
}

static cvy_status write_shapes(int argc, char **argv)
{
    const struct cvy_shapes_options single = CVY_SHAPES_DEFAULTS;
    const struct cvy_shape_boxes_options several = CVY_SHAPE_BOXES_DEFAULTS;
    struct cvy_shapes_options shapes = {.quality = single.quality};
    struct cvy_shape_boxes_options scenes = {0};
    struct arguments arguments;
    bool boxes = false;
    const struct option options[] = {
        OPT_INT("train-per-class", 0, &shapes.train_per_class, "N", "training images of each class (default: 400)", 1,
                1000000),
        OPT_INT("val-per-class", 0, &shapes.val_per_class, "N", "validation images of each class (default: 100)", 1,
                1000000),
        OPT_FLAG("boxes", 0, &boxes,
                 "for detection: several objects on an image, and COCO files with a box around each"),
        OPT_INT("train-images", 0, &scenes.train_images, "N", "training images, with --boxes (default: 600)", 1,
                1000000),
        OPT_INT("val-images", 0, &scenes.val_images, "N", "validation images, with --boxes (default: 150)", 1, 1000000),
        OPT_INT("classes", 0, &scenes.classes, "N", "so many of the ten classes, with --boxes (default: 4)", 1, 10),
        OPT_INT("image-size", 0, &shapes.image_size, "PIXELS",
                "side of the square images (default: 48); with --boxes their longer side (default: 320)", 32, 1024),
        OPT_UINT64("seed", 0, &shapes.seed, "N", "another seed gives other images (default: 0)"),
        OPT_INT("quality", 0, &shapes.quality, "N", "JPEG quality (default: 90)", 1, 100),
        OPT_INT("threads", 'j', &shapes.threads, "N", "threads (default: all cores)", 1, 1024),
    };
    const struct option_table table = {
        .verb = "dataset shapes",
        .arguments = "OUT",
        .summary =
            "Writes OUT/{train,val}/<class>/<number>.jpg: ten classes of drawn objects with varied colour, texture,\n"
            "size, rotation, clutter and noise; or, with --boxes, OUT/{train,val}/<number>.jpg with several objects\n"
            "each and their boxes in OUT/annotations/. The same options give the same bytes.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (boxes ? shapes.train_per_class || shapes.val_per_class
              : scenes.train_images || scenes.val_images || scenes.classes)
        return terminal_fail(CVY_USAGE, boxes ? "options --train-per-class and --val-per-class are not for --boxes, "
                                                "which has --train-images and --val-images"
                                              : "options --train-images, --val-images and --classes need --boxes");
    shapes.train_per_class = or_default(shapes.train_per_class, single.train_per_class);
    shapes.val_per_class = or_default(shapes.val_per_class, single.val_per_class);
    scenes.train_images = or_default(scenes.train_images, several.train_images);
    scenes.val_images = or_default(scenes.val_images, several.val_images);
    scenes.classes = or_default(scenes.classes, several.classes);
    scenes.image_size = or_default(shapes.image_size, several.image_size);
    shapes.image_size = or_default(shapes.image_size, single.image_size);
    scenes.seed = shapes.seed;
    scenes.quality = shapes.quality;
    scenes.threads = shapes.threads;
    return boxes ? write_scenes(arguments.value[0], &scenes) : write_single(arguments.value[0], &shapes);
}

static void show_progress(void *context, int64_t done, int64_t total)
{
    (void)context;
    terminal_progress("%" PRId64 " of %" PRId64 " images", done, total);
}

static cvy_status write_tfrecords(int argc, char **argv)
{
    struct cvy_tfrecord_options records = CVY_TFRECORD_DEFAULTS;
    struct cvy_tfrecord_result result;
    struct arguments arguments;
    const struct option options[] = {
        OPT_INT("train-shards", 0, &records.train_shards, "N",
                "files for training (default: about 1250 images in each)", 1, 99999),
        OPT_INT("val-shards", 0, &records.val_shards, "N", "files for validation (default: about 390 images in each)",
                1, 99999),
        OPT_REAL("val-split", 0, &records.val_split, "X",
                 "share of the images set aside for validation, where there is no folder val", 0, 0.999),
        OPT_UINT64("seed", 0, &records.seed, "N", "another seed gives another order (default: 0)"),
        OPT_TEXT("boxes", 0, &records.boxes, "FILE|DIR",
                 "ImageNet's boxes for an image folder: lines FILE,xmin,ymin,xmax,ymax (shares of the image), or the "
                 "folder of its XML files"),
        OPT_FLAG("keep-order", 0, &records.keep_order, "images by class and name instead of shuffled"),
        OPT_INT("threads", 'j', &records.threads, "N", "threads (default: all cores)", 1, 1024),
    };
    const struct option_table table = {
        .verb = "dataset tfrecord",
        .arguments = "SRC OUT",
        .summary = "Writes the image folder SRC (train/<class>/... and val/<class>/...) as TFRecords of TensorFlow's\n"
                   "ImageNet kind: OUT/train-00000-of-00010, OUT/validation-00000-of-00002, ..., and OUT/classes.txt;\n"
                   "or a set with boxes as those of its COCO kind: OUT/coco_train.record-00000-of-00100, ...",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 2,
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    records.progress = show_progress;
    status = cvy_write_tfrecords(arguments.value[0], arguments.value[1], &records, &result);
    terminal_clear_progress();
    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote %" PRId64 " training and %s of %s to %d and %s in %s; %" PRId64 " %s, %" PRId64 " left out\n",
                  result.train_images, cvy_counted(result.val_images, "validation image"),
                  cvy_counted(result.classes, "class"), result.train_shards, cvy_counted(result.val_shards, "file"),
                  quoted(arguments.value[1]), result.reencoded,
                  result.reencoded == 1 ? "was made a JPEG" : "were made JPEGs", result.left_out);
    if (result.boxes > 0)
        terminal_note("with %s\n", cvy_counted(result.boxes, "box"));
    return CVY_OK;
}

static cvy_status write_index(int argc, char **argv)
{
    int threads = 0;
    int64_t files, records;
    struct arguments arguments;
    const struct option options[] = {
        OPT_INT("threads", 'j', &threads, "N", "threads (default: all cores)", 1, 1024),
    };
    const struct option_table table = {
        .verb = "dataset index",
        .arguments = "DIR OUT",
        .summary = "Writes an index of each TFRecord file DIR/train-* and DIR/validation-* under its name in OUT: a\n"
                   "line \"offset size\" for each record, as DALI reads it and train takes it (--data-idx-dir OUT).",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 2,
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = cvy_write_tfrecord_index(arguments.value[0], arguments.value[1], threads, &files, &records);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote the indexes of %s with %s to %s\n", cvy_counted(files, "file"), cvy_counted(records, "record"),
                  quoted(arguments.value[1]));
    return CVY_OK;
}

static cvy_status write_pack(int argc, char **argv)
{
    struct cvy_pack_options pack = CVY_PACK_DEFAULTS;
    struct cvy_pack_result result;
    struct arguments arguments;
    const struct option options[] = {
        OPT_INT("shorter-side", 0, &pack.shorter_side, "N",
                "larger images are made as small as this (default: files stay as they are)", 1, 16384),
        OPT_INT("quality", 0, &pack.quality, "Q", "of JPEGs that are made smaller (default: 90)", 1, 100),
        OPT_FLAG("raw", 0, &pack.raw, "decoded pixels instead of encoded images: nothing is decoded in training"),
        OPT_FLAG("exif-orientation", 0, &pack.exif_orientation,
                 "turn images as their EXIF orientation says (with --shorter-side or --raw)"),
        OPT_INT("train-shards", 0, &pack.train_shards, "N", "files for training (default: about 4100 images in each)",
                1, 99999),
        OPT_INT("val-shards", 0, &pack.val_shards, "N", "files for validation (default: about 4100 images in each)", 1,
                99999),
        OPT_REAL("val-split", 0, &pack.val_split, "X",
                 "share of the images set aside for validation, where there is no folder val", 0, 0.999),
        OPT_UINT64("seed", 0, &pack.seed, "N", "another seed gives another split (default: 0)"),
        OPT_INT("threads", 'j', &pack.threads, "N", "threads (default: all cores)", 1, 1024),
    };
    const struct option_table table = {
        .verb = "dataset pack",
        .arguments = "SRC OUT",
        .summary = "Writes the image folder SRC (or a list, or TFRecords) as a few sequential files with an index:\n"
                   "OUT/train-00000-of-00004.pack, ..., OUT/val-...; train, evaluate, check and bench data read OUT\n"
                   "like a folder. Ended early, the same command continues where it was.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 2,
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    pack.progress = show_progress;
    status = cvy_write_pack(arguments.value[0], arguments.value[1], &pack, &result);
    terminal_clear_progress();
    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote %" PRId64 " training and %s of %s to %d and %s in %s (%.1f MiB); %" PRId64
                  " %s encoded anew, %" PRId64 " left out\n",
                  result.train_images, cvy_counted(result.val_images, "validation image"),
                  cvy_counted(result.classes, "class"), result.train_shards, cvy_counted(result.val_shards, "file"),
                  quoted(arguments.value[1]), (double)result.bytes / (1 << 20), result.reencoded,
                  result.reencoded == 1 ? "was" : "were", result.left_out);
    if (result.val_images == 0)
        terminal_note("there is no part for validation: train with --val-split 0.1, say\n");
    return CVY_OK;
}

static const struct {
    const char *name;
    cvy_status (*run)(int argc, char **argv);
    const char *summary;
} kinds[] = {
    {"shapes", write_shapes, "ten classes of drawn objects, as JPEG folders or with boxes"},
    {"tfrecord", write_tfrecords, "an image folder as TFRecords"},
    {"index", write_index, "where the records of TFRecord files are, for DALI and --data-idx-dir"},
    {"pack", write_pack, "an image folder as a few sequential files, smaller images if wanted"},
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

cvy_status verb_dataset(int argc, char **argv)
{
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        printf("usage: convoy dataset KIND [SRC] OUT [options]\n\nkinds:\n");
        for (size_t i = 0; i < KIND_COUNT; i++)
            printf("  %-10s %s\n", kinds[i].name, kinds[i].summary);
        printf("\nconvoy dataset KIND --help describes a kind\n");
        return CVY_OK;
    }
    for (size_t i = 0; argc > 0 && i < KIND_COUNT; i++)
        if (strcmp(argv[0], kinds[i].name) == 0)
            return kinds[i].run(argc - 1, argv + 1);
    if (argc == 0)
        return terminal_fail(CVY_USAGE, "dataset needs a kind and a folder: convoy dataset shapes OUT");
    const char *names[KIND_COUNT];
    for (size_t i = 0; i < KIND_COUNT; i++)
        names[i] = kinds[i].name;
    const char *nearest = cvy_nearest_name(argv[0], names, KIND_COUNT);
    return terminal_fail(CVY_USAGE, "unknown kind of data set %s%s%s; the kinds are: shapes, tfrecord, index, pack",
                         quoted(argv[0]), nearest ? ", perhaps " : "", nearest ? nearest : "");
}
