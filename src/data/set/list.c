/* Reading a list of images: the whole file at once, then lines, classes and labels in one pass each. */
#include "data/set/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

enum {
    PATH_LIMIT = 4096,    /* bytes of a whole path, its end included */
    LABEL_LIMIT = 256,    /* bytes of a class name, its end included */
    INDEX_LIMIT = 1000000 /* classes that a network may have */
};
/* Some 20 million lines. */
static const size_t max_list_bytes = (size_t)2 << 30;

/* One line: both parts lie in the file's text. */
struct entry {
    const char *path, *label;
    uint32_t line; /* counted from 1 */
    int32_t index; /* of its class */
};

struct list {
    const char *file; /* as it was given */
    char *text;       /* of the file, cut into parts; borrowed */
    size_t size;
    struct entry *entries;
    uint32_t count;
};

/* ---- lines ---- */

/* "line 12 of "train.tsv": what" */
static cvy_status fail_line(const struct list *list, uint32_t line, const char *what)
{
    return cvy_fail(CVY_BAD_DATA, "line %u of %s %s", line, cvy_quote(list->file), what);
}

static cvy_status read_entry(const struct list *list, uint32_t line, char *text, struct entry *entry)
{
    char *tab = strchr(text, '\t');

    if (!tab)
        return fail_line(list, line, "has no tab: a line of a list is path<TAB>label");
    *tab = '\0';
    *entry = (struct entry){.path = text, .label = tab + 1, .line = line};
    if (strchr(entry->label, '\t'))
        return fail_line(list, line, "has more than one tab: a line of a list is path<TAB>label");
    if (!*entry->path)
        return fail_line(list, line, "has no path before its tab");
    if (!*entry->label)
        return fail_line(list, line, "has no label after its tab");
    if (strlen(entry->label) >= LABEL_LIMIT)
        return fail_line(list, line, "has a label of more than 255 bytes");
    return CVY_OK;
}

static uint32_t count_lines(const struct list *list)
{
    uint32_t lines = 1;

    for (size_t i = 0; i < list->size; i++)
        lines += list->text[i] == '\n';
    return lines;
}

/* Empty lines are skipped; so are the ends of lines and the mark of a text that come from other systems. */
static cvy_status split_lines(struct list *list)
{
    char *at = list->text, *end = list->text + list->size;
    uint32_t line = 0;

    if (memchr(list->text, '\0', list->size))
        return cvy_fail(CVY_BAD_DATA, "%s is not a list of images: it is no text", cvy_quote(list->file));
    if (list->size >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        at += 3;
    while (at < end) {
        char *next = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((next ? next : end) - at);

        line++;
        if (length > 0 && at[length - 1] == '\r')
            length--;
        at[length] = '\0'; /* a line's end, or the 0 after the file */
        if (length > 0)
            CVY_TRY(read_entry(list, line, at, &list->entries[list->count++]));
        at = next ? next + 1 : end;
    }
    if (list->count == 0)
        return cvy_fail(CVY_BAD_DATA, "the list %s names no images", cvy_quote(list->file));
    return CVY_OK;
}

/* ---- classes and labels ---- */

/* A whole number as it is usually written, below `limit`: "0", "17", not "017" or "+17". */
static bool parse_index(const char *text, int32_t limit, int32_t *index)
{
    int64_t value = 0;

    if (!*text || (text[0] == '0' && text[1]))
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (*text - '0');
        if (value >= limit)
            return false;
    }
    *index = (int32_t)value;
    return true;
}

static bool is_number(const char *text)
{
    return text[strspn(text, "0123456789")] == '\0' && !(text[0] == '0' && text[1]);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static cvy_status make_classes(struct cvy_dataset *dataset, int32_t count)
{
    dataset->class_count = count;
    dataset->classes = cvy_arena_alloc(&dataset->arena, (size_t)count * sizeof *dataset->classes);
    return dataset->classes ? CVY_OK : cvy_fail_memory((size_t)count * sizeof *dataset->classes, "class names");
}

/* Every label is a number: classes 0 to the largest, called by their numbers. */
static cvy_status number_classes(struct list *list, struct cvy_dataset *dataset)
{
    int32_t largest = 0;
    char name[16];

    for (uint32_t i = 0; i < list->count; i++) {
        struct entry *entry = &list->entries[i];
        if (!parse_index(entry->label, INDEX_LIMIT, &entry->index))
            return fail_line(list, entry->line, "has a class number above 999999");
        largest = entry->index > largest ? entry->index : largest;
    }
    CVY_TRY(make_classes(dataset, largest + 1));
    for (int32_t c = 0; c <= largest; c++) {
        snprintf(name, sizeof name, "%d", (int)c);
        CVY_TRY(cvy_dataset_set_class(dataset, c, name));
    }
    return CVY_OK;
}

/* The different labels, sorted bytewise. */
static cvy_status name_classes(const struct list *list, struct cvy_dataset *dataset)
{
    const char **names = cvy_calloc(list->count, sizeof *names);
    uint32_t count = 0;
    cvy_status status = CVY_OK;

    if (!names)
        return cvy_fail_memory(list->count * sizeof *names, "class names");
    for (uint32_t i = 0; i < list->count; i++)
        names[i] = list->entries[i].label;
    qsort(names, list->count, sizeof *names, compare_texts);
    for (uint32_t i = 0; i < list->count; i++) {
        if (count == 0 || strcmp(names[i], names[count - 1]) != 0)
            names[count++] = names[i];
    }
    if (count > INDEX_LIMIT) {
        status = cvy_fail(CVY_BAD_DATA, "the list %s has %u different labels, more than a network has classes",
                          cvy_quote(list->file), count);
        goto fail;
    }
    CVY_GOTO(make_classes(dataset, (int32_t)count));
    for (uint32_t c = 0; c < count; c++)
        CVY_GOTO(cvy_dataset_set_class(dataset, (int32_t)c, names[c]));
fail:
    cvy_free(names);
    return status;
}

/* A class of the data set beside its place, for the search by name: given classes need not be sorted. */
struct named {
    const char *name;
    int32_t index;
};

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Labels that are names of classes; *unknown is the first entry whose label is not one, or NULL. */
static cvy_status lookup(struct list *list, const struct cvy_dataset *dataset, const struct entry **unknown)
{
    struct named *sorted = cvy_calloc((size_t)dataset->class_count, sizeof *sorted);

    if (!sorted)
        return cvy_fail_memory((size_t)dataset->class_count * sizeof *sorted, "class names");
    for (int32_t c = 0; c < dataset->class_count; c++)
        sorted[c] = (struct named){dataset->classes[c], c};
    qsort(sorted, (size_t)dataset->class_count, sizeof *sorted, compare_named);
    *unknown = NULL;
    for (uint32_t i = 0; i < list->count && !*unknown; i++) {
        struct entry *entry = &list->entries[i];
        const struct named key = {.name = entry->label};
        const struct named *found = bsearch(&key, sorted, (size_t)dataset->class_count, sizeof *sorted, compare_named);
        if (found)
            entry->index = found->index;
        else
            *unknown = entry;
    }
    cvy_free(sorted);
    return CVY_OK;
}

/* Labels of known classes: their names, or else their numbers. */
static cvy_status use_classes(struct list *list, struct cvy_dataset *dataset)
{
    const struct entry *unknown;

    CVY_TRY(lookup(list, dataset, &unknown));
    for (uint32_t i = 0; unknown && i < list->count; i++) {
        struct entry *entry = &list->entries[i];
        if (!is_number(unknown->label) || !is_number(entry->label))
            return cvy_fail(CVY_BAD_DATA,
                            "line %u of %s: %s is not among the classes of the training data or the weights",
                            unknown->line, cvy_quote(list->file), cvy_quote(unknown->label));
        if (!parse_index(entry->label, dataset->class_count, &entry->index))
            return cvy_fail(CVY_BAD_DATA, "line %u of %s: there is no class number %s; there %s %s from 0", entry->line,
                            cvy_quote(list->file), entry->label, dataset->class_count == 1 ? "is" : "are",
                            cvy_counted(dataset->class_count, "class"));
    }
    return CVY_OK;
}

static cvy_status set_labels(struct list *list, struct cvy_dataset *dataset, const char *const *classes,
                             int32_t class_count)
{
    const struct entry *unused;
    uint32_t numbers = 0;

    for (uint32_t i = 0; i < list->count; i++)
        numbers += is_number(list->entries[i].label);
    if (classes) {
        CVY_TRY(make_classes(dataset, class_count));
        for (int32_t c = 0; c < class_count; c++)
            CVY_TRY(cvy_dataset_set_class(dataset, c, classes[c]));
        return use_classes(list, dataset);
    }
    if (numbers == list->count)
        return number_classes(list, dataset);
    CVY_TRY(name_classes(list, dataset));
    return lookup(list, dataset, &unused);
}

/* ---- samples ---- */

static cvy_status set_samples(const struct list *list, struct cvy_dataset *dataset)
{
    const char *slash = strrchr(list->file, '/');
    const int folder = slash ? (int)(slash - list->file) + 1 : 0;

    dataset->sample_count = list->count;
    dataset->samples = cvy_arena_alloc(&dataset->arena, list->count * sizeof *dataset->samples);
    if (!dataset->samples)
        return cvy_fail_memory(list->count * sizeof *dataset->samples, "the list of images");
    for (uint32_t i = 0; i < list->count; i++) {
        const struct entry *entry = &list->entries[i];
        const int front = entry->path[0] == '/' ? 0 : folder;
        if ((size_t)front + strlen(entry->path) >= PATH_LIMIT)
            return fail_line(list, entry->line, "has a path of more than 4095 bytes");
        const char *path = cvy_arena_printf(&dataset->arena, "%.*s%s", front, list->file, entry->path);
        if (!path)
            return cvy_fail_memory(strlen(entry->path) + 1, "the list of images");
        dataset->samples[i] = (struct cvy_sample){.path = path, .label = entry->index};
    }
    cvy_dataset_sort(dataset);
    return CVY_OK;
}

cvy_status cvy_dataset_read_list(struct cvy_dataset *dataset, const char *file, char *text, size_t size,
                                 const char *const *classes, int32_t class_count)
{
    cvy_status status;
    struct list list = {.file = file, .text = text, .size = size};

    *dataset = (struct cvy_dataset){0};
    list.entries = cvy_calloc(count_lines(&list), sizeof *list.entries);
    if (!list.entries)
        return cvy_fail_memory(list.size, "the list of images");
    CVY_GOTO(split_lines(&list));
    CVY_GOTO(set_labels(&list, dataset, classes, class_count));
    CVY_GOTO(set_samples(&list, dataset));
fail:
    cvy_free(list.entries);
    if (status != CVY_OK)
        cvy_dataset_close(dataset);
    return status;
}

cvy_status cvy_dataset_open_list(struct cvy_dataset *dataset, const char *file, const char *const *classes,
                                 int32_t class_count)
{
    void *text = NULL;
    size_t size;

    *dataset = (struct cvy_dataset){0};
    CVY_TRY(cvy_file_read(file, max_list_bytes, &text, &size));
    const cvy_status status = cvy_dataset_read_list(dataset, file, text, size, classes, class_count);
    cvy_free(text);
    return status;
}
