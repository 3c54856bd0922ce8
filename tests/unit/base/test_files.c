/* Files: reading, outputs that appear whole or not at all, full disks, paths, locks. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/cache.h"
#include "base/file.h"
#include "support_folder.h"
#include "support_test.h"

static void test_read(void **state)
{
    const char *folder = *state, *path = test_path(folder, "data");
    void *data;
    size_t size;
    assert_fails(cvy_file_read(path, 100, &data, &size), CVY_NO_INPUT, "data\": No such file");
    assert_fails(cvy_file_read(folder, 100, &data, &size), CVY_BAD_DATA, "folder");
    test_file_write(path, "12345", 5);
    assert_int_equal(cvy_file_read(path, 5, &data, &size), CVY_OK);
    assert_int_equal(size, 5);
    assert_string_equal(data, "12345"); /* a 0 byte follows */
    cvy_free(data);
    assert_int_equal(cvy_file_read(path, 4, &data, &size), CVY_BAD_DATA);
    assert_null(data);
    test_file_write(path, "", 0);
    assert_int_equal(cvy_file_read(path, 0, &data, &size), CVY_OK);
    assert_int_equal(size, 0);
    cvy_free(data);
    /* The system says that files of /proc are empty. */
    assert_int_equal(cvy_file_read("/proc/self/status", 1 << 20, &data, &size), CVY_OK);
    assert_true(size > 100);
    cvy_free(data);
    assert_int_equal(cvy_file_read("/proc/self/status", 50, &data, &size), CVY_BAD_DATA);
    /* A pipe would block the reader for ever. */
    const char *pipe_path = test_path(folder, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(cvy_file_read(pipe_path, 50, &data, &size), CVY_BAD_DATA);
}

/* What fails here is the system: the file is as good as before. */
static void test_read_at(void **state)
{
    const char *folder = *state, *path = test_path(folder, "data");
    char text[8] = "";
    size_t got = 0;

    test_file_write(path, "12345", 5);
    const int file = open(path, O_RDONLY | O_CLOEXEC), place = open(folder, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0 && place >= 0);
    assert_int_equal(cvy_file_read_at(path, file, 1, text, 3, &got), CVY_OK);
    assert_int_equal(got, 3);
    assert_string_equal(text, "234");
    assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
    assert_int_equal(cvy_file_read_at(path, file, 3, text, 3, &got), CVY_OK); /* the end comes first */
    assert_int_equal(got, 2);
    assert_string_equal(text, "454");
    assert_int_equal(cvy_file_read_at(path, file, 5, text, 3, &got), CVY_OK);
    assert_int_equal(got, 0);
    assert_fails(cvy_file_read_at("what", place, 0, text, 3, &got), CVY_NO_INPUT,
                 "cannot read \"what\": Is a directory");
    close(file);
    close(place);
}

static void test_no_more_files(void **state)
{
    struct rlimit old, tight;
    void *data;
    size_t size;
    const char *path = test_path(*state, "file");
    assert_int_equal(cvy_file_replace(path, "x", 1), CVY_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    tight = (struct rlimit){3, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    const cvy_status status = cvy_file_read(path, 100, &data, &size);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(status, CVY_FAILED);
    assert_int_equal(cvy_input_status(ENOMEM), CVY_NO_MEMORY);
    assert_int_equal(cvy_input_status(EIO), CVY_FAILED);
    assert_int_equal(cvy_input_status(EACCES), CVY_NO_INPUT);
}

static void assert_content(const char *path, const char *expected)
{
    void *data;
    size_t size;
    assert_int_equal(cvy_file_read(path, 1 << 20, &data, &size), CVY_OK);
    assert_string_equal(data, expected);
    cvy_free(data);
}

static void test_replace(void **state)
{
    const char *folder = *state, *path = test_path(folder, "out");
    assert_int_equal(cvy_file_replace(path, "one", 3), CVY_OK);
    assert_content(path, "one");
    assert_int_equal(cvy_file_replace(path, "two", 3), CVY_OK);
    assert_content(path, "two");

    /* Aborted: the old content stays and nothing else is left. */
    struct cvy_output output;
    assert_int_equal(cvy_output_open(&output, path), CVY_OK);
    assert_int_equal(cvy_output_write(&output, "three", 5), CVY_OK);
    assert_int_equal(test_folder_entries(folder), 2);
    cvy_output_abort(&output);
    cvy_output_abort(&output);
    assert_content(path, "two");
    assert_int_equal(test_folder_entries(folder), 1);

    assert_int_equal(cvy_file_replace(folder, "x", 1), CVY_CANNOT_CREATE);
    assert_fails(cvy_file_replace(test_path(folder, "no/such"), "x", 1), CVY_CANNOT_CREATE, "no/such\": No such file");

    /* A link continues pointing where it did, a device stays a device. */
    const char *link = test_path(folder, "link");
    assert_int_equal(symlink("out", link), 0);
    assert_int_equal(cvy_file_replace(link, "four", 4), CVY_OK);
    assert_content(path, "four");
    struct stat about;
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(cvy_file_replace("/dev/null", "x", 1), CVY_OK);
    assert_int_equal(stat("/dev/null", &about), 0);
    assert_true(S_ISCHR(about.st_mode));
    assert_fails(cvy_file_replace("/dev/full", "x", 1), CVY_CANNOT_WRITE, "/dev/full\": No space left");
}

/* A file size limit stands for the full disk: write() fails half way, as it does there. */
static void test_full_disk(void **state)
{
    const char *folder = *state, *path = test_path(folder, "out");
    char block[4096] = {0};
    struct rlimit old, tight;
    assert_int_equal(cvy_file_replace(path, "old", 3), CVY_OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);

    struct cvy_output output;
    cvy_status status = cvy_output_open(&output, path);
    for (int i = 0; i < 10 && status == CVY_OK; i++)
        status = cvy_output_write(&output, block, sizeof block);
    cvy_output_abort(&output);
    /* Few bytes stay in the buffer until the end: then the commit fails. */
    cvy_status late = cvy_output_open(&output, path);
    tight.rlim_cur = 10;
    setrlimit(RLIMIT_FSIZE, &tight);
    if (late == CVY_OK)
        late = cvy_output_write(&output, block, 100);
    cvy_status commit = late == CVY_OK ? cvy_output_commit(&output) : CVY_FAILED;
    cvy_output_abort(&output);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);

    assert_int_equal(status, CVY_CANNOT_WRITE);
    assert_int_equal(late, CVY_OK);
    assert_fails(commit, CVY_CANNOT_WRITE, "out\": File too large");
    assert_content(path, "old");
    assert_int_equal(test_folder_entries(folder), 1);
}

static void test_output_without_memory(void **state)
{
    const char *folder = *state, *path = test_path(folder, "out");
    assert_int_equal(cvy_file_replace(path, "old", 3), CVY_OK);
    int failures = 0;
    for (int64_t n = 1;; n++, failures++) {
        cvy_status status = WITH_FAILURE(n, true, cvy_file_replace(path, "new", 3));
        if (status == CVY_OK)
            break;
        assert_true(status == CVY_NO_MEMORY || status == CVY_CANNOT_WRITE);
        assert_int_equal(test_folder_entries(folder), 1);
    }
    assert_true(failures >= 2);
    assert_content(path, "new");
}

static void test_clean(void **state)
{
    const char *folder = *state, *path = test_path(folder, "out");
    char name[600];
    snprintf(name, sizeof name, "%s.tmp.%ld", path, (long)getpid());
    test_file_write(name, "x", 1); /* ours, of an earlier life */
    snprintf(name, sizeof name, "%s.tmp.999999999", path);
    test_file_write(name, "x", 1); /* of a process that cannot be alive */
    snprintf(name, sizeof name, "%s.tmp.1", path);
    test_file_write(name, "x", 1); /* alive */
    snprintf(name, sizeof name, "%s.tmp.notes", path);
    test_file_write(name, "x", 1);
    test_file_write(test_path(folder, "outer.tmp.999999999"), "x", 1);
    test_file_write(path, "x", 1);
    cvy_output_clean(path);
    assert_int_equal(test_folder_entries(folder), 4);
    assert_true(cvy_path_exists(path));
    assert_true(cvy_path_exists(name));
    cvy_output_clean("/no/such/folder/out");
}

static void test_paths(void **state)
{
    const char *folder = *state;
    char *joined = cvy_path_join("a", "b");
    assert_string_equal(joined, "a/b");
    cvy_free(joined);
    joined = cvy_path_join("/", "b");
    assert_string_equal(joined, "/b");
    cvy_free(joined);
    joined = cvy_path_join("", "b");
    assert_string_equal(joined, "b");
    cvy_free(joined);
    assert_int_equal(cvy_make_directories(test_path(folder, "x//y/z/")), CVY_OK);
    assert_true(cvy_path_is_directory(test_path(folder, "x/y/z")));
    assert_int_equal(cvy_make_directories(test_path(folder, "x/y/z")), CVY_OK);
    test_file_write(test_path(folder, "file"), "x", 1);
    assert_false(cvy_path_is_directory(test_path(folder, "file")));
    assert_int_equal(cvy_make_directories(test_path(folder, "file")), CVY_CANNOT_CREATE);
    assert_fails(cvy_make_directories(test_path(folder, "file/x")), CVY_CANNOT_CREATE, "file/x\": Not a directory");
    assert_int_equal(symlink("nowhere", test_path(folder, "link")), 0);
    assert_fails(cvy_make_directories(test_path(folder, "link")), CVY_CANNOT_CREATE, "link\": Not a directory");
    assert_int_equal(cvy_make_directories(""), CVY_CANNOT_CREATE);
    assert_int_equal(cvy_make_directories("/"), CVY_OK);
}

/* A child of the process that holds a lock has its file as well, for as long as it lives. */
static void test_lock_and_child(void **state)
{
    const char *path = test_path(*state, "cache");
    int lock, ends[2];
    bool held;

    assert_int_equal(cvy_cache_lock(path, &lock), CVY_OK);
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* lives until the test closes its end */
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0);
    }
    close(ends[0]);
    cvy_cache_unlock(lock);
    assert_int_equal(cvy_cache_try_lock(path, &lock, &held), CVY_OK);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(held);
    cvy_cache_unlock(lock);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(test_read), IN_FOLDER(test_read_at), IN_FOLDER(test_no_more_files),
          IN_FOLDER(test_replace), IN_FOLDER(test_full_disk), IN_FOLDER(test_output_without_memory),
          IN_FOLDER(test_clean), IN_FOLDER(test_paths), IN_FOLDER(test_lock_and_child))
