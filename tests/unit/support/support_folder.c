#include <dirent.h>
#include <ftw.h>

#include "base/file.h"
#include "support_folder.h"
#include "support_test.h"

void test_folder_make(char path[256])
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, 256, "%s/convoy-test-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    return remove(path);
}

void test_folder_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

char support_folder[256];

int test_folder_setup(void **state)
{
    test_folder_make(support_folder);
    *state = support_folder;
    return 0;
}

int test_folder_teardown(void **state)
{
    test_folder_remove(support_folder);
    return 0;
}

const char *test_path(const char *folder, const char *name)
{
    static char buffers[8][4096];
    static unsigned turn;
    char *path = buffers[turn++ % 8];
    snprintf(path, sizeof *buffers, "%s/%s", folder, name);
    return path;
}

const char *below(const char *name)
{
    return test_path(support_folder, name);
}

void test_file_write(const char *path, const void *data, size_t size)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

char *read_text(const char *path, size_t *size)
{
    void *data;
    size_t length;

    assert_int_equal(cvy_file_read(path, 1 << 24, &data, &length), CVY_OK);
    if (size)
        *size = length;
    return data;
}

void expect_same_bytes(const char *left, const char *right)
{
    void *x = NULL, *y = NULL;
    size_t m = 0, n = 0;

    if (cvy_file_read(left, (size_t)1 << 30, &x, &m) != CVY_OK ||
        cvy_file_read(right, (size_t)1 << 30, &y, &n) != CVY_OK)
        fail_msg("%s", cvy_error());
    if (m != n || memcmp(x, y, m) != 0)
        fail_msg("%s and %s differ", left, right);
    cvy_free(x);
    cvy_free(y);
}

size_t count_of(const char *text, const char *what)
{
    size_t count = 0;

    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        count++;
    return count;
}

size_t test_folder_entries(const char *path)
{
    size_t count = 0;
    DIR *listing = opendir(path);
    assert_non_null(listing);
    while (readdir(listing))
        count++;
    closedir(listing);
    return count - 2;
}
