/* The plans that were found fastest, one file for each GPU and version of cuDNN:
 *
 *   # convoy cudnn 1
 *   # NVIDIA H200, compute capability 9.0, 132 processors; cuDNN 91900; Convoy 0.1.0
 *   <problem> TAB <form> TAB <engine> TAB <notes> TAB <candidates> TAB <nanoseconds> TAB <hash> TAB <plan>
 *
 * notes: 1 for tensor cores, 2 for compiled when it was made; the plan is cuDNN's JSON, and the hash is of it. Plans
 * that carry compiled code are large: theirs is - and they lie in a file of their own, named by a hash of the problem.
 * The file is only ever replaced as a whole, under a lock beside it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/cache.h"
#include "base/file.h"
#include "base/log.h"

static const char first_line[] = "# convoy cudnn 1";
static const char own_file[] = "-";
enum { FIELDS = 8, MOST_FILE = 64 << 20, MOST_PLAN = 16 << 20, UNSAVED = 8, NOTE_TENSOR = 1, NOTE_COMPILED = 2 };

const struct cudnn_record *cudnn_cache_find(const struct cudnn_cache *cache, const char *key)
{
    for (int i = 0; i < cache->count; i++) {
        if (strcmp(cache->records[i].key, key) == 0)
            return &cache->records[i];
    }
    return NULL;
}

/* Takes the record in the place of one with its key; its texts must live in the arena. */
static bool put(struct cudnn_cache *cache, const struct cudnn_record *record)
{
    for (int i = 0; i < cache->count; i++) {
        if (strcmp(cache->records[i].key, record->key) == 0) {
            cache->records[i] = *record;
            return true;
        }
    }
    if (cache->count == cache->room) {
        const int room = cache->room ? 2 * cache->room : 64;
        struct cudnn_record *larger = cvy_realloc(cache->records, (size_t)room, sizeof *larger);
        if (!larger)
            return false;
        cache->records = larger;
        cache->room = room;
    }
    cache->records[cache->count++] = *record;
    return true;
}

/* ---- reading ---- */

static bool read_number(const char *text, int64_t most, int64_t *value)
{
    char *end;

    errno = 0;
    *value = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    return *value >= 0 && *value <= most && errno == 0 && *end == '\0';
}

static bool read_hash(const char *text, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < 16; i++) {
        const char *digit = text[i] ? strchr("0123456789abcdef", text[i]) : NULL;
        if (!digit)
            return false;
        *value = *value << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    return text[16] == '\0';
}

/* Splits the line where its tabs are. */
static bool read_record(char *line, struct cudnn_record *record)
{
    char *fields[FIELDS];
    int64_t form, engine, notes, candidates, nanoseconds;
    int count = 0;

    for (char *at = line; at; count++) {
        if (count == FIELDS)
            return false;
        fields[count] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    if (count != FIELDS || !fields[0][0] || !read_number(fields[1], CUDNN_FORMS - 1, &form) ||
        !read_number(fields[2], INT32_MAX, &engine) || !read_number(fields[3], 3, &notes) ||
        !read_number(fields[4], INT32_MAX, &candidates) || !read_number(fields[5], INT64_MAX, &nanoseconds) ||
        !read_hash(fields[6], &record->plan_hash))
        return false;
    record->key = fields[0];
    record->form = (enum cudnn_form)form;
    record->engine = engine;
    record->tensor_cores = notes & NOTE_TENSOR;
    record->compiled = notes & NOTE_COMPILED;
    record->candidates = (int)candidates;
    record->nanoseconds = nanoseconds;
    record->plan = strcmp(fields[7], own_file) == 0 ? NULL : fields[7];
    return !record->plan || cvy_hash(record->plan, strlen(record->plan)) == record->plan_hash;
}

/* All lines as records of `cache`, whose arena holds the text. */
static bool read_lines(struct cudnn_cache *cache, const char *identity, char *text)
{
    int line = 0;

    for (char *at = text, *next; *at; at = next, line++) {
        struct cudnn_record record = {0};
        next = strchr(at, '\n');
        if (!next)
            return false; /* cut off */
        *next++ = '\0';
        if (line == 0   ? strcmp(at, first_line) != 0
            : line == 1 ? strncmp(at, "# ", 2) != 0 || strcmp(at + 2, identity) != 0
                        : !read_record(at, &record) || !put(cache, &record))
            return false;
    }
    return line >= 2;
}

/* What the file says, into an empty cache; true also where there is no file. */
static bool read_file(const char *path, const char *identity, struct cudnn_cache *cache)
{
    void *data = NULL;
    size_t size = 0;
    char *text;
    bool good;

    if (!cvy_path_exists(path))
        return true;
    if (cvy_file_read(path, MOST_FILE, &data, &size) != CVY_OK) {
        cvy_log(CVY_LOG_WARNING, "the kept choices of convolutions cannot be read: %s", cvy_error());
        return false;
    }
    text = strlen(data) == size ? cvy_arena_strdup(&cache->arena, data) : NULL;
    cvy_free(data);
    good = text && read_lines(cache, identity, text);
    if (!good)
        cvy_log(CVY_LOG_WARNING, "%s is damaged: the convolutions are timed again", cvy_quote(path));
    return good;
}

static void empty(struct cudnn_cache *cache)
{
    cvy_arena_release(&cache->arena);
    cvy_free(cache->records);
    cache->records = NULL;
    cache->count = cache->room = 0;
}

cvy_status cudnn_cache_open(struct cudnn_cache *cache, const char *identity)
{
    *cache = (struct cudnn_cache){0};
    CVY_TRY(cvy_cache_path("cudnn", identity, &cache->path));
    cache->identity = cvy_strdup(identity);
    if (!cache->identity)
        return cvy_fail_memory(strlen(identity) + 1, "the name of a GPU");
    if (cache->path && !read_file(cache->path, identity, cache))
        empty(cache);
    return CVY_OK;
}

/* ---- plans in files of their own ---- */

static char *plan_path(const struct cudnn_cache *cache, const char *key)
{
    const size_t stem = strlen(cache->path) - strlen(".txt");
    struct cvy_text path = {0};

    cvy_text_append(&path, cache->path, stem);
    cvy_text_printf(&path, "-%016llx.plan", (unsigned long long)cvy_hash(key, strlen(key)));
    if (path.failed)
        cvy_text_release(&path);
    return path.text;
}

char *cudnn_cache_plan(const struct cudnn_cache *cache, const struct cudnn_record *record)
{
    void *data = NULL;
    size_t size = 0;
    char *path;

    if (record->plan)
        return cvy_strdup(record->plan);
    path = cache->path ? plan_path(cache, record->key) : NULL;
    if (path && cvy_path_exists(path) && cvy_file_read(path, MOST_PLAN, &data, &size) != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "a kept plan cannot be read: %s", cvy_error());
    if (data && (strlen(data) != size || cvy_hash(data, size) != record->plan_hash)) {
        cvy_log(CVY_LOG_WARNING, "%s is damaged: the convolution is timed again", cvy_quote(path));
        cvy_free(data);
        data = NULL;
    }
    cvy_free(path);
    return data;
}

static bool write_plan(const struct cudnn_cache *cache, const char *key, const char *plan)
{
    char *path = plan_path(cache, key);
    cvy_status status = CVY_NO_MEMORY;
    int lock;

    if (path)
        status = cvy_cache_lock(cache->path, &lock); /* makes the folder */
    if (path && status == CVY_OK) {
        status = cvy_file_replace(path, plan, strlen(plan));
        cvy_cache_unlock(lock);
    }
    if (path && status != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "a plan is not kept: %s", cvy_error());
    cvy_free(path);
    return status == CVY_OK;
}

/* ---- writing ---- */

static void write_lines(const struct cudnn_cache *cache, struct cvy_text *text)
{
    cvy_text_printf(text, "%s\n# %s\n", first_line, cache->identity);
    for (int i = 0; i < cache->count; i++) {
        const struct cudnn_record *record = &cache->records[i];
        cvy_text_printf(text, "%s\t%d\t%lld\t%d\t%d\t%lld\t%016llx\t", record->key, (int)record->form,
                        (long long)record->engine,
                        (record->tensor_cores ? NOTE_TENSOR : 0) | (record->compiled ? NOTE_COMPILED : 0),
                        record->candidates, (long long)record->nanoseconds, (unsigned long long)record->plan_hash);
        cvy_text_puts(text, record->plan ? record->plan : own_file);
        cvy_text_puts(text, "\n");
    }
}

/* With what other processes have written meanwhile; of one problem ours stays. */
static cvy_status write_file(struct cudnn_cache *cache)
{
    struct cudnn_cache others = {0};
    struct cvy_text text = {0};
    cvy_status status;
    int lock;

    CVY_TRY(cvy_cache_lock(cache->path, &lock));
    if (read_file(cache->path, cache->identity, &others)) {
        for (int i = 0; i < cache->count; i++) {
            if (!put(&others, &cache->records[i]))
                text.failed = true;
        }
        others.identity = cache->identity;
        write_lines(&others, &text);
    } else {
        write_lines(cache, &text);
    }
    status = text.failed ? cvy_fail_memory(text.capacity, "the choices of convolutions")
                         : cvy_file_replace(cache->path, text.text, text.length);
    cvy_cache_unlock(lock);
    cvy_text_release(&text);
    empty(&others);
    return status;
}

static void save(struct cudnn_cache *cache)
{
    if (cache->unsaved > 0 && cache->path && write_file(cache) != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "the times of convolutions are not kept: %s", cvy_error());
    cache->unsaved = 0;
}

void cudnn_cache_add(struct cudnn_cache *cache, const struct cudnn_record *record, const char *plan)
{
    struct cudnn_record kept = *record;
    char *line = cvy_arena_strdup(&cache->arena, plan);

    /* White space between JSON's words; inside of strings there are no such characters. */
    for (char *c = line; c && *c; c++) {
        if (*c == '\n' || *c == '\t' || *c == '\r')
            *c = ' ';
    }
    kept.key = cvy_arena_strdup(&cache->arena, record->key);
    kept.plan = line;
    if (!kept.key || !line)
        return;
    kept.plan_hash = cvy_hash(line, strlen(line));
    if (record->compiled && cache->path) {
        if (!write_plan(cache, kept.key, line))
            return;
        kept.plan = NULL;
    }
    if (put(cache, &kept) && ++cache->unsaved >= UNSAVED)
        save(cache);
}

void cudnn_cache_close(struct cudnn_cache *cache)
{
    save(cache);
    empty(cache);
    cvy_free(cache->path);
    cvy_free(cache->identity);
    *cache = (struct cudnn_cache){0};
}
