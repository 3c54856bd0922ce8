#include "support_folder.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

void test_folder_make(char path[256])
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, 256, "%s/convoy-test-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(path));
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

void test_folder_remove(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int test_folder_setup(void **state)
{
    static char folder[256];

    test_folder_make(folder);
    *state = folder;
    return 0;
}

int test_folder_teardown(void **state)
{
    test_folder_remove(*state);
    return 0;
}

const char *test_path(const char *folder, const char *name)
{
    static char buffers[8][512];
    static unsigned turn;
    char *path = buffers[turn++ % 8];
    snprintf(path, sizeof *buffers, "%s/%s", folder, name);
    return path;
}

void test_file_write(const char *path, const void *data, size_t size)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
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
