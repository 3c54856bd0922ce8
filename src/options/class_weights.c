/* Class weights from counts, from the command line, or from a file. */
#include "options/class_weights.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"

enum { MAX_FILE = 1 << 28 };

/* What is being read: for its sentences. */
struct source {
    const struct cvy_dataset *data;
    float *weights;
    bool *named;      /* by class */
    const char *file; /* NULL: the option itself */
    int64_t line;
};

static cvy_status complain(const struct source *source, const char *what, const char *word)
{
    if (source->file)
        return cvy_fail(CVY_BAD_DATA, "%s, line %lld: %s %s", cvy_quote(source->file), (long long)source->line, what,
                        cvy_quote(word));
    return cvy_fail(CVY_USAGE, "option --class-weights: %s %s", what, cvy_quote(word));
}

/* Classes are sorted bytewise. */
static int32_t find_class(const struct cvy_dataset *data, const char *name)
{
    for (int32_t k = 0; k < data->class_count; k++) {
        if (strcmp(data->classes[k], name) == 0)
            return k;
    }
    return -1;
}

static char *trimmed(char *text)
{
    char *end = text + strlen(text);

    while (end > text && strchr(" \t\r", end[-1]))
        *--end = '\0';
    return text + strspn(text, " \t");
}

/* "NAME=W": names may hold the separators too, so the last one counts. */
static cvy_status take_entry(struct source *source, char *entry, const char *separators)
{
    char *end = entry + strlen(entry), *number, *name;
    double weight;
    int32_t k;

    while (end > entry && !strchr(separators, end[-1]))
        end--;
    if (end == entry)
        return complain(source, "there is no weight in", entry);
    end[-1] = '\0';
    name = trimmed(entry);
    number = trimmed(end);
    k = find_class(source->data, name);
    if (k < 0)
        return complain(source, "there is no class", name);
    if (source->named[k])
        return complain(source, "there are two weights for class", name);
    weight = cvy_double_parse(number, &end);
    if (!number[0] || *end != '\0' || !(weight > 0) || !(weight <= 1e6) || !((float)weight > 0))
        return complain(source, "a weight is a number above 0 and at most 1e6, not", number);
    source->weights[k] = (float)weight;
    source->named[k] = true;
    return CVY_OK;
}

/* Commas end an entry only where it is complete: names may hold them. */
static cvy_status read_list(struct source *source, char *text)
{
    while (text[0]) {
        char *equals = strchr(text, '='), *end = equals ? strchr(equals, ',') : NULL, *next;

        next = end ? end + 1 : text + strlen(text);
        if (end)
            *end = '\0';
        CVY_TRY(take_entry(source, text, "="));
        text = next;
    }
    return CVY_OK;
}

static cvy_status read_lines(struct source *source, char *text)
{
    bool any = false;

    while (text[0]) {
        const size_t length = strcspn(text, "\n");
        char *next = text + length + (text[length] == '\n'), *entry;

        text[length] = '\0';
        source->line++;
        entry = trimmed(text);
        if (entry[0] && entry[0] != '#') {
            CVY_TRY(take_entry(source, entry, "\t,="));
            any = true;
        }
        text = next;
    }
    return any ? CVY_OK : cvy_fail(CVY_BAD_DATA, "%s holds no class weights", cvy_quote(source->file));
}

static cvy_status read_file(struct source *source, const char *path)
{
    cvy_status status;
    size_t size;
    void *text;

    CVY_TRY(cvy_file_read(path, MAX_FILE, &text, &size));
    source->file = path;
    if (memchr(text, '\0', size))
        status = cvy_fail(CVY_BAD_DATA, "%s is no text", cvy_quote(path));
    else
        status = read_lines(source, text);
    cvy_free(text);
    return status;
}

static cvy_status balance(const struct cvy_dataset *data, float *weights)
{
    int64_t *images = cvy_calloc((size_t)data->class_count + 1, sizeof *images), classes = 0;

    if (!images)
        return cvy_fail_memory((size_t)data->class_count * sizeof *images, "the class weights");
    for (uint32_t i = 0; i < data->sample_count; i++)
        images[data->samples[i].label]++;
    for (int32_t k = 0; k < data->class_count; k++)
        classes += images[k] > 0;
    for (int32_t k = 0; k < data->class_count; k++) {
        if (images[k] > 0)
            weights[k] = (float)((double)data->sample_count / ((double)classes * (double)images[k]));
    }
    cvy_free(images);
    return CVY_OK;
}

bool cvy_class_weights_is_file(const char *text)
{
    return strcmp(text, "balanced") != 0 && (!strchr(text, '=') || cvy_path_exists(text));
}

cvy_status cvy_class_weights_make(const char *text, const struct cvy_dataset *data, int32_t outputs, float *weights)
{
    struct source source = {.data = data, .weights = weights};
    char *copy = NULL;
    size_t length = strlen(text);
    cvy_status status;

    for (int32_t k = 0; k < outputs; k++)
        weights[k] = 1;
    if (strcmp(text, "balanced") == 0)
        return balance(data, weights);
    source.named = cvy_calloc((size_t)data->class_count + 1, sizeof *source.named);
    copy = cvy_calloc(length + 1, 1);
    if (!source.named || !copy) {
        status = cvy_fail_memory(length, "the class weights");
        goto fail;
    }
    memcpy(copy, text, length);
    status = cvy_class_weights_is_file(text) ? read_file(&source, text) : read_list(&source, copy);
fail:
    cvy_free(source.named);
    cvy_free(copy);
    return status;
}
