/* The two passes of a batch norm over its images: who takes what, and in which order. */
#include <omp.h>

#include "backend/cpu/batch_norm.h"

size_t batch_norm_kept_bytes(const cvy_device *device, const struct cpu_image *image, bool given)
{
    const size_t blocks = (size_t)image->blocks, ranks = cvy_device_ranks(device) > 1;
    return blocks * (sizeof(struct cpu_affine) + sizeof(struct cpu_slope)) +
           (given ? 1 : (size_t)image->batch) * blocks * sizeof(struct cpu_sums) +
           ranks * 2 * blocks * (size_t)image->block * sizeof(double);
}

struct batch_norm_kept batch_norm_kept_at(const cvy_device *device, const struct cpu_image *image, bool given,
                                          void *scratch)
{
    struct batch_norm_kept kept = {.lanes = scratch};
    kept.slopes = (struct cpu_slope *)(void *)(kept.lanes + image->blocks);
    kept.sums = (struct cpu_sums *)(void *)(kept.slopes + image->blocks);
    if (cvy_device_ranks(device) > 1)
        kept.shared = (double *)(void *)(kept.sums + (given ? 1 : image->batch) * image->blocks);
    return kept;
}

double batch_norm_own_count(const struct cpu_image *image)
{
    return (double)image->batch * (double)image->pixels;
}

static bool keeps_busy(int64_t parts, int64_t threads)
{
    return parts % threads == 0 || parts >= 4 * threads;
}

/* Neighbouring blocks that are taken together, so that of each image some pages are read on end; no more, for what the
 * first pass has read is to be in cache for the second (measured: doc/worklog.md). */
static int64_t blocks_together(const struct cpu_image *image, int64_t threads)
{
    enum { ENOUGH = 16 << 10 };
    int64_t together = 1;
    while (together * (int64_t)image->run_bytes < ENOUGH && 2 * together <= image->blocks &&
           image->blocks % (2 * together) == 0 && keeps_busy(image->blocks / (2 * together), threads))
        together *= 2;
    return together;
}

/* A thread takes whole channels: then what their first pass read is still in cache for the second. */
static void run_by_channels(const cvy_device *device, const struct cpu_image *image, const struct batch_norm_pass *pass)
{
    const int64_t batch = image->batch, blocks = image->blocks, together = blocks_together(image, device->threads);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t first = 0; first < blocks; first += together) {
        for (int64_t n = 0; n < batch; n++)
            for (int64_t b = first; b < first + together; b++)
                pass->measure(pass->operands, n, b, b + 1);
        for (int64_t b = first; b < first + together; b++)
            pass->finish(pass->operands, b);
        for (int64_t n = batch; n-- > 0;) /* backwards: the last ones read are the likeliest in cache */
            for (int64_t b = first + together; b-- > first;)
                pass->apply(pass->operands, n, b, b + 1);
    }
}

/* ---- images shared out ---- */

/* Parts are `blocks` blocks of an image each, `of_image` of them to an image; [first, end) are the calling thread's. */
struct parts {
    int64_t blocks, of_image, first, end;
};

/* The blocks of a channels-last image lie among each other and are read on end: all at once, unless there are too few
 * images for the threads. The numbers are the same. Parts begin at even blocks, where a line or a word of a sign
 * (sign.h) does. */
static struct parts own_parts(const struct cpu_image *image)
{
    enum { FEWEST = 4 };
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    struct parts parts = {.blocks = cpu_in_rows(image) ? image->blocks : 1};

    for (;;) {
        parts.of_image = (image->blocks + parts.blocks - 1) / parts.blocks;
        if (parts.blocks <= FEWEST || keeps_busy(image->batch * parts.of_image, threads))
            break;
        parts.blocks = (parts.blocks + 1) / 2;
        parts.blocks += parts.blocks % 2;
    }
    parts.first = image->batch * parts.of_image * thread / threads;
    parts.end = image->batch * parts.of_image * (thread + 1) / threads;
    return parts;
}

static void take_part(void (*take)(const void *, int64_t, int64_t, int64_t), const void *operands,
                      const struct cpu_image *image, const struct parts *parts, int64_t part)
{
    const int64_t b = part % parts->of_image * parts->blocks, end = b + parts->blocks;

    take(operands, part / parts->of_image, b, end < image->blocks ? end : image->blocks);
}

static void measure_own(const struct cpu_image *image, const struct batch_norm_pass *pass)
{
    const struct parts parts = own_parts(image);

    if (!pass->measure)
        return;
    for (int64_t part = parts.first; part < parts.end; part++)
        take_part(pass->measure, pass->operands, image, &parts, part);
}

/* Backwards: the last ones measured are the likeliest in cache. */
static void apply_own(const struct cpu_image *image, const struct batch_norm_pass *pass)
{
    const struct parts parts = own_parts(image);

    if (!pass->apply)
        return;
    for (int64_t part = parts.end; part-- > parts.first;)
        take_part(pass->apply, pass->operands, image, &parts, part);
}

static cvy_status run_with_ranks(const cvy_device *device, const struct cpu_image *image,
                                 const struct batch_norm_pass *pass)
{
    const int64_t blocks = image->blocks;
#pragma omp parallel num_threads(device->threads)
    {
        measure_own(image, pass);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            pass->share(pass->operands, b);
    }
    CVY_TRY(cvy_device_sum(device, pass->shared, 2 * blocks * image->block));
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            pass->finish(pass->operands, b);
        apply_own(image, pass);
    }
    return CVY_OK;
}

/* With enough blocks to keep all threads busy, whole channels, unless those of an image share cache lines; otherwise
 * the images are shared out too. Both ways give the same numbers. */
cvy_status batch_norm_run_pass(const cvy_device *device, const struct cpu_image *image,
                               const struct batch_norm_pass *pass)
{
    if (pass->shared)
        return run_with_ranks(device, image, pass);
    if (pass->measure && pass->apply && !cpu_in_rows(image) && keeps_busy(image->blocks, device->threads)) {
        run_by_channels(device, image, pass);
        return CVY_OK;
    }
#pragma omp parallel num_threads(device->threads)
    {
        measure_own(image, pass);
#pragma omp barrier
#pragma omp for schedule(static)
        for (int64_t b = 0; b < image->blocks; b++)
            pass->finish(pass->operands, b);
        apply_own(image, pass);
    }
    return CVY_OK;
}

void batch_norm_run_apply(const cvy_device *device, const struct cpu_image *image, const struct batch_norm_pass *pass)
{
#pragma omp parallel num_threads(device->threads)
    apply_own(image, pass);
}
