#include "support_pickle.h"
#include "formats/container/zip.h"
#include "formats/weights/pytorch.h"
#include "support_folder.h"
#include "support_test.h"

void test_zip_write(const char *path, const struct test_member *members, int wide)
{
    struct cvy_zip_writer zip = {.wide = wide != 0};

    assert_int_equal(cvy_zip_create(&zip, path), CVY_OK);
    for (; members->name; members++)
        assert_int_equal(cvy_zip_add(&zip, members->name, members->data, members->size), CVY_OK);
    assert_int_equal(cvy_zip_commit(&zip), CVY_OK);
}

unsigned char *test_pth(const void *pickle, size_t size, size_t *bytes)
{
    static const float floats[2] = {1, 2};
    unsigned char numbers[64], *copy;
    char folder[256];
    void *data = NULL;

    for (int i = 0; i < 64; i++)
        numbers[i] = (unsigned char)i;
    const struct test_member members[] = {{"archive/data.pkl", pickle, size},
                                          {"archive/byteorder", "little", 6},
                                          {"archive/data/0", floats, sizeof floats},
                                          {"archive/data/1", numbers, sizeof numbers},
                                          {"archive/version", "3\n", 2},
                                          {0}};
    test_folder_make(folder);
    test_zip_write(test_path(folder, "x.pth"), members, 0);
    assert_int_equal(cvy_file_read(test_path(folder, "x.pth"), (size_t)1 << 30, &data, bytes), CVY_OK);
    test_folder_remove(folder);
    copy = malloc(*bytes); /* ends where the file ends: a sanitizer sees every read past it */
    assert_non_null(copy);
    memcpy(copy, data, *bytes);
    cvy_free(data);
    return copy;
}

void test_pth_refuse(const void *pickle, size_t size, const char *reason)
{
    struct cvy_tensor_file file;
    size_t bytes;
    unsigned char *data = test_pth(pickle, size, &bytes);
    cvy_status status = cvy_pytorch_open_memory(&file, "x.pth", data, bytes);

    if (status != CVY_BAD_DATA || !strstr(cvy_error(), reason))
        fail_msg("expected %s, but %d: %s", reason, (int)status, status == CVY_OK ? "read" : cvy_error());
    assert_error("\"x.pth\"");
    assert_null(strchr(cvy_error(), '\n'));
    assert_null(file.tensors);
    free(data);
}
