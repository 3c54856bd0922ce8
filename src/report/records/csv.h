/* Tables of numbers with named columns: metrics.csv (one row per epoch) and --log-every-step. */
#ifndef CVY_REPORT_RECORDS_CSV_H
#define CVY_REPORT_RECORDS_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "report/records/line_file.h"

/* Zero-initialise before opening. Rows to a table that is not open are dropped without an error. */
struct cvy_csv {
    struct cvy_line_file file;
    size_t column_count;
    size_t file_columns, *places; /* of the file: which of ours each is, or column_count; NULL: they are the same */
};
/* Writes the line of column names when the file is empty after cutting it back to `offset` (see cvy_line_file_open).
 * Else the file's own columns stay: values that have none there are not written, which a warning says, and cells that
 * have no value stay empty. */
CVY_CHECKED cvy_status cvy_csv_open(struct cvy_csv *csv, const char *path, const char *const *columns,
                                    size_t column_count, int64_t offset);
/* One value for each column, %.9g, flushed. Where present[i] is false (present may be NULL: all are there) the cell
 * stays empty; a value that is not finite is written as nan or inf. */
CVY_CHECKED cvy_status cvy_csv_row(struct cvy_csv *csv, const double *values, const bool *present);
void cvy_csv_close(struct cvy_csv *csv); /* accepts a zeroed one */

/* Read such a table back: *values holds rows * column_count numbers in the order of `columns`, NAN for an empty cell or
 * a column that the file lacks. Freed with cvy_free. CVY_NO_INPUT, CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_csv_read(const char *path, const char *const *columns, size_t column_count, double **values,
                                    size_t *rows);

#endif
