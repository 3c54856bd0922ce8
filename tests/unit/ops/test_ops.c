/* The op table, and each op's shape rule and FLOPs. The arithmetic is tested with the backends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "support_graph.h"

static void the_table_is_complete(void **state)
{
    (void)state;
    for (int op = 0; op < CVY_OP_COUNT; op++) {
        const struct cvy_op_info *info = &cvy_ops[op];

        assert_non_null(info->name);
        assert_int_not_equal(info->check, CVY_CHECK_MISSING);
        assert_in_range(info->inputs.min, 1, info->inputs.max);
        assert_in_range(info->inputs.max, 1, CVY_MAX_INPUTS);
        assert_in_range(info->outputs.min, 1, info->outputs.max);
        assert_in_range(info->outputs.max, 1, CVY_MAX_OUTPUTS);
        for (int other = 0; other < op; other++)
            assert_string_not_equal(info->name, cvy_ops[other].name);
    }
}

/* ---- shapes ---- */

static void conv2d_extents(void **state)
{
    static const struct {
        int32_t height, width, kernel[2], stride[2], pads[4], dilation[2], out[2];
    } cases[] = {
        {224, 224, {7, 7}, {2, 2}, {3, 3, 3, 3}, {1, 1}, {112, 112}},
        {56, 56, {1, 1}, {2, 2}, {0, 0, 0, 0}, {1, 1}, {28, 28}},
        {5, 9, {3, 2}, {1, 3}, {0, 1, 2, 0}, {1, 1}, {4, 4}},
        {9, 9, {3, 3}, {1, 1}, {2, 2, 2, 2}, {2, 2}, {9, 9}},
        {9, 7, {3, 1}, {2, 1}, {0, 0, 0, 0}, {4, 1}, {1, 7}},
        {1, 1, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, {1, 1}},
        {8, 8, {3, 3}, {2, 2}, {0, 1, 0, 1}, {1, 1}, {4, 4}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_conv2d options = {.out = 6, .groups = 2, .use_pads = true};
        struct cvy_graph g;
        struct cvy_shape expected = cvy_shape4(CVY_BATCH, 6, cases[i].out[0], cases[i].out[1]);
        cvy_val x = start_graph(&g, true, 4, cases[i].height, cases[i].width), y;

        memcpy(options.kernel_hw, cases[i].kernel, sizeof options.kernel_hw);
        memcpy(options.stride_hw, cases[i].stride, sizeof options.stride_hw);
        memcpy(options.dilation_hw, cases[i].dilation, sizeof options.dilation_hw);
        memcpy(options.pads, cases[i].pads, sizeof options.pads);
        y = cvy_conv2d(&g, x, &options);
        check_graph(&g);
        assert_true(cvy_shape_equal(cvy_shape_of(&g, y), &expected));
        assert_int_equal(g.nodes[0].attr.conv2d.input[0], cases[i].height);
        assert_int_equal(g.nodes[0].attr.conv2d.input[1], cases[i].width);
        assert_true(cvy_shape_equal(&g.params[0].shape,
                                    &(struct cvy_shape){4, {6, 2, cases[i].kernel[0], cases[i].kernel[1]}}));
        cvy_graph_release(&g);
    }
}

static void conv2d_refuses(void **state)
{
    static const struct {
        struct cvy_conv2d options;
        const char *part;
    } cases[] = {
        {{.out = 0, .kernel = 3}, "1 or more output channels, not 0"},
        {{.out = -4, .kernel = 3}, "1 or more output channels, not -4"},
        {{.out = 4}, "kernel of 1 or more, not 0"},
        {{.out = 4, .kernel = -1}, "kernel of 1 or more, not -1"},
        {{.out = 4, .kernel = 3, .stride = -2}, "stride of 1 or more, not -2"},
        {{.out = 4, .kernel = 3, .stride_hw = {1, -1}}, "stride of 1 or more, not -1"},
        {{.out = 4, .kernel = 3, .dilation = -1}, "dilation of 1 or more, not -1"},
        {{.out = 4, .kernel = 3, .pad = -1}, "negative padding"},
        {{.out = 4, .kernel = 3, .use_pads = true, .pads = {0, 0, 0, -1}}, "negative padding"},
        {{.out = 4, .kernel = 3, .groups = 3}, "cannot split 4 input and 4 output channels into 3 groups"},
        {{.out = 6, .kernel = 3, .groups = 4}, "cannot split 4 input and 6 output channels into 4 groups"},
        {{.out = 4, .kernel = 3, .groups = -1}, "into -1 groups"},
        {{.out = 4, .kernel = 9}, "empty output: its window of 9 does not fit an input of 8"},
        {{.out = 4, .kernel = 3, .dilation = 4}, "empty output: its window of 9"},
        {{.out = 4, .kernel = 3, .dilation = INT32_MAX}, "empty output"},
        {{.out = 4, .kernel = 3, .pad = INT32_MAX}, "too large"},
        {{.out = INT32_MAX, .kernel = INT32_MAX}, "too large"},
    };
    struct cvy_graph g;
    cvy_val x, w, b;
    struct cvy_conv2d_attr attr = {.kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        x = start_graph(&g, true, 4, 8, 8);
        assert_int_equal(cvy_conv2d(&g, x, &cases[i].options), CVY_NONE);
        check_graph_error(&g, CVY_USAGE, cases[i].part);
        cvy_graph_release(&g);
    }
    for (int i = 0; i < 6; i++) {
        static const char *const parts[] = {
            "weights for 3 input channels a group, but its input has 4",
            "a bias of 6, not 5",
            "a residual of Nx6x8x8, not Nx4x8x8",
            "of 2x2 has weights of 1x1",
            "weights of 4 dimensions, not 6",
            "an input of 4 dimensions, not 6",
        };
        x = start_graph(&g, true, 4, 8, 8);
        w = cvy_graph_param(&g, "w", CVY_PARAM_TRAINABLE, cvy_shape4(6, i == 0 ? 3 : 4, 1, 1), (struct cvy_init){0});
        b = cvy_graph_param(&g, "b", CVY_PARAM_TRAINABLE, cvy_shape1(i == 1 ? 5 : 6), (struct cvy_init){0});
        attr.kernel[0] = attr.kernel[1] = i == 3 ? 2 : 1;
        assert_int_equal(cvy_conv2d_values(&g, i == 5 ? b : x, i == 4 ? b : w, b, i == 2 ? x : CVY_NONE, &attr),
                         CVY_NONE);
        check_graph_error(&g, CVY_USAGE, parts[i]);
        cvy_graph_release(&g);
    }
}

/* A graph with one value of each kind, to feed to ops that want another. */
struct odd {
    struct cvy_graph g;
    cvy_val image, matrix, vector, bytes, labels, narrow, doubles, share, rgb;
};

static void start_odd(struct odd *o)
{
    o->image = start_graph(&o->g, true, 4, 6, 6);
    o->matrix = cvy_graph_input(&o->g, "matrix", CVY_F32, cvy_shape2(CVY_BATCH, 4), false);
    o->vector = cvy_graph_input(&o->g, "vector", CVY_F32, cvy_shape1(4), false);
    o->bytes = cvy_graph_input(&o->g, "bytes", CVY_U8, cvy_shape4(CVY_BATCH, 4, 6, 6), true);
    o->labels = cvy_graph_input(&o->g, "labels", CVY_I32, cvy_shape1(CVY_BATCH), false);
    o->share = cvy_graph_input(&o->g, "share", CVY_F32, cvy_shape1(CVY_BATCH), false);
    o->rgb = cvy_graph_input(&o->g, "rgb", CVY_U8, cvy_shape4(CVY_BATCH, 3, 6, 6), true);
    o->narrow = cvy_graph_input(&o->g, "narrow", CVY_F32, cvy_shape4(CVY_BATCH, 4, 6, 5), false);
    o->doubles = cvy_graph_input(&o->g, "doubles", CVY_F64, cvy_shape4(CVY_BATCH, 4, 6, 6), false);
}

static cvy_val mixed_loss(struct odd *o, cvy_val partner, cvy_val coefficient, cvy_val weights)
{
    return cvy_softmax_cross_entropy_mixed(&o->g, o->matrix, o->labels, (struct cvy_mix_values){partner, coefficient},
                                           weights, 0);
}

static cvy_val refused(struct odd *o, int i)
{
    static const float mean[3], one[3] = {1, 1, 1}, none[3] = {1, 0, 1};
    struct cvy_graph *g = &o->g;

    switch (i) {
    case 0:
        return cvy_relu(g, o->bytes);
    case 1:
        return cvy_add(g, o->image, o->narrow);
    case 2:
        return cvy_add(g, o->image, o->doubles);
    case 3:
        return cvy_add(g, o->labels, o->labels);
    case 4:
        return cvy_batch_norm(g, o->vector, &(struct cvy_batch_norm){0});
    case 5:
        return cvy_batch_norm(g, o->image, &(struct cvy_batch_norm){.eps = -1});
    case 6:
        return cvy_batch_norm(g, o->image, &(struct cvy_batch_norm){.momentum = 1.5F});
    case 7:
        return cvy_max_pool(g, o->matrix, &(struct cvy_max_pool){.kernel = 2});
    case 8:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 0});
    case 9:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 3, .stride = -1});
    case 10:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 3, .pad = 3});
    case 11:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 7});
    case 12:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 17, .pad = 16});
    case 13:
        return cvy_max_pool(g, o->image, &(struct cvy_max_pool){.kernel = 3, .pad = -1});
    case 14:
        return cvy_global_avg_pool(g, o->matrix);
    case 15:
        return cvy_linear(g, o->image, 3);
    case 16:
        return cvy_linear(g, o->matrix, 0);
    case 17:
        return cvy_softmax(g, o->image);
    case 18:
        return cvy_softmax_cross_entropy(g, o->image, o->labels, 0);
    case 19:
        return cvy_softmax_cross_entropy(g, o->matrix, o->bytes, 0);
    case 20:
        return cvy_softmax_cross_entropy(g, o->matrix, o->vector, 0);
    case 21:
        return cvy_softmax_cross_entropy(g, o->matrix, o->labels, 1.5F);
    case 22:
        return cvy_softmax_cross_entropy(g, o->matrix, o->labels, -0.1F);
    case 23:
        return cvy_normalize(g, o->image, mean, one);
    case 24:
        return cvy_normalize(g, o->bytes, mean, one);
    case 25:
        return cvy_normalize(g, o->rgb, mean, none);
    case 26:
        return cvy_cast(g, o->image, CVY_DTYPE_COUNT);
    case 27: { /* a batch that is known, with one value per channel */
        cvy_val one_value = cvy_graph_input(g, "one", CVY_F32, cvy_shape2(1, 4), false);
        return cvy_batch_norm(g, one_value, &(struct cvy_batch_norm){0});
    }
    case 28:
        return cvy_sigmoid(g, o->labels);
    case 29:
        return cvy_scale_channels(g, o->matrix, o->matrix);
    case 30:
        return cvy_scale_channels(g, o->image, o->vector);
    case 31:
        return cvy_scale_channels(g, o->doubles, o->matrix);
    case 32:
        return cvy_linear_1x1(g, o->image, 3);
    case 33: { /* the weight exists already, in the other shape */
        (void)cvy_linear(g, o->matrix, 5);
        return cvy_linear_1x1(g, o->matrix, 5);
    }
    case 34:
        return cvy_normalize_mixed(g, o->rgb, (struct cvy_mix_values){o->vector, o->share}, mean, one);
    case 35:
        return cvy_normalize_mixed(g, o->rgb, (struct cvy_mix_values){o->labels, o->vector}, mean, one);
    case 36:
        return mixed_loss(o, o->labels, o->matrix, CVY_NONE);
    case 37:
        return mixed_loss(o, CVY_NONE, CVY_NONE, o->labels);
    case 38:
        return mixed_loss(o, o->labels, o->share, o->matrix);
    default:
        return cvy_linear(g, o->matrix, 0);
    }
}

static void wrong_inputs_get_a_sentence(void **state)
{
    static const char *const parts[] = {
        "relu needs an input of a float type, not u8",
        "add needs a second operand of Nx4x6x6, not Nx4x6x5",
        "add needs a second operand in f32, not f64",
        "not i32",
        "batch norm needs an input of 4 dimensions, not 4",
        "positive eps, not -1",
        "momentum in (0, 1], not 1.5",
        "max pool needs an input of 4 dimensions, not Nx4",
        "max pool needs a kernel of 1 or more, not 0",
        "max pool needs a stride of 1 or more, not -1",
        "max pool needs a padding below its kernel of 3, not 3",
        "max pool has an empty output: its window of 7 does not fit an input of 6",
        "kernels up to 16, not 17",
        "max pool cannot have a negative padding",
        "global average pool needs an input of 4 dimensions",
        "linear needs an input of 2 dimensions",
        "linear needs 1 or more outputs, not 0",
        "softmax needs logits of 2 dimensions",
        "cross-entropy needs logits of 2 dimensions",
        "one i32 label a sample or soft targets, not u8 Nx4x6x6",
        "soft targets of Nx4, not 4",
        "label smoothing must lie between 0 and 1, not be 1.5",
        "label smoothing must lie between 0 and 1, not be -0.1",
        "normalize needs u8 or f32 images of 3 channels, not f32",
        "normalize needs u8 or f32 images of 3 channels, not u8 Nx4x6x6",
        "positive standard deviation",
        "unknown type",
        "more than one value per channel in training",
        "sigmoid needs an input of a float type, not i32",
        "scale channels needs an input of 4 dimensions, not Nx4",
        "scale channels needs factors of Nx4, not 4",
        "scale channels needs factors in f64, not f32",
        "linear needs an input of 2 dimensions",
        "\"weight\"",
        "normalize needs partners of i32, one for each sample, not f32 4",
        "normalize needs coefficients of f32, one for each sample, not f32 4",
        "cross-entropy needs coefficients of f32, one for each sample, not f32 Nx4",
        "cross-entropy needs class weights of 4, not N",
        "cross-entropy needs class weights of 4, not Nx4",
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof parts / sizeof *parts); i++) {
        struct odd o;

        start_odd(&o);
        assert_int_equal(refused(&o, i), CVY_NONE);
        check_graph_error(&o.g, CVY_USAGE, parts[i]);
        cvy_graph_release(&o.g);
    }
}

static void a_missing_input_is_an_error(void **state)
{
    (void)state;
    for (int i = 0; i < 14; i++) {
        struct cvy_graph g;
        cvy_val x = start_graph(&g, true, 4, 6, 6), y = 0;

        switch (i) {
        case 0:
            y = cvy_relu(&g, CVY_NONE);
            break;
        case 1:
            y = cvy_add(&g, x, CVY_NONE);
            break;
        case 2:
            y = cvy_add(&g, 77, x);
            break;
        case 3:
            y = cvy_conv2d(&g, CVY_NONE, &(struct cvy_conv2d){.out = 1, .kernel = 1});
            break;
        case 4:
            y = cvy_batch_norm(&g, CVY_NONE, &(struct cvy_batch_norm){0});
            break;
        case 5:
            y = cvy_cast(&g, CVY_NONE, CVY_F64);
            break;
        case 6:
            y = cvy_normalize(&g, CVY_NONE, (float[3]){0}, (float[3]){1, 1, 1});
            break;
        case 7:
            y = cvy_softmax_cross_entropy(&g, cvy_global_avg_pool(&g, x), CVY_NONE, 0);
            break;
        case 8:
            y = cvy_sigmoid(&g, CVY_NONE);
            break;
        case 9:
            y = cvy_scale_channels(&g, CVY_NONE, x);
            break;
        case 10:
            y = cvy_scale_channels(&g, x, CVY_NONE);
            break;
        case 11: /* partners and coefficients come together */
        case 12: {
            const cvy_val rgb = cvy_graph_input(&g, "rgb", CVY_U8, cvy_shape4(CVY_BATCH, 3, 6, 6), true);
            const cvy_val partner = cvy_graph_input(&g, "partner", CVY_I32, cvy_shape1(CVY_BATCH), false);
            const struct cvy_mix_values mix = {i == 11 ? partner : CVY_NONE, i == 11 ? CVY_NONE : rgb};
            y = cvy_normalize_mixed(&g, rgb, mix, (float[3]){0}, (float[3]){1, 1, 1});
            break;
        }
        default:
            y = cvy_linear(&g, CVY_NONE, 3);
            break;
        }
        assert_int_equal(y, CVY_NONE);
        check_graph_error(&g, CVY_FAILED, "has no");
        cvy_graph_release(&g);
    }
}

static void max_pool_extents(void **state)
{
    struct cvy_graph g;
    struct cvy_shape expected = cvy_shape4(CVY_BATCH, 4, 56, 28);
    cvy_val x = start_graph(&g, true, 4, 112, 57), y;

    (void)state;
    y = cvy_max_pool(&g, x, &(struct cvy_max_pool){.kernel = 3, .stride = 2, .use_pads = true, .pads = {1, 1, 0, 0}});
    check_graph(&g);
    assert_true(cvy_shape_equal(cvy_shape_of(&g, y), &expected));
    assert_int_equal(g.values[g.nodes[0].out[1]].dtype, CVY_U8);
    assert_true(cvy_shape_equal(cvy_shape_of(&g, g.nodes[0].out[1]), &expected));
    /* Without a stride windows do not overlap. */
    y = cvy_max_pool(&g, x, &(struct cvy_max_pool){.kernel = 16});
    expected = cvy_shape4(CVY_BATCH, 4, 7, 3);
    assert_true(cvy_shape_equal(cvy_shape_of(&g, y), &expected));
    cvy_graph_release(&g);
}

/* The parameters of a linear layer in both forms of its weight; the input has 4 features. */
static void linear_weights_come_in_two_shapes(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        struct cvy_graph g;
        struct cvy_shape weight = form ? cvy_shape4(9, 4, 1, 1) : cvy_shape2(9, 4), bias = cvy_shape1(9);
        struct cvy_shape expected = cvy_shape2(CVY_BATCH, 9);
        cvy_val x = cvy_global_avg_pool(&g, start_graph(&g, true, 4, 6, 6)), y;

        y = form ? cvy_linear_1x1(&g, x, 9) : cvy_linear(&g, x, 9);
        check_graph(&g);
        assert_true(cvy_shape_equal(cvy_shape_of(&g, y), &expected));
        assert_int_equal(g.param_count, 2);
        assert_string_equal(g.params[0].name, "weight");
        assert_string_equal(g.params[1].name, "bias");
        assert_true(cvy_shape_equal(&g.params[0].shape, &weight));
        assert_true(cvy_shape_equal(&g.params[1].shape, &bias));
        for (int p = 0; p < 2; p++) {
            assert_int_equal(g.params[p].init, CVY_INIT_UNIFORM);
            assert_true(g.params[p].init_scale == 0.5F); /* 1 / sqrt(4) */
        }
        cvy_graph_release(&g);
    }
}

static void casts_to_the_same_type_vanish(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 2, 2), y;

    (void)state;
    assert_int_equal(cvy_cast(&g, x, CVY_F32), x);
    y = cvy_cast(&g, x, CVY_F64);
    assert_int_equal(g.values[y].dtype, CVY_F64);
    assert_int_equal(g.node_count, 1);
    cvy_graph_release(&g);
}

/* ---- FLOPs ---- */

static double flops_of(const struct cvy_graph *g, enum cvy_op op)
{
    int32_t n = find_node(g, op, 0);

    assert_true(n >= 0);
    return cvy_node_flops(g, &g->nodes[n]);
}

static void flops_are_counted(void **state)
{
    struct cvy_graph g;
    cvy_val x = start_graph(&g, true, 4, 9, 7), loss, seed, target;

    (void)state;
    cvy_scope_push(&g, "c1");
    x = cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = 6, .kernel = 1});
    cvy_scope_pop(&g);
    cvy_scope_push(&g, "c2");
    x = cvy_conv2d(&g, x, &(struct cvy_conv2d){.out = 8, .kernel = 3, .stride = 2, .groups = 2, .bias = true});
    cvy_scope_pop(&g);
    cvy_scope_push(&g, "se");
    x = cvy_scale_channels(&g, x, cvy_sigmoid(&g, cvy_linear_1x1(&g, cvy_global_avg_pool(&g, x), 8)));
    cvy_scope_pop(&g);
    cvy_scope_push(&g, "fc");
    x = cvy_linear(&g, cvy_global_avg_pool(&g, x), 10);
    cvy_scope_pop(&g);
    target = cvy_graph_input(&g, "t", CVY_I32, cvy_shape1(CVY_BATCH), false);
    loss = cvy_softmax_cross_entropy(&g, x, target, 0);
    seed = cvy_graph_input(&g, "seed", CVY_F32, cvy_shape0(), false);
    cvy_graph_backward(&g, cvy_ops, loss, seed);
    check_graph(&g);
    /* c1: 9*7 places, 6 outputs, 4 inputs. c2: 4*3 places, 8 outputs, 3 inputs a group, 9 taps, and the bias. */
    assert_true(cvy_node_flops(&g, &g.nodes[0]) == 2.0 * 63 * 6 * 4);
    assert_true(cvy_node_flops(&g, &g.nodes[1]) == 2.0 * 12 * 8 * 3 * 9 + 12 * 8);
    assert_true(flops_of(&g, CVY_OP_LINEAR) == 2.0 * 8 * 8 + 8);
    assert_true(flops_of(&g, CVY_OP_SIGMOID) == 4.0 * 8);
    assert_true(flops_of(&g, CVY_OP_SIGMOID_BWD) == 3.0 * 8);
    /* 4*3 places of 8 channels. */
    assert_true(flops_of(&g, CVY_OP_SCALE_CHANNELS) == 12 * 8);
    {
        struct cvy_node fused = g.nodes[find_node(&g, CVY_OP_SCALE_CHANNELS, 0)];
        fused.in[2] = fused.in[1];
        assert_true(cvy_node_flops(&g, &fused) == 2.0 * 12 * 8);
        fused.in[3] = fused.in[0];
        assert_true(cvy_node_flops(&g, &fused) == 3.0 * 12 * 8);
        fused.attr.scale_channels.relu = true;
        assert_true(cvy_node_flops(&g, &fused) == 4.0 * 12 * 8);
    }
    assert_true(flops_of(&g, CVY_OP_SCALE_CHANNELS_BWD_SCALE) == 2.0 * 12 * 8);
    /* The backward passes of a convolution cost what the forward pass costs. */
    assert_true(flops_of(&g, CVY_OP_CONV2D_BWD_DATA) == 2.0 * 12 * 8 * 3 * 9);
    assert_true(flops_of(&g, CVY_OP_CONV2D_BWD_WEIGHTS) == 2.0 * 12 * 8 * 3 * 9);
    assert_true(flops_of(&g, CVY_OP_CONV2D_BWD_BIAS) == 12 * 8);
    assert_true(flops_of(&g, CVY_OP_LINEAR_BWD_DATA) == 2.0 * 8 * 10);
    assert_true(flops_of(&g, CVY_OP_LINEAR_BWD_WEIGHTS) == 2.0 * 8 * 10 + 10);
    cvy_graph_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_complete),
        cmocka_unit_test(conv2d_extents),
        cmocka_unit_test(conv2d_refuses),
        cmocka_unit_test(wrong_inputs_get_a_sentence),
        cmocka_unit_test(a_missing_input_is_an_error),
        cmocka_unit_test(max_pool_extents),
        cmocka_unit_test(linear_weights_come_in_two_shapes),
        cmocka_unit_test(casts_to_the_same_type_vanish),
        cmocka_unit_test(flops_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
