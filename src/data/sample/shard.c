#include "data/sample/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

struct cvy_shards {
    atomic_int owners;
    size_t count;
    struct cvy_arena arena; /* of the paths */
    struct cvy_shard each[];
};

/* Files that all sets of this process hold open. */
static atomic_int held;
static atomic_int max_open_forced = -1;

void cvy_shards_set_max_open(int max)
{
    max_open_forced = max;
}

/* Half of what the process may open: logs, sockets and single images need files too. */
static int max_open(void)
{
    struct rlimit limit;

    if (max_open_forced >= 0)
        return max_open_forced;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    return limit.rlim_cur > 65536 ? 32768 : (int)(limit.rlim_cur / 2);
}

static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC);
}

static cvy_status open_shard(struct cvy_shard *shard)
{
    const bool hold = atomic_fetch_add(&held, 1) < max_open();
    const int file = open_file(shard->path);

    if (file >= 0 && hold) {
        shard->file = file;
        return CVY_OK;
    }
    atomic_fetch_sub(&held, 1);
    if (file < 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot open %s", cvy_quote(shard->path));
    close(file);
    return CVY_OK;
}

cvy_status cvy_shards_open(enum cvy_shard_kind kind, const char *const *paths, size_t count, struct cvy_shards **out)
{
    cvy_status status = CVY_OK;
    struct cvy_shards *shards = NULL;
    size_t bytes;

    *out = NULL;
    if (cvy_size_mul(count, sizeof *shards->each, &bytes) && cvy_size_add(bytes, sizeof *shards, &bytes))
        shards = cvy_calloc(1, bytes);
    if (!shards)
        return cvy_fail_memory(count * sizeof *shards->each, "a list of files");
    shards->owners = 1;
    for (size_t i = 0; i < count; i++) {
        struct cvy_shard *shard = &shards->each[i];
        *shard = (struct cvy_shard){.path = cvy_arena_strdup(&shards->arena, paths[i]), .kind = kind, .file = -1};
        if (!shard->path) {
            status = cvy_fail_memory(strlen(paths[i]), "a path");
            goto fail;
        }
        shards->count = i + 1;
        CVY_GOTO(open_shard(shard));
    }
    *out = shards;
    return CVY_OK;
fail:
    cvy_shards_close(shards);
    return status;
}

struct cvy_shards *cvy_shards_share(struct cvy_shards *shards)
{
    if (shards)
        atomic_fetch_add(&shards->owners, 1);
    return shards;
}

void cvy_shards_close(struct cvy_shards *shards)
{
    if (!shards || atomic_fetch_sub(&shards->owners, 1) > 1)
        return;
    for (size_t i = 0; i < shards->count; i++)
        if (shards->each[i].file >= 0) {
            close(shards->each[i].file);
            atomic_fetch_sub(&held, 1);
        }
    cvy_arena_release(&shards->arena);
    cvy_free(shards);
}

const struct cvy_shard *cvy_shard(const struct cvy_shards *shards, size_t index)
{
    return &shards->each[index];
}

cvy_status cvy_shard_borrow(const struct cvy_shard *shard, int *file)
{
    *file = shard->file >= 0 ? shard->file : open_file(shard->path);
    return *file >= 0 ? CVY_OK : cvy_fail_errno(cvy_input_status(errno), "cannot open %s", cvy_quote(shard->path));
}

void cvy_shard_return(const struct cvy_shard *shard, int file)
{
    if (shard->file < 0)
        close(file);
}

cvy_status cvy_shard_read(const struct cvy_shard *shard, uint64_t offset, void *bytes, size_t size)
{
    int file;
    size_t got;

    CVY_TRY(cvy_shard_borrow(shard, &file));
    const cvy_status status = cvy_file_read_at(shard->path, file, offset, bytes, size, &got);
    cvy_shard_return(shard, file);
    if (status == CVY_OK && got < size)
        return cvy_fail(CVY_BAD_DATA, "%s is truncated: it ends within the record at byte %llu", cvy_quote(shard->path),
                        (unsigned long long)offset);
    return status;
}

/* ---- files that hold nothing ---- */

void cvy_empty_shards_count(struct cvy_empty_shards *of, const char *path, size_t records)
{
    of->files++;
    if (records > 0)
        return;
    if (of->empty++ == 0)
        of->first = path;
}

void cvy_empty_shards_report(const struct cvy_empty_shards *of)
{
    if (of->empty > 0)
        cvy_log(CVY_LOG_WARNING, "%s holds no records (%zu such of %s)", cvy_quote(of->first), of->empty,
                cvy_counted((int64_t)of->files, "file"));
}
