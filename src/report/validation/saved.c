#include "report/validation/saved.h"

#include "base/error.h"
#include "base/file.h"

static const size_t MAX_FILE = (size_t)256 << 20;

cvy_status cvy_saved_write(struct cvy_text *text, const char *path)
{
    cvy_status status;

    cvy_text_puts(text, "\n");
    status =
        text->failed ? cvy_fail_memory(text->length, "a validation") : cvy_file_replace(path, text->text, text->length);
    cvy_text_release(text);
    return status;
}

cvy_status cvy_saved_read(const char *path, struct cvy_arena *arena, struct cvy_json_value **root)
{
    void *data = NULL;
    size_t size;
    cvy_status status;

    CVY_TRY(cvy_file_read(path, MAX_FILE, &data, &size));
    status = cvy_json_parse(path, data, size, arena, root);
    cvy_free(data);
    return status;
}

cvy_status cvy_saved_damaged(const char *path, const char *what)
{
    return cvy_fail(CVY_BAD_DATA, "%s: %s damaged", cvy_quote(path), what);
}

bool cvy_saved_count(const struct cvy_json_value *object, const char *key, int64_t low, int64_t high, int64_t *out)
{
    const struct cvy_json_value *value = cvy_json_get(object, key);

    *out = value && value->type == CVY_JSON_NUMBER && value->is_integer ? value->integer : low - 1;
    return *out >= low && *out <= high;
}

bool cvy_saved_is_array(const struct cvy_json_value *value)
{
    return value && value->type == CVY_JSON_ARRAY;
}
