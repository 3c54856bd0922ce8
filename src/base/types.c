#include "base/types.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[CVY_DTYPE_COUNT] = {
    [CVY_F32] = {"f32", 4},   [CVY_F64] = {"f64", 8}, [CVY_F16] = {"f16", 2},
    [CVY_BF16] = {"bf16", 2}, [CVY_U8] = {"u8", 1},   [CVY_I8] = {"i8", 1},
    [CVY_I32] = {"i32", 4},   [CVY_I64] = {"i64", 8}, [CVY_BOOL] = {"bool", 1},
};

size_t cvy_dtype_size(enum cvy_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *cvy_dtype_name(enum cvy_dtype dtype)
{
    return dtypes[dtype].name;
}

bool cvy_shape_equal(const struct cvy_shape *a, const struct cvy_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

int64_t cvy_shape_elements(const struct cvy_shape *shape)
{
    int64_t elements = 1;
    bool empty = false;
    for (int32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return -1;
        /* A zero anywhere makes the product 0, whatever the others would overflow to. */
        if (shape->dim[i] == 0)
            empty = true;
    }
    if (empty)
        return 0;
    for (int32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(elements, shape->dim[i], &elements))
            return -1;
    return elements;
}

struct cvy_shape cvy_shape_bind(const struct cvy_shape *shape, int64_t batch)
{
    struct cvy_shape bound = *shape;
    for (int32_t i = 0; i < bound.rank; i++)
        if (bound.dim[i] == CVY_BATCH)
            bound.dim[i] = batch;
    return bound;
}

char *cvy_shape_text(const struct cvy_shape *shape, char buffer[96])
{
    size_t used = 0;
    if (shape->rank == 0)
        strcpy(buffer, "scalar");
    for (int32_t i = 0; i < shape->rank; i++) {
        const char *separator = i > 0 ? "x" : "";
        /* At most 5 dimensions of 20 characters: cut, never overrun, when all are at the limit. */
        int length = shape->dim[i] == CVY_BATCH
                         ? snprintf(buffer + used, 96 - used, "%sN", separator)
                         : snprintf(buffer + used, 96 - used, "%s%lld", separator, (long long)shape->dim[i]);
        used += (size_t)length;
        if (used > 95)
            used = 95;
    }
    return buffer;
}
