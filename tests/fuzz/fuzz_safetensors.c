/* Any bytes as a safetensors file: refused with a sentence, or every tensor lies inside the bytes and all are covered.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "formats/weights/safetensors.h"
#include "support_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cvy_tensor_file file;
    cvy_status status = cvy_st_open_memory(&file, "input", data, size);
    if (is_refused(status, &file))
        return 0;
    for (size_t i = 0; i < file.tensor_count; i++) {
        const uint8_t *bytes = file.tensors[i].data;
        if (bytes < data || file.tensors[i].bytes > size || bytes > data + size - file.tensors[i].bytes)
            abort();
    }
    const size_t total = read_tensors(&file);
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
