/* The CUDA device: opening, memory, the kernel table's backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/gpu.h"
#include "base/file.h"

enum { MAX_DESCRIPTION = 1 << 16 };

static void device_close(cvy_device *device)
{
    struct gpu_device *gpu = gpu_of(device);

    if (!gpu)
        return;
    if (gpu->stream && gpu_enter(gpu->index) != CVY_OK) {
        /* Then nothing below can be given back, and says so. */
    }
    gpu_group_close(gpu);
    if (gpu->stream && gpu_stream_wait(gpu->stream) != CVY_OK) {
        /* What failed has been told where it was waited for. */
    }
    gpu_uploads_close(&gpu->uploads);
    gpu_downloads_close(&gpu->downloads);
    gpu_libraries_close(gpu);
    gpu_release(gpu->tickets);
    gpu_stream_close(gpu->stream);
    cvy_free(gpu->description_json);
    cvy_free(gpu);
}

/* "0" or "" -> 0; "1" -> 1. */
static cvy_status parse_index(const char *spec, int *index)
{
    char *end = NULL;
    long value;

    *index = 0;
    if (!spec || !spec[0])
        return CVY_OK;
    value = strtol(spec, &end, 10);
    if (*end || spec[0] < '0' || spec[0] > '9' || value > 4095)
        return cvy_fail(CVY_USAGE, "a CUDA device has a number, as in cuda:0, not %s", cvy_quote(spec));
    *index = (int)value;
    return CVY_OK;
}

/* Ten times the least compute capability that this build has kernels for (cmake/cuda.cmake). */
#ifndef GPU_MIN_CAPABILITY
#define GPU_MIN_CAPABILITY 80
#endif

static cvy_status check_capability(const struct gpu_device *gpu)
{
    const struct gpu_info *info = &gpu->info;
    const int capability = 10 * info->major + info->minor;
    const char *remedy = "";

    if (capability >= GPU_MIN_CAPABILITY)
        return CVY_OK;
    if (capability >= 75)
        remedy = ": -DCONVOY_CUDA_OLDER=ON compiles kernels for 7.5";
    else if (capability >= 70)
        remedy = ": -DCONVOY_CUDA_OLDER=ON with CUDA 12 compiles kernels for 7.0";
    return cvy_fail(
        CVY_UNAVAILABLE, "GPU %d (%s) has compute capability %d.%d, and %d.%d is the least that this build supports%s",
        gpu->index, info->name, info->major, info->minor, GPU_MIN_CAPABILITY / 10, GPU_MIN_CAPABILITY % 10, remedy);
}

static cvy_status open_gpu(struct gpu_device *gpu, const char *spec)
{
    int index;
    void *tickets;

    CVY_TRY(parse_index(spec, &index));
    gpu->index = index;
    CVY_TRY(gpu_find(index, NULL));
    CVY_TRY(gpu_select(index, &gpu->info));
    CVY_TRY(check_capability(gpu));
    gpu->base.older = gpu->info.major < 8;
    CVY_TRY(gpu_stream_open(&gpu->stream));
    CVY_TRY(gpu_allocate(gpu->stream, GPU_TICKETS * sizeof *gpu->tickets, &tickets));
    gpu->tickets = tickets;
    return CVY_OK;
}

/* cuda:describe=FILE: properties of a GPU that is not here, as gpu_describe writes them. */
static cvy_status open_description(struct gpu_device *gpu, const char *path)
{
    size_t size;
    void *text;
    char *terminated;

    CVY_TRY(cvy_file_read(path, MAX_DESCRIPTION, &text, &size));
    terminated = cvy_realloc(text, size + 1, 1);
    if (!terminated) {
        cvy_free(text);
        return cvy_fail_memory(size, "a description of a GPU");
    }
    terminated[size] = '\0';
    gpu->description_json = terminated;
    gpu->described = true;
    snprintf(gpu->info.name, sizeof gpu->info.name, "a GPU described by a file");
    return CVY_OK;
}

/* Selects one of the ways that change how sums round, so that a resumed run keeps it: noted in the device's settings.
 * *choice becomes the index of the variable's word, 0 without it. */
static cvy_status choose(struct gpu_device *gpu, const char *variable, const char *const words[3], int *choice)
{
    const int count = words[2] ? 3 : 2;
    const size_t used = strlen(gpu->base.settings);
    const char *value = getenv(variable);
    int found = 0;

    if (value && strcmp(value, "apart") == 0) /* the word for "separate" until 2026-11 */
        value = "separate";
    while (value && value[0] && found < count && strcmp(value, words[found]) != 0)
        found++;
    if (found == count)
        return cvy_fail(CVY_USAGE, "the environment variable %s is \"%s\"%s%s%s or \"%s\", not %s", variable, words[0],
                        count == 3 ? ", \"" : "", count == 3 ? words[1] : "", count == 3 ? "\"" : "", words[count - 1],
                        cvy_quote(value));
    *choice = found;
    snprintf(gpu->base.settings + used, sizeof gpu->base.settings - used, "%s%s=%s", used ? " " : "", variable,
             words[found]);
    return CVY_OK;
}

/* In the order of enum gpu_order. */
static const char *const orders[] = {"yes", "no", "sums"};
#define ORDER_VARIABLE "CONVOY_CUDA_DETERMINISTIC"

static cvy_status set_deterministic(cvy_device *device, const char *word)
{
    char *setting = strstr(device->settings, ORDER_VARIABLE); /* the last one */
    int order = 0;

    while (strcmp(word, orders[order]) != 0)
        order++;
    gpu_of(device)->order = (enum gpu_order)order;
    if (setting)
        snprintf(setting, sizeof device->settings - (size_t)(setting - device->settings), "%s=%s", ORDER_VARIABLE,
                 word);
    return CVY_OK;
}

static cvy_status choose_kernels(struct gpu_device *gpu)
{
    /* In the order of enum gpu_statistics_selection and enum gpu_own_selection. */
    static const char *const parts[] = {"timed", "fused", "separate"}, *const own[] = {"timed", "own", "cudnn"};
    int statistics, patterns, grouped, first, pointwise, order;

    CVY_TRY(choose(gpu, "CONVOY_CUDA_STATISTICS", parts, &statistics));
    CVY_TRY(choose(gpu, "CONVOY_CUDA_PATTERNS", parts, &patterns));
    CVY_TRY(choose(gpu, "CONVOY_CUDA_GROUPED", own, &grouped));
    CVY_TRY(choose(gpu, "CONVOY_CUDA_FIRST", own, &first));
    CVY_TRY(choose(gpu, "CONVOY_CUDA_POINTWISE", own, &pointwise));
    CVY_TRY(choose(gpu, ORDER_VARIABLE, orders, &order));
    gpu->order = (enum gpu_order)order;
    gpu->statistics = (enum gpu_statistics_selection)statistics;
    gpu->patterns = (enum gpu_statistics_selection)patterns;
    gpu->grouped = (enum gpu_own_selection)grouped;
    gpu->first = (enum gpu_own_selection)first;
    gpu->pointwise = (enum gpu_own_selection)pointwise;
    gpu->base.conv_statistics = gpu->statistics != GPU_STATISTICS_ALWAYS_SEPARATE;
    return CVY_OK;
}

/* It changes no result: not among the settings that a resumed run keeps. */
static cvy_status choose_comparison(struct gpu_device *gpu)
{
    const char *value = getenv("CONVOY_CUDA_COMPARE");

    gpu->compares = !value || strcmp(value, "no") != 0;
    if (value && value[0] && gpu->compares && strcmp(value, "yes") != 0)
        return cvy_fail(CVY_USAGE, "the environment variable CONVOY_CUDA_COMPARE is \"yes\" or \"no\", not %s",
                        cvy_quote(value));
    return CVY_OK;
}

static cvy_status device_open(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    static const char describe[] = "describe=";
    struct gpu_device *gpu = cvy_calloc(1, sizeof *gpu);
    char libraries[64];
    cvy_status status;

    *device = NULL;
    if (!gpu)
        return cvy_fail_memory(sizeof *gpu, "the CUDA device");
    gpu->base.backend = backend;
    gpu->base.gpu = true;
    gpu->base.threads = threads > 0 ? threads : 1;
    CVY_GOTO(choose_kernels(gpu));
    CVY_GOTO(choose_comparison(gpu));
    if (spec && strncmp(spec, describe, sizeof describe - 1) == 0)
        CVY_GOTO(open_description(gpu, spec + sizeof describe - 1));
    else
        CVY_GOTO(open_gpu(gpu, spec));
    CVY_GOTO(gpu_libraries_open(gpu));
    gpu_libraries_text(gpu, libraries, sizeof libraries);
    if (gpu->described)
        snprintf(gpu->base.description, sizeof gpu->base.description, "%.40s, %.48s", gpu->info.name, libraries);
    else
        snprintf(gpu->base.description, sizeof gpu->base.description, "%.40s, driver for CUDA %d.%d, %.48s",
                 gpu->info.name, gpu->info.driver / 1000, gpu->info.driver % 1000 / 10, libraries);
    *device = &gpu->base;
    return CVY_OK;
fail:
    device_close(&gpu->base);
    return status;
}

static cvy_status device_query(int number, struct cvy_gpu *gpu, int *count)
{
    CVY_TRY(gpu_find(number, count));
    return gpu_query(number, gpu);
}

static cvy_status device_enter(cvy_device *device)
{
    return gpu_enter_of(gpu_of(device));
}

/* ---- memory ---- */

static cvy_status device_allocate(cvy_device *device, size_t bytes, void **memory)
{
    *memory = NULL;
    if (gpu_of(device)->described)
        return cvy_fail(CVY_UNAVAILABLE, "this GPU is only described: nothing can run on it");
    CVY_TRY(device_enter(device));
    return gpu_allocate(gpu_of(device)->stream, bytes, memory);
}

static void device_release(cvy_device *device, void *memory)
{
    (void)device; /* any thread may give memory back, whatever GPU is its own */
    gpu_release(memory);
}

static cvy_status device_allocate_host(cvy_device *device, size_t bytes, void **memory)
{
    *memory = NULL;
    if (gpu_of(device)->described)
        return cvy_fail(CVY_UNAVAILABLE, "this GPU is only described: nothing can run on it");
    CVY_TRY(device_enter(device));
    CVY_TRY(gpu_allocate_pinned(bytes, memory));
    memset(*memory, 0, bytes);
    return CVY_OK;
}

static void device_release_host(cvy_device *device, void *memory)
{
    (void)device;
    gpu_release_pinned(memory);
}

/* A copy between the GPU and memory that is not pinned may wait for what is queued before it, and must not hang. */
static cvy_status device_upload(cvy_device *device, void *to, const void *host, size_t bytes)
{
    CVY_TRY(device_enter(device));
    if (gpu_of(device)->group)
        CVY_TRY(gpu_wait(gpu_of(device), NULL));
    if (!bytes)
        return CVY_OK;
    CVY_TRY(gpu_upload(gpu_of(device)->stream, to, host, bytes));
    return gpu_stream_wait(gpu_of(device)->stream); /* the caller may change what it gave */
}

static cvy_status device_download(cvy_device *device, void *host, const void *from, size_t bytes)
{
    CVY_TRY(device_enter(device));
    if (gpu_of(device)->group)
        CVY_TRY(gpu_wait(gpu_of(device), NULL));
    return bytes ? gpu_download(gpu_of(device)->stream, host, from, bytes) : CVY_OK;
}

static cvy_status device_synchronize(cvy_device *device)
{
    CVY_TRY(device_enter(device));
    return gpu_wait(gpu_of(device), NULL);
}

static cvy_status device_capture_begin(cvy_device *device)
{
    return gpu_capture_begin(gpu_of(device)->stream);
}

static cvy_status device_capture_end(cvy_device *device, void **capture)
{
    return gpu_capture_end(gpu_of(device)->stream, capture);
}

static cvy_status device_launch(cvy_device *device, void *capture)
{
    return gpu_graph_launch(capture, gpu_of(device)->stream);
}

static void device_destroy_capture(cvy_device *device, void *capture)
{
    (void)device;
    gpu_graph_close(capture);
}

static cvy_status device_available(cvy_device *device, size_t *bytes)
{
    *bytes = SIZE_MAX;
    if (gpu_of(device)->described)
        return CVY_OK;
    CVY_TRY(device_enter(device));
    return gpu_free_memory(bytes);
}

static cvy_status device_describe(cvy_device *device, char **json)
{
    const struct gpu_device *gpu = gpu_of(device);

    if (!gpu->described)
        return gpu_describe(gpu->index, json);
    *json = cvy_strdup(gpu->description_json);
    return *json ? CVY_OK : cvy_fail_memory(strlen(gpu->description_json), "a description of a GPU");
}

cvy_status gpu_queued(const struct gpu_device *device)
{
    (void)device;
    return gpu_last_error();
}

/* ---- the table ---- */

#define KERNEL(ID, function, how, many)                                                                                \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cuda." #function, .prepare = gpu_##function##_prepare,                             \
        .run = gpu_##function##_run, .release = (how), .run_many = (many)                                              \
    }
#define ELEMENTWISE(ID, text, function)                                                                                \
    {                                                                                                                  \
        .op = CVY_OP_##ID, .name = "cuda." #text, .prepare = gpu_elementwise_prepare, .run = (function),               \
        .release = gpu_state_release                                                                                   \
    }
#define OWN(ID, function)    KERNEL(ID, function, gpu_state_release, NULL)
#define CUDNN(ID, function)  KERNEL(ID, function, gpu_conv2d_release, NULL)
#define CUBLAS(ID, function) KERNEL(ID, function, gpu_linear_release, NULL)

/* Kernels for the same op are asked in this order. */
static const struct cvy_kernel kernels[] = {
#define CVY_OP(ID, name, ...)        OWN(ID, name),
#define CVY_OP_UNARY(ID, name, ...)  ELEMENTWISE(ID, name, gpu_unary_run),
#define CVY_OP_BINARY(ID, name, ...) ELEMENTWISE(ID, name, gpu_binary_run),
#define CVY_OP_MOVE(ID, name, ...)   KERNEL(ID, name, gpu_state_release, gpu_move_run_many),
#define CVY_OP_PRODUCT(...)
#define CVY_OP_INT8(...)
#define CVY_OP_CLOSED(...)
#include "graph/ops.def"
    OWN(CONV2D, conv2d_first),
    OWN(CONV2D, conv2d_grouped),
    OWN(CONV2D, conv2d_pointwise),
    CUDNN(CONV2D, conv2d_prologue),
    CUDNN(CONV2D, conv2d_statistics),
    CUDNN(CONV2D, conv2d),
    OWN(CONV2D, conv2d_plain),
    OWN(CONV2D_BWD_DATA, conv2d_bwd_data_grouped),
    OWN(CONV2D_BWD_DATA, conv2d_bwd_data_pointwise),
    CUDNN(CONV2D_BWD_DATA, conv2d_bwd_data_sums),
    CUDNN(CONV2D_BWD_DATA, conv2d_bwd_data),
    OWN(CONV2D_BWD_DATA, conv2d_bwd_data_plain),
    OWN(CONV2D_BWD_WEIGHTS, conv2d_bwd_weights_first),
    OWN(CONV2D_BWD_WEIGHTS, conv2d_bwd_weights_grouped),
    CUDNN(CONV2D_BWD_WEIGHTS, conv2d_bwd_weights_prologue),
    CUDNN(CONV2D_BWD_WEIGHTS, conv2d_bwd_weights),
    OWN(CONV2D_BWD_WEIGHTS, conv2d_bwd_weights_plain),
    CUBLAS(LINEAR, linear),
    CUBLAS(LINEAR_BWD_DATA, linear_bwd_data),
    CUBLAS(LINEAR_BWD_WEIGHTS, linear_bwd_weights),
};

const struct cvy_backend gpu_backend = {
    .name = "cuda",
    .open = device_open,
    .close = device_close,
    .enter = device_enter,
    .allocate = device_allocate,
    .release = device_release,
    .allocate_host = device_allocate_host,
    .release_host = device_release_host,
    .upload = device_upload,
    .download = device_download,
    .synchronize = device_synchronize,
    .upload_async = gpu_upload_async,
    .download_async = gpu_download_async,
    .download_wait = gpu_download_wait,
    .capture_begin = device_capture_begin,
    .capture_end = device_capture_end,
    .launch = device_launch,
    .destroy_capture = device_destroy_capture,
    .update = gpu_update,
    .combine = gpu_combine,
    .upload_small = gpu_upload_small,
    .rewrite = gpu_rewrite,
    .tensor_bytes = gpu_tensor_bytes,
    .set_deterministic = set_deterministic,
    .measure_peak = gpu_peak,
    .available = device_available,
    .describe = device_describe,
    .query_gpu = device_query,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = false,
    .collective = &gpu_collective,
    .decoding = &gpu_image_decoding,
};
