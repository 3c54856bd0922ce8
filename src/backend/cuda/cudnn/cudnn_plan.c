/* cuDNN's proposals for a graph, and plans made of them. */
#include <string.h>

#include "backend/cuda/cudnn/cudnn_engine.h"
#include "base/log.h"

enum {
    MAX_COMPILED = 2, /* of a graph: each takes about a second to make */
    MAX_NOTES = 16,
    NOTE_TENSOR_CORE = 1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
    NOTE_DOWN_CONVERT = 1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    NOTE_REDUCED = 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    NOTE_NO_ORDER = 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
    NOTE_WINOGRAD = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD,
    NOTE_WINOGRAD_4 = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
    NOTE_WINOGRAD_6 = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
    NOTE_FFT = 1 << CUDNN_NUMERICAL_NOTE_FFT,
    NOTE_WINOGRAD_13 = 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
};

/* ---- proposals ---- */

/* The notes of a kind as bits. */
static unsigned notes_of(const struct gpu_libraries *libraries, cudnnBackendDescriptor_t engine,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type)
{
    int32_t notes[MAX_NOTES]; /* both kinds are enums of int's size */
    int64_t count = 0;
    unsigned bits = 0;

    if (libraries->cudnn.cudnnBackendGetAttribute(engine, name, type, MAX_NOTES, &count, notes) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int64_t i = 0; i < count && i < MAX_NOTES; i++) {
        if (notes[i] >= 0 && notes[i] < 32)
            bits |= 1U << notes[i];
    }
    return bits;
}

static unsigned unwanted(const struct gpu_conv_problem *problem)
{
    unsigned notes = NOTE_REDUCED | NOTE_FFT | NOTE_WINOGRAD_6 | NOTE_WINOGRAD_13;

    notes |= problem->any_order ? 0 : NOTE_NO_ORDER;
    /* Winograd's algorithm is off by 2^-14 of the largest products: as much as TF32 is, and far more than fp32. */
    if (problem->dtype == CVY_F32)
        notes |= problem->tf32 ? 0 : NOTE_TENSOR_CORE | NOTE_DOWN_CONVERT | NOTE_WINOGRAD | NOTE_WINOGRAD_4;
    return notes;
}

/* In cuDNN 9.14 this engine of gradients of weights is as inexact as Winograd's are, without a note: on an H200 whole
 * numbers came out off by 2^-15. */
enum { INEXACT_WEIGHTS_ENGINE = 17 };

static bool is_inexact(const struct gpu_conv_problem *problem, int64_t engine)
{
    return problem->pass == GPU_CONV_WEIGHTS && problem->dtype == CVY_F32 && !problem->tf32 &&
           engine == INEXACT_WEIGHTS_ENGINE;
}

/* Fills what is known of a configuration; false: it is none of those that may be used. */
static bool examine(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                    struct cudnn_config *config)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    cudnnBackendDescriptor_t engine = NULL;
    unsigned numerical = ~0U, behavior;
    int64_t count = 0;

    if (cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnn->cudnnBackendGetAttribute(config->descriptor, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        1, &count, &engine) == CUDNN_STATUS_SUCCESS &&
        cudnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                        &config->engine) == CUDNN_STATUS_SUCCESS) {
        numerical = notes_of(libraries, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
        behavior = notes_of(libraries, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
        config->tensor_cores = numerical & NOTE_TENSOR_CORE;
        config->compiled = behavior >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1;
    }
    (void)cudnn->cudnnBackendDestroyDescriptor(engine);
    return !(numerical & unwanted(problem)) && !is_inexact(problem, config->engine);
}

/* Asks in one mode; what may be used is added to the list. False, with a sentence, where cuDNN has no answer. */
static bool ask(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, struct cudnn_configs *configs)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    cudnnBackendDescriptor_t heuristics = NULL, found[CUDNN_MAX_CONFIGS];
    int64_t count = 0, made = 0;
    cudnnStatus_t result = cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics);

    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (result == CUDNN_STATUS_SUCCESS)
        result =
            cudnn->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (result == CUDNN_STATUS_SUCCESS && libraries->properties)
        result = cudnn->cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &libraries->properties);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendFinalize(heuristics);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL);
    if (count > CUDNN_MAX_CONFIGS)
        count = CUDNN_MAX_CONFIGS;
    while (result == CUDNN_STATUS_SUCCESS && made < count) {
        result = cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[made]);
        made += result == CUDNN_STATUS_SUCCESS;
    }
    count = 0;
    if (result == CUDNN_STATUS_SUCCESS && made > 0)
        result = cudnn->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &count, found);
    for (int64_t i = 0; i < made; i++) {
        struct cudnn_config config = {.descriptor = found[i], .second = mode == CUDNN_HEUR_MODE_B};
        const bool good = result == CUDNN_STATUS_SUCCESS && i < count && configs->count < CUDNN_MAX_CONFIGS &&
                          examine(libraries, problem, &config) &&
                          (!config.compiled || configs->compiled < MAX_COMPILED);
        if (good) {
            configs->list[configs->count++] = config;
            configs->compiled += config.compiled;
        } else {
            (void)cudnn->cudnnBackendDestroyDescriptor(found[i]);
        }
    }
    if (heuristics)
        (void)cudnn->cudnnBackendDestroyDescriptor(heuristics);
    if (result != CUDNN_STATUS_SUCCESS)
        (void)gpu_cudnn_fail(libraries, result, "cuDNN has nothing for a convolution");
    return result == CUDNN_STATUS_SUCCESS;
}

void cudnn_configs_find(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                        cudnnBackendDescriptor_t graph, bool both, struct cudnn_configs *configs)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};

    configs->count = configs->compiled = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (modes[i] == CUDNN_HEUR_MODE_B && !both)
            continue;
        if (!ask(libraries, problem, graph, modes[i], configs))
            cvy_log(CVY_LOG_DEBUG, "%s", cvy_error());
    }
}

void cudnn_configs_close(const struct gpu_libraries *libraries, struct cudnn_configs *configs)
{
    for (int i = 0; i < configs->count; i++)
        (void)libraries->cudnn.cudnnBackendDestroyDescriptor(configs->list[i].descriptor);
    configs->count = 0;
}

/* ---- plans ---- */

/* An empty plan for this device. */
static cudnnStatus_t begin_plan(const struct gpu_libraries *libraries, struct cudnn_plan *plan)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    const cudnnStatus_t result =
        cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->descriptor);

    if (result != CUDNN_STATUS_SUCCESS)
        return result;
    if (libraries->properties)
        return cudnn->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &libraries->properties);
    return cudnn->cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                           &libraries->cudnn_handle);
}

/* Makes the plan ready; a plan that cannot be is closed. */
static cvy_status end_plan(const struct gpu_libraries *libraries, cudnnStatus_t result, struct cudnn_plan *plan)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    int64_t count = 0, workspace = 0;

    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendFinalize(plan->descriptor);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendGetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &count, &workspace);
    plan->workspace = workspace > 0 ? (size_t)workspace : 0;
    if (result == CUDNN_STATUS_SUCCESS)
        return CVY_OK;
    (void)gpu_cudnn_fail(libraries, result, "cuDNN makes no plan for a convolution");
    cudnn_plan_close(libraries, plan);
    return CVY_UNAVAILABLE;
}

cvy_status cudnn_plan_make(const struct gpu_libraries *libraries, const struct cudnn_config *config,
                           struct cudnn_plan *plan)
{
    cudnnStatus_t result;

    *plan = (struct cudnn_plan){
        .engine = config->engine, .tensor_cores = config->tensor_cores, .compiled = config->compiled};
    result = begin_plan(libraries, plan);
    if (result == CUDNN_STATUS_SUCCESS)
        result = libraries->cudnn.cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config->descriptor);
    return end_plan(libraries, result, plan);
}

void cudnn_plan_close(const struct gpu_libraries *libraries, struct cudnn_plan *plan)
{
    if (plan->descriptor)
        (void)libraries->cudnn.cudnnBackendDestroyDescriptor(plan->descriptor);
    plan->descriptor = NULL;
}

cvy_status cudnn_plan_save(const struct gpu_libraries *libraries, const struct cudnn_plan *plan, char **json)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    int64_t count = 0, written = 0;
    cudnnStatus_t result = cudnn->cudnnBackendGetAttribute(
        plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &count, NULL);

    *json = NULL;
    if (result == CUDNN_STATUS_SUCCESS && count > 0) {
        *json = cvy_calloc((size_t)count + 1, 1);
        if (!*json)
            return cvy_fail_memory((size_t)count + 1, "a cuDNN plan");
        result = cudnn->cudnnBackendGetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                 CUDNN_TYPE_CHAR, count, &written, *json);
    }
    if (result == CUDNN_STATUS_SUCCESS && *json)
        return CVY_OK;
    cvy_free(*json);
    *json = NULL;
    return gpu_cudnn_fail(libraries, result, "a cuDNN plan cannot be saved");
}

cvy_status cudnn_plan_load(const struct gpu_libraries *libraries, const char *json, struct cudnn_plan *plan)
{
    cudnnStatus_t result;

    plan->descriptor = NULL;
    result = begin_plan(libraries, plan);
    if (result == CUDNN_STATUS_SUCCESS)
        result =
            libraries->cudnn.cudnnBackendSetAttribute(plan->descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                      CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    return end_plan(libraries, result, plan);
}
