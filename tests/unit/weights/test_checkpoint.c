/* Checkpoints: what is written comes back bit for bit; damaged and foreign files are refused with a sentence; a failed
 * write leaves the old file. */
#include <signal.h>
#include <sys/resource.h>

#include "formats/weights/safetensors.h"
#include "ops/ops.h"
#include "options/train_options.h"
#include "support_test.h"
#include "weights/checkpoint.h"

static char folder[] = "/tmp/convoy-checkpoint-XXXXXX";
static cvy_device *device;

/* A network of a few hundred numbers with everything a checkpoint holds. */
static cvy_val tiny_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                          const void *config)
{
    const struct cvy_conv2d conv = {.out = 4, .kernel = 3, .stride = 2, .pad = 1, .init = {CVY_INIT_NORMAL, 0.3f}};
    const struct cvy_batch_norm norm = {0};
    cvy_val y;

    cvy_scope_push(graph, "conv1");
    y = cvy_conv2d(graph, image, &conv);
    cvy_scope_pop(graph);
    cvy_scope_push(graph, "bn1");
    y = cvy_batch_norm(graph, y, &norm);
    cvy_scope_pop(graph);
    y = cvy_global_avg_pool(graph, cvy_relu(graph, y));
    cvy_scope_push(graph, "fc");
    y = cvy_linear(graph, y, options->num_classes);
    cvy_scope_pop(graph);
    return y;
}
static const struct cvy_architecture tiny = {.name = "tiny", .build = tiny_build, .default_image_size = 32};

static void open_tiny(struct cvy_network *network, int32_t classes, bool training)
{
    const struct cvy_model_options model = cvy_model_options_make(classes, 32);

    if (cvy_network_open(network, device, &tiny, &model, CVY_F32, training) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *const classes[] = {"cat", "dog \"big\"", "\xC3\xA4pfel"};
static const int64_t category_ids[] = {1, 90, INT64_MAX};
static const struct cvy_preprocessing preprocessing = {.image_size = 64,
                                                       .resize = 73,
                                                       .mean = {123.675f, 116.28f, 103.53f},
                                                       .std = {58.395f, 57.12f, 57.375f},
                                                       .exif_orientation = true,
                                                       .filter = CVY_FILTER_BICUBIC};
static const struct cvy_train_state some_state = {
    .epoch = 3,
    .position = 7,
    .step = 1234567890123,
    .best_epoch = 2,
    .best_score = 97.300000000000011,
    .loss_sum = 0.1 + 0.2,
    .loss_count = 7,
    .window_loss_sum = INFINITY,
    .window_count = 2,
    .nonfinite = 1,
    .part_sums = {0.1, 0, 1e-300},
    .train_images = 4000,
};

static struct cvy_checkpoint make(struct cvy_network *network, const struct cvy_train_options *options)
{
    return (struct cvy_checkpoint){
        .network = network,
        .classes = classes,
        .class_count = 3,
        .category_ids = category_ids,
        .preprocessing = &preprocessing,
        .state = &some_state,
        .options = options,
        .part = CVY_PART_TRAINING,
    };
}

static void fill_network(struct cvy_network *network)
{
    assert_int_equal(cvy_network_initialize(network, 5), CVY_OK);
    for (int64_t i = 0; i < network->store.trainable_elements; i++)
        network->store.momentum[i] = (float)i * 0.37f - 3;
    network->store.state[1] = 0.123f;
    network->counters[0] = INT64_C(9007199254740993); /* more than a double holds */
}

static void round_trip(void **unused)
{
    struct cvy_train_options options;
    struct cvy_network a, b;
    struct cvy_tensor_file file;
    struct cvy_checkpoint_info info;
    struct cvy_checkpoint checkpoint;

    cvy_train_options_init(&options);
    open_tiny(&a, 3, true);
    open_tiny(&b, 3, true);
    fill_network(&a);
    checkpoint = make(&a, &options);
    assert_int_equal(cvy_checkpoint_write(&checkpoint, path_of("a")), CVY_OK);
    assert_int_equal(cvy_st_open(&file, path_of("a")), CVY_OK);
    if (cvy_checkpoint_read(&file, "a", &info) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_string_equal(info.arch, "tiny");
    assert_int_equal(info.class_count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(info.classes[i], classes[i]);
    for (int i = 0; i < 3; i++)
        assert_true(info.category_ids[i] == category_ids[i]);
    assert_true(info.has_state && info.has_preprocessing && info.options);
    assert_memory_equal(&info.preprocessing, &preprocessing, sizeof preprocessing);
    assert_memory_equal(&info.state, &some_state, sizeof some_state);
    assert_int_equal(cvy_weights_load(&b, &file, "a", &CVY_WEIGHTS_LOAD_DEFAULTS), CVY_OK);
    assert_int_equal(cvy_weights_load_training(&b, &file, "a", &CVY_WEIGHTS_LOAD_DEFAULTS, &(bool){false}), CVY_OK);
    assert_memory_equal(a.store.weights, b.store.weights, (size_t)a.store.trainable_elements * 4);
    assert_memory_equal(a.store.momentum, b.store.momentum, (size_t)a.store.trainable_elements * 4);
    assert_memory_equal(a.store.state, b.store.state, (size_t)a.store.state_elements * 4);
    assert_true(a.counters[0] == b.counters[0]);
    assert_int_equal(cvy_weights_classes(&file), 3);
    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    cvy_network_close(&a);
    cvy_network_close(&b);
}

static void same_seed_same_weights(void **unused)
{
    struct cvy_network a, b;

    open_tiny(&a, 3, false);
    open_tiny(&b, 3, false);
    assert_int_equal(cvy_network_initialize(&a, 5), CVY_OK);
    assert_int_equal(cvy_network_initialize(&b, 5), CVY_OK);
    assert_memory_equal(a.store.weights, b.store.weights, (size_t)a.store.trainable_elements * 4);
    assert_int_equal(cvy_network_initialize(&b, 6), CVY_OK);
    assert_memory_not_equal(a.store.weights, b.store.weights, (size_t)a.store.trainable_elements * 4);
    /* fc: uniform within 1 / sqrt(4) */
    for (int32_t i = 0; i < a.table.param_count; i++) {
        const struct cvy_param *p = &a.table.params[i];
        for (int64_t k = 0; strncmp(p->name, "fc.", 3) == 0 && k < cvy_shape_elements(&p->shape); k++)
            assert_true(fabsf(a.store.weights[p->offset + k]) <= 0.5f);
    }
    cvy_network_close(&a);
    cvy_network_close(&b);
}

/* Loading `tensors` into the tiny network fails, and the sentence has `text` in it. */
static void expect_refusal(const struct cvy_named_tensor *tensors, size_t count, const char *text)
{
    struct cvy_network network;
    struct cvy_tensor_file file;

    open_tiny(&network, 3, true);
    assert_int_equal(cvy_st_write(path_of("bad"), tensors, count, NULL, 0), CVY_OK);
    assert_int_equal(cvy_st_open(&file, path_of("bad")), CVY_OK);
    assert_int_equal(cvy_weights_load(&network, &file, "bad.safetensors", &CVY_WEIGHTS_LOAD_DEFAULTS), CVY_BAD_DATA);
    if (!strstr(cvy_error(), text) || !strstr(cvy_error(), "\"bad.safetensors\""))
        fail_msg("\"%s\" does not say %s", cvy_error(), text);
    cvy_tensor_file_close(&file);
    cvy_network_close(&network);
}

static void foreign_files(void **unused)
{
    struct cvy_network network;
    struct cvy_weights_view view = {0};
    struct cvy_named_tensor *t, saved;
    size_t fc = 0, counter = 0, last;
    float zeros[64] = {0};

    open_tiny(&network, 3, true);
    assert_int_equal(cvy_weights_collect(&network, CVY_PART_WEIGHTS, &view), CVY_OK);
    t = view.tensors;
    last = view.count - 1;
    for (size_t i = 0; i < view.count; i++) {
        fc = strcmp(t[i].name, "fc.weight") == 0 ? i : fc;
        counter = t[i].dtype == CVY_I64 ? i : counter;
    }
    /* All but the last tensor. */
    expect_refusal(t, last, "1 missing (\"fc.bias\")");
    /* Another name. */
    saved = t[last];
    t[last].name = "head.bias";
    expect_refusal(t, view.count, "1 unexpected (\"head.bias\")");
    t[last] = saved;
    /* Another shape. */
    saved = t[0];
    t[0].shape.dim[0] = 2;
    t[0].bytes /= 2;
    expect_refusal(t, view.count, "is 2x3x3x3 instead of 4x3x3x3");
    t[0] = saved;
    /* Another type. */
    saved = t[last];
    t[last].dtype = CVY_I32;
    expect_refusal(t, view.count, "of another shape or type");
    t[last] = saved;
    /* Another number of classes has a sentence of its own. */
    saved = t[fc];
    t[fc].shape.dim[0] = 5;
    t[fc].bytes = 5 * 4 * sizeof(float);
    t[fc].data = zeros;
    expect_refusal(t, view.count, "has 5 classes, not 3");
    t[fc] = saved;
    /* A file without num_batches_tracked is fine. */
    t[counter] = t[last];
    assert_int_equal(cvy_st_write(path_of("old"), t, last, NULL, 0), CVY_OK);
    {
        struct cvy_tensor_file file;
        assert_int_equal(cvy_st_open(&file, path_of("old")), CVY_OK);
        assert_int_equal(cvy_weights_load(&network, &file, "old", &CVY_WEIGHTS_LOAD_DEFAULTS), CVY_OK);
        assert_int_equal(cvy_weights_load_training(&network, &file, "old", &CVY_WEIGHTS_LOAD_DEFAULTS, &(bool){false}),
                         CVY_BAD_DATA);
        cvy_tensor_file_close(&file);
    }
    cvy_weights_view_release(&view);
    cvy_network_close(&network);
}

/* Half and bfloat16 weights: bit patterns with known values. */
static void narrow_types(void **unused)
{
    static const uint16_t half[4] = {0x3C00, 0xC000, 0x0001, 0x7BFF}; /* 1, -2, 2^-24, 65504 */
    static const uint16_t brain[3] = {0x3F80, 0xC000, 0x4049};        /* 1, -2, 3.140625 */
    struct cvy_network network;
    struct cvy_weights_view view = {0};
    struct cvy_tensor_file file;
    int64_t gamma = 0, bias = 0;

    open_tiny(&network, 3, true);
    assert_int_equal(cvy_weights_collect(&network, CVY_PART_WEIGHTS, &view), CVY_OK);
    for (size_t i = 0; i < view.count; i++) {
        struct cvy_named_tensor *t = &view.tensors[i];
        if (strcmp(t->name, "bn1.weight") == 0)
            *t = (struct cvy_named_tensor){t->name, CVY_F16, t->shape, half, sizeof half};
        if (strcmp(t->name, "fc.bias") == 0)
            *t = (struct cvy_named_tensor){t->name, CVY_BF16, t->shape, brain, sizeof brain};
    }
    gamma = network.table.params[cvy_graph_find_param(&network.table, "bn1.weight")].offset;
    bias = network.table.params[cvy_graph_find_param(&network.table, "fc.bias")].offset;
    assert_int_equal(cvy_st_write(path_of("narrow"), view.tensors, view.count, NULL, 0), CVY_OK);
    assert_int_equal(cvy_st_open(&file, path_of("narrow")), CVY_OK);
    assert_int_equal(cvy_weights_load(&network, &file, "narrow", &CVY_WEIGHTS_LOAD_DEFAULTS), CVY_OK);
    assert_true(network.store.weights[gamma] == 1.0f && network.store.weights[gamma + 1] == -2.0f);
    assert_true(network.store.weights[gamma + 2] == 0x1p-24f && network.store.weights[gamma + 3] == 65504.0f);
    assert_true(network.store.weights[bias] == 1.0f && network.store.weights[bias + 2] == 3.140625f);
    cvy_tensor_file_close(&file);
    cvy_weights_view_release(&view);
    cvy_network_close(&network);
}

static void damaged_metadata(void **unused)
{
    static const struct cvy_tensor_meta rows[] = {
        {"convoy.format", "2"},
        {"convoy.format", "x"},
        {"convoy.arch", "5"},
        {"convoy.arch", "\"unterminated"},
        {"convoy.classes", "[1, 2]"},
        {"convoy.classes", "{}"},
        {"convoy.state", "{}"},
        {"convoy.state", "{\"epoch\": -1, \"position\": 0, \"step\": 0, \"best_epoch\": -1, \"best_top1\": 0}"},
        {"convoy.state", "{\"epoch\": 1, \"position\": 0, \"step\": 0, \"best_epoch\": -1, \"best_top1\": 0, "
                         "\"loss_sum\": \"1x\"}"},
        {"convoy.preprocessing", "{\"image_size\": 64}"},
        {"convoy.preprocessing", "{\"image_size\": 64, \"resize\": 32, \"mean\": [1,2,3], \"std\": [1,1,1], "
                                 "\"interpolation\": \"bilinear\"}"},
        {"convoy.preprocessing", "{\"image_size\": 64, \"resize\": 64, \"mean\": [1,2,3], \"std\": [1,0,1], "
                                 "\"interpolation\": \"bilinear\"}"},
        {"convoy.options", "3"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct cvy_tensor_file file;
        struct cvy_checkpoint_info info;

        assert_int_equal(cvy_st_write(path_of("meta"), NULL, 0, &rows[i], 1), CVY_OK);
        assert_int_equal(cvy_st_open(&file, path_of("meta")), CVY_OK);
        if (cvy_checkpoint_read(&file, "file", &info) != CVY_BAD_DATA)
            fail_msg("%s = %s was accepted", rows[i].key, rows[i].value);
        assert_error("\"file\"");
        cvy_tensor_file_close(&file);
    }
}

/* What a training goes back to lies as many steps behind as it lies in the epoch. */
static void last_good_state(void **unused)
{
    static const struct {
        int64_t back, step; /* positions before the state, and its step */
        cvy_status status;
    } cases[] = {
        {4, 1234567890119, CVY_OK},        {4, 1234567890123, CVY_BAD_DATA}, {4, 1234567890118, CVY_BAD_DATA},
        {4, 1234567890127, CVY_BAD_DATA},  {4, INT64_MAX, CVY_BAD_DATA},     {4, 0, CVY_BAD_DATA},
        {-1, 1234567890124, CVY_BAD_DATA},
    };
    struct cvy_train_options options;
    struct cvy_snapshot snapshot = {0};
    struct cvy_network network;

    cvy_train_options_init(&options);
    open_tiny(&network, 3, true);
    fill_network(&network);
    assert_int_equal(cvy_snapshot_open(&snapshot, &network), CVY_OK);
    assert_int_equal(cvy_snapshot_take(&snapshot, &network), CVY_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cvy_train_state good = some_state;
        struct cvy_checkpoint checkpoint = make(&network, &options);
        struct cvy_checkpoint_info info;
        struct cvy_tensor_file file;

        good.position -= cases[i].back;
        good.step = cases[i].step;
        checkpoint.snapshot = &snapshot;
        checkpoint.last_good = &good;
        assert_int_equal(cvy_checkpoint_write(&checkpoint, path_of("good")), CVY_OK);
        assert_int_equal(cvy_st_open(&file, path_of("good")), CVY_OK);
        if (cvy_checkpoint_read(&file, "good", &info) != cases[i].status)
            fail_msg("case %zu: not status %d", i, (int)cases[i].status);
        if (cases[i].status == CVY_OK)
            cvy_checkpoint_info_release(&info);
        else
            assert_error("metadata convoy.state is damaged");
        cvy_tensor_file_close(&file);
    }
    cvy_snapshot_close(&snapshot);
    cvy_network_close(&network);
}

static void *slurp(const char *path, size_t *size)
{
    void *data = NULL;

    assert_int_equal(cvy_file_read(path, 1 << 28, &data, size), CVY_OK);
    return data;
}

/* A write that fails half way: the file size limit stands for a full disk. */
static void full_disk(void **unused)
{
    struct cvy_train_options options;
    struct cvy_network network;
    struct cvy_checkpoint checkpoint;
    struct rlimit old, small;
    size_t before_size, after_size;
    void *before, *after;
    cvy_status status;

    cvy_train_options_init(&options);
    open_tiny(&network, 3, true);
    fill_network(&network);
    checkpoint = make(&network, &options);
    assert_int_equal(cvy_checkpoint_write(&checkpoint, path_of("full")), CVY_OK);
    before = slurp(path_of("full"), &before_size);
    network.store.weights[0] += 1;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){before_size / 2, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status = cvy_checkpoint_write(&checkpoint, path_of("full"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(status, CVY_CANNOT_WRITE, "full");
    after = slurp(path_of("full"), &after_size);
    assert_int_equal(before_size, after_size);
    assert_memory_equal(before, after, before_size);
    assert_int_equal(cvy_checkpoint_write(&checkpoint, "/nowhere/at/all"), CVY_CANNOT_CREATE);
    cvy_free(before);
    cvy_free(after);
    cvy_network_close(&network);
}

/* Cut at any place, the file is refused and named. */
static void truncated(void **unused)
{
    struct cvy_train_options options;
    struct cvy_network network;
    struct cvy_checkpoint checkpoint;
    size_t size;
    char *data;

    cvy_train_options_init(&options);
    open_tiny(&network, 3, true);
    fill_network(&network);
    checkpoint = make(&network, &options);
    assert_int_equal(cvy_checkpoint_write(&checkpoint, path_of("whole")), CVY_OK);
    data = slurp(path_of("whole"), &size);
    for (size_t cut = 0; cut < size; cut += cut < 16 ? 1 : 97) {
        struct cvy_tensor_file file;
        assert_int_equal(cvy_file_replace(path_of("cut"), data, cut), CVY_OK);
        assert_fails(cvy_st_open(&file, path_of("cut")), CVY_BAD_DATA, "cut");
    }
    cvy_free(data);
    cvy_network_close(&network);
}

/* Memory that runs out at any allocation is reported, and nothing leaks or breaks. */
static void failing_memory(void **unused)
{
    struct cvy_train_options options;
    struct cvy_network network;
    struct cvy_checkpoint checkpoint;
    struct cvy_checkpoint_info info;
    struct cvy_tensor_file file;
    cvy_status status = CVY_NO_MEMORY;
    int failures = 0;

    cvy_train_options_init(&options);
    open_tiny(&network, 3, true);
    checkpoint = make(&network, &options);
    for (int n = 1; status != CVY_OK && n < 1000; n++, failures++) {
        status = WITH_FAILURE(n, false, cvy_checkpoint_write(&checkpoint, path_of("memory")));
        if (status != CVY_OK)
            assert_true(status == CVY_NO_MEMORY || strstr(cvy_error(), "Cannot allocate memory"));
    }
    assert_int_equal(status, CVY_OK);
    assert_true(failures > 5);
    /* Nor is a good checkpoint called damaged when it is read. */
    assert_int_equal(cvy_st_open(&file, path_of("memory")), CVY_OK);
    status = CVY_NO_MEMORY;
    for (int n = 1; status != CVY_OK && n < 1000; n++) {
        status = WITH_FAILURE(n, false, cvy_checkpoint_read(&file, "memory", &info));
        if (status != CVY_OK && status != CVY_NO_MEMORY)
            fail_msg("allocation %d: %s", n, cvy_error());
    }
    assert_int_equal(status, CVY_OK);
    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    cvy_network_close(&network);
}

static int set_up(void **unused)
{
    return mkdtemp(folder) && cvy_device_open("ref", 1, &device) == CVY_OK ? 0 : -1;
}

static int tear_down(void **unused)
{
    static const char *const names[] = {"a", "bad", "old", "narrow", "meta", "full", "whole", "cut", "memory", "good"};

    cvy_device_close(device);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    return rmdir(folder); /* fails when a temporary file was left behind */
}

RUN_TESTS(set_up, tear_down, TEST(round_trip), TEST(same_seed_same_weights), TEST(foreign_files), TEST(narrow_types),
          TEST(damaged_metadata), TEST(last_good_state), TEST(full_disk), TEST(truncated), TEST(failing_memory))
