/* Which format a file of tensors has. */
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "formats/weights/pytorch.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/tensorflow.h"
#include "formats/weights/tensors.h"

/* Whether the first eight bytes can be the length of a safetensors header, be it in a damaged file. */
static bool may_be_safetensors(const unsigned char *bytes, size_t size)
{
    const uint64_t limit = 100000000; /* the format's own */
    uint64_t length = 0;

    if (size < 8)
        return false;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | bytes[i];
    return length <= limit;
}

/* What a file is that no reader takes, in one sentence. An ONNX file begins with its version, field 1 as a number. */
static cvy_status fail_unknown(const char *path, const unsigned char *bytes, size_t size)
{
    const char *dot = strrchr(path, '.');

    if (size == 0)
        return cvy_fail(CVY_BAD_DATA, "%s is empty", cvy_quote(path));
    if (bytes[0] == 0x08 && dot && strcmp(dot, ".onnx") == 0)
        return cvy_fail(CVY_BAD_DATA, "%s is an ONNX file: these are written, not read", cvy_quote(path));
    if (strstr(path, ".data-"))
        return cvy_fail(CVY_BAD_DATA,
                        "%s is none of the files that are read; of a TensorFlow checkpoint name the one that ends "
                        "with " CVY_TENSORFLOW_SUFFIX,
                        cvy_quote(path));
    return cvy_fail(CVY_BAD_DATA, "%s is neither a safetensors file nor one of PyTorch (.pth) or TensorFlow (.index)",
                    cvy_quote(path));
}

/* "<path>.index" where only that is a file; else NULL. Freed with cvy_free. */
static char *find_index(const char *path)
{
    const size_t length = strlen(path), suffix = sizeof CVY_TENSORFLOW_SUFFIX;
    char *index = cvy_path_exists(path) ? NULL : cvy_calloc(length + suffix, 1);

    if (!index)
        return NULL;
    memcpy(index, path, length);
    memcpy(index + length, CVY_TENSORFLOW_SUFFIX, suffix);
    if (cvy_path_is_file(index))
        return index;
    cvy_free(index);
    return NULL;
}

bool cvy_tensor_file_exists(const char *path)
{
    char *index = find_index(path);
    const bool exists = index || cvy_path_exists(path);

    cvy_free(index);
    return exists;
}

cvy_status cvy_tensor_file_open_memory(struct cvy_tensor_file *file, const char *name, const void *data, size_t size)
{
    *file = (struct cvy_tensor_file){0};
    if (cvy_pytorch_looks_like(data, size))
        return cvy_pytorch_open_memory(file, name, data, size);
    if (cvy_tensorflow_looks_like(data, size))
        return cvy_fail(CVY_BAD_DATA, "%s is a checkpoint of TensorFlow: it has further files and is read from a disk",
                        cvy_quote(name));
    return may_be_safetensors(data, size) ? cvy_st_open_memory(file, name, data, size) : fail_unknown(name, data, size);
}

cvy_status cvy_tensor_file_open(struct cvy_tensor_file *file, const char *path)
{
    char *index = find_index(path);
    struct cvy_mapping mapping;
    cvy_status status;

    *file = (struct cvy_tensor_file){0};
    path = index ? index : path;
    CVY_GOTO(cvy_file_map(path, &mapping));
    if (cvy_tensorflow_looks_like(mapping.data, mapping.size))
        status = cvy_tensorflow_open_memory(file, path, mapping.data, mapping.size, NULL);
    else
        status = cvy_tensor_file_open_memory(file, path, mapping.data, mapping.size);
    const cvy_status changed =
        cvy_mapping_check(&mapping, path); /* what seems damaged may have been cut off just now */
    if (changed != CVY_OK) {
        status = changed;
        cvy_tensor_file_close(file);
    }
    if (status == CVY_OK)
        file->mapping = mapping;
    else
        cvy_file_unmap(&mapping);
fail:
    cvy_free(index);
    return status;
}
