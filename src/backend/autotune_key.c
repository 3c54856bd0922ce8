/* The key under which two operations count as equal for autotuning. */
#include <string.h>

#include "backend/autotune.h"
#include "base/memory.h"
#include "ops/ops.h"

static void add_attributes(const struct cvy_op_desc *desc, struct cvy_text *key)
{
    const struct cvy_conv2d_attr *conv = &desc->attr.conv2d;
    const struct cvy_pool_attr *pool = &desc->attr.pool;

    switch (desc->op) {
    case CVY_OP_CONV2D:
    case CVY_OP_CONV2D_BWD_DATA:
    case CVY_OP_CONV2D_BWD_WEIGHTS:
    case CVY_OP_CONV2D_INT8: /* whose attributes begin with the others' */
        cvy_text_printf(key, " k%dx%d s%dx%d d%dx%d p%d,%d,%d,%d g%d%s", conv->kernel[0], conv->kernel[1],
                        conv->stride[0], conv->stride[1], conv->dilation[0], conv->dilation[1], conv->pad[0],
                        conv->pad[1], conv->pad[2], conv->pad[3], conv->groups, cvy_activation_text(conv->activation));
        break;
    case CVY_OP_MAX_POOL:
    case CVY_OP_MAX_POOL_BWD:
        cvy_text_printf(key, " k%dx%d s%dx%d p%d,%d,%d,%d", pool->kernel[0], pool->kernel[1], pool->stride[0],
                        pool->stride[1], pool->pad[0], pool->pad[1], pool->pad[2], pool->pad[3]);
        break;
    case CVY_OP_BATCH_NORM:
    case CVY_OP_BATCH_NORM_BWD:
    case CVY_OP_BATCH_NORM_APPLY:
        cvy_text_puts(key, cvy_activation_text(desc->attr.batch_norm.activation));
        break;
    case CVY_OP_ADD:
        cvy_text_puts(key, desc->attr.add.relu ? " relu" : "");
        break;
    default:
        break;
    }
}

static void add_tensor(const struct cvy_tensor *tensor, bool layout, struct cvy_text *key)
{
    char shape[96];

    if (!cvy_tensor_present(tensor)) {
        cvy_text_puts(key, " -");
        return;
    }
    cvy_text_printf(key, " %s:%s", cvy_shape_text(&tensor->shape, shape), cvy_dtype_name(tensor->dtype));
    if (layout)
        cvy_text_printf(key, ":%s", cvy_layout_name(&tensor->layout));
}

void cvy_autotune_key(const struct cvy_op_desc *desc, int threads, struct cvy_text *key)
{
    cvy_text_puts(key, cvy_ops[desc->op].name);
    add_attributes(desc, key);
    for (int i = 0; i < desc->inputs; i++)
        add_tensor(&desc->in[i], true, key);
    cvy_text_puts(key, " ->");
    for (int i = 0; i < desc->outputs; i++)
        add_tensor(&desc->out[i], false, key);
    cvy_text_printf(key, " %s%s t%d",
                    !desc->inference ? "train"
                    : desc->training ? "fixed"
                                     : "infer",
                    desc->images == CVY_IMAGES_NHWC ? " nhwc" : "", threads);
}

void cvy_autotune_key_for_threads(const char *key, int threads, struct cvy_text *other)
{
    const char *end = strrchr(key, ' ');

    cvy_text_printf(other, "%.*s t%d", end ? (int)(end - key) : (int)strlen(key), key, threads);
}
