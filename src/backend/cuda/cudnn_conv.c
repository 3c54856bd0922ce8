/* gpu_conv_...: convolutions that run on cuDNN. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn_engine.h"
#include "backend/cuda/kernels/kernels.h"

struct gpu_conv {
    struct gpu_conv_problem problem;
    const struct cudnn_choice *choice; /* the device's */
};

/* Room for the bias in front of cuDNN's workspace: rounded to 16 bits, or moved to where it is aligned. */
static size_t bias_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    const bool fused = plan->form == CUDNN_FORM_NARROW || plan->form == CUDNN_FORM_WIDE;

    return fused && problem->bias ? ((size_t)problem->k * sizeof(float) + 255) / 256 * 256 : 0;
}

size_t cudnn_scratch_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    return bias_bytes(problem, plan) + plan->workspace;
}

/* ---- running ---- */

static bool aligned(const void *memory)
{
    return ((uintptr_t)memory & 15) == 0;
}

/* What cuDNN is called with. */
struct pack {
    int64_t ids[5];
    const void *pointers[5];
    int count;
};

static void pack_add(struct pack *pack, enum cudnn_tensor id, const void *memory)
{
    pack->ids[pack->count] = id;
    pack->pointers[pack->count++] = memory;
}

static cvy_status execute(struct gpu_device *device, const struct cudnn_plan *plan, const struct pack *pack,
                          void *workspace)
{
    const struct gpu_libraries *libraries = device->libraries;
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    cudnnBackendDescriptor_t variant = NULL;
    cudnnStatus_t result = cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &variant);

    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendSetAttribute(variant, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                                 pack->count, pack->ids);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendSetAttribute(variant, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                                 pack->count, pack->pointers);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendSetAttribute(variant, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                                 &workspace);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendFinalize(variant);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendExecute(libraries->cudnn_handle, plan->descriptor, variant);
    if (variant)
        (void)cudnn->cudnnBackendDestroyDescriptor(variant);
    if (result == CUDNN_STATUS_SUCCESS)
        return CVY_OK;
    (void)gpu_cudnn_fail(libraries, result, "a convolution failed");
    return CVY_FAILED;
}

/* The bias as the graph wants it. */
static cvy_status place_bias(struct gpu_device *device, const struct gpu_conv_problem *problem,
                             const struct cudnn_plan *plan, const struct cudnn_buffers *buffers, struct pack *pack)
{
    if (plan->form == CUDNN_FORM_NARROW) {
        gpu_cast(device->stream, CVY_F32, problem->dtype, buffers->bias, buffers->scratch, problem->k);
        pack_add(pack, CUDNN_BIAS, buffers->scratch);
        return gpu_queued(device);
    }
    if (aligned(buffers->bias)) {
        pack_add(pack, CUDNN_BIAS, buffers->bias);
        return CVY_OK;
    }
    pack_add(pack, CUDNN_BIAS, buffers->scratch);
    return gpu_copy(device->stream, buffers->scratch, buffers->bias, (size_t)problem->k * sizeof(float));
}

cvy_status cudnn_run(struct gpu_device *device, const struct gpu_conv_problem *problem, const struct cudnn_plan *plan,
                     const struct cudnn_buffers *buffers)
{
    const bool fused = plan->form == CUDNN_FORM_NARROW || plan->form == CUDNN_FORM_WIDE;
    void *workspace = plan->workspace ? (char *)buffers->scratch + bias_bytes(problem, plan) : NULL;
    struct pack pack = {.count = 0};

    if (!aligned(buffers->x) || !aligned(buffers->w) || !aligned(buffers->y) || !aligned(buffers->scratch) ||
        !aligned(buffers->residual))
        return cvy_fail(CVY_FAILED, "a convolution's memory does not begin at a multiple of 16 bytes");
    pack_add(&pack, CUDNN_X, buffers->x);
    pack_add(&pack, CUDNN_W, buffers->w);
    pack_add(&pack, CUDNN_Y, buffers->y);
    if (fused && problem->bias)
        CVY_TRY(place_bias(device, problem, plan, buffers, &pack));
    if (fused && problem->residual)
        pack_add(&pack, CUDNN_RESIDUAL, buffers->residual);
    CVY_TRY(execute(device, plan, &pack, workspace));
    if (plan->form != CUDNN_FORM_APART)
        return CVY_OK;
    gpu_epilogue(device->stream, problem->dtype, buffers->y, problem->bias ? buffers->bias : NULL,
                 problem->residual ? buffers->residual : NULL, problem->relu, problem->n * problem->p * problem->q,
                 problem->k);
    return gpu_queued(device);
}

/* ---- the engine's door ---- */

cvy_status gpu_conv_open(struct gpu_device *device, const struct gpu_conv_problem *problem, struct gpu_conv **conv)
{
    cvy_status status;

    *conv = cvy_calloc(1, sizeof **conv);
    if (!*conv)
        return cvy_fail_memory(sizeof **conv, "a convolution");
    (*conv)->problem = *problem;
    /* Of f32 only it matters, and of the forward pass only what follows. */
    (*conv)->problem.tf32 = problem->tf32 && problem->dtype == CVY_F32;
    if (problem->pass != GPU_CONV_FORWARD)
        (*conv)->problem.bias = (*conv)->problem.residual = (*conv)->problem.relu = false;
    status = cudnn_choose(device, &(*conv)->problem, &(*conv)->choice);
    if (status != CVY_OK) {
        cvy_free(*conv);
        *conv = NULL;
    }
    return status;
}

void gpu_conv_close(struct gpu_conv *conv)
{
    cvy_free(conv);
}

size_t gpu_conv_scratch(const struct gpu_conv *conv)
{
    return cudnn_scratch_bytes(&conv->problem, &conv->choice->plan);
}

void gpu_conv_text(const struct gpu_conv *conv, char implementation[48], char reason[160])
{
    static const char *const ways[] = {
        [CUDNN_FORM_ALONE] = "",
        [CUDNN_FORM_NARROW] = ", fused",
        [CUDNN_FORM_WIDE] = ", fused",
        [CUDNN_FORM_APART] = ", epilogue apart",
    };
    const struct cudnn_choice *choice = conv->choice;
    const struct cudnn_plan *plan = &choice->plan;
    char chosen[64];

    snprintf(implementation, 48, "cudnn engine %lld%s", (long long)plan->engine, ways[plan->form]);
    if (choice->seconds > 0)
        snprintf(chosen, sizeof chosen, "fastest of %d%s: %.3f ms", choice->candidates,
                 choice->remembered ? " in an earlier run" : "", 1e3 * choice->seconds);
    else
        snprintf(chosen, sizeof chosen, "first of %d", choice->candidates);
    snprintf(reason, 160, "%s%s%s%s", plan->tensor_cores ? "tensor cores, " : "",
             plan->compiled ? "runtime-compiled, " : "", plan->form == CUDNN_FORM_NARROW ? "bias in 16 bits, " : "",
             chosen);
}

cvy_status gpu_conv_run(struct gpu_device *device, const struct gpu_conv *conv, void *x, void *w, void *y,
                        const float *bias, const void *residual, void *scratch)
{
    const struct cudnn_buffers buffers = {x, w, y, scratch, bias, residual};

    return cudnn_run(device, &conv->problem, &conv->choice->plan, &buffers);
}
