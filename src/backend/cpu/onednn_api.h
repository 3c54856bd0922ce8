/* The parts of oneDNN's C API that differ between 2.x and 3.x, under one set of names. In 2.x a memory description is a
 * struct and a convolution is described in two steps; in 3.x the description is an object with an owner and the
 * convolution is described in one call. Included by onednn.h alone. */
#ifndef CVY_BACKEND_CPU_ONEDNN_API_H
#define CVY_BACKEND_CPU_ONEDNN_API_H

#include <dnnl.h>
#include <stdbool.h>
#include <string.h>

#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t onednn_md;             /* a description that somebody owns */
typedef const dnnl_memory_desc_t *onednn_md_view; /* one to look at */
#elif DNNL_VERSION_MAJOR == 3
typedef dnnl_memory_desc_t onednn_md;
typedef const_dnnl_memory_desc_t onednn_md_view;
#else
#error "this build needs oneDNN 2.x or 3.x"
#endif

/* ---- memory descriptions; zero-initialised ones may be released ---- */

static inline onednn_md_view onednn_md_of(const onednn_md *md)
{
#if DNNL_VERSION_MAJOR == 2
    return md;
#else
    return *md;
#endif
}

static inline dnnl_status_t onednn_md_by_tag(onednn_md *md, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                                             dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_memory_desc_init_by_tag(md, rank, dims, type, tag);
#else
    return dnnl_memory_desc_create_with_tag(md, rank, dims, type, tag);
#endif
}

static inline dnnl_status_t onednn_md_copy(onednn_md *md, onednn_md_view from)
{
#if DNNL_VERSION_MAJOR == 2
    *md = *from;
    return dnnl_success;
#else
    return dnnl_memory_desc_clone(md, from);
#endif
}

/* The row-major description with the same dimensions and type; rank 4 or 5. */
static inline dnnl_status_t onednn_md_plain_like(onednn_md *md, onednn_md_view like)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_memory_desc_init_by_tag(md, like->ndims, like->dims, like->data_type,
                                        like->ndims == 5 ? dnnl_abcde : dnnl_abcd);
#else
    int rank = 0;
    const dnnl_dims_t *dims = NULL;
    dnnl_data_type_t type = dnnl_data_type_undef;
    dnnl_status_t status = dnnl_memory_desc_query(like, dnnl_query_ndims_s32, &rank);

    if (status == dnnl_success)
        status = dnnl_memory_desc_query(like, dnnl_query_dims, (void *)&dims);
    if (status == dnnl_success)
        status = dnnl_memory_desc_query(like, dnnl_query_data_type, &type);
    if (status != dnnl_success)
        return status;
    return dnnl_memory_desc_create_with_tag(md, rank, *dims, type, rank == 5 ? dnnl_abcde : dnnl_abcd);
#endif
}

static inline void onednn_md_release(onednn_md *md)
{
#if DNNL_VERSION_MAJOR == 3
    if (*md)
        (void)dnnl_memory_desc_destroy(*md);
#endif
    memset(md, 0, sizeof *md);
}

/* ---- what takes other arguments ---- */

static inline dnnl_status_t onednn_bind(dnnl_memory_t memory, void *data, dnnl_stream_t stream)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_memory_set_data_handle_v2(memory, data, stream);
#else
    (void)stream;
    return dnnl_memory_set_data_handle(memory, data);
#endif
}

static inline dnnl_status_t onednn_append_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_post_ops_append_sum(ops, 1);
#else
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#endif
}

static inline dnnl_status_t onednn_append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t what, float a, float b)
{
#if DNNL_VERSION_MAJOR == 2
    return dnnl_post_ops_append_eltwise(ops, 1, what, a, b);
#else
    return dnnl_post_ops_append_eltwise(ops, what, a, b);
#endif
}

/* One pass of a convolution. x, w, y: the tensors or, in the backward passes, their gradients; bias NULL: none. */
enum onednn_pass { ONEDNN_FORWARD, ONEDNN_BACKWARD_DATA, ONEDNN_BACKWARD_WEIGHTS };
struct onednn_conv {
    dnnl_prop_kind_t kind; /* of the forward pass: training or inference */
    dnnl_alg_kind_t algorithm;
    const onednn_md *x, *w, *y, *bias;
    const dnnl_dim_t *strides, *dilates, *pad_front, *pad_back;
};
/* `hint` is the forward primitive's description, for the backward passes. *result NULL unless dnnl_success. */
static inline dnnl_status_t onednn_conv_create(dnnl_primitive_desc_t *result, dnnl_engine_t engine,
                                               enum onednn_pass pass, const struct onednn_conv *c,
                                               const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint)
{
    dnnl_status_t status;
#if DNNL_VERSION_MAJOR == 2
    dnnl_convolution_desc_t desc;

    if (pass == ONEDNN_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(&desc, c->kind, c->algorithm, c->x, c->w, c->bias, c->y,
                                                            c->strides, c->dilates, c->pad_front, c->pad_back);
    else if (pass == ONEDNN_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(&desc, c->algorithm, c->x, c->w, c->y, c->strides,
                                                                  c->dilates, c->pad_front, c->pad_back);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, c->algorithm, c->x, c->w, c->bias, c->y,
                                                                     c->strides, c->dilates, c->pad_front, c->pad_back);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(result, &desc, attr, engine, hint);
#else
    const onednn_md_view bias = c->bias ? *c->bias : NULL;

    if (pass == ONEDNN_FORWARD)
        status = dnnl_convolution_forward_primitive_desc_create(result, engine, c->kind, c->algorithm, *c->x, *c->w,
                                                                bias, *c->y, c->strides, c->dilates, c->pad_front,
                                                                c->pad_back, attr);
    else if (pass == ONEDNN_BACKWARD_DATA)
        status = dnnl_convolution_backward_data_primitive_desc_create(result, engine, c->algorithm, *c->x, *c->w, *c->y,
                                                                      c->strides, c->dilates, c->pad_front, c->pad_back,
                                                                      hint, attr);
    else
        status = dnnl_convolution_backward_weights_primitive_desc_create(result, engine, c->algorithm, *c->x, *c->w,
                                                                         bias, *c->y, c->strides, c->dilates,
                                                                         c->pad_front, c->pad_back, hint, attr);
#endif
    if (status != dnnl_success)
        *result = NULL;
    return status;
}

#endif
