/* What must hold of any tensor file, whatever was read. */
#ifndef SUPPORT_TENSORS_H
#define SUPPORT_TENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/tensors.h"

/* Whether the file was refused; then for its bytes, with one sentence, and nothing of it is left. */
static inline bool is_refused(cvy_status status, const struct cvy_tensor_file *file)
{
    const char *sentence = cvy_error();

    if (status == CVY_OK)
        return false;
    if (status != CVY_BAD_DATA || !sentence[0] || strchr(sentence, '\n') || file->tensors)
        abort();
    return true;
}

/* Every tensor can be read, is as long as its shape and type say, and is found by its name. Returns their bytes. */
static inline size_t read_tensors(const struct cvy_tensor_file *file)
{
    volatile uint8_t sum = 0;
    size_t total = 0;

    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct cvy_named_tensor *tensor = &file->tensors[i];
        const uint8_t *bytes = tensor->data;
        for (size_t b = 0; b < tensor->bytes; b++)
            sum = (uint8_t)(sum + bytes[b]);
        if (cvy_shape_elements(&tensor->shape) * (int64_t)cvy_dtype_size(tensor->dtype) != (int64_t)tensor->bytes)
            abort();
        if (cvy_tensor_find(file, tensor->name) != tensor || !tensor->name[0])
            abort();
        total += tensor->bytes;
    }
    return total;
}

#endif
