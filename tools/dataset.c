/* convoy dataset KIND: writes a data set. Kinds: shapes. */
#include <stdio.h>
#include <string.h>

#include "convoy/dataset.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

static cvy_status write_shapes(int argc, char **argv)
{
    struct cvy_shapes_options shapes = CVY_SHAPES_DEFAULTS;
    struct arguments arguments;
    const struct option options[] = {
        {"train-per-class", NULL, 0, false, OPTION_INT, &shapes.train_per_class, "N",
         "training images of each class (default: 400)", 1, 1000000},
        {"val-per-class", NULL, 0, false, OPTION_INT, &shapes.val_per_class, "N",
         "validation images of each class (default: 100)", 1, 1000000},
        {"image-size", NULL, 0, false, OPTION_INT, &shapes.image_size, "PIXELS",
         "side of the square images (default: 48)", 32, 1024},
        {"seed", NULL, 0, false, OPTION_UINT64, &shapes.seed, "N", "another seed gives other images (default: 0)", 0,
         0},
        {"quality", NULL, 0, false, OPTION_INT, &shapes.quality, "N", "JPEG quality (default: 90)", 1, 100},
        {"threads", NULL, 'j', false, OPTION_INT, &shapes.threads, "N", "threads (default: all cores)", 1, 1024},
    };
    const struct option_table table = {
        .verb = "dataset shapes",
        .arguments = "OUT",
        .summary =
            "Writes OUT/{train,val}/<class>/<number>.jpg: ten classes of drawn objects with varied colour, texture,\n"
            "size, rotation, clutter and noise. The same options give the same bytes.",
        .options = options,
        .count = sizeof(options) / sizeof(options[0]),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = cvy_write_shapes(arguments.value[0], &shapes);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    terminal_note("wrote 10 classes with %d training and %d validation images each to %s\n", shapes.train_per_class,
                  shapes.val_per_class, quoted(arguments.value[0]));
    return CVY_OK;
}

static const struct {
    const char *name;
    cvy_status (*run)(int argc, char **argv);
    const char *summary;
} kinds[] = {
    {"shapes", write_shapes, "ten classes of drawn objects, as JPEG folders"},
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

cvy_status verb_dataset(int argc, char **argv)
{
    if (argc > 0 && (!strcmp(argv[0], "--help") || !strcmp(argv[0], "-h"))) {
        printf("usage: convoy dataset KIND OUT [options]\n\nkinds:\n");
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
    return terminal_fail(CVY_USAGE, "unknown kind of data set %s; the kinds are: shapes", quoted(argv[0]));
}
