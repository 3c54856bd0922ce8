/* ImageNet's boxes as its TFRecord scripts take them: lines "n00007846_64193.JPEG,0.0060,0.2620,0.7545,0.9940", the
 * corners xmin, ymin, xmax, ymax as shares of width and height; several lines for an image with several objects. */
#ifndef CVY_DATASET_TOOLS_BOX_CSV_H
#define CVY_DATASET_TOOLS_BOX_CSV_H

#include "convoy/status.h"
#include "data/sample/image_record.h"

/* Zero-initialise before reading. */
struct cvy_box_csv {
    char *text;                   /* the file, cut into names */
    struct cvy_box_csv_row *rows; /* (count) by name, those of a name as in the file */
    struct cvy_object_box *boxes; /* (count) of the rows */
    size_t count;
};
/* CVY_BAD_DATA names the first line that is none, or whose corners are not in order between 0 and 1. */
CVY_CHECKED cvy_status cvy_box_csv_read(struct cvy_box_csv *csv, const char *path);
/* The boxes of a file's name, *count of them; borrowed. */
const struct cvy_object_box *cvy_box_csv_find(const struct cvy_box_csv *csv, const char *filename, size_t *count);
void cvy_box_csv_release(struct cvy_box_csv *csv); /* accepts a zeroed one */

#endif
