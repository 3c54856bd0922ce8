/* Checkpoints of TensorFlow, of both kinds: files that its Saver wrote (TensorFlow 2.15, in fuzz/corpus/tensorflow),
 * what is left out of them, every byte of them damaged, and what is refused. */
#include "formats/weights/tensors.h"
#include "support_folder.h"
#include "support_test.h"

#define CORPUS CONVOY_TEST_SOURCE "/fuzz/corpus/tensorflow/"

enum { MAX_BYTES = 1 << 16 };
static const char *const index_files[] = {"checkpoint.index", "checkpoint.data-00000-of-00002",
                                          "checkpoint.data-00001-of-00002"};
enum { INDEX_FILES = sizeof index_files / sizeof *index_files };

static void must_open(struct cvy_tensor_file *file, const char *path)
{
    if (cvy_tensor_file_open(file, path) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static const struct cvy_named_tensor *tensor(const struct cvy_tensor_file *file, const char *name, enum cvy_dtype dtype,
                                             struct cvy_shape shape)
{
    const struct cvy_named_tensor *found = cvy_tensor_find(file, name);

    if (!found)
        fail_msg("no %s", name);
    assert_int_equal(found->dtype, dtype);
    assert_true(cvy_shape_equal(&found->shape, &shape));
    assert_int_equal(found->bytes, (size_t)cvy_shape_elements(&shape) * cvy_dtype_size(dtype));
    return found;
}

/* What both kinds of the same variables have. */
static void check_shared(const struct cvy_tensor_file *file)
{
    const struct cvy_named_tensor *weights = tensor(file, "layer/weights", CVY_F32, cvy_shape3(2, 3, 4));
    const struct cvy_named_tensor *wide = tensor(file, "other/wide", CVY_F64, cvy_shape2(1, 1));
    float values[24];
    double one;

    memcpy(values, weights->data, sizeof values);
    for (int i = 0; i < 24; i++)
        assert_true(values[i] == (float)i / 2);
    memcpy(&one, wide->data, sizeof one);
    assert_true(one == 0.25);
}

static void check_index(const struct cvy_tensor_file *file)
{
    static const uint16_t half[] = {0x3C00, 0xC000}; /* 1 and -2 */
    static const uint8_t flags[] = {1, 0};
    const int64_t seven = 7;

    assert_int_equal(file->tensor_count, 6); /* texts are left out */
    check_shared(file);
    assert_memory_equal(tensor(file, "other/half", CVY_F16, cvy_shape1(2))->data, half, sizeof half);
    assert_memory_equal(tensor(file, "other/flag", CVY_BOOL, cvy_shape1(2))->data, flags, sizeof flags);
    assert_memory_equal(tensor(file, "layer/count", CVY_I64, cvy_shape0())->data, &seven, sizeof seven);
    (void)tensor(file, "layer/none", CVY_F32, cvy_shape2(0, 3));
}

static void check_older(const struct cvy_tensor_file *file)
{
    assert_int_equal(file->tensor_count, 2); /* numbers of other types are left out */
    check_shared(file);
}

static void both_kinds(void **state)
{
    static const char *const names[] = {"checkpoint.index", "checkpoint"};
    struct cvy_tensor_file file;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        must_open(&file, test_path(CORPUS, names[i]));
        check_index(&file);
        cvy_tensor_file_close(&file);
    }
    must_open(&file, CORPUS "older.ckpt");
    check_older(&file);
    cvy_tensor_file_close(&file);
}

/* ---- damage ---- */

struct content {
    void *data;
    size_t size;
};

static struct content read_corpus(const char *name)
{
    struct content content;

    if (cvy_file_read(test_path(CORPUS, name), MAX_BYTES, &content.data, &content.size) != CVY_OK)
        fail_msg("%s", cvy_error());
    return content;
}

/* Opens the file, which is damaged: refused with a sentence that names it or one beside it, unless nothing that counts
 * was changed. Whether it was refused. */
static bool refused(const char *path, void (*check)(const struct cvy_tensor_file *))
{
    struct cvy_tensor_file file;
    const cvy_status status = cvy_tensor_file_open(&file, path);

    if (status == CVY_OK) {
        check(&file);
        cvy_tensor_file_close(&file);
        return false;
    }
    if (status != CVY_BAD_DATA)
        fail_msg("%d: %s", status, cvy_error());
    assert_non_null(strchr(cvy_error(), '"'));
    return true;
}

/* Nothing reads a table's block of filters, 8 bytes and 5 after it, nor its location and the padding of the footer,
 * which share 40 bytes with the place of the index. */
enum { UNREAD = 13 + 40 };

/* Every byte changed and every length, of one of the files that are at `path` and beside it. */
static void damage(const char *path, const char *damaged, struct content content,
                   void (*check)(const struct cvy_tensor_file *), size_t free_bytes)
{
    uint8_t *bytes = content.data;
    size_t unseen = 0;

    for (size_t i = 0; i < content.size; i++) {
        bytes[i] ^= 0x41;
        test_file_write(damaged, bytes, content.size);
        unseen += !refused(path, check);
        bytes[i] ^= 0x41;
    }
    if (unseen > free_bytes)
        fail_msg("%s: %zu changed bytes were not seen", damaged, unseen);
    for (size_t size = 0; size < content.size; size++) {
        test_file_write(damaged, bytes, size);
        assert_true(refused(path, check));
    }
    test_file_write(damaged, bytes, content.size);
    assert_false(refused(path, check));
}

static void every_byte_counts(void **state)
{
    const char *folder = *state;
    static const size_t unread[INDEX_FILES] = {UNREAD, 0, 10}; /* a text of five bytes, its length and its sum */
    struct content contents[INDEX_FILES], older = read_corpus("older.ckpt");
    char path[300], damaged[300];

    for (int i = 0; i < INDEX_FILES; i++) {
        contents[i] = read_corpus(index_files[i]);
        test_file_write(test_path(folder, index_files[i]), contents[i].data, contents[i].size);
    }
    snprintf(path, sizeof path, "%s/checkpoint.index", folder);
    for (int i = 0; i < INDEX_FILES; i++) {
        snprintf(damaged, sizeof damaged, "%s/%s", folder, index_files[i]);
        damage(path, damaged, contents[i], check_index, unread[i]);
        cvy_free(contents[i].data);
    }
    snprintf(path, sizeof path, "%s/older.ckpt", folder);
    damage(path, path, older, check_older, UNREAD);
    cvy_free(older.data);
}

/* ---- what is refused ---- */

static void refuse(const char *path, cvy_status status, const char *why)
{
    struct cvy_tensor_file file;

    assert_int_equal(cvy_tensor_file_open(&file, path), status);
    if (!strstr(cvy_error(), why))
        fail_msg("no \"%s\" in: %s", why, cvy_error());
}

static void what_is_refused(void **state)
{
    const char *folder = *state;
    struct content index = read_corpus("checkpoint.index");
    char path[300];

    refuse(CORPUS "parts.index", CVY_BAD_DATA, "tensor \"parts\" is saved in parts");
    refuse(CORPUS "parts.ckpt", CVY_BAD_DATA, "tensor \"parts\" has more or fewer values than its shape");
    snprintf(path, sizeof path, "%s/alone.index", folder);
    test_file_write(path, index.data, index.size);
    refuse(path, CVY_NO_INPUT, "alone.data-0000");
    snprintf(path, sizeof path, "%s/renamed", folder);
    test_file_write(path, index.data, index.size);
    refuse(path, CVY_BAD_DATA, "its name must end with .index");
    snprintf(path, sizeof path, "%s/x.data-00000-of-00001", folder);
    test_file_write(path, "values of some weights", 22);
    refuse(path, CVY_BAD_DATA, "name the one that ends with .index");
    refuse(CORPUS "nothing", CVY_NO_INPUT, "nothing");
    cvy_free(index.data);
}

static void without_memory(void **state)
{
    struct cvy_tensor_file file;
    int64_t n = 1;

    for (;; n++) {
        const cvy_status status = WITH_FAILURE(n, true, cvy_tensor_file_open(&file, CORPUS "checkpoint.index"));
        if (status == CVY_OK)
            break;
        assert_int_equal(status, CVY_NO_MEMORY);
        assert_true(n < 1000);
    }
    check_index(&file);
    cvy_tensor_file_close(&file);
    assert_true(n > 5);
}

RUN_TESTS(NULL, NULL, TEST(both_kinds), IN_FOLDER(every_byte_counts), IN_FOLDER(what_is_refused), TEST(without_memory))
