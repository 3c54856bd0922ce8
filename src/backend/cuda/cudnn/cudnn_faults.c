/* Plans that must not be used on this GPU: those that gave other results than separate kernels, and those during whose
 * first run a process ended, for a kernel that faults takes the whole context with it. Both are records of the cache
 * whose key begins with "refused"; what a process is trying stands in a file beside it, "<cache>-trying-<host>-<pid>",
 * which others find when the process is no longer there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/file.h"
#include "base/log.h"

enum { MAX_HOST = 64, MAX_NAME = 4096 };
static const char refused[] = "refused ", trying[] = "-trying-";

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
static bool add_record(struct cudnn_faults *faults, const char *name)
{
    const struct cudnn_cache_entry record = {.key = name};

    cudnn_cache_add(faults->cache, &record, "{}");
    faults->refused++;
    return cvy_cache_save(faults->cache) && cudnn_faults_refuses(faults, name);
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

void cudnn_faults_refuse(struct cudnn_faults *faults, const char *name)
{
    if (name)
        (void)add_record(faults, name);
}

/* ---- what is being tried ---- */

/* Not by way of a temporary file, and not synchronised: it is for the death of this process, not of the machine, and
 * written before each new plan. */
void cudnn_faults_try(struct cudnn_faults *faults, const char *name)
{
    const size_t length = name ? strlen(name) : 0;
    int file;

    if (!faults->path || !name || length >= MAX_NAME)
        return;
    file = open(faults->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 && write(file, name, length) != (ssize_t)length)
        (void)unlink(faults->path);
    if (file >= 0)
        close(file);
}

void cudnn_faults_tried(struct cudnn_faults *faults)
{
    if (faults->path && !faults->broken)
        (void)unlink(faults->path);
}

/* A file that a process left. It goes when the cache holds what it says, and not before. */
static void take_up(struct cudnn_faults *faults, const char *path)
{
    void *name = NULL;
    size_t size;
    bool kept = true;

    if (cvy_file_read(path, MAX_NAME, &name, &size) == CVY_OK && strlen(name) == size &&
        strncmp(name, refused, strlen(refused)) == 0 && !strpbrk(name, "\t\r\n") &&
        !cudnn_faults_refuses(faults, name)) {
        cvy_log(CVY_LOG_WARNING, "a process ended while it tried a plan of cuDNN, which is left out from now on: %s",
                (const char *)name + strlen(refused));
        kept = add_record(faults, name);
    }
    cvy_free(name);
    if (kept)
        (void)unlink(path);
}

static bool has_ended(const char *process)
{
    char *end;
    const long id = strtol(process, &end, 10);

    return *process >= '1' && *process <= '9' && *end == '\0' && id <= INT32_MAX && id != getpid() &&
           kill((pid_t)id, 0) != 0 && errno == ESRCH;
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
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !has_ended(entry->d_name + strlen(prefix)))
            continue;
        path = cvy_path_join(folder, entry->d_name);
        if (path)
            take_up(faults, path);
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
    int lock;

    *faults = (struct cudnn_faults){.cache = cache};
    for (int32_t i = 0; i < cache->table.count; i++)
        faults->refused += strncmp(cache->table.lines[i].key, refused, strlen(refused)) == 0;
    if (!stem)
        return CVY_OK;
    take_up_all(faults, stem);
    if (cvy_cache_lock(cache->path, &lock) == CVY_OK) { /* makes the folder */
        cvy_cache_unlock(lock);
        cvy_text_printf(&path, "%s%ld", stem, (long)getpid());
    }
    cvy_free(stem);
    if (path.failed)
        return cvy_fail_memory(path.capacity, "a file name");
    faults->path = path.text;
    return CVY_OK;
}

void cudnn_faults_close(struct cudnn_faults *faults)
{
    if (faults->path && !faults->broken)
        (void)unlink(faults->path);
    cvy_free(faults->path);
    *faults = (struct cudnn_faults){0};
}
