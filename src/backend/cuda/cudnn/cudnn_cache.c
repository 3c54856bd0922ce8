/* What is kept of the plans that were found fastest, one file (base/cache.h) for each GPU and version of cuDNN:
 *
 *   <problem> TAB <form> TAB <engine> TAB <notes> TAB <candidates> TAB <nanoseconds> TAB <hash> TAB <plan>
 *
 * notes: 1 for tensor cores, 2 for compiled when it was made, 4 for compared with separate kernels; the plan is cuDNN's
 * JSON, and the hash is of it. Plans that carry compiled code are large: theirs is - and they lie in a file of their
 * own, named by a hash of the problem.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/file.h"
#include "base/log.h"

static const char own_file[] = "-";
enum { MAX_PLAN = 16 << 20, UNSAVED = 8, NOTE_TENSOR = 1, NOTE_COMPILED = 2, NOTE_COMPARED = 4 };

/* ---- records ---- */

/* A number and the tab after it. */
static bool read_field(const char **at, int64_t max, int64_t *value)
{
    return cvy_cache_number(at, max, value) && *(*at)++ == '\t';
}

static bool read_hash(const char **at, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < 16; i++) {
        const char *digit = **at ? strchr("0123456789abcdef", **at) : NULL;
        if (!digit)
            return false;
        *value = *value << 4 | (uint64_t)(digit - "0123456789abcdef");
        ++*at;
    }
    return *(*at)++ == '\t';
}

/* The record points into `value`. */
static bool read_record(const char *value, struct cudnn_cache_entry *record)
{
    int64_t form, notes, candidates;

    if (!read_field(&value, CUDNN_FORMS - 1, &form) || !read_field(&value, INT32_MAX, &record->engine) ||
        !read_field(&value, NOTE_TENSOR | NOTE_COMPILED | NOTE_COMPARED, &notes) ||
        !read_field(&value, INT32_MAX, &candidates) || !read_field(&value, INT64_MAX, &record->nanoseconds) ||
        !read_hash(&value, &record->plan_hash) || strchr(value, '\t'))
        return false;
    record->form = (enum cudnn_form)form;
    record->tensor_cores = notes & NOTE_TENSOR;
    record->compiled = notes & NOTE_COMPILED;
    record->compared = notes & NOTE_COMPARED;
    record->candidates = (int)candidates;
    record->plan = strcmp(value, own_file) == 0 ? NULL : value;
    return !record->plan || cvy_hash(record->plan, strlen(record->plan)) == record->plan_hash;
}

static bool can_be_read(const char *value)
{
    struct cudnn_cache_entry record;

    return read_record(value, &record);
}

bool cudnn_cache_find(const struct cvy_cache *cache, const char *key, struct cudnn_cache_entry *record)
{
    const char *value = cvy_cache_find(&cache->table, key);

    *record = (struct cudnn_cache_entry){.key = key};
    return value && read_record(value, record);
}

cvy_status cudnn_cache_open(struct cvy_cache *cache, const char *identity)
{
    static const struct cvy_cache_kind kind = {"# convoy cudnn 1", "convolutions", can_be_read};

    CVY_TRY(cvy_cache_open(cache, &kind, "cudnn", identity));
    cvy_cache_load(cache);
    return CVY_OK;
}

/* ---- plans in files of their own ---- */

static char *plan_path(const struct cvy_cache *cache, const char *key)
{
    const size_t stem = strlen(cache->path) - strlen(".txt");
    struct cvy_text path = {0};

    cvy_text_append(&path, cache->path, stem);
    cvy_text_printf(&path, "-%016llx.plan", (unsigned long long)cvy_hash(key, strlen(key)));
    if (path.failed)
        cvy_text_release(&path);
    return path.text;
}

char *cudnn_cache_plan(const struct cvy_cache *cache, const struct cudnn_cache_entry *record)
{
    void *data = NULL;
    size_t size = 0;
    char *path;

    if (record->plan)
        return cvy_strdup(record->plan);
    path = cache->path ? plan_path(cache, record->key) : NULL;
    if (path && cvy_path_exists(path) && cvy_file_read(path, MAX_PLAN, &data, &size) != CVY_OK)
        cvy_log(CVY_LOG_WARNING, "a kept plan cannot be read: %s", cvy_error());
    if (data && (strlen(data) != size || cvy_hash(data, size) != record->plan_hash)) {
        cvy_log(CVY_LOG_WARNING, "%s is damaged: the convolution is timed again", cvy_quote(path));
        cvy_free(data);
        data = NULL;
    }
    cvy_free(path);
    return data;
}

static bool write_plan(const struct cvy_cache *cache, const char *key, const char *plan)
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

/* cuDNN's JSON on one line: its white space stands between words, for inside of strings there are no such characters.
 */
static char *one_line(const char *plan)
{
    char *line = cvy_strdup(plan);

    for (char *c = line; c && *c; c++) {
        if (*c == '\n' || *c == '\t' || *c == '\r')
            *c = ' ';
    }
    return line;
}

void cudnn_cache_add(struct cvy_cache *cache, const struct cudnn_cache_entry *record, const char *plan)
{
    const bool own = record->compiled && cache->path;
    char *line = one_line(plan);
    struct cvy_text value = {0};

    if (!line || (own && !write_plan(cache, record->key, line)))
        goto done;
    cvy_text_printf(&value, "%d\t%lld\t%d\t%d\t%lld\t%016llx\t", (int)record->form, (long long)record->engine,
                    (record->tensor_cores ? NOTE_TENSOR : 0) | (record->compiled ? NOTE_COMPILED : 0) |
                        (record->compared ? NOTE_COMPARED : 0),
                    record->candidates, (long long)record->nanoseconds,
                    (unsigned long long)cvy_hash(line, strlen(line)));
    cvy_text_puts(&value, own ? own_file : line);
    if (!value.failed && cvy_cache_add(cache, record->key, value.text) == CVY_OK && cache->unsaved >= UNSAVED)
        cvy_cache_save(cache);
done:
    cvy_text_release(&value);
    cvy_free(line);
}
