/* Matching anchors with boxes, and turning predictions into detections.
 *
 * Matching compares every anchor with every box of its image: a dozen operations, of which the compiler makes vectors,
 * so that a box costs some microseconds. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "ops/anchors.h"

/* ---- matching ---- */

enum { CHUNK = 1024 /* anchors that one task compares */, LANES = 8 };

/* The state: this, then the anchors by coordinate: top, left, bottom, right, area. */
struct match {
    int64_t images, rows, anchors, chunks;
    float planes[];
};

/* What a chunk of anchors has for a row: the largest overlap, and where. */
struct best {
    float overlap;
    int32_t anchor;
};

cvy_status cpu_detection_match_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const struct cvy_anchor_grid grid = cvy_anchors_grid(&desc->attr.anchors);
    const size_t count = (size_t)grid.count;
    struct match *state;
    if (desc->in[1].dtype != CVY_I32 || desc->out[0].dtype != CVY_I32)
        return cvy_fail(CVY_UNAVAILABLE, "labels and classes are i32");
    CVY_TRY(cpu_expect_f32(desc, 1U << 1, 1U << 0));
    cpu_plain(desc, 0, 0);
    state = cvy_calloc(1, sizeof(*state) + 5 * count * sizeof(float));
    if (!state)
        return cvy_fail_memory(5 * count * sizeof(float), "anchors");
    *state =
        (struct match){.images = desc->in[0].shape.dim[0], .rows = desc->in[0].shape.dim[1], .anchors = grid.count};
    state->chunks = (state->anchors + CHUNK - 1) / CHUNK;
    for (size_t a = 0; a < count; a++) {
        float box[4];
        cvy_anchor_at(&grid, (int32_t)a, box);
        for (size_t k = 0; k < 4; k++)
            state->planes[k * count + a] = box[k];
        state->planes[4 * count + a] = cvy_box_area(box);
    }
    plan->state = state;
    plan->scratch_bytes = (size_t)(state->images * state->chunks * state->rows) * sizeof(struct best) +
                          (size_t)state->images * sizeof(int64_t);
    return CVY_OK;
}

static void anchor_of(const struct match *s, int64_t a, float box[4])
{
    for (int k = 0; k < 4; k++)
        box[k] = s->planes[k * s->anchors + a];
}

/* One row against anchors first .. first + count - 1: which of them prefer it to the rows before, and which is best for
 * it. `found` and `max`: row and overlap of each anchor so far. */
static struct best compare(const struct match *s, const float box[4], int32_t row, int64_t first, int64_t count,
                           int32_t *found, float *max)
{
    const float area = cvy_box_area(box), *plane[5];
    float overlap[CHUNK + LANES], lane_max[LANES] = {0};
    int32_t lane_at[LANES] = {0};
    struct best best = {0, 0};
    for (int k = 0; k < 5; k++)
        plane[k] = s->planes + k * s->anchors + first;
    for (int64_t i = 0; i < count; i++) {
        const float anchor[4] = {plane[0][i], plane[1][i], plane[2][i], plane[3][i]};
        overlap[i] = cvy_box_overlap(box, area, anchor, plane[4][i]);
    }
    for (int64_t i = 0; i < count; i++) {
        const bool more = overlap[i] > max[i];
        found[i] = more ? row : found[i];
        max[i] = more ? overlap[i] : max[i];
    }
    for (int64_t i = count; i < count + LANES; i++)
        overlap[i] = 0;
    for (int64_t i = 0; i < count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const bool more = overlap[i + lane] > lane_max[lane];
            lane_at[lane] = more ? (int32_t)i + lane : lane_at[lane];
            lane_max[lane] = more ? overlap[i + lane] : lane_max[lane];
        }
    for (int lane = 0; lane < LANES; lane++)
        if (lane_max[lane] > best.overlap || (lane_max[lane] == best.overlap && lane_at[lane] < best.anchor))
            best = (struct best){lane_max[lane], lane_at[lane]};
    best.anchor = best.overlap > 0 ? best.anchor + (int32_t)first : 0;
    return best;
}

/* found (anchors of the chunk) becomes the row of each, -1: none; best[r]: of each row. */
static void match_chunk(const struct match *s, const float *boxes, const int32_t *labels, int64_t chunk, int32_t *found,
                        struct best *best)
{
    const int64_t first = chunk * CHUNK, rest = s->anchors - first, count = rest < CHUNK ? rest : CHUNK;
    float max[CHUNK];
    for (int64_t i = 0; i < count; i++) {
        found[i] = -1;
        max[i] = CVY_BELOW_MATCH_OVERLAP;
    }
    for (int64_t r = 0; r < s->rows; r++) {
        best[r] = (struct best){0, 0};
        if (cvy_box_valid(labels[r], boxes + 4 * r))
            best[r] = compare(s, boxes + 4 * r, (int32_t)r, first, count, found, max);
    }
}

/* Each box its anchor, whatever the anchor prefers; the first row has the last word. */
static void force(const struct match *s, const float *boxes, const int32_t *labels, const struct best *best,
                  int32_t *found)
{
    for (int64_t r = s->rows - 1; r >= 0; r--) {
        struct best of_all = best[r];
        if (!cvy_box_valid(labels[r], boxes + 4 * r))
            continue;
        for (int64_t chunk = 1; chunk < s->chunks; chunk++)
            if (best[chunk * s->rows + r].overlap > of_all.overlap)
                of_all = best[chunk * s->rows + r];
        found[of_all.anchor] = (int32_t)r;
    }
}

/* Rows become classes and codes; returns how many there are. */
static int64_t encode(const struct match *s, const float *boxes, const int32_t *labels, int32_t *found, float *targets)
{
    int64_t matched = 0;
    memset(targets, 0, (size_t)s->anchors * 4 * sizeof(float));
    for (int64_t a = 0; a < s->anchors; a++) {
        const int32_t row = found[a];
        float anchor[4];
        double code[4];
        found[a] = 0;
        if (row < 0)
            continue;
        anchor_of(s, a, anchor);
        cvy_box_encode(boxes + 4 * (int64_t)row, anchor, code);
        for (int k = 0; k < 4; k++)
            targets[4 * a + k] = (float)code[k];
        found[a] = labels[row];
        matched++;
    }
    return matched;
}

cvy_status cpu_detection_match_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct match *s = plan->state;
    const float *boxes = in[0];
    const int32_t *labels = in[1];
    int64_t *matched = scratch, total = 0; /* (images) */
    struct best *best = (struct best *)(matched + s->images);
    int32_t *found = out[0];
    float *targets = out[1];
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static) collapse(2)
        for (int64_t n = 0; n < s->images; n++)
            for (int64_t chunk = 0; chunk < s->chunks; chunk++)
                match_chunk(s, boxes + n * s->rows * 4, labels + n * s->rows, chunk,
                            found + n * s->anchors + chunk * CHUNK, best + (n * s->chunks + chunk) * s->rows);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < s->images; n++) {
            const float *rows = boxes + n * s->rows * 4;
            int32_t *image = found + n * s->anchors;
            force(s, rows, labels + n * s->rows, best + n * s->chunks * s->rows, image);
            matched[n] = encode(s, rows, labels + n * s->rows, image, targets + n * s->anchors * 4);
        }
    }
    for (int64_t n = 0; n < s->images; n++)
        total += matched[n];
    double all = (double)total; /* where batches of several ranks count as one, each has its share of the number */
    CVY_TRY(cvy_device_sum(device, &all, 1));
    *(float *)out[2] = (float)((all > 1 ? all : 1) / cvy_device_ranks(device));
    return CVY_OK;
}
