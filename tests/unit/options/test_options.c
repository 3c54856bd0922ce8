/* Options by name, their limits, recipes, the automatic recipe, options as JSON. */
#include "options/options.h"
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
    if (cvy_train_options_set(options, name, value, CVY_FROM_FLAG) != CVY_OK)
        fail_msg("%s=%s: %s", name, value ? value : "", cvy_error());
}

/* Refused as a usage error whose sentence names the option. */
static void refuse(const char *name, const char *value)
{
    struct cvy_train_options options = fresh(), before = options;

    if (cvy_train_options_set(&options, name, value, CVY_FROM_FLAG) != CVY_USAGE)
        fail_msg("%s=%s was accepted", name, value ? value : "(null)");
    if (!strstr(cvy_error(), name))
        fail_msg("\"%s\" does not name %s", cvy_error(), name);
    assert_memory_equal(&options, &before, sizeof options);
}

static void defaults(void **state)
{
    const struct cvy_train_options o = fresh();

    assert_string_equal(o.arch, "resnet50");
    assert_string_equal(o.lr_schedule, "step");
    assert_string_equal(o.model_config, "fanin");
    assert_string_equal(o.data_backend, "pytorch");
    assert_int_equal(o.epochs, 90);
    assert_int_equal(o.batch_size, 256);
    assert_true(o.lr == 0.1 && o.momentum == 0.9 && o.weight_decay == 1e-4);
    assert_true(o.warmup == 0 && o.label_smoothing == 0 && o.seed == 0);
    assert_string_equal(o.optimizer, "sgd");
    assert_true(o.rmsprop_alpha == 0.9 && o.rmsprop_eps == 1e-3 && !o.nesterov && !o.bn_weight_decay);
    assert_true(o.end_lr == 0 && o.mixup == 0 && o.use_ema == 0 && o.static_loss_scale == 1 && !o.amp);
    assert_true(o.print_freq == 10 && o.prefetch == 2 && o.topk == 5 && o.prof == -1 && o.run_epochs == -1);
    assert_true(o.early_stopping == -1 && o.optimizer_batch_size == -1 && o.gather_checkpoints == 0);
    assert_string_equal(o.raport_file, "experiment_raport.json");
    assert_string_equal(o.interpolation, "bilinear");
    assert_string_equal(o.augmentation, "none");
}

static void names(void **state)
{
    struct cvy_train_options o = fresh();

    set(&o, "batch-size", "64");
    assert_int_equal(o.batch_size, 64);
    set(&o, "batch_size", "65");
    assert_int_equal(o.batch_size, 65);
    set(&o, "b", "66");
    assert_int_equal(o.batch_size, 66);
    set(&o, "batch", "67"); /* a unique prefix */
    assert_int_equal(o.batch_size, 67);
    set(&o, "mom", "0.5");
    assert_true(o.momentum == 0.5);
    set(&o, "wd", "0.25");
    assert_true(o.weight_decay == 0.25);
    set(&o, "lr", "3"); /* exact, although lr-schedule begins the same */
    assert_true(o.lr == 3);
    set(&o, "learning-rate", "4e-1");
    assert_true(o.lr == 0.4);
    set(&o, "data-backend", "syntetic"); /* as the reference program once spelt it */
    assert_string_equal(o.data_backend, "synthetic");
    set(&o, "nesterov", NULL);
    assert_true(o.nesterov);
    set(&o, "nesterov", "False");
    assert_false(o.nesterov);
    set(&o, "arch", "resnet18");
    assert_string_equal(o.arch, "resnet18");
    set(&o, "seed", "18446744073709551615");
    assert_true(o.seed == UINT64_MAX);
    set(&o, "workers", "-1");
    assert_int_equal(o.workers, -1);
    assert_int_equal(cvy_train_option_find("no-such"), -1);
    assert_error("no-such");
    assert_int_equal(cvy_train_option_find("e"), -1); /* epochs, end-lr, eval-resize, exif-orientation */
    assert_int_equal(cvy_train_option_find(""), -1);
    for (size_t i = 0; cvy_train_option_at(i); i++)
        assert_int_equal(cvy_train_option_find(cvy_train_option_at(i)->name), (int)i);
}

static void impossible_values(void **state)
{
    static const char *const rows[][2] = {
        {"epochs", "-1"},
        {"epochs", "0"},
        {"epochs", "1.5"},
        {"epochs", ""},
        {"epochs", " 3"},
        {"epochs", "3 "},
        {"epochs", "99999999999999999999"},
        {"batch-size", "0"},
        {"batch-size", "-5"},
        {"batch-size", "65537"},
        {"batch-size", "0x10"},
        {"lr", "nan"},
        {"lr", "inf"},
        {"lr", "-0.1"},
        {"lr", "abc"},
        {"momentum", "1"},
        {"momentum", "-0.1"},
        {"weight-decay", "-1"},
        {"label-smoothing", "1"},
        {"val-split", "0"},
        {"val-split", "1"},
        {"val-split", "-0.1"},
        {"val-split", "nan"},
        {"image-size", "31"},
        {"image-size", "5000"},
        {"eval-resize", "0"},
        {"num-classes", "0"},
        {"warmup", "-1"},
        {"prof", "0"},
        {"prof", "-2"},
        {"run-epochs", "0"},
        {"workers", "0"},
        {"prefetch", "0"},
        {"threads", "-1"},
        {"topk", "0"},
        {"seed", "-1"},
        {"seed", "18446744073709551616"},
        {"seed", "1e3"},
        {"arch", "resnet19"},
        {"arch", ""},
        {"lr-schedule", "poly"},
        {"optimizer", "adam"},
        {"precision", "fp8"},
        {"data-backend", "dali"},
        {"model-config", "x"},
        {"interpolation", "lanczos"},
        {"nesterov", "maybe"},
        {"print-freq", "0"},
        {"checkpoint-every", "-1"},
        {"workspace", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refuse(rows[i][0], rows[i][1]);
    refuse("epochs", NULL);
    refuse("no-such-option", "1");
}

static void long_text(void **state)
{
    char text[CVY_PATH_MAX + 1];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    refuse("workspace", text);
}

static void precedence(void **state)
{
    struct cvy_train_options o = fresh();

    assert_int_equal(cvy_train_options_set(&o, "epochs", "5", CVY_FROM_FLAG), CVY_OK);
    assert_int_equal(cvy_train_options_set(&o, "epochs", "6", CVY_FROM_RECIPE), CVY_OK);
    assert_int_equal(o.epochs, 5);
    assert_int_equal(cvy_train_options_set(&o, "lr", "6", CVY_FROM_RECIPE), CVY_OK);
    assert_int_equal(cvy_train_options_set(&o, "lr", "5", CVY_FROM_AUTO), CVY_OK);
    assert_true(o.lr == 6);
    assert_int_equal(cvy_train_options_set(&o, "lr", "bad", CVY_FROM_AUTO), CVY_USAGE);
    assert_int_equal(cvy_option_source_of(&o, "lr"), CVY_FROM_RECIPE);
    assert_int_equal(cvy_option_source_of(&o, "momentum"), CVY_FROM_DEFAULT);
}

/* Every value prints as a text that sets the same value. */
static void texts(void **state)
{
    struct cvy_train_options o = fresh();
    char text[CVY_PATH_MAX];

    set(&o, "lr", "0.1");
    for (size_t i = 0; cvy_train_option_at(i); i++) {
        struct cvy_train_options other = fresh();
        const char *name = cvy_train_option_at(i)->name;

        cvy_train_option_text(&o, i, text, sizeof text);
        if (text[0] == '\0' || strcmp(name, "image-size") == 0 || strcmp(name, "eval-resize") == 0 ||
            strcmp(name, "num-classes") == 0 || strcmp(name, "val-split") == 0 || strcmp(name, "head-lr") == 0)
            continue; /* not given: no text stands for that */
        set(&other, name, text);
        memset(other.source, 0, sizeof other.source);
        memset(o.source, 0, sizeof o.source);
        assert_memory_equal(&other, &o, sizeof o);
    }
}

static void recipes(void **state)
{
    struct cvy_train_options o = fresh();

    assert_int_equal(cvy_recipe_apply(&o, "r", "# comment\n\n  lr = 0.5 # half\r\nbatch_size=8\nnesterov = true", NULL,
                                      CVY_FROM_RECIPE),
                     CVY_OK);
    assert_true(o.lr == 0.5 && o.batch_size == 8 && o.nesterov);
    assert_fails(cvy_recipe_apply(&o, "mine", "lr = 1\nepochs = -3\n", NULL, CVY_FROM_RECIPE), CVY_USAGE,
                 "\"mine\" line 2");
    assert_error("--epochs");
    assert_int_equal(cvy_recipe_apply(&o, "mine", "lr 1\n", NULL, CVY_FROM_RECIPE), CVY_USAGE);
    assert_int_equal(cvy_recipe_apply(&o, "mine", "resume = x\n", NULL, CVY_FROM_RECIPE), CVY_USAGE);
    assert_int_equal(cvy_recipe_apply(&o, "mine", "recipe = x\n", NULL, CVY_FROM_RECIPE), CVY_USAGE);
    set(&o, "recipe", "/nowhere/at-all");
    assert_fails(cvy_recipe_apply_named(&o), CVY_USAGE, "convoy info"); /* says where they are listed */
    set(&o, "recipe", "ref");
    assert_fails(cvy_recipe_apply_named(&o), CVY_USAGE, "near: reference");
    /* Every embedded recipe can be applied. */
    for (size_t i = 0; cvy_recipe_name(i); i++) {
        o = fresh();
        set(&o, "recipe", cvy_recipe_name(i));
        if (cvy_recipe_apply_named(&o) != CVY_OK)
            fail_msg("%s: %s", cvy_recipe_name(i), cvy_error());
    }
    assert_null(cvy_recipe_text("no such"));
}

static void files_of_several_recipes(void **state)
{
    static const char text[] = "epochs = 3 # of both\nlr = 1\n[ first ]\nlr = 2\n\n[second]\nwarmup = 1\n";
    struct cvy_train_options o = fresh();

    assert_int_equal(cvy_recipe_apply(&o, "both", text, "first", CVY_FROM_RECIPE), CVY_OK);
    assert_true(o.epochs == 3 && o.lr == 2 && o.warmup == 0);
    o = fresh();
    assert_int_equal(cvy_recipe_apply(&o, "both", text, "second", CVY_FROM_RECIPE), CVY_OK);
    assert_true(o.epochs == 3 && o.lr == 1 && o.warmup == 1);
    assert_fails(cvy_recipe_apply(&o, "both", text, NULL, CVY_FROM_RECIPE), CVY_USAGE, "first, second");
    assert_fails(cvy_recipe_apply(&o, "both", text, "third", CVY_FROM_RECIPE), CVY_USAGE, "first, second");
    assert_int_equal(cvy_recipe_apply(&o, "one", "lr = 1\n", "third", CVY_FROM_RECIPE), CVY_USAGE);
    /* What is not asked for is not read: it may be meant for another version. */
    assert_int_equal(cvy_recipe_apply(&o, "both", "[a]\nlr = 4\n[b]\nnonsense\n", "a", CVY_FROM_RECIPE), CVY_OK);
    assert_true(o.lr == 4);
}

/* Photographs that are stored turned are turned, unless a flag says otherwise. */
static void turned_photographs(void **state)
{
    for (int turned = 0; turned < 2; turned++)
        for (int flag = 0; flag < 2; flag++) {
            const struct cvy_data_summary summary = {.images = 400, .median_side = 480, .turned = turned};
            struct cvy_train_options o = fresh();
            if (flag)
                set(&o, "exif-orientation", "false");
            assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
            assert_true(o.exif_orientation == (turned && !flag));
        }
}

static cvy_status read_json(struct cvy_train_options *options, const char *text);

/* A detector's running statistics keep up with a run however short it is; of long ones they are the network's own. */
static void automatic_bn_momentum(void **state)
{
    static const struct {
        int64_t images, steps;
        double momentum;
    } cases[] = {{24, 0, 0.0333}, {24, 50, 0.1}, {24, 500, 0.04}, {24, 6667, 0}, {300, 0, 0.0068}, {118287, 0, 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct cvy_data_summary summary = {.images = cases[i].images, .median_side = 480};
        struct cvy_train_options o = fresh();
        char steps[24];

        set(&o, "arch", "ssd320");
        snprintf(steps, sizeof steps, "%lld", (long long)cases[i].steps);
        if (cases[i].steps > 0)
            set(&o, "steps", steps);
        assert_int_equal(cvy_auto_recipe_detection(&summary, &o), CVY_OK);
        if (o.bn_momentum != cases[i].momentum)
            fail_msg("%lld images, %lld steps: %g", (long long)cases[i].images, (long long)o.steps, o.bn_momentum);
    }
}

/* Small sets have several steps an epoch, and statistics that see about half of it; a recipe for them says neither. */
static void automatic_few_images(void **state)
{
    static const struct {
        int64_t images, batch;
        double momentum, rate;
    } cases[] = {{10, 2, 0.3, 0.1 / 128},   {40, 8, 0.3, 0.1 / 32},   {63, 8, 0.29, 0.1 / 32}, {64, 8, 0.25, 0.1 / 32},
                 {146, 16, 0.22, 0.1 / 16}, {256, 32, 0.25, 0.1 / 8}, {640, 32, 0, 0.2 / 8},   {7999, 32, 0, 0.2 / 8}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct cvy_data_summary summary = {.images = cases[i].images, .median_side = 64};

        for (int quick = 0; quick < 2; quick++) {
            struct cvy_train_options o = fresh();
            if (quick)
                set(&o, "recipe", "quick");
            assert_int_equal(cvy_recipe_apply_named(&o), CVY_OK);
            assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
            assert_int_equal(o.precise_bn, cases[i].images / cases[i].batch < 20 ? 8 : 0);
            assert_int_equal(o.rewinds, 8);
            if (o.batch_size != cases[i].batch || fabs(o.bn_momentum - cases[i].momentum) > 1e-12 ||
                fabs(o.lr - cases[i].rate) > 1e-12)
                fail_msg("%lld images: batch %lld, momentum %g, rate %g", (long long)cases[i].images,
                         (long long)o.batch_size, o.bn_momentum, o.lr);
        }
    }
}

/* Memory for *context images. */
static cvy_status fit(void *context, const struct cvy_train_options *options, int64_t *batch)
{
    const int64_t capacity = *(const int64_t *)context;

    assert_true(options->arch[0] && options->image_size > 0); /* what the memory depends on is chosen before */
    *batch = *batch > capacity ? capacity : *batch;
    return CVY_OK;
}

/* room: images that fit into memory; 0: as many as there are. */
static struct cvy_train_options automatic(int64_t images, int32_t side, int64_t capacity)
{
    const struct cvy_data_summary summary = {
        .images = images, .median_side = side, .fit = capacity ? fit : NULL, .fit_context = &capacity};
    struct cvy_train_options o = fresh();

    if (cvy_auto_recipe(&summary, &o) != CVY_OK)
        fail_msg("%s", cvy_error());
    return o;
}

static void automatic_recipe(void **state)
{
    struct cvy_train_options o = automatic(4000, 64, 1000);
    const struct cvy_data_summary summary = {.images = 4000, .median_side = 64};

    assert_string_equal(o.arch, "resnet18");
    assert_int_equal(o.image_size, 64);
    assert_int_equal(o.eval_resize, 64);
    assert_string_equal(o.lr_schedule, "cosine");
    assert_true(o.epochs >= 10 && o.epochs <= 30);
    assert_true(o.lr == 0.2 * (double)o.batch_size / 256);
    assert_true(o.min_crop_area == 0.35);
    o = automatic(5, 30, 0);
    assert_int_equal(o.image_size, 32);
    assert_true(o.batch_size <= 5 && o.epochs > 30);
    o = automatic(1281167, 375, 1000);
    assert_string_equal(o.arch, "resnet50");
    assert_true(o.image_size == 224 && o.eval_resize == 256 && o.batch_size == 256 && o.weight_decay == 1e-4 &&
                o.min_crop_area == 0.08);
    assert_int_equal(automatic(4000, 50, 0).image_size, 48);
    /* Little memory: smaller batches, and the learning rate follows. */
    o = automatic(1281167, 375, 24);
    assert_true(o.batch_size == 24 && o.lr == 0.2 * 24 / 256);
    assert_int_equal(automatic(4000, 100, 0).image_size, 96);
    assert_int_equal(automatic(4000, 0, 0).image_size, 224);
    /* Flags stay, and what follows from them is chosen for them. */
    o = fresh();
    set(&o, "batch-size", "512");
    set(&o, "image-size", "96");
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_true(o.batch_size == 512 && o.image_size == 96 && o.eval_resize == 96 && o.lr == 0.4);
}

/* --batch-size auto: the largest of use that fits, and the learning rate follows; not more than a quarter of the set.
 */
static void automatic_batch(void **state)
{
    int64_t capacity = 96;
    struct cvy_data_summary summary = {.images = 50000, .median_side = 64, .fit = fit, .fit_context = &capacity};
    struct cvy_train_options o = fresh();
    char text[32];

    set(&o, "batch-size", "auto");
    assert_int_equal(o.batch_size, CVY_BATCH_AUTO);
    assert_string_equal(cvy_train_option_text(&o, (size_t)cvy_train_option_find("batch-size"), text, sizeof text),
                        "auto");
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_true(o.batch_size == 96 && o.lr == 0.2 * 96 / 256);
    assert_int_equal(cvy_option_source_of(&o, "batch-size"), CVY_FROM_FLAG);
    capacity = 100000;
    o = fresh();
    set(&o, "batch-size", "auto");
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_int_equal(o.batch_size, 256);
    summary.images = 100;
    o = fresh();
    set(&o, "batch-size", "auto");
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_int_equal(o.batch_size, 8);
    /* A resumed run takes the batch of before without a word; another number is its caller's to refuse. */
    o = fresh();
    set(&o, "batch-size", "auto");
    assert_int_equal(read_json(&o, "{\"batch-size\": 40}"), CVY_OK);
    assert_int_equal(o.batch_size, 40);
    o = fresh();
    assert_fails(cvy_train_options_set(&o, "batch-size", "automatic", CVY_FROM_FLAG), CVY_USAGE, "batch-size");
}

/* Network and image size are those of the weights, the size as far as the images go; a third of the epochs. */
static void automatic_fine_tuning(void **state)
{
    struct cvy_data_summary summary = {.images = 300, .median_side = 500, .pretrained = true, .pretrained_size = 288};
    struct cvy_train_options o = fresh();

    assert_int_equal(cvy_train_options_set(&o, "arch", "resnet34", CVY_FROM_WEIGHTS), CVY_OK);
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_string_equal(o.arch, "resnet34");
    assert_int_equal(o.image_size, 288);
    assert_int_equal(o.epochs, 40);
    assert_int_equal(o.warmup, 2);
    assert_true(o.batch_size == 32 && o.lr == 0.025 && o.weight_decay == 1e-4); /* the recipe finetune */
    summary.images = 40; /* the rate is not that of random weights */
    o = fresh();
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_true(o.epochs == 40 && o.batch_size == 8 && o.lr == 0.00625);
    summary.median_side = 70; /* no more pixels than there are */
    summary.images = 4000;
    o = fresh();
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_int_equal(o.image_size, 64);
    assert_int_equal(o.epochs, 5);
    assert_true(o.weight_decay == 5e-4);
    assert_string_equal(o.arch, "resnet50"); /* nobody has said it: it is not chosen by the data */
    summary.pretrained_size = 48;
    o = fresh();
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_int_equal(o.image_size, 48);
    summary.pretrained_size = summary.median_side = 0;
    summary.images = 1281167;
    o = fresh();
    assert_int_equal(cvy_auto_recipe(&summary, &o), CVY_OK);
    assert_true(o.image_size == 224 && o.epochs == 10);
}

static cvy_status read_json(struct cvy_train_options *options, const char *text)
{
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    cvy_status status = cvy_json_parse("t", text, strlen(text), &arena, &root);

    if (status == CVY_OK)
        status = cvy_options_read_json(options, "file", CVY_OPTION_RESULT, root);
    cvy_arena_release(&arena);
    return status;
}

/* A file sets options of its own group alone, and never where a run writes. */
static void json_of_another_group(void **state)
{
    static const char text[] = "{\"epochs\": 7, \"raport-file\": \"../r\", \"workspace\": \"w\", \"resume\": \"x\"}";
    struct cvy_train_options o = fresh();

    (void)state;
    assert_int_equal(read_json(&o, text), CVY_OK);
    assert_int_equal(o.epochs, 7);
    assert_string_equal(o.raport_file, "experiment_raport.json");
    assert_string_equal(o.workspace, "");
    assert_string_equal(o.resume, "");
}

static void json(void **state)
{
    struct cvy_train_options o = fresh(), back = fresh();
    struct cvy_text text = {0}, again = {0};
    struct cvy_json out = {.text = &text}, second = {.text = &again};

    set(&o, "lr", "0.30000000000000004");
    set(&o, "seed", "18446744073709551615");
    set(&o, "arch", "resnet34");
    set(&o, "nesterov", "true");
    set(&o, "val-split", "0.2");
    cvy_options_write_json(&o, CVY_OPTION_RESULT, &out);
    assert_int_equal(read_json(&back, text.text), CVY_OK);
    assert_true(back.lr == o.lr && back.seed == o.seed && back.nesterov && back.val_split == 0.2);
    assert_string_equal(back.arch, "resnet34");
    assert_int_equal(cvy_option_source_of(&back, "lr"), CVY_FROM_RESUME);
    cvy_options_write_json(&back, CVY_OPTION_RESULT, &second);
    assert_string_equal(text.text, again.text);
    cvy_text_release(&text);
    cvy_text_release(&again);
    /* Damaged options are bad data, whatever is wrong with them. */
    assert_int_equal(read_json(&back, "[]"), CVY_BAD_DATA);
    assert_int_equal(read_json(&back, "{\"epochs\": -4}"), CVY_BAD_DATA);
    assert_int_equal(read_json(&back, "{\"epochs\": [4]}"), CVY_BAD_DATA);
    assert_int_equal(read_json(&back, "{\"epoch\": 4}"), CVY_BAD_DATA); /* no prefixes here */
    assert_error("\"file\"");
}

RUN_TESTS(NULL, NULL, TEST(defaults), TEST(names), TEST(impossible_values), TEST(long_text), TEST(precedence),
          TEST(texts), TEST(recipes), TEST(files_of_several_recipes), TEST(turned_photographs), TEST(automatic_recipe),
          TEST(automatic_bn_momentum), TEST(automatic_few_images), TEST(automatic_batch), TEST(automatic_fine_tuning),
          TEST(json), TEST(json_of_another_group))
