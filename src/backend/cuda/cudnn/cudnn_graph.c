/* Convolutions as cuDNN's operation graphs. */
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"

/* Descriptors of one graph while it is described: parents copy what they are made of, so all of them go at the end. The
 * first failure sticks. */
struct builder {
    const struct gpu_libraries *libraries;
    cudnnBackendDescriptor_t made[48];
    int count;
    cvy_status status;
};

static void check(struct builder *b, cudnnStatus_t result, const char *what)
{
    if (b->status == CVY_OK && result != CUDNN_STATUS_SUCCESS)
        b->status = gpu_cudnn_fail(b->libraries, result, what);
}

static cudnnBackendDescriptor_t make(struct builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;

    if (b->status != CVY_OK)
        return NULL;
    if (b->count == (int)(sizeof b->made / sizeof *b->made)) {
        b->status = cvy_fail(CVY_FAILED, "a cuDNN graph of more than %d parts", b->count);
        return NULL;
    }
    check(b, b->libraries->cudnn.cudnnBackendCreateDescriptor(type, &made), "cuDNN makes no descriptor");
    if (made)
        b->made[b->count++] = made;
    return made;
}

static void set(struct builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (b->status == CVY_OK)
        check(b, b->libraries->cudnn.cudnnBackendSetAttribute(to, name, type, count, values),
              "cuDNN does not take an attribute of a convolution");
}

static void set_child(struct builder *b, cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                      cudnnBackendDescriptor_t child)
{
    set(b, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

static void finish(struct builder *b, cudnnBackendDescriptor_t made, const char *what)
{
    if (b->status == CVY_OK)
        check(b, b->libraries->cudnn.cudnnBackendFinalize(made), what);
}

/* ---- tensors ---- */

static cudnnDataType_t type_of(enum cvy_dtype dtype)
{
    return dtype == CVY_F16 ? CUDNN_DATA_HALF : dtype == CVY_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* Dimensions are given in the order N, C, H, W; that the channels lie last is in the strides alone. */
static cudnnBackendDescriptor_t tensor(struct builder *b, int64_t id, cudnnDataType_t type, const int64_t dims[4])
{
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    const int64_t alignment = 16; /* with less there are no engines that use tensor cores */
    const bool is_virtual = id >= CUDNN_VIRTUAL && id < CUDNN_DGAMMA;
    cudnnBackendDescriptor_t made = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    set(b, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(b, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(b, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(b, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(b, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finish(b, made, "cuDNN does not take a tensor");
    return made;
}

/* ---- the convolution ---- */

static cudnnBackendDescriptor_t geometry(struct builder *b, const struct gpu_conv_problem *p)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = 2, before[2] = {p->pad[0], p->pad[2]}, after[2] = {p->pad[1], p->pad[3]};
    const int64_t stride[2] = {p->stride[0], p->stride[1]}, dilation[2] = {p->dilation[0], p->dilation[1]};
    cudnnBackendDescriptor_t made = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);

    set(b, made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(b, made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(b, made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(b, made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    set(b, made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(b, made, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    finish(b, made, "cuDNN does not take the geometry of a convolution");
    return made;
}

static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
} passes[] = {
    [GPU_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [GPU_CONV_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [GPU_CONV_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t input(struct builder *b, const struct gpu_conv_problem *p)
{
    return tensor(b, CUDNN_X, type_of(p->dtype), (const int64_t[4]){p->n, p->c, p->h, p->w});
}

/* cuDNN has no number of groups: it divides the channels of x by those of the filter. */
static cudnnBackendDescriptor_t convolution(struct builder *b, const struct gpu_conv_problem *p,
                                            cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
    const cudnnDataType_t type = type_of(p->dtype);
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t w = tensor(b, CUDNN_W, type, (const int64_t[4]){p->k, p->c / p->groups, p->r, p->s});
    cudnnBackendDescriptor_t shape = geometry(b, p), made = make(b, passes[p->pass].type);

    set_child(b, made, passes[p->pass].geometry, shape);
    set_child(b, made, passes[p->pass].x, x);
    set_child(b, made, passes[p->pass].w, w);
    set_child(b, made, passes[p->pass].y, y);
    set(b, made, passes[p->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, made, passes[p->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finish(b, made, "cuDNN does not take a convolution");
    return made;
}

/* ---- what stands around it ---- */

static cudnnBackendDescriptor_t pointwise_function(struct builder *b, cudnnPointwiseMode_t mode)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t function = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);

    set(b, function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(b, function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finish(b, function, "cuDNN does not take an elementwise function");
    return function;
}

/* `other` is NULL for functions of one number. */
static cudnnBackendDescriptor_t pointwise(struct builder *b, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t from,
                                          cudnnBackendDescriptor_t other, cudnnBackendDescriptor_t to)
{
    cudnnBackendDescriptor_t function = pointwise_function(b, mode), made;

    made = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
    if (other)
        set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    finish(b, made, "cuDNN does not take an elementwise operation");
    return made;
}

/* Sums of y and of its squares, f32. */
static cudnnBackendDescriptor_t sums(struct builder *b, cudnnBackendDescriptor_t y, int64_t channels)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const int64_t dims[4] = {1, channels, 1, 1};
    cudnnBackendDescriptor_t first = tensor(b, CUDNN_SUMS, CUDNN_DATA_FLOAT, dims);
    cudnnBackendDescriptor_t second = tensor(b, CUDNN_SQUARES, CUDNN_DATA_FLOAT, dims);
    cudnnBackendDescriptor_t made = make(b, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);

    set(b, made, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(b, made, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set_child(b, made, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    set_child(b, made, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, first);
    set_child(b, made, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, second);
    finish(b, made, "cuDNN does not take sums of a convolution");
    return made;
}

/* What an operation writes: y if it is the last one, else something between them, which is f32 and takes no memory. */
static cudnnBackendDescriptor_t next_result(struct builder *b, cudnnDataType_t type, const int64_t dims[4], int *left)
{
    const int after = (*left)--;

    return after > 0 ? tensor(b, CUDNN_VIRTUAL + after, CUDNN_DATA_FLOAT, dims) : tensor(b, CUDNN_Y, type, dims);
}

/* Between operations: the n-th of those around a convolution. */
static cudnnBackendDescriptor_t between(struct builder *b, const struct gpu_conv_problem *p, int n)
{
    return tensor(b, CUDNN_VIRTUAL + 8 + n, CUDNN_DATA_FLOAT, (const int64_t[4]){p->n, p->c, p->h, p->w});
}

/* relu(x * scale + shift), of which the specialised engines want scale and shift in the type of x; returns it. */
static cudnnBackendDescriptor_t prologue(struct builder *b, const struct gpu_conv_problem *p,
                                         cudnnBackendDescriptor_t *operations, int *count)
{
    const int64_t vector[4] = {1, p->c, 1, 1};
    cudnnBackendDescriptor_t x = input(b, p), scale = tensor(b, CUDNN_SCALE, type_of(p->dtype), vector);
    cudnnBackendDescriptor_t shift = tensor(b, CUDNN_SHIFT, type_of(p->dtype), vector);
    cudnnBackendDescriptor_t product = between(b, p, 0), sum = between(b, p, 1), rectified = between(b, p, 2);

    operations[(*count)++] = pointwise(b, CUDNN_POINTWISE_MUL, x, scale, product);
    operations[(*count)++] = pointwise(b, CUDNN_POINTWISE_ADD, product, shift, sum);
    operations[(*count)++] = pointwise(b, CUDNN_POINTWISE_RELU_FWD, sum, NULL, rectified);
    return rectified;
}

/* The gradient of max(x, 0), given that of it. */
static cudnnBackendDescriptor_t masked(struct builder *b, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t dy,
                                       cudnnBackendDescriptor_t dx)
{
    cudnnBackendDescriptor_t function = pointwise_function(b, CUDNN_POINTWISE_RELU_BWD);
    cudnnBackendDescriptor_t made = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    set_child(b, made, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    finish(b, made, "cuDNN does not take the gradient of ReLU");
    return made;
}

/* The vectors of a batch norm's gradient, f32: of those of x it reads four and writes five. */
static cudnnBackendDescriptor_t norm_gradient(struct builder *b, const struct gpu_conv_problem *p,
                                              cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t dy,
                                              cudnnBackendDescriptor_t numbers[3])
{
    static const cudnnBackendAttributeName_t read[] = {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
                                                       CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
                                                       CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC};
    static const cudnnBackendAttributeName_t written[] = {
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const int64_t vector[4] = {1, p->c, 1, 1};
    cudnnBackendDescriptor_t results[5], made;

    for (int i = 0; i < 5; i++)
        results[i] = tensor(b, CUDNN_DGAMMA + i, CUDNN_DATA_FLOAT, vector);
    made = make(b, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    set(b, made, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set_child(b, made, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, x);
    set_child(b, made, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy);
    for (int i = 0; i < 3; i++)
        set_child(b, made, read[i], numbers[i]);
    for (int i = 0; i < 5; i++)
        set_child(b, made, written[i], results[i]);
    finish(b, made, "cuDNN does not take the gradient of a batch norm's parameters");
    return made;
}

/* The exact list of operations that the specialised engines know: the batch norm's output is made again for the mask.
 * Returns how many there are. */
static int describe_gradient_sums(struct builder *b, const struct gpu_conv_problem *p,
                                  cudnnBackendDescriptor_t operations[7])
{
    static const cudnnPointwiseMode_t modes[] = {CUDNN_POINTWISE_SUB, CUDNN_POINTWISE_MUL, CUDNN_POINTWISE_MUL,
                                                 CUDNN_POINTWISE_ADD};
    static const enum cudnn_tensor ids[] = {CUDNN_NORM_MEAN, CUDNN_NORM_RSTD, CUDNN_GAMMA, CUDNN_BETA};
    const int64_t image[4] = {p->n, p->c, p->h, p->w}, vector[4] = {1, p->c, 1, 1};
    const cudnnDataType_t type = type_of(p->dtype);
    cudnnBackendDescriptor_t dy = tensor(b, CUDNN_Y, type, (const int64_t[4]){p->n, p->k, p->p, p->q});
    cudnnBackendDescriptor_t gradient = between(b, p, 0), x = tensor(b, CUDNN_NORM_X, type, image), at = x;
    cudnnBackendDescriptor_t numbers[4], dx = tensor(b, CUDNN_X, type, image);
    int count = 0;

    operations[count++] = convolution(b, p, gradient, dy);
    for (int i = 0; i < 4; i++) {
        cudnnBackendDescriptor_t to = between(b, p, 1 + i);
        numbers[i] = tensor(b, ids[i], CUDNN_DATA_FLOAT, vector);
        operations[count++] = pointwise(b, modes[i], at, numbers[i], to);
        at = to;
    }
    operations[count++] = masked(b, at, gradient, dx);
    operations[count++] = norm_gradient(b, p, x, dx, numbers);
    return count;
}

/* The operations in the order that the compiled engines know: prologue, convolution, residual, bias, ReLU. Returns how
 * many there are. */
static int describe(struct builder *b, const struct gpu_conv_problem *p, enum cudnn_form form,
                    cudnnBackendDescriptor_t operations[7])
{
    const bool fused = form == CUDNN_FORM_NARROW || form == CUDNN_FORM_WIDE;
    const bool relu = p->activation == CVY_ACTIVATION_RELU;
    const int64_t y_dims[4] = {p->n, p->k, p->p, p->q}, bias_dims[4] = {1, p->k, 1, 1};
    const cudnnDataType_t type = type_of(p->dtype), bias_type = form == CUDNN_FORM_WIDE ? CUDNN_DATA_FLOAT : type;
    int left = fused ? p->residual + p->bias + relu : 0, count = 0;
    cudnnBackendDescriptor_t at, to, other;

    at = next_result(b, type, y_dims, &left);
    to = form == CUDNN_FORM_PROLOGUE ? prologue(b, p, operations, &count) : input(b, p);
    operations[count++] = convolution(b, p, to, at);
    if (fused && p->residual) {
        other = tensor(b, CUDNN_RESIDUAL, type, y_dims);
        to = next_result(b, type, y_dims, &left);
        operations[count++] = pointwise(b, CUDNN_POINTWISE_ADD, at, other, to);
        at = to;
    }
    if (fused && p->bias) {
        other = tensor(b, CUDNN_BIAS, bias_type, bias_dims);
        to = next_result(b, type, y_dims, &left);
        operations[count++] = pointwise(b, CUDNN_POINTWISE_ADD, at, other, to);
        at = to;
    }
    if (fused && relu) {
        to = next_result(b, type, y_dims, &left);
        operations[count++] = pointwise(b, CUDNN_POINTWISE_RELU_FWD, at, NULL, to);
    }
    if (form == CUDNN_FORM_SUMS || (form == CUDNN_FORM_PROLOGUE && p->pass == GPU_CONV_FORWARD))
        operations[count++] = sums(b, at, p->k);
    return count;
}

cvy_status cudnn_graph_make(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                            enum cudnn_form form, cudnnBackendDescriptor_t *graph)
{
    struct builder b = {.libraries = libraries, .status = CVY_OK};
    cudnnBackendDescriptor_t operations[7], made;
    int count;

    *graph = NULL;
    if (problem->groups < 1 || problem->c % problem->groups || problem->k % problem->groups)
        return cvy_fail(CVY_FAILED, "a convolution of %lld channels into %lld has no %d groups", (long long)problem->c,
                        (long long)problem->k, (int)problem->groups);
    count = form == CUDNN_FORM_GRADIENT_SUMS ? describe_gradient_sums(&b, problem, operations)
                                             : describe(&b, problem, form, operations);
    made = make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, made, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, operations);
    if (libraries->cudnn_handle)
        set(&b, made, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &libraries->cudnn_handle);
    finish(&b, made, "cuDNN does not take a convolution with what follows it");
    for (int i = 0; i < b.count; i++) {
        if (b.made[i] != made || b.status != CVY_OK)
            (void)libraries->cudnn.cudnnBackendDestroyDescriptor(b.made[i]);
    }
    *graph = b.status == CVY_OK ? made : NULL;
    return b.status;
}
