/* Convolutions by oneDNN: choice of algorithm and layouts, post-operations, arguments. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/onednn.h"

/* The convolution after any of the three passes. */
struct conv {
    enum cvy_op op;
    const struct cvy_conv2d_attr *attr;
    struct cvy_tensor *x, *w, *y; /* or their gradients */
    bool bias, residual, inference, training;
    enum cvy_images images;
    dnnl_dims_t strides, dilates, pad_front, pad_back, w_dims;
    int w_rank;
};

static struct conv conv_of(struct cvy_op_desc *desc)
{
    const struct cvy_conv2d_attr *attr = &desc->attr.conv2d;
    struct conv conv = {
        .op = desc->op, .attr = attr, .inference = desc->inference, .training = desc->training, .images = desc->images};
    switch (desc->op) {
    case CVY_OP_CONV2D:
        conv.x = &desc->in[0], conv.w = &desc->in[1], conv.y = &desc->out[0];
        conv.bias = desc->inputs > 2 && cvy_tensor_present(&desc->in[2]);
        conv.residual = desc->inputs > 3 && cvy_tensor_present(&desc->in[3]);
        break;
    case CVY_OP_CONV2D_BWD_DATA:
        conv.w = &desc->in[0], conv.y = &desc->in[1], conv.x = &desc->out[0];
        break;
    default:
        conv.x = &desc->in[0], conv.y = &desc->in[1], conv.w = &desc->out[0];
        break;
    }
    for (int i = 0; i < 2; i++) {
        conv.strides[i] = attr->stride[i];
        conv.dilates[i] = attr->dilation[i] - 1; /* oneDNN counts the holes */
        conv.pad_front[i] = attr->pad[2 * i];
        conv.pad_back[i] = attr->pad[2 * i + 1];
    }
    const int64_t *w = conv.w->shape.dim, groups = attr->groups;
    if (groups == 1) {
        conv.w_rank = 4;
        memcpy(conv.w_dims, w, 4 * sizeof(w[0]));
    } else { /* (g, K/g, C/g, R, S): the same bytes as our (K, C/g, R, S) */
        conv.w_rank = 5;
        conv.w_dims[0] = groups;
        conv.w_dims[1] = w[0] / groups;
        memcpy(conv.w_dims + 2, w + 1, 3 * sizeof(w[0]));
    }
    return conv;
}

static cvy_status make_attr(const struct conv *conv, dnnl_primitive_attr_t *attr)
{
    dnnl_post_ops_t ops = NULL;
    cvy_status status;
    CVY_GOTO(onednn_check(dnnl_primitive_attr_create(attr), "attributes"));
    CVY_GOTO(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user), "attributes"));
    if (conv->op != CVY_OP_CONV2D || (!conv->residual && conv->attr->activation == CVY_ACTIVATION_NONE))
        return CVY_OK;
    CVY_GOTO(onednn_check(dnnl_post_ops_create(&ops), "post-operations"));
    if (conv->residual)
        CVY_GOTO(onednn_check(onednn_append_sum(ops), "post-operations"));
    if (conv->attr->activation == CVY_ACTIVATION_RELU)
        CVY_GOTO(onednn_check(onednn_append_eltwise(ops, dnnl_eltwise_relu, 0, 0), "post-operations"));
    if (conv->attr->activation == CVY_ACTIVATION_RELU6)
        CVY_GOTO(onednn_check(onednn_append_eltwise(ops, dnnl_eltwise_clip, 0, 6), "post-operations"));
    CVY_GOTO(onednn_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "post-operations"));
fail:
    if (ops)
        (void)dnnl_post_ops_destroy(ops);
    return status;
}

/* One way to compute it. */
struct choice {
    dnnl_alg_kind_t algorithm;
    enum cvy_layout_kind x, y;
};

/* The primitive of one choice over given descriptions; *result NULL when oneDNN has none. forward_w: the weights as the
 * forward pass reads them, which is where a backward pass starts from. */
static void try_descriptions(struct cpu_device *device, const struct conv *conv, const struct onednn_conv *description,
                             const onednn_md *forward_w, const_dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t *result)
{
    struct onednn_conv forward_description = *description;
    const bool is_forward = conv->op == CVY_OP_CONV2D;
    const dnnl_engine_t engine = device->onednn->engine;
    dnnl_primitive_desc_t forward = NULL;

    *result = NULL;
    forward_description.w = forward_w;
    if (onednn_conv_create(&forward, engine, ONEDNN_FORWARD, &forward_description, is_forward ? attr : NULL, NULL) !=
        dnnl_success)
        return;
    if (is_forward) {
        *result = forward;
        return;
    }
    (void)onednn_conv_create(result, engine,
                             conv->op == CVY_OP_CONV2D_BWD_DATA ? ONEDNN_BACKWARD_DATA : ONEDNN_BACKWARD_WEIGHTS,
                             description, attr, forward);
    (void)dnnl_primitive_desc_destroy(forward);
}

static cvy_status try_choice(struct cpu_device *device, const struct conv *conv, const struct choice *choice,
                             const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *result)
{
    onednn_md x = {0}, w = {0}, forward_w = {0}, y = {0}, bias = {0};
    const dnnl_dims_t outputs = {conv->y->shape.dim[1]};
    const struct onednn_conv description = {
        .kind = conv->inference ? dnnl_forward_inference : dnnl_forward_training,
        .algorithm = choice->algorithm,
        .x = &x,
        .w = &w,
        .y = &y,
        .bias = conv->bias ? &bias : NULL,
        .strides = conv->strides,
        .dilates = conv->dilates,
        .pad_front = conv->pad_front,
        .pad_back = conv->pad_back,
    };
    cvy_status status;

    *result = NULL;
    CVY_GOTO(onednn_image(&x, conv->x, choice->x));
    CVY_GOTO(onednn_image(&y, conv->y, choice->y));
    CVY_GOTO(onednn_check(
        onednn_md_by_tag(&w, conv->w_rank, conv->w_dims, onednn_type(conv->w->dtype), dnnl_format_tag_any), "weights"));
    /* Gradients of weights are f32 where the weights themselves are bf16. */
    CVY_GOTO(onednn_check(
        onednn_md_by_tag(&forward_w, conv->w_rank, conv->w_dims, onednn_type(conv->x->dtype), dnnl_format_tag_any),
        "weights"));
    CVY_GOTO(onednn_check(onednn_md_by_tag(&bias, 1, outputs, dnnl_f32, dnnl_a), "bias"));
    try_descriptions(device, conv, &description, &forward_w, attr, result);
fail:
    onednn_md_release(&x);
    onednn_md_release(&w);
    onednn_md_release(&forward_w);
    onednn_md_release(&y);
    onednn_md_release(&bias);
    return status;
}

static const char *implementation_of(dnnl_primitive_desc_t desc)
{
    const char *name = "";
    return dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success ? name : "";
}

/* Which setting oneDNN's tiles, of 4 x 4, are used from on. */
static enum cpu_winograd least_for(const struct conv *conv)
{
    const bool of_inference = conv->op == CVY_OP_CONV2D && conv->inference && !conv->training;
    return conv->op == CVY_OP_CONV2D_BWD_WEIGHTS ? CPU_WINOGRAD_WEIGHTS
           : of_inference                        ? CPU_WINOGRAD_AUTO
                                                 : CPU_WINOGRAD_ALL;
}

/* Adds "nChw16c/nChw16c skipped: ref:any" to the reason that `info --plan` shows. */
static void note_skipped(struct cvy_kernel_plan *plan, const struct choice *choice, dnnl_primitive_desc_t tried)
{
    const struct cvy_layout x = {.kind = choice->x}, y = {.kind = choice->y};
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof(plan->reason) - used, "%s%s/%s skipped: %s", used ? "; " : "",
             cvy_layout_name(&x), cvy_layout_name(&y), tried ? implementation_of(tried) : "oneDNN has none");
}

/* Its loops without instructions for them: in C, "ref:any" a thousand times slower than others, and products of
 * matrices in C, which is what it has for 64-bit ARM without SVE. */
static bool is_plain_loops(dnnl_primitive_desc_t desc)
{
    const char *const name = implementation_of(desc);
    return strncmp(name, "ref", 3) == 0 || strncmp(name, "gemm:ref", 8) == 0;
}

/* The pairs of layouts in the order of preference: first the device's own for these images and channels, so that
 * neighbours need no reorder; then outputs in whole blocks all the same, padded, which what flattens the levels of a
 * detector reads. oneDNN answers a pair that none of its kernels knows with plain loops: any other pair is better, and
 * that one is taken only when there is nothing else, not even another row of the table. */
static cvy_status choose(struct cpu_device *device, const struct conv *conv, const struct cvy_op_desc *desc,
                         const_dnnl_primitive_attr_t attr, dnnl_alg_kind_t algorithm, struct choice *choice,
                         dnnl_primitive_desc_t *result, struct cvy_kernel_plan *plan)
{
    const enum cvy_layout_kind x = cpu_blocked_layout(device, conv->x->shape.dim[1]).kind;
    const enum cvy_layout_kind y = cpu_blocked_layout(device, conv->y->shape.dim[1]).kind;
    const enum cvy_layout_kind plain = CVY_LAYOUT_PLAIN, nhwc = CVY_LAYOUT_NHWC;
    const enum cvy_layout_kind pairs[][2] = {{nhwc, nhwc}, {x, y},         {x, device->blocked},
                                             {plain, y},   {plain, plain}, {nhwc, nhwc}};
    const size_t first = cpu_prefers_nhwc(device, conv->images, conv->x->dtype) ? 0 : 1;
    const size_t pair_count = sizeof(pairs) / sizeof(pairs[0]) - (first == 0);

    for (size_t p = first; p < pair_count; p++) {
        if (p > first && pairs[p][0] == pairs[p - 1][0] && pairs[p][1] == pairs[p - 1][1])
            continue;
        *choice = (struct choice){.algorithm = algorithm, .x = pairs[p][0], .y = pairs[p][1]};
        CVY_TRY(try_choice(device, conv, choice, attr, result));
        if (*result && !is_plain_loops(*result))
            return CVY_OK;
        note_skipped(plan, choice, *result);
        if (*result)
            (void)dnnl_primitive_desc_destroy(*result);
        *result = NULL;
    }
    if (algorithm != dnnl_convolution_direct)
        return cvy_fail(CVY_UNAVAILABLE, "oneDNN has none");
    if (cpu_direct_takes(device, desc))
        return cvy_fail(CVY_UNAVAILABLE, "oneDNN has plain loops only");
    *choice = (struct choice){.algorithm = algorithm, .x = plain, .y = plain};
    CVY_TRY(try_choice(device, conv, choice, attr, result));
    return *result ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "oneDNN has no kernel for this convolution");
}

static cvy_status add_arguments(struct cpu_device *device, const struct conv *conv, struct onednn_call *call,
                                dnnl_primitive_desc_t desc)
{
    /* Arguments by pass: x, w, y as they are called there, and the number of the input each is (-1: output 0). */
    static const int kinds[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    static const dnnl_query_t queries[3][3] = {{dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
                                               {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
                                               {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}};
    static const int32_t inputs[3][3] = {{0, 1, -1}, {-1, 0, 1}, {0, -1, 1}};
    const int pass = conv->op == CVY_OP_CONV2D ? 0 : conv->op == CVY_OP_CONV2D_BWD_DATA ? 1 : 2;

    for (int i = 0; i < 3; i++) {
        const int32_t input = inputs[pass][i];
        CVY_TRY(onednn_argument(device, call, kinds[pass][i], dnnl_primitive_desc_query_md(desc, queries[pass][i], 0),
                                input < 0 ? FROM_OUTPUT : FROM_INPUT, input < 0 ? 0 : input));
    }
    if (conv->bias)
        CVY_TRY(onednn_argument(device, call, DNNL_ARG_BIAS,
                                dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1), FROM_INPUT, 2));
    const onednn_md_view w = dnnl_primitive_desc_query_md(desc, queries[pass][1], 0);
    return onednn_layout(w, &conv->w->layout);
}

static cvy_status build(struct cpu_device *device, struct conv *conv, dnnl_alg_kind_t algorithm,
                        struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct onednn_call *call = plan->state;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    struct choice choice;
    cvy_status status;

    CVY_GOTO(make_attr(conv, &attr));
    CVY_GOTO(choose(device, conv, desc, attr, algorithm, &choice, &chosen, plan));
    CVY_GOTO(onednn_primitive(device, call, chosen, plan));
    CVY_GOTO(add_arguments(device, conv, call, chosen));
    snprintf(plan->implementation, sizeof(plan->implementation), "%s", implementation_of(chosen));
    conv->x->layout = (struct cvy_layout){.kind = choice.x};
    conv->y->layout = (struct cvy_layout){.kind = choice.y};
    if (conv->bias)
        desc->in[2].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (conv->residual) { /* summed into by the primitive: the output starts as the residual */
        desc->in[3].layout = conv->y->layout;
        plan->in_place[0] = 3;
        call->copy_bytes = cpu_tensor_bytes(&device->base, conv->y);
    }
fail:
    if (chosen)
        (void)dnnl_primitive_desc_destroy(chosen);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

static cvy_status prepare(cvy_device *device, dnnl_alg_kind_t algorithm, struct cvy_op_desc *desc,
                          struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_no_norm(desc));
    /* The bias and the gradient of the weights are f32 whatever the images are. */
    const bool weights_too = desc->op != CVY_OP_CONV2D_BWD_WEIGHTS;
    CVY_TRY(cpu_expect_images(desc, ~(desc->op == CVY_OP_CONV2D ? 1U << 2 : 0U), weights_too ? 1U : 0U, 0, 0));
    struct conv conv = conv_of(desc);
    if (algorithm == dnnl_convolution_winograd)
        CVY_TRY(cpu_expect_winograd(cpu_of(device), desc, 1, least_for(&conv), plan));
    struct onednn_call *call = cvy_calloc(1, sizeof(*call));
    if (!call)
        return cvy_fail_memory(sizeof(*call), "the state of a kernel");
    plan->state = call;
    const struct onednn_threads before = onednn_enter(device);
    const cvy_status status = build(cpu_of(device), &conv, algorithm, desc, plan);
    onednn_leave(before);
    return status;
}

cvy_status cpu_conv2d_winograd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, dnnl_convolution_winograd, desc, plan);
}

cvy_status cpu_conv2d_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, dnnl_convolution_direct, desc, plan);
}

static void copy(cvy_device *device, char *to, const char *from, size_t bytes)
{
    const size_t piece = CPU_CHUNK * sizeof(float);
    const int64_t pieces = (int64_t)((bytes + piece - 1) / piece);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        const size_t first = (size_t)i * piece;
        memcpy(to + first, from + first, bytes - first < piece ? bytes - first : piece);
    }
}

cvy_status cpu_conv2d_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct onednn_call *call = plan->state;
    /* There oneDNN has one thread, and the sums of this gradient are shared out among all that it was planned for. */
    if (plan->kernel->op == CVY_OP_CONV2D_BWD_WEIGHTS && device->threads > 1 && omp_in_parallel())
        return cvy_fail(CVY_USAGE,
                        "%d threads cannot compute within a parallel region of the caller's: train outside of "
                        "it, or with one thread",
                        device->threads);
    if (call->copy_bytes && out[0] != in[3])
        copy(device, out[0], in[3], call->copy_bytes);
    return onednn_run(device, call, in, out, scratch);
}

void cpu_conv2d_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    (void)device;
    onednn_call_free(plan->state);
    plan->state = NULL;
}
