#include "formats/weights/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/pytorch.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/tensorflow.h"

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

cvy_status cvy_tensor_file_open(struct cvy_tensor_file *file, const char *path)
{
    char *index = find_index(path);
    struct cvy_mapping mapping;
    cvy_status status;

    *file = (struct cvy_tensor_file){0};
    path = index ? index : path;
    CVY_GOTO(cvy_file_map(path, &mapping));
    if (cvy_pytorch_looks_like(mapping.data, mapping.size))
        status = cvy_pytorch_open_memory(file, path, mapping.data, mapping.size);
    else if (cvy_tensorflow_looks_like(mapping.data, mapping.size))
        status = cvy_tensorflow_open_memory(file, path, mapping.data, mapping.size, NULL);
    else if (may_be_safetensors(mapping.data, mapping.size))
        status = cvy_st_open_memory(file, path, mapping.data, mapping.size);
    else
        status = fail_unknown(path, mapping.data, mapping.size);
    if (status == CVY_OK)
        file->mapping = mapping;
    else
        cvy_file_unmap(&mapping);
fail:
    cvy_free(index);
    return status;
}

void cvy_tensor_file_close(struct cvy_tensor_file *file)
{
    for (size_t i = 0; i < file->part_count; i++)
        cvy_file_unmap(&file->parts[i]);
    cvy_arena_release(&file->arena);
    cvy_file_unmap(&file->mapping);
    *file = (struct cvy_tensor_file){0};
}

const struct cvy_named_tensor *cvy_tensor_find(const struct cvy_tensor_file *file, const char *name)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!strcmp(file->tensors[i].name, name))
            return &file->tensors[i];
    return NULL;
}

const char *cvy_tensor_metadata(const struct cvy_tensor_file *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (!strcmp(file->metadata[i].key, key))
            return file->metadata[i].value;
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

cvy_status cvy_tensor_file_check_names(const struct cvy_tensor_file *file, const char *what)
{
    const char **names = cvy_calloc(file->tensor_count, sizeof *names);
    cvy_status status = CVY_OK;

    if (!names)
        return cvy_fail_memory(file->tensor_count * sizeof *names, "the names of the tensors");
    for (size_t i = 0; i < file->tensor_count; i++)
        names[i] = file->tensors[i].name;
    qsort(names, file->tensor_count, sizeof *names, compare_names);
    for (size_t i = 1; i < file->tensor_count && status == CVY_OK; i++)
        if (!strcmp(names[i - 1], names[i]))
            status = cvy_fail(CVY_BAD_DATA, "%s: two of its tensors are %s", cvy_quote(what), cvy_quote(names[i]));
    cvy_free(names);
    return status;
}

/* IEEE half to float: sign, 5 bits of exponent (bias 15), 10 bits of fraction. */
static float half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    float magnitude;

    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)fraction, -24);
    else
        magnitude = ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

static float bfloat16_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Element-wise, because the data need not be aligned. */
void cvy_tensor_floats(const struct cvy_named_tensor *tensor, float *values)
{
    const size_t count = (size_t)cvy_shape_elements(&tensor->shape);
    const unsigned char *bytes = tensor->data;

    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        double wide;
        switch (tensor->dtype) {
        case CVY_F64:
            memcpy(&wide, bytes + 8 * i, 8);
            values[i] = (float)wide;
            break;
        case CVY_F16:
            memcpy(&bits, bytes + 2 * i, 2);
            values[i] = half_value(bits);
            break;
        case CVY_BF16:
            memcpy(&bits, bytes + 2 * i, 2);
            values[i] = bfloat16_value(bits);
            break;
        default:
            memcpy(&values[i], bytes + 4 * i, 4);
            break;
        }
    }
}
