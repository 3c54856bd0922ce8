/* Elementwise ops: what each gives for numbers worked out elsewhere, in every type of the reference and on the CPU, and
 * what becomes of each in ONNX. Their gradients, and their kernels on many shapes, are tested with those of all ops. */
#include <float.h>

#include "ops/ops.h"
#include "support_executor.h"
#include "support_folder.h"
#include "support_graph.h"
#include "support_onnx.h"
#include "support_test.h"

/* ---- values ---- */

/* y = f(a), f(a, b); a and b are exact in f32. */
static const struct {
    enum cvy_op op;
    double a, b, y;
} values[] = {
    {CVY_OP_RELU, -1, 0, 0},
    {CVY_OP_RELU, 2.5, 0, 2.5},
    {CVY_OP_RELU, NAN, 0, NAN},
    {CVY_OP_RELU_BWD, 0, 5, 0},
    {CVY_OP_RELU_BWD, 2, -7, -7},
    {CVY_OP_RELU_BWD, NAN, 8, 0},
    {CVY_OP_RELU6, -1, 0, 0},
    {CVY_OP_RELU6, 5.5, 0, 5.5},
    {CVY_OP_RELU6, 7, 0, 6},
    {CVY_OP_RELU6, NAN, 0, NAN},
    {CVY_OP_RELU6_BWD, 0, 5, 0},
    {CVY_OP_RELU6_BWD, 3, -7, -7},
    {CVY_OP_RELU6_BWD, 6, 5, 0},
    {CVY_OP_SIGMOID, 0, 0, 0.5},
    {CVY_OP_SIGMOID, 1, 0, 0.73105857863000487926},
    {CVY_OP_SIGMOID, -40, 0, 4.2483542552915889773e-18},
    {CVY_OP_SIGMOID, NAN, 0, NAN},
    {CVY_OP_SIGMOID_BWD, 0.5, 8, 2},
    {CVY_OP_SIGMOID_BWD, 0.75, -2, -0.375},
    {CVY_OP_SIGMOID_BWD, 1, 3, 0},
    {CVY_OP_SILU, 0, 0, 0},
    {CVY_OP_SILU, 1, 0, 0.73105857863000487925},
    {CVY_OP_SILU, -2, 0, -0.23840584404423511188},
    {CVY_OP_SILU, -20, 0, -4.1223072363804071617e-8},
    {CVY_OP_SILU, 30, 0, 29.999999999997192713},
    {CVY_OP_SILU, INFINITY, 0, INFINITY},
    {CVY_OP_SILU, NAN, 0, NAN},
    {CVY_OP_SILU_BWD, 0, 8, 4},
    {CVY_OP_SILU_BWD, -1, 4, 0.28931795251405307},
    {CVY_OP_SILU_BWD, -2, -1, 0.090784248784895478},
    {CVY_OP_SILU_BWD, 4, 2, 2.1053292297821453},
    {CVY_OP_SILU_BWD, -20, 1, -3.9161918660646783292e-8},
    {CVY_OP_SILU_BWD, 30, 1, 1.0000000000027137107},
    {CVY_OP_ADD, -1, 0.5, -0.5},
    {CVY_OP_ADD, 2, 1, 3},
    {CVY_OP_ADD, NAN, 1, NAN},
};
enum { VALUES = sizeof values / sizeof *values };

/* The op on all its numbers at once, in f32 or f64. */
static void check_values(cvy_device *device, enum cvy_op op, enum cvy_dtype dtype)
{
    const struct cvy_op_info *info = &cvy_ops[op];
    /* An exponential, and four roundings of results of their own. */
    const double tolerance = info->check == CVY_CHECK_EXACT ? 0 : 4 * (dtype == CVY_F64 ? DBL_EPSILON : FLT_EPSILON);
    struct cvy_op_desc desc = executor_desc(op, info->elementwise, 1);
    float in[2][VALUES], out[VALUES];
    double in64[2][VALUES], out64[VALUES], wanted[VALUES];
    int count = 0;

    for (int i = 0; i < VALUES; i++) {
        if (values[i].op != op)
            continue;
        in[0][count] = (float)(in64[0][count] = values[i].a);
        in[1][count] = (float)(in64[1][count] = values[i].b);
        wanted[count++] = values[i].y;
    }
    if (count < 3)
        fail_msg("%s has %d rows among the values, and 3 are the least", info->name, count);
    for (int i = 0; i < info->elementwise; i++)
        desc.in[i] = executor_tensor(dtype, cvy_shape1(count));
    desc.out[0] = executor_tensor(dtype, cvy_shape1(count));
    if (dtype == CVY_F64)
        executor_run_checked(device, &desc, (const void *[]){in64[0], in64[1]}, (void *[]){out64});
    else
        executor_run_checked(device, &desc, (const void *[]){in[0], in[1]}, (void *[]){out});
    for (int i = 0; i < count; i++) {
        const double y = dtype == CVY_F64 ? out64[i] : (double)out[i];
        if (y != wanted[i] && !(isnan(wanted[i]) && isnan(y)) && !(fabs(y - wanted[i]) <= tolerance * fabs(wanted[i])))
            fail_msg("%s of %g, %g in %s is %.17g, not %.17g", info->name, in64[0][i], in64[1][i],
                     cvy_dtype_name(dtype), y, wanted[i]);
    }
}

static void every_op_gives_its_values(void **state)
{
    cvy_device *ref = executor_device("ref", 2), *cpu = executor_device("cpu", 2);

    for (int op = 0; op < CVY_OP_COUNT; op++) {
        if (!cvy_ops[op].elementwise)
            continue;
        check_values(ref, (enum cvy_op)op, CVY_F64);
        check_values(ref, (enum cvy_op)op, CVY_F32);
        check_values(cpu, (enum cvy_op)op, CVY_F32);
    }
    cvy_device_close(ref);
    cvy_device_close(cpu);
}

static void the_table_says_what_the_class_says(void **state)
{
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        const struct cvy_op_info *info = &cvy_ops[op];
        if (!info->elementwise)
            continue;
        assert_int_equal(info->inputs.min, info->elementwise);
        assert_int_equal(info->inputs.max, info->elementwise);
        assert_in_range(cvy_op_in_place((enum cvy_op)op), 0, info->elementwise - 1);
        assert_true(info->follows);
        if (info->gradient && info->elementwise == 1) {
            assert_int_equal(cvy_ops[info->backward].elementwise, 2);
            assert_null(cvy_ops[info->backward].gradient);
        }
    }
}

/* ---- ONNX ---- */

static const struct {
    enum cvy_op op;
    const char *types[2];
} translations[] = {
    {CVY_OP_RELU, {"Relu"}},
    {CVY_OP_RELU6, {"Clip"}},
    {CVY_OP_SIGMOID, {"Sigmoid"}},
    {CVY_OP_SILU, {"Sigmoid", "Mul"}},
};

/* The op on a map, and on the (N,C,1,1) that a mean over a map is in ONNX; `flat`: the latter. */
static void check_translation(const char *path, size_t index, cvy_val (*build)(struct cvy_graph *, cvy_val), bool flat)
{
    const char *const *own = translations[index].types, *types[5];
    struct onnx_example e = {.values = NULL};
    cvy_val x = start_graph(&e.graph, false, 4, 6, 5);
    Onnx__ModelProto *model;
    size_t count = 0;

    if (flat)
        types[count++] = "GlobalAveragePool";
    for (int i = 0; i < 2 && own[i]; i++)
        types[count++] = own[i];
    if (!flat)
        types[count++] = "GlobalAveragePool";
    types[count++] = "Flatten";
    onnx_finish(&e, flat ? build(&e.graph, cvy_global_avg_pool(&e.graph, x))
                         : cvy_global_avg_pool(&e.graph, build(&e.graph, x)));
    assert_int_equal(cvy_onnx_write(path, &e.graph, e.tensors, e.count, &(struct cvy_onnx_options){.name = "net"}),
                     CVY_OK);
    model = onnx_read(path);
    assert_int_equal(model->graph->n_node, count);
    for (size_t i = 0; i < count; i++) { /* a Flatten where the op asks for (N,C) itself */
        size_t found = 0;
        for (size_t k = 0; k < count; k++)
            found += strcmp(model->graph->node[k]->op_type, types[i]) == 0;
        if (found != 1)
            fail_msg("%s has %zu %s in ONNX", cvy_ops[translations[index].op].name, found, types[i]);
    }
    onnx__model_proto__free_unpacked(model, NULL);
    onnx_release(&e);
}

static void every_op_of_inference_has_a_form_in_onnx(void **state)
{
    static const struct {
        enum cvy_op op;
        cvy_val (*build)(struct cvy_graph *graph, cvy_val x);
    } builders[] = {
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...) {CVY_OP_##ID, cvy_##name},
#include "graph/ops.def"
    };
    const size_t count = sizeof translations / sizeof *translations;

    for (size_t b = 0; b < sizeof builders / sizeof *builders; b++) {
        size_t i = 0;
        while (i < count && translations[i].op != builders[b].op)
            i++;
        if (i == count)
            fail_msg("%s has no row among the translations", cvy_ops[builders[b].op].name);
        check_translation(test_path(*state, "map.onnx"), i, builders[b].build, false);
        check_translation(test_path(*state, "mean.onnx"), i, builders[b].build, true);
    }
}

RUN_TESTS(NULL, NULL, TEST(every_op_gives_its_values), TEST(the_table_says_what_the_class_says),
          IN_FOLDER(every_op_of_inference_has_a_form_in_onnx))
