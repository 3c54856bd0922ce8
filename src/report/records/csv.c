#include "report/records/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "base/log.h"
#include "base/memory.h"

/* More than a million epochs. */
static const size_t MAX_TABLE = (size_t)256 << 20;

static cvy_status add_line(struct cvy_csv *csv, struct cvy_text *line)
{
    cvy_status status = line->failed ? cvy_fail_memory(line->length, "a table row")
                                     : cvy_line_file_add(&csv->file, line->text ? line->text : "");
    cvy_text_release(line);
    return status;
}

/* Cut the cell at *position out of its line: terminate it and step after its comma. NULL past the last cell. */
static char *next_cell(char **position)
{
    char *cell = *position;
    if (!cell)
        return NULL;
    char *comma = strchr(cell, ',');
    if (comma)
        *comma = 0;
    *position = comma ? comma + 1 : NULL;
    return cell;
}

/* Cut the line at *position out of the text; NULL at its end. Carriage returns of an edited file are dropped. */
static char *next_line(char **position)
{
    char *line = *position;
    if (!line || !*line)
        return NULL;
    char *newline = strchr(line, '\n');
    if (newline)
        *newline = 0;
    *position = newline ? newline + 1 : NULL;
    size_t length = strlen(line);
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = 0;
    return line;
}

/* Where each column of the file goes among the wanted ones: wanted[i] for the file's column i, or column_count. */
static cvy_status read_names(char *line, const char *const *columns, size_t column_count, size_t **wanted,
                             size_t *file_columns)
{
    size_t count = 1;
    for (const char *c = line; *c; c++)
        count += *c == ',';
    size_t *places = cvy_calloc(count, sizeof *places);
    if (!places)
        return cvy_fail_memory(count * sizeof *places, "a table");
    for (size_t i = 0; i < count; i++) {
        const char *name = next_cell(&line);
        for (places[i] = 0; places[i] < column_count; places[i]++)
            if (!strcmp(name, columns[places[i]]))
                break;
    }
    *wanted = places;
    *file_columns = count;
    return CVY_OK;
}

/* ---- writing ---- */

/* A table that is gone on with keeps its columns: what it has no column for is not written. */
static cvy_status use_file_columns(struct cvy_csv *csv, const char *path, const char *const *columns)
{
    char names[4096], *position = names;
    size_t missing = 0;
    FILE *file = fopen(path, "r");
    const bool read = file && fgets(names, sizeof names, file);

    if (file)
        fclose(file);
    if (!read)
        return cvy_fail_errno(CVY_NO_INPUT, "cannot read %s", cvy_quote(path));
    CVY_TRY(read_names(next_line(&position), columns, csv->column_count, &csv->places, &csv->file_columns));
    for (size_t i = 0; i < csv->column_count; i++) {
        bool found = false;
        for (size_t k = 0; k < csv->file_columns; k++)
            found = found || csv->places[k] == i;
        missing += !found;
    }
    if (missing > 0)
        cvy_log(CVY_LOG_WARNING, "%s keeps the columns it began with: %zu new ones are not in it", cvy_quote(path),
                missing);
    return CVY_OK;
}

static cvy_status write_names(struct cvy_csv *csv, const char *const *columns)
{
    struct cvy_text line = {0};

    for (size_t i = 0; i < csv->column_count; i++) {
        cvy_text_puts(&line, i > 0 ? "," : "");
        cvy_text_puts(&line, columns[i]);
    }
    return add_line(csv, &line);
}

cvy_status cvy_csv_open(struct cvy_csv *csv, const char *path, const char *const *columns, size_t column_count,
                        int64_t offset)
{
    *csv = (struct cvy_csv){.column_count = column_count, .file_columns = column_count};
    CVY_TRY(cvy_line_file_open(&csv->file, path, offset));
    const cvy_status status =
        cvy_line_file_offset(&csv->file) > 0 ? use_file_columns(csv, path, columns) : write_names(csv, columns);
    if (status != CVY_OK)
        cvy_csv_close(csv);
    return status;
}

cvy_status cvy_csv_row(struct cvy_csv *csv, const double *values, const bool *present)
{
    struct cvy_text line = {0};
    char number[32];
    if (!csv->file.stream)
        return CVY_OK;
    for (size_t i = 0; i < csv->file_columns; i++) {
        const size_t place = csv->places ? csv->places[i] : i;
        cvy_text_puts(&line, i > 0 ? "," : "");
        if (place < csv->column_count && (!present || present[place]))
            cvy_text_puts(&line, isnan(values[place]) ? "nan" : cvy_digits_text(values[place], 9, number));
    }
    return add_line(csv, &line);
}

void cvy_csv_close(struct cvy_csv *csv)
{
    cvy_line_file_close(&csv->file);
    cvy_free(csv->places);
    *csv = (struct cvy_csv){0};
}

/* ---- reading back ---- */

/* One row of numbers; false if a cell of a wanted column is not a number or the row is too long. */
static bool read_row(char *line, const size_t *wanted, size_t file_columns, size_t column_count, double *row)
{
    size_t i = 0;
    for (char *cell; (cell = next_cell(&line)); i++) {
        if (i == file_columns)
            return false;
        if (wanted[i] == column_count || !*cell)
            continue;
        char *end;
        row[wanted[i]] = cvy_double_parse(cell, &end);
        if (*end)
            return false;
    }
    return true;
}

cvy_status cvy_csv_read(const char *path, const char *const *columns, size_t column_count, double **values,
                        size_t *rows)
{
    void *content = NULL;
    size_t size = 0, count = 0, file_columns = 0, cells = 0, *wanted = NULL;
    double *table = NULL;
    cvy_status status;
    *values = NULL;
    *rows = 0;
    CVY_GOTO(cvy_file_read(path, MAX_TABLE, &content, &size));
    char *position = content, *line = next_line(&position);
    CVY_GOTO(line ? read_names(line, columns, column_count, &wanted, &file_columns)
                  : cvy_fail(CVY_BAD_DATA, "%s is empty", cvy_quote(path)));
    size_t lines = 0;
    for (const char *c = position; c && *c; c++)
        lines += *c == '\n' || !c[1];
    if (!cvy_size_mul(lines, column_count, &cells) || !(table = cvy_calloc(cells, sizeof *table))) {
        status = cvy_fail_memory(cells * sizeof *table, "a table");
        goto fail;
    }
    for (size_t i = 0; i < cells; i++)
        table[i] = NAN;
    while ((line = next_line(&position))) {
        if (!read_row(line, wanted, file_columns, column_count, table + count * column_count)) {
            status = cvy_fail(CVY_BAD_DATA, "%s: row %zu is damaged", cvy_quote(path), count + 1);
            goto fail;
        }
        count++;
    }
    *values = table;
    *rows = count;
    table = NULL;
    status = CVY_OK;

fail:
    cvy_free(table);
    cvy_free(wanted);
    cvy_free(content);
    return status;
}
