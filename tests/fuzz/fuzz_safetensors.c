/* Any bytes as a safetensors file: refused with a sentence, or every tensor lies inside the bytes and all are covered.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cvy_tensor_file file;
    cvy_status status = cvy_st_open_memory(&file, "input", data, size);
    if (status != CVY_OK) {
        const char *sentence = cvy_error();
        if (status != CVY_BAD_DATA || !sentence[0] || strchr(sentence, '\n') || file.tensors)
            abort();
        return 0;
    }
    size_t total = 0;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < file.tensor_count; i++) {
        const struct cvy_named_tensor *tensor = &file.tensors[i];
        const uint8_t *bytes = tensor->data;
        if (bytes < data || tensor->bytes > size || bytes > data + size - tensor->bytes)
            abort();
        for (size_t b = 0; b < tensor->bytes; b++)
            sum = (uint8_t)(sum + bytes[b]);
        if (cvy_shape_elements(&tensor->shape) * (int64_t)cvy_dtype_size(tensor->dtype) != (int64_t)tensor->bytes)
            abort();
        if (cvy_tensor_find(&file, tensor->name) != tensor)
            abort();
        total += tensor->bytes;
    }
    for (size_t i = 0; i < file.metadata_count; i++)
        if (strcmp(cvy_tensor_metadata(&file, file.metadata[i].key), file.metadata[i].value) != 0)
            abort();
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | data[i];
    if (8 + header + total != size)
        abort();
    cvy_tensor_file_close(&file);
    return 0;
}
