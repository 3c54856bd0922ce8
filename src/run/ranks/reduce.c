/* A validation of which each rank did a share becomes one. */
#include <string.h>

#include "base/error.h"
#include "eval/coco_match.h"
#include "run/ranks/ranks.h"

/* The array of each rank in a row, in place of this rank's. */
static cvy_status concat(struct cvy_run_ranks *ranks, void **array, size_t *count, size_t *capacity,
                         size_t element_bytes, size_t *counts)
{
    void *all;
    const cvy_status status = cvy_comm_all_gather_v(&ranks->comm, *array, *count, element_bytes, &all, counts);

    if (status != CVY_OK) {
        cvy_free(all);
        return status;
    }
    cvy_free(*array);
    *array = all;
    *count = 0;
    for (int i = 0; i < ranks->comm.world; i++)
        *count += counts[i];
    *capacity = *count;
    return CVY_OK;
}

/* Truths and detections say which image they are on by its number among those of their rank. */
static cvy_status join_coco(struct cvy_run_ranks *ranks, struct cvy_coco_evaluation *coco, size_t *images,
                            size_t *counts)
{
    void *ids = coco->image_ids, *truths = coco->truths, *detections = coco->detections;
    size_t at = 0, before = 0;
    cvy_status status;

    status = concat(ranks, &ids, &coco->image_count, &coco->image_capacity, sizeof *coco->image_ids, images);
    coco->image_ids = ids;
    CVY_TRY(status);
    status = concat(ranks, &truths, &coco->truth_count, &coco->truth_capacity, sizeof *coco->truths, counts);
    coco->truths = truths;
    CVY_TRY(status);
    for (int r = 0; r < ranks->comm.world; before += images[r++]) {
        for (size_t i = 0; i < counts[r]; i++)
            coco->truths[at++].image += (uint32_t)before;
    }
    status =
        concat(ranks, &detections, &coco->detection_count, &coco->detection_capacity, sizeof *coco->detections, counts);
    coco->detections = detections;
    CVY_TRY(status);
    at = before = 0;
    for (int r = 0; r < ranks->comm.world; before += images[r++]) {
        for (size_t i = 0; i < counts[r]; i++)
            coco->detections[at++].image += (uint32_t)before;
    }
    return CVY_OK;
}

/* Hits and confusions of all; the most wrong images are those of rank 0's share. */
static cvy_status join_collector(struct cvy_run *run, struct cvy_collector *collector, size_t *counts)
{
    const int32_t classes = run->state.network.model.num_classes;
    double *hits = cvy_calloc((size_t)classes, sizeof *hits);
    void *pairs = collector->pairs;
    cvy_status status;

    if (!hits)
        return cvy_fail_memory((size_t)classes * sizeof *hits, "the hits of each class");
    for (int32_t i = 0; collector->topk_hits && i < classes; i++)
        hits[i] = (double)collector->topk_hits[i];
    status = cvy_comm_all_reduce_sum(&run->ranks.comm, hits, classes);
    for (int32_t i = 0; collector->topk_hits && i < classes; i++)
        collector->topk_hits[i] = (int64_t)hits[i];
    cvy_free(hits);
    CVY_TRY(status);
    status = concat(&run->ranks, &pairs, &collector->pair_count, &collector->pair_capacity, sizeof *collector->pairs,
                    counts);
    collector->pairs = pairs;
    return status;
}

static cvy_status join_details(struct cvy_run *run, struct cvy_pass *pass)
{
    const size_t world = (size_t)run->ranks.comm.world;
    size_t *counts = cvy_calloc(2 * world, sizeof *counts);
    cvy_status status = CVY_OK;

    if (!counts)
        return cvy_fail_memory(2 * world * sizeof *counts, "the validation of all ranks");
    if (pass->coco)
        status = join_coco(&run->ranks, pass->coco, counts, counts + world);
    else if (pass->collector)
        status = join_collector(run, pass->collector, counts);
    cvy_free(counts);
    return status;
}

cvy_status cvy_ranks_reduce_pass(struct cvy_run *run, struct cvy_pass *pass)
{
    struct cvy_metrics *m = &pass->metrics;
    double sums[] = {(double)m->images, (double)m->top1_hits,  (double)m->topk_hits, (double)m->skipped,
                     m->loss_sum,       cvy_run_stopping(run), pass->loss_sums[0],   pass->loss_sums[1]};

    if (run->ranks.comm.world == 1)
        return CVY_OK;
    CVY_TRY(cvy_comm_all_reduce_sum(&run->ranks.comm, sums, (int)(sizeof sums / sizeof *sums)));
    if (sums[5] > 0)
        return cvy_fail(CVY_STOPPED, "stopped during validation");
    m->images = (int64_t)sums[0];
    m->top1_hits = (int64_t)sums[1];
    m->topk_hits = (int64_t)sums[2];
    m->skipped = (int64_t)sums[3];
    m->loss_sum = sums[4];
    memcpy(pass->loss_sums, sums + 6, sizeof pass->loss_sums);
    return join_details(run, pass);
}
