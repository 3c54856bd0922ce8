/* Element types and shapes: the vocabulary that files, graphs and backends share. */
#ifndef CVY_BASE_TYPES_H
#define CVY_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cvy_dtype { CVY_F32, CVY_F64, CVY_F16, CVY_BF16, CVY_U8, CVY_I8, CVY_I32, CVY_I64, CVY_BOOL, CVY_DTYPE_COUNT };
/* Bytes of one element. */
size_t cvy_dtype_size(enum cvy_dtype dtype);
/* "f32", "bf16", ...: lower-case, as `convoy info` prints it. */
const char *cvy_dtype_name(enum cvy_dtype dtype);
static inline bool cvy_dtype_is_float(enum cvy_dtype dtype)
{
    return dtype <= CVY_BF16;
}

#define CVY_MAX_RANK 5
/* Placeholder for the batch size in the first dimension of a graph's value; a plan substitutes the number. */
#define CVY_BATCH (-1)

/* Logical dimensions, images always in the order N, C, H, W. Rank 0 is a scalar. */
struct cvy_shape {
    int32_t rank;
    int64_t dim[CVY_MAX_RANK];
};
static inline struct cvy_shape cvy_shape0(void)
{
    return (struct cvy_shape){0};
}
static inline struct cvy_shape cvy_shape1(int64_t a)
{
    return (struct cvy_shape){1, {a}};
}
static inline struct cvy_shape cvy_shape2(int64_t a, int64_t b)
{
    return (struct cvy_shape){2, {a, b}};
}
static inline struct cvy_shape cvy_shape3(int64_t a, int64_t b, int64_t c)
{
    return (struct cvy_shape){3, {a, b, c}};
}
static inline struct cvy_shape cvy_shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct cvy_shape){4, {a, b, c, d}};
}
bool cvy_shape_equal(const struct cvy_shape *a, const struct cvy_shape *b);
/* Product of the dimensions (1 for a scalar); -1 on overflow or a negative dimension. */
int64_t cvy_shape_elements(const struct cvy_shape *shape);
/* The shape with CVY_BATCH replaced. */
struct cvy_shape cvy_shape_bind(const struct cvy_shape *shape, int64_t batch);
/* "32x64x56x56"; "Nx64x56x56" for an unbound batch; "scalar". Returns buffer. */
char *cvy_shape_text(const struct cvy_shape *shape, char buffer[96]);

#endif
