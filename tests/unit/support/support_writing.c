#include <signal.h>
#include <sys/resource.h>

#include "base/file.h"
#include "support_folder.h"
#include "support_test.h"
#include "support_writing.h"

int test_full_disk_keeps_old(const char *folder, const char *name, test_writer write, void *context)
{
    const char *path = test_path(folder, name);
    struct rlimit old, tight;
    cvy_status status = CVY_CANNOT_WRITE;
    int failures = 0;

    test_file_write(path, "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    for (rlim_t limit = 0; limit < 4096; limit += 7, failures++) {
        void *data = NULL;
        size_t size;

        tight.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &tight);
        status = write(path, context);
        setrlimit(RLIMIT_FSIZE, &old);
        if (status == CVY_OK)
            break;
        assert_int_equal(status, CVY_CANNOT_WRITE);
        assert_int_equal(cvy_file_read(path, 100, &data, &size), CVY_OK);
        assert_string_equal(data, "old");
        cvy_free(data);
        assert_int_equal(test_folder_entries(folder), 1);
    }
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, CVY_OK);
    return failures;
}

int64_t test_writing_without_memory(const char *folder, const char *name, test_writer write, void *context)
{
    const char *path = test_path(folder, name);

    for (int64_t n = 1;; n++) {
        cvy_status status;

        status = WITH_FAILURE(n, false, write(path, context));
        if (status == CVY_OK)
            return n;
        assert_true(status == CVY_NO_MEMORY || status == CVY_CANNOT_WRITE);
        /* cannot write: renamed, but the name of the folder to sync found no memory; the file is whole */
        assert_int_equal(test_folder_entries(folder), status == CVY_NO_MEMORY ? 0 : 1);
    }
}
