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
#include "base/log.h"

enum { LOCK_TRIES = 200, LOCK_PAUSE_MS = 10, MAX_FILE = 64 << 20 };

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

bool cvy_cache_folder(struct cvy_text *text)
{
    const char *own = getenv("CONVOY_CACHE_DIR"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (own && own[0])
        cvy_text_puts(text, own);
    else if (cache && cache[0] == '/') /* the XDG specification ignores relative ones */
        cvy_text_printf(text, "%s/convoy", cache);
    else if (home && home[0])
        cvy_text_printf(text, "%s/.cache/convoy", home);
    else
        return false;
    return true;
}

/* *path is NULL where the environment names no folder. */
static cvy_status make_path(const char *name, const char *identity, char **path)
{
    struct cvy_text text = {0};
    char slug[64];

    *path = NULL;
    if (!cvy_cache_folder(&text))
        return CVY_OK;
    make_slug(identity, slug, sizeof slug);
    cvy_text_printf(&text, "/%s-%s-%08llx.txt", name, slug,
                    (unsigned long long)(cvy_hash(identity, strlen(identity)) & 0xFFFFFFFFu));
    if (text.failed) {
        cvy_text_release(&text);
        return cvy_fail_memory(text.capacity, "a file name");
    }
    *path = text.text;
    return CVY_OK;
}

/* The file of the lock, held; -1 and a recorded sentence when somebody (*held) holds it after so many tries. */
static int take_lock(const char *name, int max, bool *held)
{
    const struct timespec pause = {0, LOCK_PAUSE_MS * 1000000L};
    const int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (file < 0)
        (void)cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(name));
    for (int tries = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) /* a file system without locks: the worst is to time again */
            break;
        *held = errno == EWOULDBLOCK && tries >= max;
        if (*held) {
            (void)cvy_fail(CVY_CANNOT_CREATE, "another process holds %s", cvy_quote(name));
            close(file);
            return -1;
        }
        nanosleep(&pause, NULL);
    }
    return file;
}

static cvy_status lock_path(const char *path, int max, int *lock, bool *held)
{
    const char *slash = strrchr(path, '/');
    struct cvy_text name = {0};
    cvy_status status = CVY_OK;

    *lock = -1;
    *held = false;
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
    else if ((*lock = take_lock(name.text, max, held)) < 0)
        status = CVY_CANNOT_CREATE;
    cvy_text_release(&name);
    return status;
}

cvy_status cvy_cache_lock(const char *path, int *lock)
{
    bool held;

    return lock_path(path, LOCK_TRIES, lock, &held);
}

cvy_status cvy_cache_try_lock(const char *path, int *lock, bool *held)
{
    const cvy_status status = lock_path(path, 0, lock, held);

    return *held ? CVY_OK : status;
}

void cvy_cache_unlock(int lock)
{
    if (lock < 0)
        return;
    (void)flock(lock, LOCK_UN); /* a child that was forked meanwhile has the file, too: closing ours is not enough */
    close(lock);
}

/* ---- tables ---- */

/* Where `key` is, or belongs. */
static int32_t position_of(const struct cvy_cache_table *table, const char *key, bool *found)
{
    int32_t low = 0, high = table->count;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (strcmp(table->lines[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < table->count && strcmp(table->lines[low].key, key) == 0;
    return low;
}

const char *cvy_cache_find(const struct cvy_cache_table *table, const char *key)
{
    bool found;
    const int32_t at = position_of(table, key, &found);

    return found ? table->lines[at].value : NULL;
}

cvy_status cvy_cache_put(struct cvy_cache_table *table, const char *key, const char *value)
{
    bool found;
    const int32_t at = position_of(table, key, &found);
    struct cvy_cache_line line = {0};

    if (found && strcmp(table->lines[at].value, value) == 0)
        return CVY_OK;
    if (!found && table->count == table->capacity) {
        const int32_t capacity = table->capacity ? 2 * table->capacity : 64;
        struct cvy_cache_line *larger = cvy_realloc(table->lines, (size_t)capacity, sizeof *larger);
        if (!larger)
            return cvy_fail_memory((size_t)capacity * sizeof *larger, "the cache of timings");
        table->lines = larger;
        table->capacity = capacity;
    }
    line.key = found ? table->lines[at].key : cvy_arena_strdup(&table->arena, key);
    line.value = cvy_arena_strdup(&table->arena, value);
    if (!line.key || !line.value)
        return cvy_fail_memory(strlen(key) + strlen(value) + 2, "the cache of timings");
    if (!found) {
        memmove(&table->lines[at + 1], &table->lines[at], (size_t)(table->count - at) * sizeof line);
        table->count++;
    }
    table->lines[at] = line;
    return CVY_OK;
}

void cvy_cache_release(struct cvy_cache_table *table)
{
    cvy_free(table->lines);
    cvy_arena_release(&table->arena);
    *table = (struct cvy_cache_table){0};
}

bool cvy_cache_number(const char **at, int64_t max, int64_t *value)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    *at = end;
    return *value <= max && errno == 0;
}

/* ---- files ---- */

cvy_status cvy_cache_open(struct cvy_cache *cache, const struct cvy_cache_kind *kind, const char *name,
                          const char *identity)
{
    *cache = (struct cvy_cache){.kind = kind, .identity = cvy_strdup(identity)};
    if (!cache->identity)
        return cvy_fail_memory(strlen(identity) + 1, "the name of a device");
    return make_path(name, identity, &cache->path);
}

void cvy_cache_close(struct cvy_cache *cache)
{
    cvy_cache_release(&cache->table);
    cvy_free(cache->path);
    cvy_free(cache->identity);
    *cache = (struct cvy_cache){0};
}

/* All lines of the text, or false: it is none of ours. */
static bool read_lines(const struct cvy_cache *cache, char *text, struct cvy_cache_table *table)
{
    int line = 0;

    for (char *at = text, *next; *at; at = next, line++) {
        char *tab;
        next = strchr(at, '\n');
        if (!next)
            return false; /* cut off */
        *next++ = '\0';
        if (line == 0 && strcmp(at, cache->kind->first_line) != 0)
            return false;
        if (line == 1 && (strncmp(at, "# ", 2) != 0 || strcmp(at + 2, cache->identity) != 0))
            return false;
        if (line < 2)
            continue;
        tab = strchr(at, '\t');
        if (!tab || tab == at || !cache->kind->valid(tab + 1))
            return false;
        *tab = '\0';
        if (cvy_cache_put(table, at, tab + 1) != CVY_OK)
            return false;
    }
    return line >= 2;
}

/* Adds what the file says of keys that the table does not have: all of it or nothing. */
static void read_file(struct cvy_cache *cache)
{
    struct cvy_cache_table found = {0};
    void *data = NULL;
    size_t size = 0;

    if (!cvy_path_exists(cache->path))
        return;
    if (cvy_file_read(cache->path, MAX_FILE, &data, &size) != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "the kept timings of %s cannot be read: %s", cache->kind->what, cvy_error());
        return;
    }
    if (strlen(data) != size || !read_lines(cache, data, &found)) {
        cvy_log(CVY_LOG_WARNING, "%s is damaged: the %s are timed again", cvy_quote(cache->path), cache->kind->what);
        found.count = 0;
    }
    for (int32_t i = 0; i < found.count; i++) {
        const struct cvy_cache_line *line = &found.lines[i];
        if (!cvy_cache_find(&cache->table, line->key) && cvy_cache_put(&cache->table, line->key, line->value) != CVY_OK)
            cvy_log(CVY_LOG_WARNING, "a kept choice is not used: %s", cvy_error());
    }
    cvy_free(data);
    cvy_cache_release(&found);
}

void cvy_cache_load(struct cvy_cache *cache)
{
    if (!cache->loaded && cache->path)
        read_file(cache);
    cache->loaded = true;
}

cvy_status cvy_cache_add(struct cvy_cache *cache, const char *key, const char *value)
{
    CVY_TRY(cvy_cache_put(&cache->table, key, value));
    cache->unsaved++;
    return CVY_OK;
}

static cvy_status write_file(struct cvy_cache *cache)
{
    struct cvy_text text = {0};
    cvy_status status;
    int lock;

    CVY_TRY(cvy_cache_lock(cache->path, &lock));
    read_file(cache);
    cvy_text_printf(&text, "%s\n# %s\n", cache->kind->first_line, cache->identity);
    for (int32_t i = 0; i < cache->table.count; i++) {
        cvy_text_puts(&text, cache->table.lines[i].key);
        cvy_text_puts(&text, "\t");
        cvy_text_puts(&text, cache->table.lines[i].value);
        cvy_text_puts(&text, "\n");
    }
    status = text.failed ? cvy_fail_memory(text.capacity, "the cache of timings")
                         : cvy_file_replace(cache->path, text.text, text.length);
    cvy_cache_unlock(lock);
    cvy_text_release(&text);
    return status;
}

bool cvy_cache_save(struct cvy_cache *cache)
{
    if (cache->unsaved == 0)
        return true;
    cache->unsaved = 0;
    if (!cache->path)
        cvy_log(CVY_LOG_DEBUG, "the times of the %s are not kept: neither CONVOY_CACHE_DIR nor HOME is set",
                cache->kind->what);
    else if (write_file(cache) == CVY_OK)
        return true;
    else
        cvy_log(CVY_LOG_WARNING, "the times of the %s are not kept: %s", cache->kind->what, cvy_error());
    return false;
}

cvy_status cvy_kernels_are_timed(bool *timed)
{
    const char *given = getenv("CONVOY_KERNELS");

    *timed = !given || strcmp(given, "first") != 0;
    if (given && given[0] && *timed && strcmp(given, "timed") != 0 && strcmp(given, "once") != 0)
        return cvy_fail(CVY_USAGE, "CONVOY_KERNELS is timed, once or first, not %s", cvy_quote(given));
    return CVY_OK;
}

bool cvy_kernels_are_timed_once(void)
{
    const char *given = getenv("CONVOY_KERNELS");

    return given && strcmp(given, "once") == 0;
}
