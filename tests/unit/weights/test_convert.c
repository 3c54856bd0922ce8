/* Conversions of a whole checkpoint: every format and naming and back, bit for bit; what is left out and what is
 * refused; which network a file is for. */
#include <signal.h>
#include <sys/resource.h>

#include "convoy/convert.h"
#include "formats/weights/safetensors.h"
#include "support_folder.h"
#include "support_test.h"
#include "weights/weights.h"

static char folder[256];
static struct cvy_graph table; /* resnet18 with 3 classes */
static struct cvy_named_tensor *tensors;
static size_t count, model_count;
static const struct cvy_tensor_meta metadata[] = {
    {"convoy.format", "1"},
    {"convoy.arch", "\"resnet18\""},
    {"convoy.classes", "[\"a\", \"b\", \"\xc3\xa9\"]"},
    {"convoy.preprocessing", "{\"image_size\": 48, \"resize\": 55, \"mean\": [1, 2, 3], \"std\": [4, 5, 6], "
                             "\"interpolation\": \"bilinear\"}"},
    {"convoy.state", "{\"epoch\": 7, \"position\": 0, \"step\": 9, \"best_epoch\": 6, \"best_score\": 81.25}"},
    {"convoy.options", "{\"lr\": 0.5, \"momentum\": 0.875, \"weight-decay\": 0.25}"},
};
enum { METADATA = sizeof metadata / sizeof *metadata };

static const char *path(const char *name)
{
    return test_path(folder, name);
}

/* Model, momentum and average as training saves them, the latter two as bf16: types stay as they are. Elements have
 * bits of their own, NaN patterns among them. */
static int make_checkpoint(void **state)
{
    const struct cvy_model_options options = {.num_classes = 3, .image_size = 48, .std = {1, 1, 1}};
    static struct cvy_arena arena;
    uint32_t bits = 1;

    test_folder_make(folder);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_INFER, false, &table),
                     CVY_OK);
    tensors = cvy_arena_alloc(&arena, (size_t)table.param_count * 3 * sizeof *tensors);
    for (int copy = 0; copy < 3; copy++)
        for (int32_t i = 0; i < table.param_count; i++) {
            static const char *const prefixes[] = {"", CVY_MOMENTUM_PREFIX, CVY_EMA_PREFIX};
            const struct cvy_param *param = &table.params[i];
            struct cvy_named_tensor *t = &tensors[count];
            uint32_t *data;

            if ((copy == 1 && param->kind != CVY_PARAM_TRAINABLE) || (copy == 2 && param->kind == CVY_PARAM_COUNTER))
                continue;
            t->name = cvy_arena_printf(&arena, "%s%s", prefixes[copy], param->name);
            t->dtype = param->kind == CVY_PARAM_COUNTER ? CVY_I64 : copy > 0 ? CVY_BF16 : CVY_F32;
            t->shape = param->shape;
            t->bytes = (size_t)cvy_shape_elements(&t->shape) * cvy_dtype_size(t->dtype);
            t->data = data = cvy_arena_alloc(&arena, t->bytes);
            assert_non_null(data);
            for (size_t k = 0; k < t->bytes / sizeof *data; k++)
                data[k] = bits += 0x9E3779B1;
            count++;
            model_count += copy == 0;
        }
    assert_int_equal(cvy_st_write(path("in.safetensors"), tensors, count, metadata, METADATA), CVY_OK);
    return 0;
}

static int remove_checkpoint(void **state)
{
    cvy_graph_release(&table);
    test_folder_remove(folder);
    return 0;
}

static void convert(const char *in, const char *out, const char *naming, bool ema, bool weights_only)
{
    char input[300], output[300];
    struct cvy_convert_options options = CVY_CONVERT_DEFAULTS;
    struct cvy_convert_result result;

    snprintf(input, sizeof input, "%s/%s", folder, in);
    snprintf(output, sizeof output, "%s/%s", folder, out);
    options.input = input;
    options.output = output;
    options.naming = naming;
    options.ema = ema;
    options.weights_only = weights_only;
    if (cvy_convert(&options, &result) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_string_equal(result.arch, "resnet18");
    assert_int_equal(result.num_classes, 3);
}

static void expect_same_file(const char *a, const char *b)
{
    expect_same_bytes(path(a), path(b));
}

/* A checkpoint goes through every scheme of both formats that keep all of it, and comes back byte for byte. */
static void test_checkpoints(void **state)
{
    convert("in.safetensors", "a.pth.tar", "nvidia", false, false);
    convert("a.pth.tar", "b.safetensors", "nvidia2019", false, false);
    convert("b.safetensors", "c.pth.tar", "timm", false, false);
    convert("c.pth.tar", "d.safetensors", NULL, false, false);
    expect_same_file("in.safetensors", "d.safetensors");
}

/* The file holds these tensors of the checkpoint, those with this prefix or the weights, and nothing else; the counters
 * are always those of the weights. */
static void expect_tensors(const char *name, const char *prefix)
{
    struct cvy_tensor_file file;
    size_t found = 0;

    if (cvy_weights_open(&file, path(name)) != CVY_OK)
        fail_msg("%s", cvy_error());
    for (size_t i = 0; i < count; i++) {
        const bool counter = tensors[i].dtype == CVY_I64;
        const bool wanted = prefix[0] ? strncmp(tensors[i].name, prefix, strlen(prefix)) == 0 : i < model_count;
        const struct cvy_named_tensor *tensor;
        if (!wanted && !counter)
            continue;
        tensor = cvy_tensor_find(&file, tensors[i].name + (counter ? 0 : strlen(prefix)));
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, tensors[i].dtype);
        assert_int_equal(tensor->bytes, tensors[i].bytes);
        assert_memory_equal(tensor->data, tensors[i].data, tensor->bytes);
        found++;
    }
    assert_int_equal(file.tensor_count, found);
    assert_string_equal(cvy_tensor_metadata(&file, "convoy.classes"), metadata[2].value);
    assert_string_equal(cvy_tensor_metadata(&file, "convoy.preprocessing"), metadata[3].value);
    assert_null(cvy_tensor_metadata(&file, "convoy.state"));
    cvy_tensor_file_close(&file);
}

/* One that was stopped within an epoch holds the state that a training which diverges goes back to: through every
 * scheme of safetensors, and back byte for byte; other formats have no place for it, and the rest is whole. */
static void test_stopped(void **state)
{
    static struct cvy_named_tensor more[1024];
    struct cvy_arena arena = {0};
    size_t all = count;

    (void)state;
    memcpy(more, tensors, count * sizeof *more);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].dtype == CVY_I64)
            continue;
        assert_true(all < sizeof more / sizeof *more);
        more[all] = tensors[i];
        more[all++].name = cvy_arena_printf(&arena, "%s%s", CVY_LAST_GOOD_PREFIX, tensors[i].name);
    }
    assert_int_equal(cvy_st_write(path("stopped.safetensors"), more, all, metadata, METADATA), CVY_OK);
    convert("stopped.safetensors", "e.safetensors", "nvidia", false, false);
    convert("e.safetensors", "f.safetensors", "nvidia2019", false, false);
    convert("f.safetensors", "g.safetensors", NULL, false, false);
    expect_same_file("stopped.safetensors", "g.safetensors");
    convert("stopped.safetensors", "h.pth.tar", "nvidia", false, false);
    convert("h.pth.tar", "i.safetensors", NULL, false, false);
    expect_same_file("in.safetensors", "i.safetensors");
    convert("stopped.safetensors", "w.safetensors", NULL, false, true);
    expect_tensors("w.safetensors", "");
    cvy_arena_release(&arena);
}

static void test_weights(void **state)
{
    static const char *const outputs[] = {"w.safetensors", "w.pth", "w.pt", "w.pth.tar"};

    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        convert("in.safetensors", outputs[i], "nvidia", false, true);
        expect_tensors(outputs[i], "");
    }
    for (size_t i = 0; i < 2; i++) {
        convert("in.safetensors", outputs[i], NULL, true, false);
        expect_tensors(outputs[i], CVY_EMA_PREFIX);
    }
    convert("in.safetensors", "w.pth", NULL, false, false); /* has no place for anything else */
    expect_tensors("w.pth", "");
}

/* Without metadata the tensors say which network it is. */
static void test_bare_file(void **state)
{
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    const struct cvy_architecture *architecture;
    struct cvy_tensor_file file;

    assert_int_equal(cvy_st_write(path("bare.safetensors"), tensors, model_count, NULL, 0), CVY_OK);
    convert("bare.safetensors", "bare.pth", NULL, false, false);
    assert_int_equal(cvy_weights_open(&file, path("bare.pth")), CVY_OK);
    assert_string_equal(cvy_tensor_metadata(&file, "convoy.arch"), "\"resnet18\"");
    assert_int_equal(cvy_weights_identify(&file, "x", NULL, &architecture, &model), CVY_OK);
    assert_string_equal(architecture->name, "resnet18");
    assert_int_equal(model.num_classes, 3);
    cvy_tensor_file_close(&file);
}

/* Counters of batches are not always there; they become 0. */
static void test_without_counters(void **state)
{
    struct cvy_named_tensor some[256];
    struct cvy_tensor_file file;
    size_t kept = 0;

    for (size_t i = 0; i < model_count; i++)
        if (tensors[i].dtype != CVY_I64)
            some[kept++] = tensors[i];
    assert_true(kept < model_count);
    assert_int_equal(cvy_st_write(path("old.safetensors"), some, kept, NULL, 0), CVY_OK);
    convert("old.safetensors", "old.pth", NULL, false, false);
    assert_int_equal(cvy_tensor_file_open(&file, path("old.pth")), CVY_OK);
    assert_int_equal(file.tensor_count, model_count);
    const struct cvy_named_tensor *counter = cvy_tensor_find(&file, "bn1.num_batches_tracked");
    assert_non_null(counter);
    assert_memory_equal(counter->data, (const char[8]){0}, 8);
    cvy_tensor_file_close(&file);
}

/* ---- refused ---- */

static void expect_failure(struct cvy_convert_options options, cvy_status expected, const char *text)
{
    cvy_status status;

    options.size = sizeof options;
    status = cvy_convert(&options, NULL);
    if (status != expected || !strstr(cvy_error(), text))
        fail_msg("expected %d and %s, but %d: %s", (int)expected, text, (int)status, cvy_error());
}

static void test_refused(void **state)
{
    const size_t entries = test_folder_entries(folder);
    char in[300], out[300], other[300];

    snprintf(in, sizeof in, "%s/in.safetensors", folder);
    snprintf(out, sizeof out, "%s/out.pth", folder);
    snprintf(other, sizeof other, "%s/few.safetensors", folder);
    expect_failure((struct cvy_convert_options){.input = in}, CVY_USAGE, "needs an input and an output");
    expect_failure((struct cvy_convert_options){.input = in, .output = "x.bin"}, CVY_USAGE, "\"x.bin\"");
    expect_failure((struct cvy_convert_options){.input = in, .output = ".pth"}, CVY_USAGE, "\".pth\"");
    expect_failure((struct cvy_convert_options){.input = in, .output = out, .naming = "keras"}, CVY_USAGE, "\"keras\"");
    expect_failure((struct cvy_convert_options){.input = in, .output = out, .arch = "resnet19"}, CVY_USAGE, "resnet19");
    expect_failure((struct cvy_convert_options){.input = in, .output = out, .arch = "resnet34"}, CVY_BAD_DATA,
                   "holds \"resnet18\", not resnet34");
    expect_failure((struct cvy_convert_options){.input = "none.pth", .output = out}, CVY_NO_INPUT, "none.pth");
    assert_int_equal(test_folder_entries(folder), entries);

    assert_int_equal(cvy_st_write(other, tensors, model_count - 1, NULL, 0), CVY_OK);
    expect_failure((struct cvy_convert_options){.input = other, .output = out}, CVY_BAD_DATA, "with --arch NAME");
    expect_failure((struct cvy_convert_options){.input = other, .output = out, .arch = "resnet18"}, CVY_BAD_DATA,
                   "1 missing (\"fc.bias\")");
    assert_int_equal(cvy_st_write(other, tensors, model_count, NULL, 0), CVY_OK);
    expect_failure((struct cvy_convert_options){.input = other, .output = out, .ema = true}, CVY_BAD_DATA,
                   "holds no moving average");
    assert_int_equal(cvy_st_write(other, tensors, count - 1, NULL, 0), CVY_OK); /* an average without its end */
    expect_failure((struct cvy_convert_options){.input = other, .output = out, .ema = true}, CVY_BAD_DATA,
                   "ema.fc.bias is missing");
    assert_int_equal(test_folder_entries(folder), entries + 1);
}

/* ---- head ---- */

static void test_head(void **state)
{
    const struct cvy_model_options model = {.num_classes = 5, .image_size = 48, .std = {1, 1, 1}};
    const struct cvy_weights_load_options resettable = {.can_reset_head = true},
                                          reset = {.skip_head = true, .any_numbers = true};
    cvy_device *device = NULL;
    struct cvy_network network;
    struct cvy_tensor_file file;
    const struct cvy_param *fc;

    assert_int_equal(cvy_device_open("ref", 1, &device), CVY_OK);
    assert_int_equal(cvy_network_open(&network, device, cvy_architecture_find("resnet18"), &model, CVY_F32, false),
                     CVY_OK);
    assert_int_equal(cvy_weights_open(&file, path("in.safetensors")), CVY_OK);
    assert_int_equal(cvy_weights_load(&network, &file, "x", &CVY_WEIGHTS_LOAD_DEFAULTS), CVY_BAD_DATA);
    assert_string_equal(cvy_error(), "\"x\" has 3 classes, not 5");
    assert_fails(cvy_weights_load(&network, &file, "x", &resettable), CVY_BAD_DATA, "--reset-head");
    fc = &network.table.params[cvy_graph_find_param(&network.table, "fc.weight")];
    network.store.weights[fc->offset] = 42;
    assert_fails(cvy_weights_load(&network, &file, "x", &(struct cvy_weights_load_options){.skip_head = true}),
                 CVY_BAD_DATA, "NaN or infinite");
    assert_int_equal(cvy_weights_load(&network, &file, "x", &reset), CVY_OK);
    assert_true(network.store.weights[fc->offset] == 42); /* left alone */
    assert_memory_equal(network.store.weights, tensors[0].data, tensors[0].bytes);
    cvy_tensor_file_close(&file);
    cvy_network_close(&network);
    cvy_device_close(device);
}

RUN_TESTS(make_checkpoint, remove_checkpoint, TEST(test_checkpoints), TEST(test_stopped), TEST(test_weights),
          TEST(test_bare_file), TEST(test_without_counters), TEST(test_refused), TEST(test_head))
