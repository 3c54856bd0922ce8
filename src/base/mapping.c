/* Mapped files. Reading a page that the file no longer has raises SIGBUS. The handler, which only a program that asks
 * for it installs, puts zeros in that page's place and leaves a mark; whoever reads asks for the mark in the end. */
#include "base/mapping.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "convoy/infer.h"

/* In a list that the handler walks: ranges are added and used again, never freed. */
struct cvy_mapped_range {
    struct cvy_mapped_range *next;
    atomic_flag used;
    atomic_uintptr_t begin, end; /* equal: nothing is mapped */
    atomic_bool broken;
    int file;
    off_t size;
    struct timespec changed;
};
static _Atomic(struct cvy_mapped_range *) ranges;

static struct cvy_mapped_range *take_range(void)
{
    struct cvy_mapped_range *range = atomic_load(&ranges);

    while (range && atomic_flag_test_and_set(&range->used))
        range = range->next;
    if (range)
        return range;
    range = cvy_calloc(1, sizeof *range);
    if (!range)
        return NULL;
    atomic_flag_clear(&range->used);
    (void)atomic_flag_test_and_set(&range->used);
    range->next = atomic_load(&ranges);
    while (!atomic_compare_exchange_weak(&ranges, &range->next, range))
        ;
    return range;
}

cvy_status cvy_file_map(const char *path, struct cvy_mapping *mapping)
{
    struct cvy_mapped_range *range = NULL;
    struct stat about;
    int file = -1;
    cvy_status status;

    *mapping = (struct cvy_mapping){0};
    CVY_TRY(cvy_file_open_regular(path, &file, &about));
    if (about.st_size == 0) { /* mmap refuses an empty range */
        close(file);
        mapping->data = "";
        return CVY_OK;
    }
    range = take_range();
    if (!range) {
        status = cvy_fail_memory(sizeof *range, cvy_quote(path));
        goto fail;
    }
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) {
        status = cvy_fail_errno(cvy_input_status(errno), "cannot map %s", cvy_quote(path));
        goto fail;
    }
    range->file = file;
    range->size = about.st_size;
    range->changed = about.st_mtim;
    atomic_store(&range->broken, false);
    atomic_store(&range->begin, (uintptr_t)data);
    atomic_store(&range->end, (uintptr_t)data + (size_t)about.st_size);
    *mapping = (struct cvy_mapping){data, (size_t)about.st_size, range};
    return CVY_OK;

fail:
    if (range)
        atomic_flag_clear(&range->used);
    close(file);
    return status;
}

void cvy_file_unmap(struct cvy_mapping *mapping)
{
    struct cvy_mapped_range *range = mapping->range;

    if (range) {
        atomic_store(&range->end, 0);
        atomic_store(&range->begin, 0);
        munmap((void *)(uintptr_t)mapping->data, mapping->size);
        close(range->file);
        atomic_flag_clear(&range->used);
    }
    *mapping = (struct cvy_mapping){0};
}

void cvy_file_forget(const struct cvy_mapping *mapping, const void *data, size_t bytes)
{
    const long size = sysconf(_SC_PAGESIZE);
    const uintptr_t page = size > 0 ? (uintptr_t)size : 4096, start = (uintptr_t)mapping->data;
    const uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + bytes) / page * page;

    /* Whole pages only. They are those of the file, never written to: a later read finds the same bytes. */
    if (mapping->size > 0 && first >= start && end <= start + mapping->size && first < end)
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

cvy_status cvy_mapping_check(const struct cvy_mapping *mapping, const char *what)
{
    struct cvy_mapped_range *range = mapping->range;
    struct stat about;

    if (!range)
        return CVY_OK;
    if (fstat(range->file, &about) != 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(what));
    if (about.st_size < range->size)
        return cvy_fail(CVY_BAD_DATA, "%s was cut off while it was read: it had %lld bytes and has %lld",
                        cvy_quote(what), (long long)range->size, (long long)about.st_size);
    if (about.st_size != range->size || about.st_mtim.tv_sec != range->changed.tv_sec ||
        about.st_mtim.tv_nsec != range->changed.tv_nsec)
        return cvy_fail(CVY_BAD_DATA, "%s was written to while it was read", cvy_quote(what));
    if (atomic_load(&range->broken))
        return cvy_fail(CVY_BAD_DATA, "%s could not be read: the disk failed, or it was cut off for a moment",
                        cvy_quote(what));
    return CVY_OK;
}

/* ---- the handler ---- */

static struct sigaction former;
static uintptr_t page_bytes;

/* The range that an address is in, from its page to its end: zeros from now on. */
static bool replace(uintptr_t address)
{
    struct cvy_mapped_range *range = atomic_load(&ranges);
    const uintptr_t page = address / page_bytes * page_bytes;

    while (range && (address < atomic_load(&range->begin) || address >= atomic_load(&range->end)))
        range = range->next;
    if (!range || mmap((void *)page, atomic_load(&range->end) - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
    atomic_store(&range->broken, true);
    return true;
}

static void on_bus_error(int number, siginfo_t *about, void *context)
{
    const int code = errno;

    if (about->si_code != BUS_ADRERR || !replace((uintptr_t)about->si_addr)) {
        if (former.sa_flags & SA_SIGINFO) {
            former.sa_sigaction(number, about, context);
        } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
            former.sa_handler(number);
        } else { /* as without us: the instruction fails again, or the signal that was sent is */
            (void)sigaction(SIGBUS, &former, NULL);
            if (about->si_code <= 0)
                (void)raise(number);
        }
    }
    errno = code;
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
    const long size = sysconf(_SC_PAGESIZE);

    page_bytes = size > 0 ? (uintptr_t)size : 4096;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &former) == 0)
        (void)sigaction(SIGBUS, &action, NULL);
}

void cvy_guard_mapped_files(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, install);
}
