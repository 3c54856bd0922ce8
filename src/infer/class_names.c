#include "infer/class_names.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "formats/json_in.h"

enum { FILE_LIMIT = 64 << 20 }; /* bytes */

static const char *const imagenet[] = {
#include "infer/imagenet_names.inc"
};
static const char *const coco[] = {
#include "infer/coco_names.inc"
};
enum { IMAGENET = sizeof imagenet / sizeof imagenet[0], COCO = sizeof coco / sizeof coco[0] };
_Static_assert(IMAGENET == 1000 && COCO == 90, "one name for each class");

const char *cvy_class_name_usual(bool detector, int32_t count, int32_t index)
{
    const char *name = NULL;

    if (index < 0 || index >= count)
        return NULL;
    if (!detector && (count == IMAGENET || count == IMAGENET + 1) && index < IMAGENET) /* TensorFlow's last is none */
        name = imagenet[index];
    if (detector && count == COCO)
        name = coco[index];
    return name && *name ? name : NULL;
}

/* "n01440764 tench, Tinca tinca" -> "tench, Tinca tinca" */
static const char *without_synset(const char *line)
{
    size_t digits;

    if (line[0] != 'n')
        return line;
    digits = strspn(line + 1, "0123456789");
    return digits == 8 && (line[9] == ' ' || line[9] == '\t') && line[10] ? line + 10 : line;
}

static cvy_status add(struct cvy_class_names *names, const char *path, const char *name, int32_t limit)
{
    if (names->count >= limit)
        return cvy_fail(CVY_BAD_DATA, "%s has more names than the %s of the network", cvy_quote(path),
                        cvy_counted(limit, "class"));
    names->names[names->count++] = name;
    return CVY_OK;
}

/* `text` is kept: names point into it. */
static cvy_status read_lines(struct cvy_class_names *names, const char *path, char *text, int32_t limit)
{
    while (*text) {
        char *end = text + strcspn(text, "\n"), *next = *end ? end + 1 : end;

        while (end > text && isspace((unsigned char)end[-1]))
            end--;
        *end = '\0';
        if (*text) /* empty lines are no names */
            CVY_TRY(add(names, path, without_synset(text), limit));
        text = next;
    }
    return CVY_OK;
}

static cvy_status read_json(struct cvy_class_names *names, const char *path, const char *text, size_t size,
                            int32_t limit)
{
    struct cvy_json_value *root;

    CVY_TRY(cvy_json_parse(path, text, size, &names->arena, &root));
    if (root->type != CVY_JSON_ARRAY)
        return cvy_fail(CVY_BAD_DATA, "%s is not a JSON array of class names", cvy_quote(path));
    for (const struct cvy_json_value *entry = root->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_STRING)
            return cvy_fail(CVY_BAD_DATA, "%s: name %d is not a text", cvy_quote(path), (int)names->count + 1);
        CVY_TRY(add(names, path, entry->text, limit));
    }
    return CVY_OK;
}

static bool is_text(const char *text, size_t size)
{
    uint32_t code_point;

    for (size_t at = 0, length; at < size; at += length) {
        length = cvy_utf8_sequence(text + at, size - at, &code_point);
        if (length == 0 || code_point == 0)
            return false;
    }
    return true;
}

static cvy_status read_text(struct cvy_class_names *names, const char *path, const char *data, size_t size,
                            int32_t count)
{
    char *text = cvy_arena_alloc(&names->arena, size + 1);

    names->names = cvy_arena_alloc(&names->arena, (size_t)count * sizeof *names->names);
    if (!text || !names->names)
        return cvy_fail_memory(size, "the class names");
    memcpy(text, data, size);
    text[size] = '\0';
    if (!is_text(text, size))
        return cvy_fail(CVY_BAD_DATA, "%s is not a text file", cvy_quote(path));
    if (text[strspn(text, " \t\r\n")] == '[')
        CVY_TRY(read_json(names, path, text, size, count));
    else
        CVY_TRY(read_lines(names, path, text, count));
    const bool last_is_none = count == IMAGENET + 1 && names->count == IMAGENET; /* TensorFlow's */
    return names->count == count || last_is_none
               ? CVY_OK
               : cvy_fail(CVY_BAD_DATA, "%s has %s for the %s of the network", cvy_quote(path),
                          cvy_counted(names->count, "name"), cvy_counted(count, "class"));
}

cvy_status cvy_class_names_read(struct cvy_class_names *names, const char *path, int32_t count)
{
    void *data = NULL;
    size_t size = 0;
    cvy_status status;

    *names = (struct cvy_class_names){0};
    CVY_TRY(cvy_file_read(path, FILE_LIMIT, &data, &size));
    status = read_text(names, path, data, size, count);
    cvy_free(data);
    if (status != CVY_OK)
        cvy_class_names_release(names);
    return status;
}

const char *cvy_class_names_get(const struct cvy_class_names *names, int32_t index)
{
    return index >= 0 && index < names->count ? names->names[index] : NULL;
}

void cvy_class_names_release(struct cvy_class_names *names)
{
    cvy_arena_release(&names->arena);
    *names = (struct cvy_class_names){0};
}
