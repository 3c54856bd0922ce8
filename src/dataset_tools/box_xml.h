/* ImageNet's boxes as they are published: a file of XML for an image, FOLDER/CLASS/n00007846_64193.xml, or
 * FOLDER/val/... for one of the validation. Read as the scripts of TensorFlow's program make lines of them (box_csv.h).
 */
#ifndef CVY_DATASET_TOOLS_BOX_XML_H
#define CVY_DATASET_TOOLS_BOX_XML_H

#include "convoy/status.h"
#include "data/sample/image_record.h"

/* The classes there are, and that of the image. */
struct cvy_box_classes {
    const char *const *names;
    int32_t count;
    const char *own;
};
/* The boxes of an image's file name, which the caller frees with cvy_free: shares of width and height with four
 * decimals, ordered and cut to the image. Left out are those without area and those that are named after another
 * class; none where there is no file. CVY_BAD_DATA: the file is not what it should be. */
CVY_CHECKED cvy_status cvy_box_xml_read(const char *folder, const char *filename, const struct cvy_box_classes *classes,
                                        struct cvy_object_box **boxes, size_t *count);

#endif
