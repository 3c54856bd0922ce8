#include "data/sample.h"

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

/* No encoded image is longer. */
static const size_t max_file_bytes = (size_t)1 << 30;

cvy_status cvy_sample_read(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    *encoded = (struct cvy_encoded){.name = sample->path};
    CVY_TRY(cvy_file_read(sample->path, max_file_bytes, &encoded->block, &encoded->size));
    encoded->data = encoded->block;
    return CVY_OK;
}

void cvy_encoded_release(struct cvy_encoded *encoded)
{
    cvy_free(encoded->block);
    *encoded = (struct cvy_encoded){0};
}
