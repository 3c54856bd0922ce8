/* Mapped files that are cut off, written to or replaced while they are read; whose signal it is. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mapping.h"
#include "convoy/infer.h"
#include "support_folder.h"
#include "support_test.h"

static volatile sig_atomic_t foreign;
static struct sigaction guarded; /* cmocka puts a handler of its own before each test */

static void on_foreign(int number)
{
    (void)number;
    foreign++;
}

static const char *make_file(const char *folder, size_t pages)
{
    const char *path = test_path(folder, "mapped");
    const size_t size = pages * (size_t)sysconf(_SC_PAGESIZE);
    char *bytes = cvy_calloc(size, 1);

    assert_non_null(bytes);
    memset(bytes, 7, size);
    test_file_write(path, bytes, size);
    cvy_free(bytes);
    return path;
}

static void test_map(void **state)
{
    const char *folder = *state, *path = test_path(folder, "data");
    struct cvy_mapping mapping;
    assert_int_equal(cvy_file_map(path, &mapping), CVY_NO_INPUT);
    assert_int_equal(cvy_file_map(folder, &mapping), CVY_BAD_DATA);
    cvy_file_unmap(&mapping);
    test_file_write(path, "12345", 5);
    assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
    assert_int_equal(mapping.size, 5);
    assert_memory_equal(mapping.data, "12345", 5);
    cvy_file_unmap(&mapping);
    cvy_file_unmap(&mapping);
    test_file_write(path, "", 0);
    assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
    assert_int_equal(mapping.size, 0);
    cvy_file_unmap(&mapping);
}

static void test_whole(void **state)
{
    struct cvy_mapping one, two;
    const char *path = make_file(*state, 3);

    assert_int_equal(cvy_file_map(path, &one), CVY_OK);
    assert_int_equal(cvy_file_map(path, &two), CVY_OK);
    assert_int_equal(((const char *)two.data)[two.size - 1], 7);
    assert_int_equal(cvy_mapping_check(&one, path), CVY_OK);
    cvy_file_unmap(&one);
    assert_int_equal(cvy_mapping_check(&two, path), CVY_OK);
    assert_int_equal(unlink(path), 0); /* or replaced by a rename: what is mapped stays as it is */
    assert_int_equal(cvy_mapping_check(&two, path), CVY_OK);
    cvy_file_unmap(&two);
    assert_int_equal(cvy_mapping_check(&two, path), CVY_OK);
}

/* A page that is gone reads as zeros; the file beside it is unharmed. The mark does not pass to the next mapping. */
static void test_cut_off(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const char *path = make_file(*state, 4);
    struct cvy_mapping mapping;

    assert_int_equal(sigaction(SIGBUS, &guarded, NULL), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
        assert_int_equal(truncate(path, (off_t)page), 0);
        const volatile char *bytes = mapping.data;
        assert_int_equal(bytes[0], 7);
        assert_int_equal(bytes[2 * page + 5], 0);
        assert_int_equal(bytes[4 * page - 1], 0);
        assert_int_equal(bytes[page], 0);
        assert_fails(cvy_mapping_check(&mapping, path), CVY_BAD_DATA, "was cut off while it was read");
        assert_int_equal(truncate(path, (off_t)(4 * page)), 0); /* for a moment only: still not what was meant */
        assert_int_equal(cvy_mapping_check(&mapping, path), CVY_BAD_DATA);
        cvy_file_unmap(&mapping);
        path = make_file(*state, 4);
    }
    assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
    assert_int_equal(cvy_mapping_check(&mapping, path), CVY_OK);
    cvy_file_unmap(&mapping);
}

static void test_tail_cut_off(void **state)
{
    const char *path = make_file(*state, 1);
    struct cvy_mapping mapping;

    assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
    assert_int_equal(truncate(path, 100), 0); /* the page is there, its end is zeros: no signal */
    assert_int_equal(((const volatile char *)mapping.data)[101], 0);
    assert_int_equal(cvy_mapping_check(&mapping, path), CVY_BAD_DATA);
    cvy_file_unmap(&mapping);
}

static void test_written(void **state)
{
    const char *path = make_file(*state, 1);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    struct cvy_mapping mapping;

    assert_int_equal(cvy_file_map(path, &mapping), CVY_OK);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_fails(cvy_mapping_check(&mapping, path), CVY_BAD_DATA, "was written to while it was read");
    cvy_file_unmap(&mapping);
}

/* What is not about the library's files goes to the handler that was there. */
static void test_foreign(void **state)
{
    (void)state;
    foreign = 0;
    assert_int_equal(sigaction(SIGBUS, &guarded, NULL), 0);
    assert_int_equal(raise(SIGBUS), 0);
    assert_int_equal(foreign, 1);
}

/* Before any test: a program's own handler first, then ours, twice. */
static int guard(void **state)
{
    const struct sigaction own = {.sa_handler = on_foreign};

    if (sigaction(SIGBUS, &own, NULL) != 0)
        return -1;
    cvy_guard_mapped_files();
    cvy_guard_mapped_files();
    (void)state;
    return sigaction(SIGBUS, NULL, &guarded);
}

RUN_TESTS(guard, NULL, IN_FOLDER(test_map), IN_FOLDER(test_whole), IN_FOLDER(test_cut_off),
          IN_FOLDER(test_tail_cut_off), IN_FOLDER(test_written), cmocka_unit_test(test_foreign))
