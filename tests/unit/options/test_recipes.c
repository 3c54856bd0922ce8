/* The recipes that are built in. */
#include <math.h>
#include <stdlib.h>

#include "options/options.h"
#include "options/recipe.h"
#include "options/recipe_auto.h"
#include "support_test.h"

static struct cvy_train_options fresh(void)
{
    struct cvy_train_options options;

    cvy_train_options_init(&options);
    return options;
}

static void set(struct cvy_train_options *options, const char *name, const char *value)
{
    assert_int_equal(cvy_train_options_set(options, name, value, CVY_FROM_FLAG), CVY_OK);
}

/* The number of epochs that a name of a published configuration ends with ("-90e"); 0: it is none. */
static int64_t published_epochs(const char *name)
{
    const char *last = strrchr(name, '-');
    char *end;
    const long epochs = last ? strtol(last + 1, &end, 10) : 0;

    return epochs > 0 && strcmp(end, "e") == 0 ? epochs : 0;
}

/* The automatic recipe chooses nothing of it, however small the data set is, but for what does not count: the loss
 * scale in fp32, and the rate where that for 256 images is given. */
static void expect_complete(struct cvy_train_options *o, const char *name)
{
    const struct cvy_data_summary summary = {.images = 400, .median_side = 64, .turned = true};

    assert_int_equal(cvy_auto_recipe(&summary, o), CVY_OK);
    for (size_t i = 0; cvy_train_option_at(i); i++) {
        const char *option = cvy_train_option_at(i)->name;
        if (o->source[i] == CVY_FROM_AUTO && (o->amp || strcmp(option, "static-loss-scale") != 0) &&
            (o->lr_per_256 == 0 || strcmp(option, "lr") != 0))
            fail_msg("%s leaves %s to the automatic recipe", name, option);
    }
}

/* What all published configurations have in common: a learning rate of 0.256 for 256 images of a step, whole batches in
 * a step, mixup for 250 epochs only, smoothing, a cosine, and a weight decay of a power of two. */
static void published_recipes(void **state)
{
    int found = 0;

    for (size_t i = 0; cvy_recipe_name(i); i++) {
        const char *name = cvy_recipe_name(i);
        const int64_t epochs = published_epochs(name);
        struct cvy_train_options o = fresh();
        double rate;

        if (epochs == 0)
            continue;
        found++;
        set(&o, "recipe", name);
        assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
        rate = o.lr_per_256 > 0 ? o.lr_per_256 * (double)o.optimizer_batch_size / 256 : o.lr;
        if (o.epochs != epochs || o.mixup != (epochs == 250 ? 0.2 : 0.0) || o.label_smoothing != 0.1 ||
            o.momentum != 0.875 || o.nesterov || strcmp(o.lr_schedule, "cosine") != 0 ||
            o.optimizer_batch_size % o.batch_size != 0 || fabs(rate - (double)o.optimizer_batch_size * 0.001) > 1e-12 ||
            (o.weight_decay != 1.0 / 32768 && o.weight_decay != 1.0 / 16384) ||
            (o.warmup != 8 && !(o.warmup == 16 && strstr(name, "2019-dgx2"))) ||
            strncmp(name, o.arch, strlen(o.arch)) != 0)
            fail_msg("%s is not as published", name);
        if (strstr(name, "-tf-"))
            assert_true(o.num_classes == 1001 && strcmp(o.padding, "same") == 0 && strcmp(o.lr_unit, "step") == 0 &&
                        strcmp(o.mixup_rule, "tensorflow") == 0 && strcmp(o.data_backend, "tensorflow") == 0);
        if (strstr(name, "-amp-"))
            assert_true(o.amp && o.static_loss_scale >= 128);
        expect_complete(&o, name);
    }
    assert_true(found >= 90);
}

/* TensorFlow's own scale, where its scripts give none: 2^15 at first, doubled after 2000 steps without an end. */
static void dynamic_scales_of_tensorflow(void **state)
{
    static const char *const names[] = {"ssd320-1gpu-amp", "ssd320-4gpu-amp", "ssd320-8gpu-amp", "ssd320-bench-amp",
                                        "se-resnext101-32x4d-tf-dgxa100-amp-90e"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cvy_train_options o = fresh();
        set(&o, "recipe", names[i]);
        assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
        assert_true(o.amp && o.static_loss_scale == 32768);
        assert_string_equal(o.loss_scale_rule, "tensorflow");
    }
}

/* `--recipe reference` leaves nothing to the automatic recipe. */
static void reference_is_complete(void **state)
{
    struct cvy_train_options o = fresh(), bare = fresh();

    set(&o, "recipe", "reference");
    assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
    expect_complete(&o, "reference");
    assert_string_equal(o.arch, bare.arch);
    assert_true(o.epochs == bare.epochs && o.batch_size == bare.batch_size && o.lr == bare.lr &&
                o.warmup == bare.warmup && o.weight_decay == bare.weight_decay && o.image_size == 224 &&
                o.label_smoothing == bare.label_smoothing && strcmp(o.lr_schedule, bare.lr_schedule) == 0);
}

/* Another image size than the recipe's keeps the recipe's margin around the crop, unless that is given too. */
static void margins(void **state)
{
    static const struct {
        const char *recipe, *size;
        int64_t resize;
    } rows[] = {{"resnet50-90e", "288", 320},
                {"reference", "128", 160},
                {"quick", "288", 288},
                {"resnet50-modern", "256", 264},
                {"resnet50-90e", "224", 256}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cvy_train_options o = fresh();
        set(&o, "recipe", rows[i].recipe);
        set(&o, "image-size", rows[i].size);
        assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
        assert_int_equal(o.eval_resize, rows[i].resize);
        assert_int_equal(cvy_option_source_of(&o, "eval-resize"), CVY_FROM_RECIPE);
        set(&o, "eval-resize", "300");
        assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
        assert_int_equal(o.eval_resize, 300);
    }
}

RUN_TESTS(NULL, NULL, TEST(published_recipes), TEST(dynamic_scales_of_tensorflow), TEST(reference_is_complete),
          TEST(margins))
