/* Checkpoints of TensorFlow that are written: every type and shape, tables of several blocks, keys that share most of
 * their bytes, and what is left when a call fails. That TensorFlow reads them, parity/long_tensorflow.sh shows. */
#include <signal.h>
#include <sys/resource.h>

#include "formats/weights/table_write.h"
#include "formats/weights/tensorflow_write.h"
#include "formats/weights/tensors.h"
#include "support_folder.h"
#include "support_test.h"

enum { MANY = 9000 }; /* more than a block of 256 KiB describes */

static void every_type(void **state)
{
    const char *path = test_path(*state, "model.ckpt-3.index");
    uint64_t values[6] = {1, 2, 3, UINT64_C(0x123456789abcdef0), 5, 6};
    struct cvy_named_tensor tensors[CVY_DTYPE_COUNT + 2];
    struct cvy_tensor_file file;
    char names[CVY_DTYPE_COUNT][16];

    for (int i = 0; i < CVY_DTYPE_COUNT; i++) { /* in an order that is not that of the names */
        snprintf(names[i], sizeof names[i], "%c/weights", 'z' - i);
        tensors[i] = (struct cvy_named_tensor){.name = names[i],
                                               .dtype = (enum cvy_dtype)i,
                                               .shape = cvy_shape3(1, 2, 3),
                                               .data = values,
                                               .bytes = 6 * cvy_dtype_size((enum cvy_dtype)i)};
    }
    tensors[CVY_DTYPE_COUNT] =
        (struct cvy_named_tensor){.name = "global_step", .dtype = CVY_I64, .data = values + 3, .bytes = 8};
    tensors[CVY_DTYPE_COUNT + 1] =
        (struct cvy_named_tensor){.name = "none", .dtype = CVY_F32, .shape = cvy_shape2(0, 300), .data = values};
    if (cvy_tensorflow_write(path, tensors, CVY_DTYPE_COUNT + 2) != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(cvy_tensor_file_open(&file, test_path(*state, "model.ckpt-3")), CVY_OK);
    assert_int_equal(file.tensor_count, CVY_DTYPE_COUNT + 2);
    for (int i = 0; i < CVY_DTYPE_COUNT + 2; i++) {
        const struct cvy_named_tensor *found = cvy_tensor_find(&file, tensors[i].name);

        assert_non_null(found);
        assert_int_equal(found->dtype, tensors[i].dtype);
        assert_true(cvy_shape_equal(&found->shape, &tensors[i].shape));
        assert_int_equal(found->bytes, tensors[i].bytes);
        if (found->bytes > 0)
            assert_memory_equal(found->data, tensors[i].data, found->bytes);
    }
    cvy_tensor_file_close(&file);
}

static void many_tensors(void **state)
{
    static char names[MANY][64];
    static struct cvy_named_tensor tensors[MANY];
    const char *path = test_path(*state, "many.index");
    static int32_t values[MANY];
    struct cvy_tensor_file file;

    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "a/rather/long/scope/of/a/network_%d/kernel", i);
        values[i] = 7 * i;
        tensors[i] = (struct cvy_named_tensor){
            .name = names[i], .dtype = CVY_I32, .shape = cvy_shape1(1), .data = &values[i], .bytes = 4};
    }
    assert_int_equal(cvy_tensorflow_write(path, tensors, MANY), CVY_OK);
    assert_int_equal(cvy_tensor_file_open(&file, path), CVY_OK);
    assert_int_equal(file.tensor_count, MANY);
    assert_true(file.mapping.size > 256 << 10);
    for (size_t i = 0; i < MANY; i++) {
        int number;
        assert_int_equal(sscanf(file.tensors[i].name, "a/rather/long/scope/of/a/network_%d/kernel", &number), 1);
        assert_memory_equal(file.tensors[i].data, &values[number], 4);
    }
    cvy_tensor_file_close(&file);
}

/* Nothing of a failed checkpoint is left but, where an old one had its name, that: neither file is half there. */
static void without_memory(void **state)
{
    static const float one = 1, two = 2;
    const struct cvy_named_tensor old = {.name = "x", .dtype = CVY_F32, .data = &one, .bytes = 4};
    const struct cvy_named_tensor new = {.name = "x", .dtype = CVY_F32, .data = &two, .bytes = 4};
    const char *path = test_path(*state, "again.index");
    struct cvy_tensor_file file;
    int64_t n = 1;

    assert_int_equal(cvy_tensorflow_write(path, &old, 1), CVY_OK);
    for (;; n++) {
        const cvy_status status = WITH_FAILURE(n, true, cvy_tensorflow_write(path, &new, 1));

        const bool opened = cvy_tensor_file_open(&file, path) == CVY_OK;
        assert_true(opened || status == CVY_CANNOT_WRITE);
        if (opened) {
            const float found = *(const float *)file.tensors[0].data;
            assert_true(found == (status == CVY_NO_MEMORY ? one : two));
            cvy_tensor_file_close(&file);
        }
        if (status == CVY_OK)
            break;
        if (status != CVY_NO_MEMORY && status != CVY_CANNOT_WRITE) /* a folder that is not synchronised */
            fail_msg("%d: %s", status, cvy_error());
        assert_true(n < 200);
    }
    assert_true(n > 5);
}

/* The disk has no space for the tensors: the old checkpoint stays whole, and nothing else is left. */
static void without_space(void **state)
{
    static const float one = 1, many[1000] = {2};
    const struct cvy_named_tensor old = {.name = "x", .dtype = CVY_F32, .data = &one, .bytes = 4};
    const struct cvy_named_tensor new = {
        .name = "x", .dtype = CVY_F32, .shape = cvy_shape1(1000), .data = many, .bytes = sizeof many};
    const char *path = test_path(*state, "full.index");
    struct rlimit limit, small;
    struct cvy_tensor_file file;
    cvy_status status;

    assert_int_equal(cvy_tensorflow_write(path, &old, 1), CVY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 2000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status = cvy_tensorflow_write(path, &new, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, CVY_CANNOT_WRITE);
    assert_int_equal(cvy_tensor_file_open(&file, path), CVY_OK);
    assert_true(*(const float *)file.tensors[0].data == one);
    cvy_tensor_file_close(&file);
}

static void long_names(void **state)
{
    char name[CVY_TABLE_KEY + 2];
    const float one = 1;
    const struct cvy_named_tensor tensor = {.name = name, .dtype = CVY_F32, .data = &one, .bytes = 4};
    const char *path = test_path(*state, "long.index");
    struct cvy_tensor_file file;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_fails(cvy_tensorflow_write(path, &tensor, 1), CVY_USAGE, "too long");
    assert_false(cvy_path_exists(path));
    name[CVY_TABLE_KEY] = '\0';
    assert_int_equal(cvy_tensorflow_write(path, &tensor, 1), CVY_OK);
    assert_int_equal(cvy_tensor_file_open(&file, path), CVY_OK);
    cvy_tensor_file_close(&file);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(every_type), IN_FOLDER(many_tensors), IN_FOLDER(without_memory),
          IN_FOLDER(without_space), IN_FOLDER(long_names))
