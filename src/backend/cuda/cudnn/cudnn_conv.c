/* gpu_conv_...: convolutions that run on cuDNN. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "backend/cuda/kernels/kernels.h"

struct gpu_conv {
    struct gpu_conv_problem problem;
    const struct cudnn_tuned *choice; /* the device's */
};

static size_t align_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Room for the bias at the start of the scratch: rounded to 16 bits, or moved to where it is aligned. */
static size_t bias_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    const bool fused = plan->form == CUDNN_FORM_NARROW || plan->form == CUDNN_FORM_WIDE;

    return fused && problem->bias ? align_up((size_t)problem->k * sizeof(float)) : 0;
}

/* Whether cuDNN's graph sums y and its squares. */
static bool makes_sums(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    return plan->form == CUDNN_FORM_SUMS || (plan->form == CUDNN_FORM_PROLOGUE && problem->pass == GPU_CONV_FORWARD);
}

/* Space after it: for two sums of each channel, or for those that gpu_statistics makes on its way. */
static size_t sum_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    int64_t tiles, floats;

    if (makes_sums(problem, plan))
        return 2 * align_up((size_t)problem->k * sizeof(float));
    if (problem->statistics == GPU_STATISTICS_NONE)
        return 0;
    gpu_batch_norm_shape(problem->n * problem->p * problem->q, problem->k, &tiles, &floats);
    return align_up((size_t)floats * sizeof(float));
}

/* Space after that, for the batch norm before the convolution: see struct gpu_norm_scratch. */
static size_t norm_bytes(const struct gpu_conv_problem *problem)
{
    return gpu_norm_scratch(problem, NULL, NULL);
}

size_t cudnn_scratch_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan)
{
    return bias_bytes(problem, plan) + sum_bytes(problem, plan) + norm_bytes(problem) + plan->workspace;
}

/* ---- running ---- */

static bool aligned(const void *memory)
{
    return ((uintptr_t)memory & 15) == 0;
}

/* What cuDNN is called with. */
struct pack {
    int64_t ids[16];
    const void *pointers[16];
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
                             const struct cudnn_plan *plan, const struct gpu_conv_memory *memory, struct pack *pack)
{
    if (plan->form == CUDNN_FORM_NARROW) {
        gpu_cast(device->stream, CVY_F32, problem->dtype, memory->bias, memory->scratch, problem->k);
        pack_add(pack, CUDNN_BIAS, memory->scratch);
        return gpu_queued(device);
    }
    if (aligned(memory->bias)) {
        pack_add(pack, CUDNN_BIAS, memory->bias);
        return CVY_OK;
    }
    pack_add(pack, CUDNN_BIAS, memory->scratch);
    return gpu_copy(device->stream, memory->scratch, memory->bias, (size_t)problem->k * sizeof(float));
}

/* What follows cuDNN's kernels. */
static cvy_status finish(struct gpu_device *device, const struct gpu_conv_problem *problem,
                         const struct cudnn_plan *plan, const struct gpu_conv_memory *memory, float *sums)
{
    const int64_t rows = problem->n * problem->p * problem->q;

    if (plan->form == CUDNN_FORM_SEPARATE)
        gpu_epilogue(device->stream, problem->dtype, memory->y, problem->bias ? memory->bias : NULL,
                     problem->residual ? memory->residual : NULL, problem->activation, rows, problem->k);
    if (memory->sums && makes_sums(problem, plan))
        return gpu_queued(device);
    if (makes_sums(problem, plan))
        gpu_moments(device->stream, sums, sums + align_up((size_t)problem->k * sizeof(float)) / sizeof(float), rows,
                    problem->k, memory->mean, memory->variance);
    else if (problem->statistics != GPU_STATISTICS_NONE)
        gpu_statistics(device->stream, problem->dtype, memory->y, rows, problem->k, memory->mean, memory->variance,
                       sums, device->tickets);
    return gpu_queued(device);
}

/* The batch norm of a data gradient that also sums. */
static void pack_norm(struct pack *pack, const struct gpu_conv_memory *memory, const struct gpu_norm_scratch *scratch)
{
    pack_add(pack, CUDNN_NORM_X, memory->norm_x);
    pack_add(pack, CUDNN_NORM_MEAN, memory->norm_mean);
    pack_add(pack, CUDNN_NORM_RSTD, memory->norm_rstd);
    pack_add(pack, CUDNN_GAMMA, scratch->gamma);
    pack_add(pack, CUDNN_BETA, scratch->beta);
    pack_add(pack, CUDNN_DGAMMA, scratch->dgamma);
    pack_add(pack, CUDNN_DBETA, scratch->dbeta);
    for (int i = 0; i < 3; i++)
        pack_add(pack, CUDNN_SLOPES + i, scratch->slopes[i]);
}

cvy_status cudnn_run(struct gpu_device *device, const struct gpu_conv_problem *problem, const struct cudnn_plan *plan,
                     const struct gpu_conv_memory *memory)
{
    const bool fused = plan->form == CUDNN_FORM_NARROW || plan->form == CUDNN_FORM_WIDE;
    char *sums = (char *)memory->scratch + bias_bytes(problem, plan), *norm = sums + sum_bytes(problem, plan);
    void *workspace = plan->workspace ? norm + norm_bytes(problem) : NULL;
    struct gpu_norm_scratch scratch;
    struct pack pack = {.count = 0};

    (void)gpu_norm_scratch(problem, norm, &scratch);
    if (!aligned(memory->x) || !aligned(memory->w) || !aligned(memory->y) || !aligned(memory->scratch) ||
        !aligned(memory->residual) || !aligned(memory->norm_x))
        return cvy_fail(CVY_FAILED, "a convolution's memory does not begin at a multiple of 16 bytes");
    CVY_TRY(gpu_norm_before(device, problem, memory, &scratch));
    pack_add(&pack, CUDNN_X, scratch.x ? scratch.x : memory->x);
    pack_add(&pack, CUDNN_W, memory->w);
    pack_add(&pack, CUDNN_Y, memory->y);
    if (fused && problem->bias)
        CVY_TRY(place_bias(device, problem, plan, memory, &pack));
    if (fused && problem->residual)
        pack_add(&pack, CUDNN_RESIDUAL, memory->residual);
    if (plan->form == CUDNN_FORM_PROLOGUE) {
        pack_add(&pack, CUDNN_SCALE, scratch.scale);
        pack_add(&pack, CUDNN_SHIFT, scratch.shift);
    }
    if (plan->form == CUDNN_FORM_GRADIENT_SUMS)
        pack_norm(&pack, memory, &scratch);
    if (makes_sums(problem, plan)) {
        pack_add(&pack, CUDNN_SUMS, memory->sums ? (void *)memory->sums : sums);
        pack_add(&pack, CUDNN_SQUARES,
                 memory->squares ? (void *)memory->squares : sums + align_up((size_t)problem->k * sizeof(float)));
    }
    CVY_TRY(execute(device, plan, &pack, workspace));
    CVY_TRY(gpu_norm_after(device, problem, memory, &scratch));
    return finish(device, problem, plan, memory, (float *)(void *)sums);
}

/* ---- the engine's door ---- */

/* The engines that add up what they write add pieces in the order in which blocks finish, and have no note of it: with
 * cuDNN 9.14 on an H200 two runs of each left other sums, whether specialised in it or compiled at run time. */
static cvy_status check_order(const struct gpu_device *device, const struct gpu_conv_problem *p)
{
    if (device->order != GPU_ORDER_FIXED ||
        (p->statistics != GPU_STATISTICS_FUSED && p->gradient_sums != GPU_PART_FUSED))
        return CVY_OK;
    return cvy_fail(CVY_UNAVAILABLE, "cuDNN adds up sums of channels in no fixed order");
}

cvy_status gpu_conv_open(struct gpu_device *device, const struct gpu_conv_problem *problem, struct gpu_conv **conv)
{
    cvy_status status;

    *conv = NULL;
    CVY_TRY(check_order(device, problem));
    *conv = cvy_calloc(1, sizeof **conv);
    if (!*conv)
        return cvy_fail_memory(sizeof **conv, "a convolution");
    (*conv)->problem = *problem;
    /* It matters for f32 only, and in the forward pass only what follows. */
    (*conv)->problem.tf32 = problem->tf32 && problem->dtype == CVY_F32;
    (*conv)->problem.any_order = device->order == GPU_ORDER_ANY;
    if (problem->pass != GPU_CONV_FORWARD)
        (*conv)->problem.bias = false;
    if (problem->pass != GPU_CONV_FORWARD && problem->gradient_sums != GPU_PART_SEPARATE)
        (*conv)->problem.residual = false;
    if (problem->pass != GPU_CONV_FORWARD)
        (*conv)->problem.activation = CVY_ACTIVATION_NONE;
    if (problem->pass != GPU_CONV_FORWARD)
        (*conv)->problem.statistics = GPU_STATISTICS_NONE;
    if (problem->pass == GPU_CONV_DATA)
        (*conv)->problem.prologue = GPU_PART_NONE;
    else
        (*conv)->problem.gradient_sums = GPU_PART_NONE;
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

struct gpu_conv_extra gpu_conv_extra(const struct gpu_conv *conv)
{
    const struct gpu_conv_problem *problem = &conv->problem;
    const int64_t y = problem->n * problem->p * problem->q * problem->k * (int64_t)cvy_dtype_size(problem->dtype);
    struct gpu_conv_extra extra = gpu_norm_extra(problem);

    if (conv->choice->plan.form == CUDNN_FORM_NARROW)
        extra.launches += problem->bias;
    if (conv->choice->plan.form == CUDNN_FORM_SEPARATE) {
        extra.launches++;
        extra.bytes += 2 * y;
    }
    return extra;
}

void gpu_conv_text(const struct gpu_conv *conv, char implementation[48], char reason[160])
{
    static const char *const ways[] = {
        [CUDNN_FORM_ALONE] = "",
        [CUDNN_FORM_NARROW] = ", fused",
        [CUDNN_FORM_WIDE] = ", fused",
        [CUDNN_FORM_SEPARATE] = ", epilogue separate",
        [CUDNN_FORM_SUMS] = ", statistics fused",
        [CUDNN_FORM_PROLOGUE] = ", norm fused",
        [CUDNN_FORM_GRADIENT_SUMS] = ", sums fused",
    };
    const bool norm_separate =
        conv->problem.prologue == GPU_PART_SEPARATE || conv->problem.gradient_sums == GPU_PART_SEPARATE;
    const struct cudnn_tuned *choice = conv->choice;
    const struct cudnn_plan *plan = &choice->plan;
    char chosen[64], text[128];

    snprintf(text, sizeof text, "cudnn engine %lld%s%s%s", (long long)plan->engine, ways[plan->form],
             conv->problem.statistics == GPU_STATISTICS_SEPARATE ? ", statistics separate" : "",
             norm_separate ? ", norm separate" : "");
    snprintf(implementation, 48, "%.47s", text);
    if (choice->seconds > 0)
        snprintf(chosen, sizeof chosen, "fastest of %d%s: %.3f ms", choice->candidates,
                 choice->remembered ? " in an earlier run" : "", 1e3 * choice->seconds);
    else
        snprintf(chosen, sizeof chosen, "first of %d", choice->candidates);
    snprintf(reason, 160, "%s%s%s%s", plan->tensor_cores ? "tensor cores, " : "",
             plan->compiled ? "runtime-compiled, " : "", plan->form == CUDNN_FORM_NARROW ? "bias in 16 bits, " : "",
             chosen);
}

double gpu_conv_seconds(const struct gpu_conv *conv)
{
    return conv->choice->seconds;
}

cvy_status gpu_conv_run(struct gpu_device *device, const struct gpu_conv *conv, const struct gpu_conv_memory *memory)
{
    return cudnn_run(device, &conv->problem, &conv->choice->plan, memory);
}
