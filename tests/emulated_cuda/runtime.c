/* runtime.h for a GPU that is not there: its memory is the host's. */
#include "backend/cuda/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "capture.h"

/* ---- the GPU ---- */

/* CONVOY_EMULATED_GPUS of them: 1 where that is not set. */
cvy_status gpu_find(int index, int *count)
{
    const char *set = getenv("CONVOY_EMULATED_GPUS");
    const int there = set ? atoi(set) : 1;

    if (count)
        *count = there;
    if (there == 0)
        return cvy_fail(CVY_UNAVAILABLE, "no GPU is visible to this process");
    return index >= 0 && index < there
               ? CVY_OK
               : cvy_fail(CVY_UNAVAILABLE, "there is no GPU %d: this process sees %d of them", index, there);
}

static _Thread_local int current;

int emulated_gpu(void)
{
    return current;
}

cvy_status gpu_enter(int index)
{
    current = index;
    return CVY_OK;
}

/* CONVOY_EMULATED_CORES: lists of cores near each, as in "0-3/4-7". */
cvy_status gpu_query(int index, struct cvy_gpu *gpu)
{
    const char *lists = getenv("CONVOY_EMULATED_CORES");

    memset(gpu, 0, sizeof *gpu);
    strcpy(gpu->name, "emulated GPU");
    for (int i = 0; lists && i < index; i++) {
        lists = strchr(lists, '/');
        lists = lists ? lists + 1 : NULL;
    }
    if (lists && strcspn(lists, "/") < sizeof gpu->cores)
        memcpy(gpu->cores, lists, strcspn(lists, "/"));
    return CVY_OK;
}

cvy_status gpu_select(int index, struct gpu_info *info)
{
    current = index;
    *info = (struct gpu_info){.name = "emulated GPU",
                              .major = 9,
                              .processors = 4,
                              .memory = (size_t)4 << 30,
                              .driver = 13000,
                              .runtime = 13000};
    return CVY_OK;
}

cvy_status gpu_describe(int index, char **json)
{
    (void)index;
    *json = cvy_strdup("{\"deviceName\": \"emulated GPU\", \"multiProcessorCount\": 4}");
    return *json ? CVY_OK : cvy_fail_memory(64, "the GPU's properties");
}

cvy_status gpu_identity(int index, uint64_t *identity)
{
    *identity = (uint64_t)index + 1;
    return CVY_OK;
}

/* ---- memory ---- */

/* What is allocated, as a list. */
static struct block {
    char *begin;
    size_t bytes;
    bool pinned;
    struct block *next;
} * blocks;

static cvy_status allocate(size_t bytes, bool pinned, void **memory)
{
    EMULATED_ALONE();
    struct block *made = malloc(sizeof *made);

    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (!*memory || !made) {
        free(made);
        free(*memory);
        *memory = NULL;
        return cvy_fail_memory(bytes, "tensors on the emulated GPU");
    }
    memset(*memory, 0, bytes);
    *made = (struct block){*memory, bytes, pinned, blocks};
    blocks = made;
    return CVY_OK;
}

static void release(void *memory)
{
    EMULATED_ALONE();

    if (!memory)
        return;
    emulated_drain(); /* as freeing on a GPU does */
    for (struct block **at = &blocks; *at; at = &(*at)->next) {
        struct block *found = *at;
        if (found->begin != memory)
            continue;
        *at = found->next;
        free(found);
        break;
    }
    free(memory);
}

cvy_status gpu_free_memory(size_t *bytes)
{
    EMULATED_ALONE();

    *bytes = (size_t)4 << 30;
    for (const struct block *block = blocks; block; block = block->next)
        *bytes -= block->pinned ? 0 : block->bytes < *bytes ? block->bytes : *bytes;
    return CVY_OK;
}

static const struct block *block_of(const void *memory, size_t bytes)
{
    for (const struct block *block = blocks; block; block = block->next) {
        if ((const char *)memory >= block->begin && (const char *)memory + bytes <= block->begin + block->bytes)
            return block;
    }
    return NULL;
}

enum gpu_memory gpu_memory_of(const void *memory)
{
    EMULATED_ALONE();
    const struct block *block = block_of(memory, 1);

    return !block ? GPU_MEMORY_HOST : block->pinned ? GPU_MEMORY_PINNED : GPU_MEMORY_DEVICE;
}

static bool is_pinned(const void *memory, size_t bytes)
{
    EMULATED_ALONE();
    const struct block *block = block_of(memory, bytes);

    return block && block->pinned;
}

cvy_status gpu_allocate(void *stream, size_t bytes, void **memory)
{
    *memory = NULL;
    CVY_TRY(emulated_refuse_in_capture(stream, "allocating"));
    return allocate(bytes, false, memory);
}

void gpu_release(void *memory)
{
    release(memory);
}

cvy_status gpu_allocate_pinned(size_t bytes, void **memory)
{
    return allocate(bytes, true, memory);
}

void gpu_release_pinned(void *memory)
{
    release(memory);
}

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};

static void replay_copy(const void *data)
{
    const struct copy *copy = data;

    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, 0, copy->bytes);
}

cvy_status gpu_upload(void *stream, void *to, const void *host, size_t bytes)
{
    EMULATED_ALONE();
    const struct copy copy = {to, host, bytes};

    CVY_TRY(emulated_refuse_in_capture(stream, "a copy to the GPU"));
    if (!is_pinned(host, bytes))
        CVY_TRY(gpu_stream_wait(stream)); /* as CUDA may */
    emulated_do(stream, replay_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_download(void *stream, void *host, const void *from, size_t bytes)
{
    EMULATED_ALONE();
    const struct copy copy = {host, from, bytes};

    CVY_TRY(emulated_refuse_in_capture(stream, "a copy to the host"));
    CVY_TRY(gpu_stream_wait(stream));
    replay_copy(&copy);
    return CVY_OK;
}

cvy_status gpu_download_queued(void *stream, void *host, const void *from, size_t bytes)
{
    EMULATED_ALONE();
    const struct copy copy = {host, from, bytes};

    CVY_TRY(emulated_refuse_in_capture(stream, "a copy to the host"));
    if (!is_pinned(host, bytes))
        abort();
    emulated_do(stream, replay_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_zero(void *stream, void *memory, size_t bytes)
{
    const struct copy copy = {memory, NULL, bytes};

    emulated_do(stream, replay_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_copy(void *stream, void *to, const void *from, size_t bytes)
{
    const struct copy copy = {to, from, bytes};

    emulated_do(stream, replay_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_last_error(void)
{
    return CVY_OK;
}
