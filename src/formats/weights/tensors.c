#include "formats/weights/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void cvy_tensor_file_close(struct cvy_tensor_file *file)
{
    for (size_t i = 0; i < file->part_count; i++)
        cvy_file_unmap(&file->parts[i]);
    cvy_arena_release(&file->arena);
    cvy_file_unmap(&file->mapping);
    *file = (struct cvy_tensor_file){0};
}

cvy_status cvy_tensor_file_check(const struct cvy_tensor_file *file, const char *what)
{
    for (size_t i = 0; i < file->part_count; i++)
        CVY_TRY(cvy_mapping_check(&file->parts[i], what));
    return cvy_mapping_check(&file->mapping, what);
}

cvy_status cvy_tensor_file_changed(const struct cvy_tensor_file *file, const char *what, cvy_status status)
{
    const cvy_status changed = cvy_tensor_file_check(file, what);

    return changed != CVY_OK ? changed : status;
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
