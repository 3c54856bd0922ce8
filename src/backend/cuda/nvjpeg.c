/* Finds nvJPEG, and the best of its backends that this GPU has. */
#include "backend/cuda/nvjpeg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/find_library.h"
#include "base/error.h"

static bool version_of(void *object, int version[3])
{
    int (*property)(int type, int *value);

    return gpu_library_function(object, "nvjpegGetProperty", &property) &&
           property(NVJPEG_MAJOR_VERSION, &version[0]) == NVJPEG_SUCCESS &&
           property(NVJPEG_MINOR_VERSION, &version[1]) == NVJPEG_SUCCESS &&
           property(NVJPEG_PATCH_LEVEL, &version[2]) == NVJPEG_SUCCESS;
}

static bool accept(void *object, char found[32])
{
    int version[3];

    if (!version_of(object, version)) {
        snprintf(found, 32, "something else");
        return false;
    }
    snprintf(found, 32, "%d.%d.%d", version[0], version[1], version[2]);
    return version[0] >= 12;
}

static cvy_status load(struct gpu_nvjpeg *nvjpeg, int version[3])
{
    /* The names with a * are those of the copies within Python's packages. */
    static const char *const files[] = {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.*.so.13", "libnvjpeg.*.so.12",
                                        NULL};
    static const struct gpu_library library = {"nvJPEG 12 or newer", "CONVOY_NVJPEG", files, accept};
    const char *named = getenv(library.variable);
    void *object;

    if (named && strcmp(named, "none") == 0)
        return cvy_fail(CVY_UNAVAILABLE, "CONVOY_NVJPEG=none");
    CVY_TRY(gpu_library_find(&library, &object));
#define GET(name)                                                                                                      \
    if (!gpu_library_function(object, #name, &nvjpeg->f.name))                                                         \
        return cvy_fail(CVY_UNAVAILABLE, "the nvJPEG found here has no %s", #name);
    GET(nvjpegGetProperty)
    GET(nvjpegCreateEx)
    GET(nvjpegDestroy)
    GET(nvjpegJpegStateCreate)
    GET(nvjpegJpegStateDestroy)
    GET(nvjpegJpegStreamCreate)
    GET(nvjpegJpegStreamDestroy)
    GET(nvjpegJpegStreamParseHeader)
    GET(nvjpegDecodeBatchedSupported)
    GET(nvjpegDecodeBatchedInitialize)
    GET(nvjpegDecodeBatched)
#undef GET
    (void)gpu_library_function(object, "nvjpegGetHardwareDecoderInfo", &nvjpeg->f.nvjpegGetHardwareDecoderInfo);
    return version_of(object, version) ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "nvJPEG has no version");
}

/* In the order of enum nvjpeg_backend. */
static const char *const backend_names[] = {"default", "hybrid", "gpu-hybrid", "hardware"};
static const char *const backend_places[] = {"by its default", "by processor and GPU", "by the GPU", "in hardware"};

/* The index of the variable's word, -1 without it. */
static cvy_status choose(const char *variable, const char *const *words, int count, int *choice)
{
    const char *value = getenv(variable);

    *choice = -1;
    if (!value || !value[0])
        return CVY_OK;
    for (int i = 0; i < count; i++) {
        if (strcmp(value, words[i]) == 0)
            *choice = i;
    }
    return *choice >= 0 ? CVY_OK
                        : cvy_fail(CVY_USAGE, "the environment variable %s is not %s", variable, cvy_quote(value));
}

/* Photographs from 156 pixels on were seen to be right. Smaller images, which the host decodes at once anyway, were
 * not: they were in batches that came out wrong, probably for another reason (doc/cuda.md, "Images"). */
enum { SMALLEST = 150 };

static cvy_status choose_smallest(int *smallest)
{
    const char *value = getenv("CONVOY_NVJPEG_SMALLEST");
    char *end;
    long number;

    *smallest = SMALLEST;
    if (!value || !value[0])
        return CVY_OK;
    number = strtol(value, &end, 10);
    if (*end || number < 1 || number > INT32_MAX)
        return cvy_fail(CVY_USAGE, "the environment variable CONVOY_NVJPEG_SMALLEST is a number of pixels, not %s",
                        cvy_quote(value));
    *smallest = (int)number;
    return CVY_OK;
}

/* Chroma is interpolated, as by the host's decoder, where this nvJPEG (12.1 or newer) can do that. */
static cvy_status create(struct gpu_nvjpeg *nvjpeg, bool *interpolates)
{
    static const enum nvjpeg_backend order[] = {NVJPEG_BACKEND_HARDWARE, NVJPEG_BACKEND_GPU_HYBRID,
                                                NVJPEG_BACKEND_HYBRID, NVJPEG_BACKEND_DEFAULT};
    static const char *const chroma_words[] = {"interpolated", "repeated"};
    int backend, chroma, result = 0;

    CVY_TRY(choose("CONVOY_NVJPEG_BACKEND", backend_names, 4, &backend));
    CVY_TRY(choose("CONVOY_NVJPEG_CHROMA", chroma_words, 2, &chroma));
    for (int i = 0; i < 8; i++) {
        const enum nvjpeg_backend now = order[i / 2];
        *interpolates = i % 2 == 0;
        if ((backend >= 0 && backend != (int)now) || (chroma >= 0 && (chroma == 0) != *interpolates))
            continue;
        result = nvjpeg->f.nvjpegCreateEx((int)now, NULL, NULL, *interpolates ? NVJPEG_FLAG_INTERPOLATION : 0,
                                          &nvjpeg->handle);
        nvjpeg->backend = now;
        if (result == NVJPEG_SUCCESS)
            return CVY_OK;
        nvjpeg->handle = NULL;
    }
    return cvy_fail(CVY_UNAVAILABLE, "nvJPEG cannot use this GPU: its status is %d", result);
}

cvy_status gpu_nvjpeg_open(struct gpu_nvjpeg *nvjpeg)
{
    unsigned engines = 0, cores = 0;
    int version[3] = {0}, used;
    bool interpolates;

    memset(nvjpeg, 0, sizeof *nvjpeg);
    CVY_TRY(load(nvjpeg, version));
    CVY_TRY(choose_smallest(&nvjpeg->smallest));
    CVY_TRY(create(nvjpeg, &interpolates));
    used = snprintf(nvjpeg->description, sizeof nvjpeg->description, "nvJPEG %d.%d.%d, %s", version[0], version[1],
                    version[2], backend_places[nvjpeg->backend]);
    if (nvjpeg->backend == NVJPEG_BACKEND_HARDWARE && nvjpeg->f.nvjpegGetHardwareDecoderInfo &&
        nvjpeg->f.nvjpegGetHardwareDecoderInfo(nvjpeg->handle, &engines, &cores) == NVJPEG_SUCCESS && engines > 0)
        used += snprintf(nvjpeg->description + used, sizeof nvjpeg->description - (size_t)used, " (%s of %s)",
                         cvy_counted(engines, "engine"), cvy_counted(cores, "core"));
    if (!interpolates)
        snprintf(nvjpeg->description + used, sizeof nvjpeg->description - (size_t)used, ", chroma repeated");
    return CVY_OK;
}

void gpu_nvjpeg_close(struct gpu_nvjpeg *nvjpeg)
{
    if (nvjpeg->handle)
        (void)nvjpeg->f.nvjpegDestroy(nvjpeg->handle);
    memset(nvjpeg, 0, sizeof *nvjpeg);
}

cvy_status gpu_nvjpeg_check(int result, const char *what)
{
    return result == NVJPEG_SUCCESS ? CVY_OK
                                    : cvy_fail(CVY_FAILED, "nvJPEG refuses %s: its status is %d", what, result);
}
