/* What a process may use: the files of the kernel about cores and memory, in a folder that stands for "/". */
#include <limits.h>
#include <sys/stat.h>

#include "base/resources.h"
#include "support_folder.h"
#include "support_test.h"

static const size_t MIB = (size_t)1 << 20;

/* Write a file below `root`, with the folders on its way. */
static void put(const char *root, const char *name, const char *text)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        (void)mkdir(path, 0777); /* there already: as well */
    }
    test_file_write(path, text, strlen(text));
}

static void quota_version_2(void **state)
{
    const char *root = *state;

    assert_int_equal(cvy_quota_cores(root), INT_MAX); /* no files at all */
    put(root, "proc/self/cgroup", "0::/outer/inner\n");
    assert_int_equal(cvy_quota_cores(root), INT_MAX);
    put(root, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    assert_int_equal(cvy_quota_cores(root), INT_MAX);
    put(root, "sys/fs/cgroup/outer/cpu.max", "350000 100000\n"); /* of the group around it, rounded up */
    assert_int_equal(cvy_quota_cores(root), 4);
    put(root, "sys/fs/cgroup/outer/inner/cpu.max", "200000 100000\n");
    assert_int_equal(cvy_quota_cores(root), 2);
    put(root, "sys/fs/cgroup/cpu.max", "1000 100000\n"); /* inside a container the mounted group is the process's */
    assert_int_equal(cvy_quota_cores(root), 1);
    put(root, "sys/fs/cgroup/cpu.max", "nonsense\n");
    assert_int_equal(cvy_quota_cores(root), 2);
    put(root, "sys/fs/cgroup/outer/inner/cpu.max", "200000 0\n");
    assert_int_equal(cvy_quota_cores(root), 4);
}

static void quota_version_1(void **state)
{
    const char *root = *state;

    put(root, "proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n0::/\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cvy_quota_cores(root), INT_MAX);
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"); /* the folder /docker/abc is the host's */
    assert_int_equal(cvy_quota_cores(root), 2);
    put(root, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "50000\n");
    put(root, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cvy_quota_cores(root), 1);
    put(root, "proc/self/cgroup", "3:cpuset:/docker/abc\n"); /* the cpu controller is not there */
    assert_int_equal(cvy_quota_cores(root), INT_MAX);
}

/* Both versions mounted: v2 has a folder of its own. */
static void quota_hybrid(void **state)
{
    const char *root = *state;

    put(root, "proc/self/cgroup", "1:cpu:/\n0::/job\n");
    put(root, "sys/fs/cgroup/unified/job/cpu.max", "300000 100000\n");
    assert_int_equal(cvy_quota_cores(root), 3);
}

static void memory_version_2(void **state)
{
    const char *root = *state;

    assert_true(cvy_available_memory_under(root) == SIZE_MAX);
    put(root, "proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
    assert_true(cvy_available_memory_under(root) == 4096 * MIB);
    put(root, "proc/self/cgroup", "0::/box\n");
    put(root, "sys/fs/cgroup/box/memory.max", "max\n");
    put(root, "sys/fs/cgroup/box/memory.current", "1073741824\n");
    assert_true(cvy_available_memory_under(root) == 4096 * MIB);
    put(root, "sys/fs/cgroup/box/memory.max", "2147483648\n");
    assert_true(cvy_available_memory_under(root) == 1024 * MIB);
    put(root, "sys/fs/cgroup/box/memory.stat", "anon 5\ninactive_file 536870912\nactive_file 99999999\n");
    assert_true(cvy_available_memory_under(root) == 1536 * MIB); /* cached files make room */
    put(root, "sys/fs/cgroup/memory.max", "104857600\n");        /* of the group around it */
    assert_true(cvy_available_memory_under(root) == 100 * MIB);
    put(root, "sys/fs/cgroup/memory.current", "209715200\n"); /* over the limit already */
    assert_true(cvy_available_memory_under(root) == 0);
    put(root, "proc/meminfo", "MemTotal: 8388608 kB\n"); /* an old kernel: the group alone decides */
    put(root, "sys/fs/cgroup/memory.max", "max\n");
    assert_true(cvy_available_memory_under(root) == 1536 * MIB);
}

static void memory_version_1(void **state)
{
    const char *root = *state;

    put(root, "proc/meminfo", "MemAvailable: 4194304 kB\n");
    put(root, "proc/self/cgroup", "4:memory:/\n0::/\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "734003200\n");
    assert_true(cvy_available_memory_under(root) == 4096 * MIB);
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    put(root, "sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 209715200\n");
    assert_true(cvy_available_memory_under(root) == 524 * MIB);
}

static void shared_cache(void **state)
{
    const char *root = *state;

    assert_int_equal(cvy_shared_cache_bytes_under(root), 0);
    put(root, "sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n");
    assert_int_equal(cvy_shared_cache_bytes_under(root), 32 * MIB);
}

/* The real files: whatever they say, it is a sensible number. */
static void this_machine(void **state)
{
    assert_true(cvy_default_threads() >= 1 && cvy_default_threads() <= cvy_allowed_threads());
    assert_true(cvy_quota_cores("") >= 1);
    assert_true(cvy_available_memory() > MIB);
    assert_true(cvy_resident_memory() > MIB / 4);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(quota_version_2), IN_FOLDER(quota_version_1), IN_FOLDER(quota_hybrid),
          IN_FOLDER(memory_version_2), IN_FOLDER(memory_version_1), IN_FOLDER(shared_cache), TEST(this_machine))
