/* The memory that the codecs share. */
#include "data/image/codec.h"

#include "base/error.h"
#include "base/memory.h"

/* A buffer larger than this is given back when the next image needs less than a quarter of it. */
static const size_t keep_bytes = (size_t)32 << 20;

cvy_status cvy_pixel_buffer_reserve(struct cvy_pixel_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity && !(buffer->capacity > keep_bytes && bytes < buffer->capacity / 4))
        return CVY_OK;
    cvy_pixel_buffer_release(buffer);
    buffer->data = cvy_realloc(NULL, bytes, 1);
    if (!buffer->data)
        return cvy_fail_memory(bytes, "the pixels of an image");
    buffer->capacity = bytes;
    return CVY_OK;
}

void cvy_pixel_buffer_release(struct cvy_pixel_buffer *buffer)
{
    cvy_free(buffer->data);
    *buffer = (struct cvy_pixel_buffer){0};
}
