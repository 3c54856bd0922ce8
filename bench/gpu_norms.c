/* Batch norms and max pools on a GPU, kernel by kernel, in the forms and shapes that a training step of ResNet-50 has:
 *
 *   gpu_norms [--batch-size N] [--type f16|bf16|f32] [WORD]...
 *
 * The shortest time of some runs of each case whose name holds all the words, and GB/s of the bytes that its kernels
 * read and write, beside those of a copy. Nothing is checked: tests/cuda/test_norms.c does that. Exits 77 where there
 * is no GPU. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/kernels.h"
#include "base/types.h"

enum { RUNS = 30, WARM = 3, IMAGES = 5 };

static struct {
    enum cvy_dtype dtype;
    int64_t batch, bytes; /* of the largest image */
    void *image[IMAGES];
    uint8_t *mask;
    float *vectors, *scratch; /* vectors: of MOST_CHANNELS each */
    uint32_t *tickets;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char **words;
    int word_count;
} bench;
enum { MOST_CHANNELS = 2048, VECTORS = 16, TICKETS = 512, SCRATCH = 4 << 20 };

static void must(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static void *room(size_t bytes)
{
    void *memory;

    must(cudaMalloc(&memory, bytes), "memory");
    must(cudaMemset(memory, 0, bytes), "memory");
    return memory;
}

static int64_t size_of_element(void)
{
    return bench.dtype == CVY_F32 ? 4 : 2;
}

/* Numbers between 0.5 and 2 of either sign, in 16 bits; or bytes from 0 to 8, of which a max pool's index is made. */
static void fill(void *to, int64_t bytes, bool index)
{
    static uint16_t numbers[1 << 22];
    uint32_t state = 1;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        state = state * 1664525 + 1013904223;
        numbers[i] = (uint16_t)(index ? (state >> 8) % 9 << 8 | (state >> 20) % 9 : (state >> 16 & 0x87ff) | 0x3800);
    }
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof numbers) {
        const int64_t left = bytes - at;
        must(cudaMemcpy((char *)to + at, numbers, left < (int64_t)sizeof numbers ? (size_t)left : sizeof numbers,
                        cudaMemcpyHostToDevice),
             "upload");
    }
}

static float *vector(int i)
{
    return bench.vectors + (int64_t)i * MOST_CHANNELS;
}

/* A case: two kernels at most, and what they read and write together. */
struct work {
    char name[96];
    double bytes;
    void (*run)(const struct work *work);
    int64_t rows, channels, extent;
    int form;
};

static bool is_wanted(const char *name)
{
    for (int i = 0; i < bench.word_count; i++) {
        if (!strstr(name, bench.words[i]))
            return false;
    }
    return true;
}

static void time_work(const struct work *work)
{
    float shortest = 1e9F;

    if (!is_wanted(work->name))
        return;
    for (int i = 0; i < WARM + RUNS; i++) {
        float ms;
        must(cudaEventRecord(bench.begin, bench.stream), work->name);
        work->run(work);
        must(cudaEventRecord(bench.end, bench.stream), work->name);
        must(cudaEventSynchronize(bench.end), work->name);
        must(cudaEventElapsedTime(&ms, bench.begin, bench.end), work->name);
        if (i >= WARM && ms < shortest)
            shortest = ms;
    }
    must(cudaGetLastError(), work->name);
    printf("%-72s %8.4f ms %7.0f GB/s\n", work->name, (double)shortest, work->bytes / ((double)shortest * 1e6));
    fflush(stdout);
}

/* ---- batch norms ---- */

enum form {
    STATISTICS,     /* which it makes itself, and y */
    GIVEN,          /* sums of a convolution */
    GIVEN_RESIDUAL, /* and a residual, and bits of what passes the sum's ReLU */
    GIVEN_PAIR,     /* and the residual's batch norm */
    BACKWARD,
    BACKWARD_RESIDUAL, /* the mask in bits, two gradients, dresidual */
    BACKWARD_PAIR,
    FORMS
};
static const char *const names[FORMS] = {"batch norm, its own statistics",
                                         "batch norm, given sums",
                                         "batch norm, given sums, sum",
                                         "batch norm, given sums, with the residual's",
                                         "batch norm backward",
                                         "batch norm backward, mask in bits, two gradients",
                                         "batch norm backward, two at once"};
/* Passes over the tensor, and over its bits. */
static const struct {
    int passes, bits;
} traffic[FORMS] = {{3, 0}, {2, 0}, {3, 1}, {3, 1}, {5, 0}, {7, 1}, {10, 2}};

static struct gpu_batch_norm forward_of(const struct work *work)
{
    const bool sum = work->form == GIVEN_RESIDUAL || work->form == GIVEN_PAIR;

    return (struct gpu_batch_norm){.dtype = bench.dtype,
                                   .rows = work->rows,
                                   .channels = work->channels,
                                   .x = bench.image[0],
                                   .residual = sum ? bench.image[1] : NULL,
                                   .y = bench.image[2],
                                   .residual_gamma = work->form == GIVEN_PAIR ? vector(10) : NULL,
                                   .residual_beta = work->form == GIVEN_PAIR ? vector(11) : NULL,
                                   .residual_mean = work->form == GIVEN_PAIR ? vector(12) : NULL,
                                   .residual_rstd = work->form == GIVEN_PAIR ? vector(13) : NULL,
                                   .sign = sum ? bench.mask : NULL,
                                   .gamma = vector(0),
                                   .beta = vector(1),
                                   .running_mean = vector(2),
                                   .running_var = vector(3),
                                   .mean = vector(4),
                                   .rstd = vector(5),
                                   .new_mean = vector(2),
                                   .new_var = vector(3),
                                   .sums = work->form != STATISTICS,
                                   .eps = 1e-5F,
                                   .momentum = 0.1F,
                                   .activation = CVY_ACTIVATION_RELU};
}

static struct gpu_batch_norm_bwd backward_of(const struct work *work)
{
    const bool bits = work->form != BACKWARD;

    return (struct gpu_batch_norm_bwd){.dtype = bench.dtype,
                                       .rows = work->rows,
                                       .channels = work->channels,
                                       .x = bench.image[0],
                                       .dy = bench.image[1],
                                       .more = bits ? bench.image[2] : NULL,
                                       .sign = bits ? bench.mask : NULL,
                                       .gamma = vector(0),
                                       .beta = vector(1),
                                       .mean = vector(4),
                                       .rstd = vector(5),
                                       .dx = bench.image[3],
                                       .dresidual = work->form == BACKWARD_RESIDUAL ? bench.image[4] : NULL,
                                       .dgamma = vector(6),
                                       .dbeta = vector(7),
                                       .activation = CVY_ACTIVATION_RELU};
}

static void run_norm(const struct work *work)
{
    const struct gpu_batch_norm forward = forward_of(work);
    const struct gpu_batch_norm_bwd backward = backward_of(work);

    if (work->form == STATISTICS) {
        gpu_batch_norm(bench.stream, &forward, bench.scratch, bench.tickets);
    } else if (work->form < BACKWARD) {
        gpu_batch_norm_given(bench.stream, &forward, vector(8), vector(9));
    } else if (work->form < BACKWARD_PAIR) {
        gpu_batch_norm_bwd(bench.stream, &backward, bench.scratch, bench.tickets);
    } else {
        struct gpu_batch_norm_bwd residual = backward;
        residual.x = bench.image[4];
        residual.dx = bench.image[1];
        residual.dgamma = vector(14);
        residual.dbeta = vector(15);
        gpu_batch_norm_pair_bwd(bench.stream, &backward, &residual, bench.scratch, bench.tickets);
    }
}

/* Batch norms of ResNet-50 that are alike, and the forms that they have there. */
static void time_norms(void)
{
    static const struct {
        int side, channels;
        bool sum;
    } norms[] = {{112, 64, false}, {56, 64, false},  {56, 256, true},  {56, 128, false},
                 {28, 128, false}, {28, 512, true},  {28, 256, false}, {14, 256, false},
                 {14, 1024, true}, {14, 512, false}, {7, 512, false},  {7, 2048, true}};

    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        for (int form = 0; form < FORMS; form++) {
            struct work work = {.run = run_norm, .form = form, .channels = norms[i].channels};
            const bool sum =
                form == GIVEN_RESIDUAL || form == GIVEN_PAIR || form == BACKWARD_RESIDUAL || form == BACKWARD_PAIR;

            if (norms[i].sum ? form != STATISTICS && !sum : sum)
                continue;
            work.rows = bench.batch * norms[i].side * norms[i].side;
            work.bytes = (double)(work.rows * work.channels) *
                         (traffic[form].passes * (double)size_of_element() + traffic[form].bits / 8.0);
            snprintf(work.name, sizeof work.name, "%s %lldx%dx%dx%d", names[form], (long long)bench.batch,
                     norms[i].channels, norms[i].side, norms[i].side);
            time_work(&work);
        }
    }
}

/* ---- pools ---- */

enum pool_form { POOL, NORM_POOL, POOL_BACKWARD, NORM_POOL_BACKWARD, POOL_FORMS };
static const char *const pool_names[POOL_FORMS] = {"max pool", "max pool, with the batch norm", "max pool backward",
                                                   "max pool backward, with the batch norm, two gradients"};

static void run_pool(const struct work *work)
{
    const int64_t half = (work->extent + 1) / 2;
    struct gpu_pool pool = {.dtype = bench.dtype,
                            .n = bench.batch,
                            .c = work->channels,
                            .h = work->extent,
                            .w = work->extent,
                            .p = half,
                            .q = half,
                            .kernel = {3, 3},
                            .stride = {2, 2},
                            .pad = {1, 1}};
    struct gpu_batch_norm_bwd norm = backward_of(work);

    if (work->form == NORM_POOL) {
        pool.gamma = vector(0);
        pool.beta = vector(1);
        pool.mean = vector(4);
        pool.rstd = vector(5);
    }
    if (work->form < POOL_BACKWARD) {
        gpu_max_pool(bench.stream, &pool, bench.image[0], bench.image[1], bench.mask);
    } else if (work->form == POOL_BACKWARD) {
        gpu_max_pool_bwd(bench.stream, &pool, bench.image[1], bench.mask, bench.image[3]);
    } else {
        pool.more = bench.image[2];
        norm.dy = norm.more = NULL;
        norm.sign = NULL;
        norm.dresidual = NULL;
        gpu_norm_pool_bwd(bench.stream, &pool, bench.image[1], bench.mask, &norm, bench.scratch, bench.tickets);
    }
}

static void time_pools(void)
{
    for (int form = 0; form < POOL_FORMS; form++) {
        struct work work = {.run = run_pool, .form = form, .channels = 64, .extent = 112};
        const double size = (double)size_of_element();
        const double pooled = (double)(bench.batch * 64 * 56 * 56), x = 4 * pooled;

        work.rows = bench.batch * 112 * 112;
        work.bytes =
            form == NORM_POOL_BACKWARD ? 3 * x * size + 2 * pooled * (2 * size + 1) : x * size + pooled * (size + 1);
        snprintf(work.name, sizeof work.name, "%s %lldx64x112x112", pool_names[form], (long long)bench.batch);
        time_work(&work);
    }
}

static void run_copy(const struct work *work)
{
    must(cudaMemcpyAsync(bench.image[1], bench.image[0], (size_t)(work->bytes / 2), cudaMemcpyDeviceToDevice,
                         bench.stream),
         "copy");
}

int main(int argc, char **argv)
{
    struct work copy = {.name = "copy", .run = run_copy};
    int devices = 0;

    bench.dtype = CVY_F16;
    bench.batch = 256;
    for (; argc > 2 && strncmp(argv[1], "--", 2) == 0; argc -= 2, argv += 2) {
        if (strcmp(argv[1], "--batch-size") == 0)
            bench.batch = atoi(argv[2]);
        else if (strcmp(argv[1], "--type") == 0)
            bench.dtype = strcmp(argv[2], "f32") == 0 ? CVY_F32 : strcmp(argv[2], "bf16") == 0 ? CVY_BF16 : CVY_F16;
    }
    bench.words = argv + 1;
    bench.word_count = argc - 1;
    if (bench.batch < 1 || (argc > 1 && strncmp(argv[1], "--", 2) == 0)) {
        fprintf(stderr, "usage: gpu_norms [--batch-size N] [--type f16|bf16|f32] [WORD]...\n");
        return 2;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 1) {
        fprintf(stderr, "skipped: there is no GPU\n");
        return 77;
    }
    bench.bytes = bench.batch * 64 * 112 * 112 * size_of_element();
    for (int i = 0; i < IMAGES; i++) {
        bench.image[i] = room((size_t)bench.bytes);
        fill(bench.image[i], bench.bytes, false);
    }
    bench.mask = room((size_t)bench.bytes);
    fill(bench.mask, bench.bytes, true);
    bench.vectors = room(sizeof(float) * VECTORS * MOST_CHANNELS);
    bench.scratch = room(sizeof(float) * SCRATCH);
    bench.tickets = room(sizeof(uint32_t) * TICKETS);
    must(cudaStreamCreate(&bench.stream), "stream");
    must(cudaEventCreate(&bench.begin), "event");
    must(cudaEventCreate(&bench.end), "event");
    copy.bytes = 2 * (double)bench.bytes;
    time_work(&copy);
    time_pools();
    time_norms();
    return 0;
}
