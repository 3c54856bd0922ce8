#include "base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { LOCK_TRIES = 200, LOCK_PAUSE_MS = 10 };

uint64_t cvy_hash_more(uint64_t before, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++)
        before = (before ^ at[i]) * 1099511628211u;
    return before;
}

uint64_t cvy_hash(const void *bytes, size_t size)
{
    return cvy_hash_more(14695981039346656037u, bytes, size);
}

/* "amd-epyc-9v74-80-core-processor" of "AMD EPYC 9V74 80-Core Processor, avx512, ...". */
static void make_slug(const char *text, char *slug, size_t size)
{
    size_t used = 0;

    for (; *text && *text != ',' && used + 2 < size; text++) {
        const char c = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            slug[used++] = c;
        else if (used > 0 && slug[used - 1] != '-')
            slug[used++] = '-';
    }
    while (used > 0 && slug[used - 1] == '-')
        used--;
    slug[used] = '\0';
}

cvy_status cvy_cache_path(const char *kind, const char *identity, char **path)
{
    const char *own = getenv("CONVOY_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct cvy_text text = {0};
    char slug[64];

    *path = NULL;
    if (own && own[0])
        cvy_text_puts(&text, own);
    else if (cache && cache[0] == '/') /* the XDG specification ignores relative ones */
        cvy_text_printf(&text, "%s/convoy", cache);
    else if (home && home[0])
        cvy_text_printf(&text, "%s/.cache/convoy", home);
    else
        return CVY_OK;
    make_slug(identity, slug, sizeof slug);
    cvy_text_printf(&text, "/%s-%s-%08llx.txt", kind, slug,
                    (unsigned long long)(cvy_hash(identity, strlen(identity)) & 0xFFFFFFFFu));
    if (text.failed) {
        cvy_text_release(&text);
        return cvy_fail_memory(text.capacity, "a file name");
    }
    *path = text.text;
    return CVY_OK;
}

/* The file of the lock, held; -1 and a recorded sentence when somebody holds it for too long. */
static int take_lock(const char *name)
{
    const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
    const int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (file < 0)
        (void)cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(name));
    for (int tries = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) /* a file system without locks: the worst is to time again */
            break;
        if (tries == LOCK_TRIES) {
            (void)cvy_fail(CVY_CANNOT_CREATE, "another process holds %s", cvy_quote(name));
            close(file);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return file;
}

cvy_status cvy_cache_lock(const char *path, int *lock)
{
    const char *slash = strrchr(path, '/');
    struct cvy_text name = {0};
    cvy_status status = CVY_OK;

    *lock = -1;
    if (slash && slash > path) {
        cvy_text_append(&name, path, (size_t)(slash - path));
        if (!name.failed)
            status = cvy_make_directories(name.text);
        cvy_text_release(&name);
    }
    if (status != CVY_OK)
        return status;
    cvy_text_printf(&name, "%s.lock", path);
    if (name.failed)
        status = cvy_fail_memory(name.capacity, "a file name");
    else if ((*lock = take_lock(name.text)) < 0)
        status = CVY_CANNOT_CREATE;
    cvy_text_release(&name);
    return status;
}

void cvy_cache_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}
