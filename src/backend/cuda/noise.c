/* Random numbers for what is timed: zeros draw less current, and kernels that multiply them run faster than they will
 * in earnest. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/rng.h"

enum { NOISE = 1 << 16 };

cvy_status gpu_noise_open(struct gpu_device *device, void **noise)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_BENCH, 0, 0);
    float *host = cvy_calloc(NOISE, sizeof *host);
    cvy_status status;

    *noise = NULL;
    if (!host)
        return cvy_fail_memory(NOISE * sizeof *host, "random numbers");
    for (int i = 0; i < NOISE; i++)
        host[i] = (float)cvy_rng_normal(&rng);
    status = gpu_allocate(device->stream, NOISE * sizeof *host, noise);
    if (status == CVY_OK)
        status = gpu_upload(device->stream, *noise, host, NOISE * sizeof *host);
    if (status == CVY_OK)
        status = gpu_stream_wait(device->stream);
    cvy_free(host);
    return status;
}

cvy_status gpu_allocate_noise(struct gpu_device *device, enum cvy_dtype dtype, int64_t elements, const void *noise,
                              int which, void **memory)
{
    enum { APART = 1016 }; /* floats, a multiple of 32 bytes */
    const size_t total = (size_t)elements * cvy_dtype_size(dtype);
    const int64_t skip = which % 32 * APART, first = elements < NOISE - skip ? elements : NOISE - skip;
    size_t filled = (size_t)first * cvy_dtype_size(dtype);

    CVY_TRY(gpu_allocate(device->stream, total, memory));
    gpu_cast(device->stream, CVY_F32, dtype, (const float *)noise + skip, *memory, first);
    CVY_TRY(gpu_queued(device));
    while (filled < total) {
        const size_t more = filled < total - filled ? filled : total - filled;
        CVY_TRY(gpu_copy(device->stream, (char *)*memory + filled, *memory, more));
        filled += more;
    }
    return CVY_OK;
}
