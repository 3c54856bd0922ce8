#include "dataset_tools/box_csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "base/memory.h"

enum { LIMIT = 256 << 20 }; /* bytes; ImageNet's has 24 million */

struct cvy_box_csv_row {
    const char *name;
    size_t line; /* from 1 */
    struct cvy_object_box box;
};

static int compare(const void *a, const void *b)
{
    const struct cvy_box_csv_row *left = a, *right = b;
    const int by_name = strcmp(left->name, right->name);

    return by_name ? by_name : (left->line > right->line) - (left->line < right->line);
}

/* A number and the separator after it, over which *at goes. */
static bool read_share(char **at, char separator, float *share)
{
    char *end;
    const double value = cvy_double_parse(*at, &end);

    if (end == *at || *end != separator || !(value >= 0 && value <= 1))
        return false;
    *share = (float)value;
    *at = end + (separator != '\0');
    return true;
}

static bool read_line(char *line, struct cvy_box_csv_row *row)
{
    char *at = strchr(line, ',');
    struct cvy_object_box *box = &row->box;

    if (!at || at == line)
        return false;
    *at++ = '\0';
    row->name = line;
    return read_share(&at, ',', &box->xmin) && read_share(&at, ',', &box->ymin) && read_share(&at, ',', &box->xmax) &&
           read_share(&at, '\0', &box->ymax) && box->xmin <= box->xmax && box->ymin <= box->ymax;
}

static cvy_status read_lines(struct cvy_box_csv *csv, const char *path)
{
    size_t number = 0;

    for (char *line = csv->text, *next; *line; line = next) {
        char *end = line + strcspn(line, "\n");

        next = *end ? end + 1 : end;
        *end = '\0';
        number++;
        if (end > line && end[-1] == '\r')
            end[-1] = '\0';
        if (!*line)
            continue;
        csv->rows[csv->count].line = number;
        if (!read_line(line, &csv->rows[csv->count]))
            return cvy_fail(CVY_BAD_DATA, "line %zu of %s is not \"FILE,xmin,ymin,xmax,ymax\" with shares of the image",
                            number, cvy_quote(path));
        csv->count++;
    }
    return CVY_OK;
}

static cvy_status read_text(struct cvy_box_csv *csv, const char *path, size_t size)
{
    size_t lines = 1;

    if (memchr(csv->text, '\0', size))
        return cvy_fail(CVY_BAD_DATA, "%s is not a text file", cvy_quote(path));
    for (size_t i = 0; i < size; i++)
        lines += csv->text[i] == '\n';
    csv->rows = cvy_calloc(lines, sizeof *csv->rows);
    csv->boxes = cvy_calloc(lines, sizeof *csv->boxes);
    if (!csv->rows || !csv->boxes)
        return cvy_fail_memory(lines * sizeof *csv->rows, "the boxes");
    CVY_TRY(read_lines(csv, path));
    qsort(csv->rows, csv->count, sizeof *csv->rows, compare);
    for (size_t i = 0; i < csv->count; i++)
        csv->boxes[i] = csv->rows[i].box;
    return CVY_OK;
}

cvy_status cvy_box_csv_read(struct cvy_box_csv *csv, const char *path)
{
    void *text;
    size_t size;

    CVY_TRY(cvy_file_read(path, LIMIT, &text, &size));
    csv->text = text;
    return read_text(csv, path, size);
}

const struct cvy_object_box *cvy_box_csv_find(const struct cvy_box_csv *csv, const char *filename, size_t *count)
{
    size_t from = 0, end = csv->count;

    while (from < end) { /* the first row that does not come before the name */
        const size_t middle = from + (end - from) / 2;

        if (strcmp(csv->rows[middle].name, filename) < 0)
            from = middle + 1;
        else
            end = middle;
    }
    *count = 0;
    while (from + *count < csv->count && strcmp(csv->rows[from + *count].name, filename) == 0)
        ++*count;
    return csv->boxes + from;
}

void cvy_box_csv_release(struct cvy_box_csv *csv)
{
    cvy_free(csv->text);
    cvy_free(csv->rows);
    cvy_free(csv->boxes);
    *csv = (struct cvy_box_csv){0};
}
