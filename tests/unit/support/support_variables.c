#include "support_variables.h"

#include "support_test.h"

void variables_add(struct variables *v, struct cvy_shape shape, const char *scope, const char *leaf)
{
    struct cvy_named_tensor *tensor = &v->tensors[v->file.tensor_count++];

    assert_true(v->file.tensor_count <= VARIABLES_MAX);
    v->file.tensors = v->tensors;
    *tensor = (struct cvy_named_tensor){.name = cvy_arena_printf(&v->file.arena, "%s/%s", scope, leaf), .shape = shape};
    assert_non_null(tensor->name);
}

void variables_add_norm(struct variables *v, const char *scope, int64_t channels)
{
    static const char *const names[] = {"gamma", "beta", "moving_mean", "moving_variance"};

    for (int i = 0; i < 4; i++)
        variables_add(v, cvy_shape1(channels), scope, names[i]);
}

/* A value for the element of variable `number` that TensorFlow counts as `at`. Two bytes are enough to tell neighbours
 * apart, and spare memory. */
static uint16_t value_of(size_t number, int64_t at)
{
    return (uint16_t)((uint64_t)at * 40503 + number * 977);
}

void variables_fill(struct variables *v)
{
    for (size_t i = 0; i < v->file.tensor_count; i++) {
        struct cvy_named_tensor *tensor = &v->tensors[i];
        const int64_t count = cvy_shape_elements(&tensor->shape);
        uint16_t *values = cvy_arena_alloc(&v->file.arena, (size_t)count * sizeof *values);

        assert_non_null(values);
        for (int64_t k = 0; k < count; k++)
            values[k] = value_of(i, k);
        tensor->dtype = CVY_F16;
        tensor->data = values;
        tensor->bytes = (size_t)count * sizeof *values;
    }
}

void variables_check_values(const struct cvy_named_tensor *tensor, size_t number)
{
    const struct cvy_shape *s = &tensor->shape;
    const uint16_t *values = tensor->data;
    int64_t k = 0;

    assert_int_equal(tensor->bytes, (size_t)cvy_shape_elements(s) * sizeof *values);
    if (s->rank == 1) {
        for (; k < s->dim[0]; k++)
            if (values[k] != value_of(number, k))
                fail_msg("%s, element %lld", tensor->name, (long long)k);
        return;
    }
    assert_true(s->rank == 4 || s->rank == 2);
    const int64_t height = s->rank == 4 ? s->dim[2] : 1, width = s->rank == 4 ? s->dim[3] : 1;
    for (int64_t o = 0; o < s->dim[0]; o++)
        for (int64_t i = 0; i < s->dim[1]; i++)
            for (int64_t h = 0; h < height; h++)
                for (int64_t w = 0; w < width; w++, k++)
                    if (values[k] != value_of(number, ((h * width + w) * s->dim[1] + i) * s->dim[0] + o))
                        fail_msg("%s, element %lld", tensor->name, (long long)k);
}
