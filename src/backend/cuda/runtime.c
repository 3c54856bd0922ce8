/* The CUDA runtime behind runtime.h. */
#include "backend/cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static cvy_status check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return CVY_OK;
    (void)cudaGetLastError(); /* the next call shall tell of its own */
    return cvy_fail(CVY_FAILED, "%s: %s (CUDA error %d)", what, cudaGetErrorString(result), (int)result);
}

/* For calls that release something: clears the error, so that the next launch is not blamed for it. */
static void forget_failure(cudaError_t result)
{
    if (result != cudaSuccess)
        (void)cudaGetLastError();
}

/* ---- the GPU ---- */

#if CUDART_VERSION >= 13000
#define OLDEST_DRIVER "CUDA 13 (it must be 580 or newer)"
#else /* some kernels have more than 4 KiB of arguments, which drivers take since CUDA 12.1 */
#define OLDEST_DRIVER "CUDA 12.1 (it must be 530 or newer)"
#endif

cvy_status gpu_find(int index, int *count)
{
    int found = 0, driver = 0;
    const cudaError_t result = cudaGetDeviceCount(&found);

    if (count)
        *count = result == cudaSuccess ? found : 0;
    if (result == cudaErrorInsufficientDriver ||
        (result != cudaSuccess && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)) {
        (void)cudaGetLastError();
        return cvy_fail(CVY_UNAVAILABLE, driver == 0 && result != cudaErrorInsufficientDriver
                                             ? "there is no NVIDIA driver on this machine"
                                             : "the NVIDIA driver is missing or too old for " OLDEST_DRIVER);
    }
    if (result != cudaSuccess && result != cudaErrorNoDevice) {
        (void)cudaGetLastError();
        return cvy_fail(CVY_UNAVAILABLE, "no GPU can be used: %s", cudaGetErrorString(result));
    }
    if (found == 0) {
        (void)cudaGetLastError();
        return cvy_fail(CVY_UNAVAILABLE, "no GPU is visible to this process");
    }
    if (index < 0 || index >= found)
        return cvy_fail(CVY_UNAVAILABLE, "there is no GPU %d: this process sees %d of them", index, found);
    return CVY_OK;
}

/* What the kernel says of the cores near a PCI device: "0-31,64-95". */
static void read_cores(const char *bus, char *cores, size_t size)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", bus);
    file = fopen(path, "re");
    if (!file || !fgets(cores, (int)size, file))
        cores[0] = '\0';
    if (file)
        fclose(file);
    cores[strcspn(cores, "\n")] = '\0';
}

cvy_status gpu_query(int index, struct cvy_gpu *gpu)
{
    struct cudaDeviceProp properties;
    char bus[32];

    memset(gpu, 0, sizeof *gpu);
    CVY_TRY(check(cudaGetDeviceProperties(&properties, index), "the GPU's properties cannot be read"));
    snprintf(gpu->name, sizeof gpu->name, "%.63s", properties.name);
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess) {
        (void)cudaGetLastError();
        return CVY_OK;
    }
    for (char *c = bus; *c; c++) /* as sysfs writes it */
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    read_cores(bus, gpu->cores, sizeof gpu->cores);
    return CVY_OK;
}

cvy_status gpu_select(int index, struct gpu_info *info)
{
    struct cudaDeviceProp properties;

    CVY_TRY(check(cudaSetDevice(index), "the GPU cannot be used"));
    CVY_TRY(check(cudaGetDeviceProperties(&properties, index), "the GPU's properties cannot be read"));
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%.63s", properties.name);
    info->major = properties.major;
    info->minor = properties.minor;
    info->processors = properties.multiProcessorCount;
    info->memory = properties.totalGlobalMem;
    (void)cudaDriverGetVersion(&info->driver);
    (void)cudaRuntimeGetVersion(&info->runtime);
    return CVY_OK;
}

cvy_status gpu_enter(int index)
{
    return check(cudaSetDevice(index), "the GPU cannot be used");
}

static int attribute(enum cudaDeviceAttr which, int index)
{
    int value = 0;

    (void)cudaDeviceGetAttribute(&value, which, index);
    return value;
}

cvy_status gpu_describe(int index, char **json)
{
    struct cudaDeviceProp p;
    struct cvy_text text = {0};

    *json = NULL;
    CVY_TRY(check(cudaGetDeviceProperties(&p, index), "the GPU's properties cannot be read"));
    cvy_text_printf(&text, "{\"maxGridSize\": [%d, %d, %d], \"maxBlockSize\": [%d, %d, %d], ", p.maxGridSize[0],
                    p.maxGridSize[1], p.maxGridSize[2], p.maxThreadsDim[0], p.maxThreadsDim[1], p.maxThreadsDim[2]);
    cvy_text_printf(&text, "\"regsPerBlock\": %d, \"multiProcessorCount\": %d, \"warpSize\": %d, ", p.regsPerBlock,
                    p.multiProcessorCount, p.warpSize);
    cvy_text_printf(&text,
                    "\"maxSharedMemoryPerBlock\": %zu, \"maxSharedMemoryPerBlockOptin\": %zu, "
                    "\"reservedSharedMemoryPerBlock\": %zu, ",
                    p.sharedMemPerBlock, p.sharedMemPerBlockOptin, p.reservedSharedMemPerBlock);
    cvy_text_printf(&text, "\"maxRegistersPerSM\": %d, \"maxCtasPerSM\": %d, \"maxThreadsPerBlock\": %d, ",
                    p.regsPerMultiprocessor, p.maxBlocksPerMultiProcessor, p.maxThreadsPerBlock);
    cvy_text_printf(&text,
                    "\"maxThreadsPerSM\": %d, \"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": %d, ",
                    p.maxThreadsPerMultiProcessor, p.cooperativeLaunch);
    cvy_text_printf(&text, "\"smClockRateKHz\": %d, \"memClockRateKHz\": %d, \"l2CacheSize\": %d, ",
                    attribute(cudaDevAttrClockRate, index), attribute(cudaDevAttrMemoryClockRate, index),
                    p.l2CacheSize);
    /* cuDNN 9.28 wants these too; the runtime does not know the first. */
    cvy_text_printf(&text, "\"oversizedSharedMemoryPerBlock\": 0, \"memoryBusWidth\": %d, ",
                    attribute(cudaDevAttrGlobalMemoryBusWidth, index));
    {
        int driver = 0;
        (void)cudaDriverGetVersion(&driver);
        cvy_text_printf(&text,
                        "\"deviceName\": \"%s\", \"deviceVer\": %d, \"driverVer\": %d, \"cudaDeviceId\": %d, "
                        "\"totalGlobalMem\": %zu}",
                        p.name, 100 * p.major + 10 * p.minor, driver, index, p.totalGlobalMem);
    }
    if (text.failed) {
        cvy_text_release(&text);
        return cvy_fail_memory(2048, "the GPU's properties");
    }
    *json = text.text;
    return CVY_OK;
}

cvy_status gpu_free_memory(size_t *bytes)
{
    size_t total;

    *bytes = 0;
    return check(cudaMemGetInfo(bytes, &total), "the GPU's free memory cannot be read");
}

/* FNV-1a of what NVIDIA calls the GPU's universally unique number. */
cvy_status gpu_identity(int index, uint64_t *identity)
{
    struct cudaDeviceProp properties;

    CVY_TRY(check(cudaGetDeviceProperties(&properties, index), "the GPU's properties cannot be read"));
    *identity = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof properties.uuid.bytes; i++)
        *identity = (*identity ^ (unsigned char)properties.uuid.bytes[i]) * UINT64_C(0x100000001b3);
    return CVY_OK;
}

/* ---- streams and memory ---- */

cvy_status gpu_stream_open(void **stream)
{
    cudaStream_t made = NULL;
    const cvy_status status =
        check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "a CUDA stream cannot be made");

    *stream = made;
    return status;
}

cvy_status gpu_stream_open_urgent(void **stream)
{
    cudaStream_t made = NULL;
    int min = 0, greatest = 0;
    cvy_status status = check(cudaDeviceGetStreamPriorityRange(&min, &greatest), "a CUDA stream cannot be made");

    if (status == CVY_OK)
        status =
            check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "a CUDA stream cannot be made");
    *stream = made;
    return status;
}

void gpu_stream_close(void *stream)
{
    if (stream)
        forget_failure(cudaStreamDestroy(stream));
}

cvy_status gpu_stream_wait(void *stream)
{
    return check(cudaStreamSynchronize(stream), "the GPU's work failed");
}

cvy_status gpu_stream_done(void *stream, bool *done)
{
    const cudaError_t result = cudaStreamQuery(stream);

    *done = result == cudaSuccess;
    return result == cudaErrorNotReady ? CVY_OK : check(result, "the GPU's work failed");
}

cvy_status gpu_allocate(void *stream, size_t bytes, void **memory)
{
    cudaError_t result;
    size_t available = 0, total = 0;
    cvy_status status;

    *memory = NULL;
    result = cudaMalloc(memory, bytes ? bytes : 1);
    if (result == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        return cvy_fail(CVY_NO_MEMORY, "the GPU has no room for %zu MiB more: %zu of %zu MiB are free", bytes >> 20,
                        available >> 20, total >> 20);
    }
    CVY_TRY(check(result, "GPU memory cannot be had"));
    status = gpu_zero(stream, *memory, bytes ? bytes : 1);
    if (status == CVY_OK)
        status = gpu_stream_wait(stream); /* another stream may be the first to write there */
    if (status != CVY_OK) {
        forget_failure(cudaFree(*memory));
        *memory = NULL;
    }
    return status;
}

void gpu_release(void *memory)
{
    if (memory)
        forget_failure(cudaFree(memory));
}

cvy_status gpu_allocate_pinned(size_t bytes, void **memory)
{
    *memory = NULL;
    return check(cudaMallocHost(memory, bytes ? bytes : 1), "pinned memory cannot be had");
}

void gpu_release_pinned(void *memory)
{
    if (memory)
        forget_failure(cudaFreeHost(memory));
}

enum gpu_memory gpu_memory_of(const void *memory)
{
    struct cudaPointerAttributes attributes;

    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return GPU_MEMORY_HOST;
    }
    return attributes.type == cudaMemoryTypeDevice ? GPU_MEMORY_DEVICE
           : attributes.type == cudaMemoryTypeHost ? GPU_MEMORY_PINNED
                                                   : GPU_MEMORY_HOST;
}

cvy_status gpu_upload(void *stream, void *to, const void *host, size_t bytes)
{
    return check(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream), "the copy to the GPU failed");
}

cvy_status gpu_download_queued(void *stream, void *host, const void *from, size_t bytes)
{
    return check(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream), "the copy from the GPU failed");
}

cvy_status gpu_download(void *stream, void *host, const void *from, size_t bytes)
{
    CVY_TRY(gpu_download_queued(stream, host, from, bytes));
    return gpu_stream_wait(stream);
}

cvy_status gpu_zero(void *stream, void *memory, size_t bytes)
{
    return check(cudaMemsetAsync(memory, 0, bytes, stream), "GPU memory cannot be cleared");
}

cvy_status gpu_copy(void *stream, void *to, const void *from, size_t bytes)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "a copy on the GPU failed");
}

cvy_status gpu_last_error(void)
{
    return check(cudaPeekAtLastError(), "a kernel could not be started");
}

/* ---- events ---- */

cvy_status gpu_event_open(bool timing, void **event)
{
    cudaEvent_t made = NULL;
    const cvy_status status = check(cudaEventCreateWithFlags(&made, timing ? cudaEventDefault : cudaEventDisableTiming),
                                    "a CUDA event cannot be made");

    *event = made;
    return status;
}

void gpu_event_close(void *event)
{
    if (event)
        forget_failure(cudaEventDestroy(event));
}

cvy_status gpu_event_record(void *event, void *stream)
{
    return check(cudaEventRecord(event, stream), "a CUDA event cannot be recorded");
}

cvy_status gpu_stream_wait_event(void *stream, void *event)
{
    return check(cudaStreamWaitEvent(stream, event, 0), "a CUDA stream cannot wait");
}

cvy_status gpu_event_wait(void *event)
{
    return check(cudaEventSynchronize(event), "the GPU's work failed");
}

cvy_status gpu_event_done(void *event, bool *done)
{
    const cudaError_t result = cudaEventQuery(event);

    *done = result == cudaSuccess;
    return result == cudaErrorNotReady ? CVY_OK : check(result, "the GPU's work failed");
}

cvy_status gpu_event_seconds(void *from, void *to, double *seconds)
{
    float milliseconds = 0;
    const cvy_status status = check(cudaEventElapsedTime(&milliseconds, from, to), "a time on the GPU cannot be read");

    *seconds = (double)milliseconds * 1e-3;
    return status;
}

/* ---- captured work ---- */

cvy_status gpu_capture_begin(void *stream)
{
    /* Thread-local: what the loader's threads allocate meanwhile does not break it. */
    return check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "the GPU's work cannot be captured");
}

cvy_status gpu_capture_end(void *stream, void **graph)
{
    cudaGraph_t made = NULL;
    cudaGraphExec_t executable = NULL;
    cvy_status status = check(cudaStreamEndCapture(stream, &made), "the GPU's work cannot be captured");

    *graph = NULL;
    if (status == CVY_OK)
        status = check(cudaGraphInstantiate(&executable, made, 0), "the captured work cannot be used");
    if (made)
        (void)cudaGraphDestroy(made);
    *graph = executable;
    return status;
}

cvy_status gpu_graph_launch(void *graph, void *stream)
{
    return check(cudaGraphLaunch(graph, stream), "the captured work cannot be started");
}

void gpu_graph_close(void *graph)
{
    if (graph)
        forget_failure(cudaGraphExecDestroy(graph));
}
