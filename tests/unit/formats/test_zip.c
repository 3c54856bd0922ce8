/* Zip files of stored members: written, read in place, every damage refused. */
#include "formats/container/zip.h"
#include "formats/crc32.h"
#include "support_folder.h"
#include "support_pickle.h"
#include "support_test.h"
#include "support_writing.h"

static void test_crc(void **state)
{
    unsigned char bytes[1024];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 167 + (i >> 3));
    assert_int_equal(cvy_crc32(0, "123456789", 9), 0xCBF43926); /* the value that defines the variant */
    assert_int_equal(cvy_crc32(0, "", 0), 0);
    for (size_t start = 0; start < 17; start++)
        for (size_t size = 0; size < 900; size++)
            assert_int_equal(cvy_crc32((uint32_t)size, bytes + start, size),
                             cvy_crc32_plain((uint32_t)size, bytes + start, size));
    assert_int_equal(cvy_crc32(cvy_crc32(0, bytes, 500), bytes + 500, 524), cvy_crc32(0, bytes, 1024));
}

static const struct test_member members[] = {{"r/b", "hello", 5}, {"r/a", "", 0}, {"r/c/0", "0123456789", 10}, {0}};

static void *written(const char *folder, int wide, size_t *size)
{
    const char *path = test_path(folder, "x.zip");
    void *data = NULL;

    test_zip_write(path, members, wide);
    assert_int_equal(cvy_file_read(path, 100000, &data, size), CVY_OK);
    return data;
}

static void test_round_trip(void **state)
{
    for (int wide = 0; wide < 2; wide++) {
        struct cvy_arena arena = {0};
        struct cvy_zip zip;
        size_t size;
        void *data = written(*state, wide, &size);

        if (cvy_zip_open(&zip, "x", data, size, &arena) != CVY_OK)
            fail_msg("%s", cvy_error());
        assert_int_equal(zip.count, 3);
        for (const struct test_member *m = members; m->name; m++) {
            const struct cvy_zip_member *found = cvy_zip_find(&zip, m->name, strlen(m->name));
            assert_non_null(found);
            assert_int_equal(found->size, m->size);
            assert_memory_equal(found->data, m->data, m->size);
            assert_int_equal(((const char *)found->data - (const char *)data) % 64, 0); /* for those who map it */
            assert_true(cvy_zip_check(found));
        }
        assert_null(cvy_zip_find(&zip, "r/", 2));
        assert_null(cvy_zip_find(&zip, "r/bb", 4));
        ((unsigned char *)data)[cvy_zip_find(&zip, "r/b", 3)->data - (unsigned char *)data] ^= 1;
        assert_false(cvy_zip_check(cvy_zip_find(&zip, "r/b", 3)));
        cvy_arena_release(&arena);
        cvy_free(data);
    }
}

/* ---- damage ---- */

static void refuse(const unsigned char *data, size_t size, const char *reason)
{
    unsigned char *copy = malloc(size ? size : 1); /* a sanitizer sees every read past its end */
    struct cvy_arena arena = {0};
    struct cvy_zip zip;

    assert_non_null(copy);
    memcpy(copy, data, size);
    cvy_status status = cvy_zip_open(&zip, "x.zip", copy, size, &arena);
    if (status != CVY_BAD_DATA || !strstr(cvy_error(), reason))
        fail_msg("expected %s, but %d: %s", reason, (int)status, status == CVY_OK ? "read" : cvy_error());
    assert_error("\"x.zip\"");
    cvy_arena_release(&arena);
    free(copy);
}

/* The place of the n-th of a mark of four bytes. */
static unsigned char *find(void *data, size_t size, const char *mark, int n)
{
    unsigned char *bytes = data;

    for (size_t i = 0; i + 4 <= size; i++)
        if (!memcmp(bytes + i, mark, 4) && n-- == 0)
            return bytes + i;
    fail_msg("a mark is missing");
    return NULL;
}

/* Changes some bytes at a place after a mark and expects the file to be refused. */
static void damage(const char *folder, int wide, const char *mark, int n, size_t at, const char *bytes, size_t count,
                   const char *reason)
{
    size_t size;
    void *data = written(folder, wide, &size);

    memcpy(find(data, size, mark, n) + at, bytes, count);
    refuse(data, size, reason);
    cvy_free(data);
}
#define ENTRY    "PK\1\2"
#define HEADER   "PK\3\4"
#define END      "PK\5\6"
#define LOCATE   "PK\6\7"
#define WIDE     "PK\6\6"
#define ALL_ONES "\377\377\377\377\377\377\377\377"

static void test_damaged_entries(void **state)
{
    const char *folder = *state;

    damage(folder, 0, ENTRY, 0, 8, "\1\0", 2, "\"r/b\" is encrypted");
    damage(folder, 0, ENTRY, 0, 10, "\10\0", 2, "is another one in the directory"); /* compressed, it says */
    damage(folder, 0, ENTRY, 0, 20, "\4\0\0\0", 4, "two sizes");
    damage(folder, 0, ENTRY, 0, 20, "\377\377\0\0\377\377\0\0", 8, "lies outside of the file");
    damage(folder, 0, ENTRY, 0, 20, "\200\0\0\0\200\0\0\0", 8, "overlaps the one before it");
    damage(folder, 0, ENTRY, 0, 20, ALL_ONES, 8, "lacks its 64-bit sizes");
    damage(folder, 0, ENTRY, 0, 28, "\377\377", 2, "goes beyond its end");
    damage(folder, 0, ENTRY, 1, 0, "PK\1\3", 4, "an entry of the directory is none");
    damage(folder, 0, ENTRY, 1, 42, "\0\0\0\0", 4, "is another one in the directory");
    damage(folder, 0, ENTRY, 1, 42, "\1\0\0\0", 4, "is not where the directory says");
    damage(folder, 0, ENTRY, 1, 42, "\0\0\1\0", 4, "lies outside of the file");
    damage(folder, 0, ENTRY, 1, 42, "\377\377\377\377", 4, "lacks its 64-bit sizes");
    damage(folder, 0, ENTRY, 1, 46, "r/b", 3, "is another one in the directory");
    damage(folder, 0, HEADER, 0, 8, "\10\0", 2, "is another one in the directory"); /* compressed, it says */
    damage(folder, 0, HEADER, 0, 28, "\377\377", 2, "lies outside of the file");
    damage(folder, 1, ENTRY, 0, 49 + 4, ALL_ONES, 8, "two sizes");
    damage(folder, 1, ENTRY, 0, 49 + 4 + 16, ALL_ONES, 8, "lies outside of the file");
    damage(folder, 1, ENTRY, 0, 49 + 2, "\20\0", 2, "lacks its 64-bit sizes");
    damage(folder, 1, ENTRY, 0, 49, "\2\0", 2, "lacks its 64-bit sizes");
}

static void test_damaged_ends(void **state)
{
    const char *folder = *state;

    damage(folder, 0, END, 0, 0, "PK\5\7", 4, "truncated?");
    damage(folder, 0, END, 0, 4, "\1\0", 2, "a part of several");
    damage(folder, 0, END, 0, 20, "\1\0", 2, "truncated?"); /* a comment that is not there */
    damage(folder, 0, LOCATE, 0, 8, ALL_ONES, 8, "no zip64 end record");
    damage(folder, 0, LOCATE, 0, 8, "\0\0\0\0\0\0\0\0", 8, "no zip64 end record");
    damage(folder, 0, WIDE, 0, 32, ALL_ONES, 8, "too short for its members");
    damage(folder, 0, WIDE, 0, 32, "\2", 1, "longer than its members");
    damage(folder, 0, WIDE, 0, 40, ALL_ONES, 8, "outside of the file");
    damage(folder, 0, WIDE, 0, 48, ALL_ONES, 8, "outside of the file");
}

/* Two entries for one place: what a bomb of overlapping members is made of. */
static void test_overlap(void **state)
{
    const struct test_member twins[] = {{"r/a", "hello", 5}, {"r/a", "hello", 5}, {0}};
    const char *path = test_path(*state, "x.zip");
    void *data = NULL;
    size_t size;

    test_zip_write(path, twins, 0);
    assert_int_equal(cvy_file_read(path, 100000, &data, &size), CVY_OK);
    refuse(data, size, "stands twice");
    memcpy(find(data, size, ENTRY, 1) + 42, "\0\0\0\0", 4);
    refuse(data, size, "overlaps the one before it");
    cvy_free(data);
}

static void test_truncated(void **state)
{
    size_t size;
    unsigned char *data = written(*state, 0, &size);

    for (size_t length = 0; length < size; length++)
        refuse(data, length, "");
    cvy_free(data);
}

/* A comment may follow the end. */
static void test_comment(void **state)
{
    size_t size;
    unsigned char *data = written(*state, 0, &size), *longer = calloc(1, size + 300);
    struct cvy_arena arena = {0};
    struct cvy_zip zip;

    assert_non_null(longer);
    memcpy(longer, data, size);
    memcpy(longer + size - 2, "\54\1", 2);
    assert_int_equal(cvy_zip_open(&zip, "x", longer, size + 300, &arena), CVY_OK);
    assert_int_equal(zip.count, 3);
    cvy_arena_release(&arena);
    free(longer);
    cvy_free(data);
}

/* ---- writing that fails ---- */

static cvy_status write_all(const char *path, void *context)
{
    struct cvy_zip_writer zip = {0};
    cvy_status status = cvy_zip_create(&zip, path);

    for (const struct test_member *m = members; status == CVY_OK && m->name; m++)
        status = cvy_zip_add(&zip, m->name, m->data, m->size);
    if (status == CVY_OK)
        status = cvy_zip_commit(&zip);
    cvy_zip_abort(&zip);
    return status;
}

static void test_failing_memory(void **state)
{
    assert_true(test_writing_without_memory(*state, "x.zip", write_all, NULL) > 4);
}

static void test_full_disk(void **state)
{
    assert_true(test_full_disk_keeps_old(*state, "x.zip", write_all, NULL) > 20);
}

RUN_TESTS(NULL, NULL, TEST(test_crc), IN_FOLDER(test_round_trip), IN_FOLDER(test_damaged_entries),
          IN_FOLDER(test_damaged_ends), IN_FOLDER(test_overlap), IN_FOLDER(test_truncated), IN_FOLDER(test_comment),
          IN_FOLDER(test_failing_memory), IN_FOLDER(test_full_disk))
