/* Plans that must not be used on this GPU: those that gave other results than separate kernels, those that took the
 * whole context with them, and those during whose first run a process ended twice: once may have been from outside. All
 * are records of the cache whose key begins with "refused", and those of one such end with "ended". What a process is
 * trying stands in a file beside it, "<cache>-trying-<host>-<pid>.<nanoseconds>", on which it holds a lock: without one
 * the process is no longer there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/file.h"
#include "base/log.h"

enum { MAX_HOST = 64, MAX_NAME = 4096 };
static const char refused[] = "refused ", ended[] = "ended ", trying[] = "-trying-";

/* The host's name with nothing in it that a file's name may not have. */
static void find_host(char host[MAX_HOST])
{
    if (gethostname(host, MAX_HOST) != 0)
        host[0] = '\0';
    host[MAX_HOST - 1] = '\0';
    for (char *c = host; *c; c++) {
        if (*c == '/' || *c == '-')
            *c = '_';
    }
}

/* "<cache without .txt>-trying-<host>-", the beginning of the names; NULL: nothing is kept, or no memory. */
static char *path_stem(const struct cvy_cache *cache)
{
    char host[MAX_HOST];
    struct cvy_text path = {0};

    if (!cache->path)
        return NULL;
    find_host(host);
    cvy_text_append(&path, cache->path, strlen(cache->path) - strlen(".txt"));
    cvy_text_printf(&path, "%s%s-", trying, host);
    if (path.failed)
        cvy_text_release(&path);
    return path.text;
}

/* ---- records ---- */

/* Written at once: this process may end with the next plan that it tries. Whether it is. */
static bool add_record(struct cudnn_faults *faults, const char *key)
{
    const struct cudnn_cache_entry record = {.key = key};

    cudnn_cache_add(faults->cache, &record, "{}");
    return cvy_cache_save(faults->cache) && cvy_cache_find(&faults->cache->table, key);
}

static bool refuse(struct cudnn_faults *faults, const char *name)
{
    faults->refused++;
    return add_record(faults, name);
}

char *cudnn_faults_name(const struct gpu_libraries *libraries, const char *key, const struct cudnn_plan *plan)
{
    struct cvy_text name = {0};
    char *json;

    if (cudnn_plan_save(libraries, plan, &json) != CVY_OK)
        return NULL;
    cvy_text_printf(&name, "%s%s engine %lld form %d %016llx", refused, key, (long long)plan->engine, (int)plan->form,
                    (unsigned long long)cvy_hash(json, strlen(json)));
    cvy_free(json);
    if (name.failed)
        cvy_text_release(&name);
    return name.text;
}

bool cudnn_faults_refuses(const struct cudnn_faults *faults, const char *name)
{
    return name && cvy_cache_find(&faults->cache->table, name);
}

bool cudnn_faults_refuse(struct cudnn_faults *faults, const char *name)
{
    return name && refuse(faults, name);
}

/* ---- what is being tried ---- */

/* The file with a lock on it. One that another process has taken up in between, which finds it without a lock for a
 * moment, is made again. */
static int open_trying(const char *path)
{
    for (int tries = 0; tries < 3; tries++) {
        const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat status;

        if (file < 0)
            return -1;
        (void)flock(file, LOCK_EX | LOCK_NB);
        if (fstat(file, &status) == 0 && status.st_nlink > 0)
            return file;
        close(file);
    }
    return -1;
}

/* Not by way of a temporary file, and not synchronised: it is for the death of this process, not of the machine, and
 * written before each new plan. */
void cudnn_faults_try(struct cudnn_faults *faults, const char *name)
{
    const size_t length = name ? strlen(name) : 0;

    if (!faults->path || faults->trying || !name || length >= MAX_NAME)
        return;
    faults->file = open_trying(faults->path);
    faults->trying = faults->file >= 0;
    if (faults->trying && write(faults->file, name, length) != (ssize_t)length)
        cudnn_faults_tried(faults);
}

void cudnn_faults_tried(struct cudnn_faults *faults)
{
    if (!faults->trying)
        return;
    if (!faults->kept)
        (void)unlink(faults->path);
    close(faults->file);
    faults->trying = false;
}

/* The first time a plan's name is found so it has another try. Whether the cache holds it. */
static bool note_end(struct cudnn_faults *faults, const char *name)
{
    struct cvy_text once = {0};
    bool kept;

    cvy_text_printf(&once, "%s%s", ended, name + strlen(refused));
    if (once.failed) {
        kept = false;
    } else if (cvy_cache_find(&faults->cache->table, once.text)) {
        cvy_log(CVY_LOG_WARNING,
                "again a process ended while it tried a plan of cuDNN, which is left out from now on: %s",
                name + strlen(refused));
        kept = refuse(faults, name);
    } else {
        cvy_log(CVY_LOG_WARNING,
                "a process ended while it tried a plan of cuDNN, which is left out if that happens again: %s",
                name + strlen(refused));
        kept = add_record(faults, once.text);
    }
    cvy_text_release(&once);
    return kept;
}

/* A file that a process left. It goes when the cache holds what it says, and not before. */
static void take_up(struct cudnn_faults *faults, const char *path)
{
    void *name = NULL;
    size_t size;
    bool kept = true;

    if (cvy_file_read(path, MAX_NAME, &name, &size) == CVY_OK && strlen(name) == size &&
        strncmp(name, refused, strlen(refused)) == 0 && !strpbrk(name, "\t\r\n") && !cudnn_faults_refuses(faults, name))
        kept = note_end(faults, name);
    cvy_free(name);
    if (kept)
        (void)unlink(path);
}

/* Where there are no locks: by its number, which is that of this machine alone. */
static bool has_ended(const char *process)
{
    char *end;
    const long id = strtol(process, &end, 10);

    return *process >= '1' && *process <= '9' && *end == '.' && id <= INT32_MAX && id != getpid() &&
           kill((pid_t)id, 0) != 0 && errno == ESRCH;
}

/* Takes the file up if the process that wrote it holds it no longer, and nobody else takes it up just now. */
static void examine(struct cudnn_faults *faults, const char *path, const char *process)
{
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (file < 0)
        return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR && has_ended(process)))
        take_up(faults, path);
    close(file);
}

static void take_up_all(struct cudnn_faults *faults, const char *stem)
{
    const char *slash = strrchr(stem, '/'), *prefix = slash ? slash + 1 : stem;
    char *folder = cvy_strdup(slash ? stem : ".");
    DIR *entries;

    if (folder && slash)
        folder[slash - stem] = '\0';
    entries = folder ? opendir(folder) : NULL;
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        char *path;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        path = cvy_path_join(folder, entry->d_name);
        if (path)
            examine(faults, path, entry->d_name + strlen(prefix));
        cvy_free(path);
    }
    if (entries)
        closedir(entries);
    cvy_free(folder);
}

/* ---- both ---- */

cvy_status cudnn_faults_open(struct cudnn_faults *faults, struct cvy_cache *cache)
{
    struct cvy_text path = {0};
    char *stem = path_stem(cache);
    struct timespec now = {0};
    int lock;

    *faults = (struct cudnn_faults){.cache = cache};
    for (int32_t i = 0; i < cache->table.count; i++)
        faults->refused += strncmp(cache->table.lines[i].key, refused, strlen(refused)) == 0;
    if (!stem)
        return CVY_OK;
    take_up_all(faults, stem);
    if (cvy_cache_lock(cache->path, &lock) == CVY_OK) { /* makes the folder */
        cvy_cache_unlock(lock);
        (void)clock_gettime(CLOCK_REALTIME, &now);
        cvy_text_printf(&path, "%s%ld.%ld%09ld", stem, (long)getpid(), (long)now.tv_sec, now.tv_nsec);
    }
    cvy_free(stem);
    if (path.failed)
        return cvy_fail_memory(path.capacity, "a file name");
    faults->path = path.text;
    return CVY_OK;
}

void cudnn_faults_close(struct cudnn_faults *faults)
{
    cudnn_faults_tried(faults);
    cvy_free(faults->path);
    *faults = (struct cudnn_faults){0};
}
