/* In the place of baseline.c where the processor is not one of those that it is written for: libjpeg decodes. */
#include "base/memory.h"
#include "data/image/baseline.h"

cvy_status cvy_baseline_new(struct cvy_baseline **baseline)
{
    *baseline = NULL;
    return CVY_OK;
}

void cvy_baseline_free(struct cvy_baseline *baseline)
{
    cvy_free(baseline);
}

cvy_status cvy_baseline_read(struct cvy_baseline *baseline, const struct jpeg_decompress_struct *info,
                             struct cvy_codec_job *job, const struct cvy_box *need, int32_t eighths, bool *done)
{
    (void)baseline, (void)info, (void)job, (void)need, (void)eighths;
    *done = false;
    return CVY_OK;
}
