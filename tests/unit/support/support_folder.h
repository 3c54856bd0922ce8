/* A folder of its own for a test, gone afterwards. */
#ifndef CVY_TEST_SUPPORT_FOLDER_H
#define CVY_TEST_SUPPORT_FOLDER_H

#include <stddef.h>

/* Make an empty folder under TMPDIR; its name goes to `path`. Fails the test if it cannot. */
void test_folder_make(char path[256]);
/* Remove it with all files in it. */
void test_folder_remove(const char *path);
/* The same as cmocka's setup and teardown of a test: *state and support_folder are the folder's name. */
extern char support_folder[256];
int test_folder_setup(void **state);
int test_folder_teardown(void **state);
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
/* "<folder>/<name>" in one of eight buffers; the folder of the test. */
const char *test_path(const char *folder, const char *name);
const char *below(const char *name);
/* Write a file; fails the test if it cannot. */
void test_file_write(const char *path, const void *data, size_t size);
/* The bytes of a file, freed with cvy_free, and a zero after them; their number (or NULL). */
char *read_text(const char *path, size_t *size);
/* The test fails where the two files differ. */
void expect_same_bytes(const char *left, const char *right);
/* How often it is in the text. */
size_t count_of(const char *text, const char *what);
/* Entries of a folder, without . and .. */
size_t test_folder_entries(const char *path);

#endif
