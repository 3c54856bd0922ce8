/* Integer inference in plain C: the definition of every byte (graph/int8.h). */
#include "graph/int8.h"

#include <math.h>

#include "backend/ref/ref.h"
#include "base/error.h"
#include "graph/quantizer.h"

/* ---- weights ---- */

static cvy_status quantize_weights(const struct ref_call *call)
{
    const struct cvy_fake_quantize_attr *attr = &call->desc->attr.fake_quantize;
    const int64_t rows = call->desc->in[0].shape.dim[0];
    const int64_t length = cvy_shape_elements(&call->desc->in[0].shape) / (rows ? rows : 1);
    const float *w = call->in[0];
    int8_t *levels = call->out[0];
    float *scales = call->out[1], all = 0;

    for (int64_t k = 0; k < rows; k++) {
        scales[k] = 0;
        for (int64_t i = k * length; i < (k + 1) * length; i++)
            scales[k] = fabsf(w[i]) > scales[k] ? fabsf(w[i]) : scales[k];
        all = scales[k] > all ? scales[k] : all;
    }
    for (int64_t k = 0; k < rows; k++) {
        scales[k] = (attr->channels ? scales[k] : all) / 127;
        for (int64_t i = k * length; i < (k + 1) * length; i++) {
            const float level = scales[k] > 0 ? rintf(w[i] / scales[k]) : 0;
            levels[i] = (int8_t)(level > 127 ? 127 : level > -127 ? level : -127);
        }
    }
    return CVY_OK;
}

/* ---- between floats and bytes ---- */

static cvy_status quantize(const struct ref_call *call)
{
    const struct cvy_int8_levels *y = &call->desc->attr.int8.y;
    const int64_t count = cvy_shape_elements(&call->desc->in[0].shape);
    const float *from = call->in[0], inverse = 1 / y->scale;
    uint8_t *to = call->out[0];

    for (int64_t i = 0; i < count; i++)
        to[i] = cvy_int8_byte(from[i] * inverse, (float)-y->zero, y->zero);
    return CVY_OK;
}

static cvy_status dequantize(const struct ref_call *call)
{
    const struct cvy_int8_levels *x = &call->desc->attr.int8.x;
    const int64_t count = cvy_shape_elements(&call->desc->in[0].shape);
    const uint8_t *from = call->in[0];
    float *to = call->out[0];

    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(from[i] - x->zero) * x->scale;
    return CVY_OK;
}

/* The image is stored N, H, W, C. */
static cvy_status normalize(const struct ref_call *call)
{
    const struct cvy_int8_attr *attr = &call->desc->attr.int8;
    const struct ref_planes planes = ref_planes(&call->desc->in[0].shape);
    const uint8_t *from = call->in[0];
    uint8_t *to = call->out[0];

    for (int64_t i = 0; i < planes.images * planes.channels * planes.plane; i++) {
        const int64_t n = i / (planes.channels * planes.plane), c = i / planes.plane % planes.channels;
        const float value = (float)from[(n * planes.plane + i % planes.plane) * planes.channels + c];

        to[i] = cvy_int8_byte((value - attr->normalize.mean[c]) / attr->normalize.std[c] * (1 / attr->y.scale),
                              (float)-attr->y.zero, attr->y.zero);
    }
    return CVY_OK;
}

/* ---- convolutions and matrix products ---- */

/* Extents, where a matrix (N,C) is images of one pixel. */
static struct ref_window window_of(const struct cvy_op_desc *desc)
{
    struct cvy_shape x = desc->in[0].shape, y = desc->out[0].shape;

    for (int i = 2; i < 4; i++) {
        x.dim[i] = x.rank == 4 ? x.dim[i] : 1;
        y.dim[i] = y.rank == 4 ? y.dim[i] : 1;
    }
    return ref_conv_window(&desc->attr.int8.conv2d, &x, &y);
}

static int32_t sum_of(const struct ref_window *d, const uint8_t *x, const int8_t *w, int32_t zero, int64_t p, int64_t q)
{
    int32_t sum = 0;

    for (int64_t c = 0; c < d->group_receive; c++) {
        for (int64_t r = 0; r < d->r; r++) {
            const int64_t row = p * d->stride[0] - d->pad[0] + r * d->dilation[0];
            for (int64_t s = 0; s < d->s; s++) {
                const int64_t column = q * d->stride[1] - d->pad[1] + s * d->dilation[1];
                if (row >= 0 && row < d->h && column >= 0 && column < d->w)
                    sum += (x[(c * d->h + row) * d->w + column] - zero) * w[(c * d->r + r) * d->s + s];
            }
        }
    }
    return sum;
}

static cvy_status conv2d(const struct ref_call *call)
{
    const struct cvy_int8_attr *attr = &call->desc->attr.int8;
    const struct ref_window d = window_of(call->desc);
    const uint8_t *x = call->in[0], *residual = call->in[4];
    const float *multiplier = call->in[2], *bias = call->in[3];
    const int8_t *w = call->in[1];

#pragma omp parallel for num_threads(call->threads)
    for (int64_t nk = 0; nk < d.n * d.k; nk++) {
        const int64_t n = nk / d.k, k = nk % d.k, group = k / d.group_send;
        const struct cvy_int8_finish finish = cvy_int8_finish_of(attr, multiplier[k], bias ? bias[k] : 0);

        for (int64_t pq = 0; pq < d.p * d.q; pq++) {
            const int32_t sum = sum_of(&d, x + (n * d.c + group * d.group_receive) * d.h * d.w,
                                       w + k * d.group_receive * d.r * d.s, attr->x.zero, pq / d.q, pq % d.q);
            const int64_t at = nk * d.p * d.q + pq;
            const float v = cvy_int8_finished(attr, finish, sum, residual ? residual[at] : 0);

            if (attr->y.scale > 0)
                ((uint8_t *)call->out[0])[at] = cvy_int8_byte(v, (float)-attr->y.zero, attr->y.zero);
            else
                ((float *)call->out[0])[at] = v;
        }
    }
    return CVY_OK;
}

/* ---- everything else ---- */

static cvy_status max_pool(const struct ref_call *call)
{
    const struct ref_window d = window_of(call->desc);
    const uint8_t *x = call->in[0];
    uint8_t *y = call->out[0];

    for (int64_t i = 0; i < d.n * d.k * d.p * d.q; i++) {
        const int64_t nk = i / (d.p * d.q), p = i / d.q % d.p, q = i % d.q;

        y[i] = 0;
        for (int64_t rs = 0; rs < d.r * d.s; rs++) {
            const int64_t row = p * d.stride[0] - d.pad[0] + rs / d.s, column = q * d.stride[1] - d.pad[1] + rs % d.s;
            if (row < 0 || row >= d.h || column < 0 || column >= d.w)
                continue;
            if (x[(nk * d.h + row) * d.w + column] > y[i])
                y[i] = x[(nk * d.h + row) * d.w + column];
        }
    }
    return CVY_OK;
}

static cvy_status global_avg_pool(const struct ref_call *call)
{
    const struct cvy_int8_levels *levels = &call->desc->attr.int8.x;
    const struct ref_planes planes = ref_planes(&call->desc->in[0].shape);
    const uint8_t *x = call->in[0];
    float *y = call->out[0];

    for (int64_t nc = 0; nc < planes.images * planes.channels; nc++) {
        int64_t sum = -levels->zero * planes.plane;

        for (int64_t i = 0; i < planes.plane; i++)
            sum += x[nc * planes.plane + i];
        y[nc] = (float)sum * (levels->scale / (float)planes.plane);
    }
    return CVY_OK;
}

static cvy_status add(const struct ref_call *call)
{
    const struct cvy_int8_attr *attr = &call->desc->attr.int8;
    const int64_t count = cvy_shape_elements(&call->desc->out[0].shape);
    const uint8_t *a = call->in[0], *b = call->in[1];
    const float inverse = 1 / attr->y.scale;
    uint8_t *y = call->out[0];

    for (int64_t i = 0; i < count; i++) {
        const float other = (float)(b[i] - attr->residual.zero) * attr->residual.scale;
        const float sum = fmaf((float)(a[i] - attr->x.zero), attr->x.scale, other) * inverse;

        y[i] = cvy_int8_byte(cvy_int8_activation(attr->conv2d.activation, sum, 6 * inverse), (float)-attr->y.zero,
                             attr->y.zero);
    }
    return CVY_OK;
}

static cvy_status scale_channels(const struct ref_call *call)
{
    const struct cvy_int8_attr *attr = &call->desc->attr.int8;
    const struct ref_planes planes = ref_planes(&call->desc->in[0].shape);
    const uint8_t *x = call->in[0];
    const float *s = call->in[1];
    uint8_t *y = call->out[0];

    for (int64_t i = 0; i < planes.images * planes.channels * planes.plane; i++) {
        const float factor = s[i / planes.plane] * attr->x.scale * (1 / attr->y.scale);

        y[i] = cvy_int8_byte((float)(x[i] - attr->x.zero) * factor, (float)-attr->y.zero, attr->y.zero);
    }
    return CVY_OK;
}

cvy_status ref_int8_prepare_state(struct cvy_op_desc *desc, struct ref_state *state)
{
    static const ref_function functions[CVY_OP_COUNT] = {
        [CVY_OP_QUANTIZE_WEIGHTS] = quantize_weights,
        [CVY_OP_QUANTIZE] = quantize,
        [CVY_OP_DEQUANTIZE] = dequantize,
        [CVY_OP_NORMALIZE_INT8] = normalize,
        [CVY_OP_CONV2D_INT8] = conv2d,
        [CVY_OP_MAX_POOL_INT8] = max_pool,
        [CVY_OP_GLOBAL_AVG_POOL_INT8] = global_avg_pool,
        [CVY_OP_ADD_INT8] = add,
        [CVY_OP_SCALE_CHANNELS_INT8] = scale_channels,
    };

    for (int32_t i = 0; i < desc->inputs; i++)
        desc->in[i].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    for (int32_t i = 0; i < desc->outputs; i++)
        desc->out[i].layout = (struct cvy_layout){.kind = CVY_LAYOUT_PLAIN};
    if (desc->op == CVY_OP_NORMALIZE_INT8)
        desc->in[0].layout.kind = CVY_LAYOUT_NHWC;
    state->desc = *desc;
    state->function = functions[desc->op];
    return state->function ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "the reference has no kernel for these integers");
}
