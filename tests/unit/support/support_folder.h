/* A folder of its own for a test, gone afterwards. */
#ifndef CVY_TEST_SUPPORT_FOLDER_H
#define CVY_TEST_SUPPORT_FOLDER_H

#include <stddef.h>

/* Make an empty folder under TMPDIR; its name goes to `path`. Fails the test if it cannot. */
void test_folder_make(char path[256]);
/* Remove it with all files in it. */
void test_folder_remove(const char *path);
/* The same as cmocka's setup and teardown of a test: *state is the folder's name. */
int test_folder_setup(void **state);
int test_folder_teardown(void **state);
/* "<folder>/<name>" in one of eight buffers. */
const char *test_path(const char *folder, const char *name);
/* Write a file; fails the test if it cannot. */
void test_file_write(const char *path, const void *data, size_t size);
/* Entries of a folder, without . and .. */
size_t test_folder_entries(const char *path);

#endif
