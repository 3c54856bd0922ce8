/* Pulling from files of this machine: sums, the table, archives. What servers do is in tests/cli/pull.sh. */
#include <zlib.h>

#include "base/file.h"
#include "base/sha256.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/tensorflow_write.h"
#include "models/models.h"
#include "pull/pull.h"
#include "pull/unpack.h"
#include "support_folder.h"
#include "support_tar.h"
#include "support_test.h"
#include "weights/published.h"

static char sum[65]; /* of served/weights.safetensors */

/* A cache and a mirror in the test's folder; weights of resnet18 with 2 classes on the mirror. */
static int set_up(void **state)
{
    const struct cvy_model_options options = {.num_classes = 2, .image_size = 32, .std = {1, 1, 1}};
    static struct cvy_arena arena;
    struct cvy_named_tensor *tensors;
    struct cvy_graph graph;
    char address[300];
    void *bytes;
    size_t size;

    test_folder_setup(state);
    assert_int_equal(cvy_make_directories(below("served")), CVY_OK);
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_INFER, false, &graph),
                     CVY_OK);
    tensors = cvy_arena_alloc(&arena, (size_t)graph.param_count * sizeof *tensors);
    for (int32_t i = 0; i < graph.param_count; i++) {
        struct cvy_named_tensor *t = &tensors[i];
        t->name = graph.params[i].name;
        t->dtype = graph.params[i].kind == CVY_PARAM_COUNTER ? CVY_I64 : CVY_BF16;
        t->shape = graph.params[i].shape;
        t->bytes = (size_t)cvy_shape_elements(&t->shape) * cvy_dtype_size(t->dtype);
        t->data = cvy_arena_alloc(&arena, t->bytes);
        assert_non_null(t->data);
    }
    assert_int_equal(cvy_st_write(below("served/weights.safetensors"), tensors, (size_t)graph.param_count, NULL, 0),
                     CVY_OK);
    cvy_graph_release(&graph);
    cvy_arena_release(&arena);
    assert_int_equal(cvy_file_read(below("served/weights.safetensors"), (size_t)1 << 30, &bytes, &size), CVY_OK);
    cvy_sha256_text(bytes, size, sum);
    cvy_free(bytes);
    snprintf(address, sizeof address, "file://%s/served", support_folder);
    setenv("CONVOY_WEIGHTS_URL", address, 1);
    setenv("CONVOY_CACHE_DIR", below("cache"), 1);
    return 0;
}

static int tear_down(void **state)
{
    unsetenv("CONVOY_WEIGHTS_URL");
    unsetenv("CONVOY_CACHE_DIR");
    return test_folder_teardown(state);
}

static cvy_status pull(const char *digits, const char *arch, int64_t bytes, struct cvy_pull_result *result)
{
    const struct cvy_published_weights row = {.name = "weights",
                                              .arch = arch,
                                              .url = "https://example.invalid/weights.safetensors",
                                              .file = "weights.safetensors",
                                              .sha256 = digits,
                                              .bytes = bytes};
    const struct cvy_pull_options options = CVY_PULL_DEFAULTS;

    return cvy_pull_weights(&row, &options, result);
}

static void sums_are_compared_as_far_as_they_are_known(void **state)
{
    struct cvy_pull_result result;
    char digits[65], wrong[65];
    void *bytes;
    size_t size;

    snprintf(digits, sizeof digits, "%.8s", sum);
    snprintf(wrong, sizeof wrong, "%s", sum);
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    assert_fails(pull(wrong, "resnet18", 0, &result), CVY_BAD_DATA, "nothing is kept");
    assert_false(cvy_path_exists(result.path));
    assert_int_equal(test_folder_entries(below("cache/weights")), 1); /* the lock */
    assert_int_equal(pull(digits, "resnet18", 0, &result), CVY_OK);
    assert_int_equal(result.sha256_digits, 8);
    assert_false(result.there);
    assert_int_equal(cvy_file_read(result.path, (size_t)1 << 30, &bytes, &size), CVY_OK);
    assert_int_equal(result.bytes, size);
    cvy_free(bytes);
    assert_int_equal(pull(wrong, "resnet18", 0, &result), CVY_OK); /* it is there: nothing is asked */
    assert_true(result.there);
    unlink(result.path);
    assert_int_equal(pull(sum, "resnet18", (int64_t)size, &result), CVY_OK);
    assert_int_equal(result.sha256_digits, 64);
    assert_int_equal(test_folder_entries(below("cache/weights")), 2);
}

static void other_networks_and_larger_files_are_refused(void **state)
{
    struct cvy_pull_result result;

    assert_fails(pull("", "resnet34", 0, &result), CVY_BAD_DATA, "cannot be used");
    assert_fails(pull("", "resnet18", 1000000, &result), CVY_BAD_DATA, "larger than the 1010000 bytes");
    assert_int_equal(test_folder_entries(below("cache/weights")), 1);
    setenv("CONVOY_WEIGHTS_URL", "ftp://example.invalid", 1);
    assert_fails(pull("", "resnet18", 0, &result), CVY_USAGE, "CONVOY_WEIGHTS_URL");
}

/* Every network has a row but the one that nobody has trained, and the first one of each has a sum or a server that
 * states one. */
static void the_table_is_sound(void **state)
{
    const struct cvy_architecture *architecture;

    for (size_t i = 0; (architecture = cvy_architecture_at(i)); i++)
        assert_int_equal(cvy_published_find(architecture->name) != NULL,
                         strcmp(architecture->name, "resnext101-32x8d-basic") != 0);
    for (size_t i = 0; cvy_published_at(i); i++) {
        const struct cvy_published_weights *row = cvy_published_at(i);
        char path[4096];
        bool pulled = true;

        assert_non_null(cvy_architecture_find(row->arch));
        assert_ptr_equal(cvy_published_find(row->name), row);
        assert_null(cvy_architecture_find(row->name)); /* a name means one thing */
        assert_int_equal(strncmp(row->url, "https://", 8), 0);
        assert_null(strchr(row->file, '/'));
        assert_int_equal(cvy_published_path(row, path, sizeof path, &pulled), CVY_OK);
        assert_false(pulled);
    }
    assert_string_equal(cvy_published_find("resnet50")->name, "resnet50.tv_in1k");
    assert_string_equal(cvy_published_find("resnext50_32x4d")->arch, "resnext50-32x4d");
    assert_null(cvy_published_find("resnet51"));
    assert_null(cvy_published_find(NULL));
}

/* A network's name means weights of all of it, also where its backbone alone has been pulled. */
static void a_backbone_has_its_own_name_only(void **state)
{
    char path[4096];
    bool found;

    (void)state;
    assert_int_equal(cvy_make_directories(below("cache/weights")), CVY_OK);
    test_file_write(below("cache/weights/resnet_v1_50.slim_in1k.ckpt"), "x", 1);
    assert_int_equal(cvy_published_resolve("resnet_v1_50.slim_in1k", path, sizeof path, &found), CVY_OK);
    assert_true(found);
    assert_fails(cvy_published_resolve("ssd320", path, sizeof path, &found), CVY_NO_INPUT,
                 "convoy pull ssd_resnet50_fpn.tf_coco");
    test_file_write(below("cache/weights/ssd_resnet50_fpn.tf_coco.ckpt"), "x", 1);
    assert_int_equal(cvy_published_resolve("ssd320", path, sizeof path, &found), CVY_OK);
    assert_non_null(strstr(path, "ssd_resnet50_fpn.tf_coco.ckpt"));
}

static void write_archive(const char *path, const char *const *names, size_t count)
{
    struct cvy_text tar = {0};
    gzFile file = gzopen(path, "wb");

    for (size_t i = 0; i < count; i++)
        support_tar_add(&tar, '0', names[i], names[i], strlen(names[i]), NULL);
    support_tar_end(&tar);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, tar.text, (unsigned)tar.length), tar.length);
    gzclose(file);
    cvy_text_release(&tar);
}

static void expect_content(const char *name, const char *content)
{
    char *text = read_text(below(name), NULL);

    assert_string_equal(text, content);
    cvy_free(text);
}

static void checkpoints_come_out_of_archives(void **state)
{
    static const char *const many[] = {"ssd/pipeline.config", "ssd/model.ckpt.meta", "ssd/model.ckpt.index",
                                       "ssd/model.ckpt.data-00000-of-00001", "ssd/../../escape.txt"};
    static const char *const one[] = {"resnet_v1_50.ckpt"}, *const none[] = {"readme.txt", "model.ckpt.index"};
    char *bytes;
    size_t size;

    write_archive(below("many.tar.gz"), many, 5);
    assert_int_equal(cvy_unpack_checkpoint(below("many.tar.gz"), below("out.tar.gz")), CVY_OK);
    expect_content("out.ckpt.index", many[2]);
    expect_content("out.ckpt.data-00000-of-00001", many[3]);
    cvy_unpack_remove(below("out.tar.gz"));
    write_archive(below("one.tar.gz"), one, 1);
    assert_int_equal(cvy_unpack_checkpoint(below("one.tar.gz"), below("out.tar.gz")), CVY_OK);
    expect_content("out.ckpt", one[0]);
    cvy_unpack_remove(below("out.tar.gz"));
    write_archive(below("none.tar.gz"), none, 2);
    assert_fails(cvy_unpack_checkpoint(below("none.tar.gz"), below("out.tar.gz")), CVY_BAD_DATA, "no checkpoint");
    /* Cut anywhere: refused, and nothing is left. */
    bytes = read_text(below("many.tar.gz"), &size);
    for (size_t length = 0; length < size; length += 41) {
        test_file_write(below("cut.tar.gz"), bytes, length);
        assert_int_equal(cvy_unpack_checkpoint(below("cut.tar.gz"), below("out.tar.gz")), CVY_BAD_DATA);
    }
    cvy_free(bytes);
    assert_false(cvy_path_exists(below("out.ckpt.index")));
    assert_int_equal(test_folder_entries(support_folder), 5); /* the archives, and what the mirror has */
}

static void add_file(struct cvy_text *tar, const char *member, const char *path, size_t cut)
{
    size_t size;
    void *bytes;

    assert_int_equal(cvy_file_read(path, (size_t)1 << 30, &bytes, &size), CVY_OK);
    support_tar_add(tar, '0', member, bytes, size - cut, NULL);
    cvy_free(bytes);
}

/* A checkpoint of TensorFlow with the weights on the mirror, `cut` bytes of its data missing. */
static void serve_archive(size_t cut)
{
    struct cvy_tensor_file weights;
    struct cvy_text tar = {0};
    gzFile file = gzopen(below("served/archive.tar.gz"), "wb1");

    assert_int_equal(cvy_tensor_file_open(&weights, below("served/weights.safetensors")), CVY_OK);
    assert_int_equal(cvy_tensorflow_write(below("tf.ckpt.index"), weights.tensors, weights.tensor_count), CVY_OK);
    cvy_tensor_file_close(&weights);
    add_file(&tar, "a/model.ckpt.index", below("tf.ckpt.index"), 0);
    add_file(&tar, "a/model.ckpt.data-00000-of-00001", below("tf.ckpt.data-00000-of-00001"), cut);
    support_tar_end(&tar);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, tar.text, (unsigned)tar.length), tar.length);
    gzclose(file);
    cvy_text_release(&tar);
}

static cvy_status pull_archive(bool again)
{
    const struct cvy_published_weights row = {.name = "archive",
                                              .arch = "resnet18",
                                              .url = "https://example.invalid/archive.tar.gz",
                                              .file = "archive.tar.gz",
                                              .sha256 = ""};
    const struct cvy_pull_options options = {.size = sizeof(struct cvy_pull_options), .again = again};
    struct cvy_pull_result result;

    return cvy_pull_weights(&row, &options, &result);
}

/* What is in the cache is replaced by what was opened, and by nothing else. */
static void a_damaged_archive_leaves_the_good_copy(void **state)
{
    struct cvy_tensor_file file;

    serve_archive(0);
    assert_int_equal(pull_archive(false), CVY_OK);
    assert_int_equal(test_folder_entries(below("cache/weights")), 3); /* with the lock */
    test_file_write(below("cache/weights/archive.new.ckpt"), "of a killed call", 16);
    serve_archive(1);
    assert_fails(pull_archive(true), CVY_BAD_DATA, "nothing is kept");
    assert_int_equal(test_folder_entries(below("cache/weights")), 3);
    test_file_write(below("served/archive.tar.gz"), "no archive", 10);
    assert_int_equal(pull_archive(true), CVY_BAD_DATA);
    assert_int_equal(test_folder_entries(below("cache/weights")), 3);
    assert_int_equal(cvy_tensor_file_open(&file, below("cache/weights/archive.ckpt")), CVY_OK);
    cvy_tensor_file_close(&file);
    /* A good one replaces it, one of the other kind too. */
    test_file_write(below("cache/weights/archive.ckpt"), "older", 5);
    serve_archive(0);
    assert_int_equal(pull_archive(true), CVY_OK);
    assert_int_equal(test_folder_entries(below("cache/weights")), 3);
    assert_int_equal(cvy_tensor_file_open(&file, below("cache/weights/archive.ckpt.index")), CVY_OK);
    cvy_tensor_file_close(&file);
}

RUN_TESTS(NULL, NULL, EACH(sums_are_compared_as_far_as_they_are_known),
          EACH(other_networks_and_larger_files_are_refused), EACH(the_table_is_sound),
          EACH(a_backbone_has_its_own_name_only), EACH(checkpoints_come_out_of_archives),
          EACH(a_damaged_archive_leaves_the_good_copy))
