/* A decoder of our own for the JPEGs that photographs mostly are: baseline, Huffman-coded, one scan, 8 bits, grey or
 * YCbCr in 4:4:4, 4:2:2 or 4:2:0. It gives libjpeg's pixels bit for bit (integer "islow" transform, "fancy" upsampling)
 * in about half of the time. Headers are read by libjpeg; and whatever is unusual or damaged is left to libjpeg, which
 * then reports the errors. Only for processors with AVX2: elsewhere
 * baseline_none.c says that it cannot. */
#ifndef CVY_DATA_IMAGE_BASELINE_H
#define CVY_DATA_IMAGE_BASELINE_H

#include <stdio.h> /* jpeglib.h needs FILE */

#include <jpeglib.h>

#include "data/image/codec.h"

struct cvy_baseline;
CVY_CHECKED cvy_status cvy_baseline_new(struct cvy_baseline **baseline);
void cvy_baseline_free(struct cvy_baseline *baseline); /* accepts NULL */
/* Decode the rectangle `need` of an image whose header libjpeg has read (info, its source after the header) to
 * job->pixels, rows packed, at eighths/8 of its size, to which job->width, job->height and `need` belong. *done:
 * whether that was possible; if not, nothing has changed. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_baseline_read(struct cvy_baseline *baseline, const struct jpeg_decompress_struct *info,
                                         struct cvy_codec_job *job, const struct cvy_box *need, int32_t eighths,
                                         bool *done);

#endif
