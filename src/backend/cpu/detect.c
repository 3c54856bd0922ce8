/* Detections: the boxes of highest score that non-maximum suppression leaves, without sorting all scores.
 *
 * The op says: within each class go through the boxes by descending score and keep those that overlap none kept before,
 * at most `max_per_class`; merge the classes by descending score; clip, leave out what has no area, and take the first
 * `max_boxes`. Here one walk goes through the candidates of all classes by descending score (equal scores by class,
 * then by anchor) and applies all of it to each. The result is the same:
 *
 * - the walk passes the candidates of one class in the order in which suppression takes them, and what is kept of a
 *   class depends on what was kept of it before, and on no other class;
 * - what is kept appears in the order of the merged list, and whether it has an area depends on the box alone. So the
 *   first `max_boxes` of them are the result, and the walk ends there: what comes later stands after them.
 *
 * The walk passes the candidates that score no less than the last detection, each once: where 100 boxes exist, that is
 * some hundreds to thousands, for a trained network and for random weights alike. Where there are fewer (a network that
 * says the same box everywhere), it would have to pass all candidates, A (K - 1), so it gives up after A of them, and
 * the image is done class by class as the op says, from the beginning: the best box left is kept, and all that overlap
 * it are struck out at once, by loops without conditions. That costs A operations for each class and A for each box
 * that is kept, of which there are (K - 1) max_per_class at most.
 *
 * A heap holds one entry for each anchor: its best candidate not yet passed. At first only a bound of its score is
 * known, from the largest logit and a sigmoid that is exact to some units; the candidate is looked up when the bound
 * comes to the top, which happens to few. So reading all logits once is nearly all the work. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "ops/anchors.h"

enum { CHUNK = 512 /* anchors whose logits one task reads */, LANES = 8 };

struct detect {
    struct cvy_detect_attr attr;
    struct cvy_anchor_grid grid;
    int64_t images, anchors, columns;
    int64_t capacity;  /* boxes that can be kept of a class */
    size_t walk_bytes; /* working memory of a thread */
};

/* An image: what comes in and what goes out. */
struct image {
    const struct detect *s;
    const float *codes, *logits;
    float *boxes, *scores;
    int32_t *classes, count;
};

/* The walk through an image. */
struct walk {
    struct image *image;
    const struct detect *s;
    uint64_t *heap; /* (anchors): see entry_of() */
    int64_t heap_count;
    int32_t *kept_count; /* (classes) */
    float *kept;         /* (classes, 5, room): see struct planes */
};

/* Boxes by coordinate: top, left, bottom, right, area, corners in order, `stride` apart. */
struct planes {
    float *first;
    int64_t stride;
};

/* The largest entry is the next: score, whether that is only a bound (which must be looked up before candidates of the
 * same score), then lower class and anchor first. Scores are floats above 0, which order like their bits. */
static uint64_t entry_of(float score, bool bound, uint32_t place)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof(bits));
    return (uint64_t)bits << 33 | (uint64_t)bound << 32 | (UINT32_MAX - place);
}

static float score_of_entry(uint64_t entry)
{
    const uint32_t bits = (uint32_t)(entry >> 33);
    float score;
    memcpy(&score, &bits, sizeof(score));
    return score;
}

static bool is_bound(uint64_t entry)
{
    return entry >> 32 & 1;
}

/* class * anchors + anchor; of a bound the anchor */
static uint32_t place_of_entry(uint64_t entry)
{
    return UINT32_MAX - (uint32_t)entry;
}

cvy_status cpu_detect_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const int64_t *dim = desc->in[1].shape.dim;
    struct detect state = {.attr = desc->attr.detect,
                           .grid = cvy_anchors_grid(&desc->attr.detect.anchors),
                           .images = dim[0],
                           .anchors = dim[1],
                           .columns = dim[2]};
    const size_t classes = (size_t)dim[2] - 1, dense = (size_t)(6 * dim[1] + LANES) * sizeof(float);
    size_t bytes, walks;
    CVY_TRY(cpu_expect_f32(desc, 0, 1U << 2 | 1U << 3));
    cpu_plain(desc, 0, 0);
    state.capacity = state.attr.max_per_class < dim[1] ? state.attr.max_per_class : dim[1];
    /* The heap, counts and boxes, or boxes and scores of all anchors; whole cache lines. */
    if (!cvy_size_mul(classes, (size_t)state.capacity * 5 * sizeof(float), &bytes) ||
        !cvy_size_add(bytes, (size_t)dim[1] * sizeof(uint64_t) + (classes + 1) * sizeof(int32_t), &bytes) ||
        !cvy_size_add(bytes > dense ? bytes : dense, 63, &bytes) ||
        !cvy_size_mul(bytes / 64 * 64, (size_t)device->threads, &walks) ||
        !cvy_size_add(walks, (size_t)(dim[0] * dim[1]) * sizeof(float), &plan->scratch_bytes))
        return cvy_fail(CVY_NO_MEMORY, "the working memory of detect is too large");
    state.walk_bytes = bytes / 64 * 64;
    return cpu_state(plan, &state, sizeof(state));
}

/* ---- the heap ---- */

static void sift_down(uint64_t *heap, int64_t at, int64_t count)
{
    const uint64_t moved = heap[at];
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[child] <= moved)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* What the sigmoid of cpu_loops may be off by, and twice that. */
static float bound_of(float score)
{
    return score * (1 + 8 * 0x1p-23F) + 0x1p-126F;
}

static void fill_heap(struct walk *w, const float *scores)
{
    w->heap_count = 0;
    for (int64_t a = 0; a < w->s->anchors; a++) {
        const float bound = bound_of(scores[a]);
        if (bound > w->s->attr.score)
            w->heap[w->heap_count++] = entry_of(bound, true, (uint32_t)a);
    }
    for (int64_t i = w->heap_count / 2 - 1; i >= 0; i--)
        sift_down(w->heap, i, w->heap_count);
}

/* The candidate of the anchor that comes after (score, label): the largest score, of equals the lowest class. Returns
 * its entry, 0 where none is left. */
static uint64_t next_candidate(const struct walk *w, int64_t anchor, float score, int64_t label)
{
    const float *row = w->image->logits + anchor * w->s->columns + 1;
    float best = w->s->attr.score, best_logit = -INFINITY;
    int64_t found = -1;
    for (int64_t c = 0; c < w->s->columns - 1; c++) {
        if (!(row[c] > best_logit)) /* nor NaN: scores order like logits, so it cannot be better */
            continue;
        const float own = (float)cvy_box_score((double)row[c]);
        if (!(own > best) || own > score || (own == score && c <= label))
            continue;
        best = own;
        best_logit = row[c];
        found = c;
    }
    return found < 0 ? 0 : entry_of(best, false, (uint32_t)(found * w->s->anchors + anchor));
}

/* Replaces the top by the anchor's next candidate, or takes it away. */
static void advance(struct walk *w, int64_t anchor, float score, int64_t label)
{
    w->heap[0] = next_candidate(w, anchor, score, label);
    if (!w->heap[0])
        w->heap[0] = w->heap[--w->heap_count];
    sift_down(w->heap, 0, w->heap_count);
}

/* ---- suppression ---- */

static float place_box(struct planes planes, int64_t at, const float box[4])
{
    float sorted[4], area;
    for (int i = 0; i < 2; i++) {
        sorted[i] = box[i + 2] < box[i] ? box[i + 2] : box[i];
        sorted[i + 2] = box[i + 2] < box[i] ? box[i] : box[i + 2];
    }
    area = cvy_box_area(sorted);
    for (int k = 0; k < 4; k++)
        planes.first[k * planes.stride + at] = sorted[k];
    planes.first[4 * planes.stride + at] = area;
    return area;
}

static float overlap_of(struct planes planes, int64_t at, const float box[4], float area)
{
    const float *first = planes.first + at;
    const float other[4] = {first[0], first[planes.stride], first[2 * planes.stride], first[3 * planes.stride]};
    return cvy_box_overlap(box, area, other, first[4 * planes.stride]);
}

static void box_at(struct planes planes, int64_t at, float box[4])
{
    for (int k = 0; k < 4; k++)
        box[k] = planes.first[k * planes.stride + at];
}

static void decode(const struct image *image, int64_t anchor, float box[4])
{
    double code[4];
    float from[4];
    for (int k = 0; k < 4; k++)
        code[k] = (double)image->codes[4 * anchor + k];
    cvy_anchor_at(&image->s->grid, (int32_t)anchor, from);
    cvy_box_decode(code, from, box);
}

/* ---- the walk ---- */

/* Keeps the box of the class unless it overlaps one that is kept already. */
static bool keep(struct walk *w, int64_t label, const float box[4])
{
    const struct planes kept = {w->kept + label * 5 * w->s->capacity, w->s->capacity};
    const int64_t count = w->kept_count[label];
    const float area = place_box(kept, count, box), iou = w->s->attr.iou;
    float sorted[4];
    int32_t overlaps = 0;
    box_at(kept, count, sorted);
    for (int64_t i = 0; i < count; i++)
        overlaps |= overlap_of(kept, i, sorted, area) > iou;
    w->kept_count[label] += !overlaps;
    return !overlaps;
}

static void visit(struct walk *w, int64_t anchor, int64_t label, float score)
{
    struct image *image = w->image;
    float *box = image->boxes + 4 * (int64_t)image->count;
    if (w->kept_count[label] == w->s->capacity)
        return;
    decode(image, anchor, box);
    if (!keep(w, label, box) || !cvy_box_clip(box))
        return;
    image->scores[image->count] = score;
    image->classes[image->count++] = (int32_t)label;
}

/* Whether all detections were found; if not, there is no use in going on. `scores`: of each anchor, nearly. */
static bool walk_image(struct image *image, char *memory, const float *scores)
{
    const struct detect *s = image->s;
    struct walk w = {.image = image, .s = s, .heap = (uint64_t *)memory};
    w.kept = (float *)(w.heap + s->anchors);
    w.kept_count = (int32_t *)(w.kept + (s->columns - 1) * 5 * s->capacity);
    fill_heap(&w, scores);
    memset(w.kept_count, 0, (size_t)(s->columns - 1) * sizeof(*w.kept_count));
    image->count = 0;
    for (int64_t passed = 0; image->count < s->attr.max_boxes && w.heap_count > 0;) {
        const uint64_t entry = w.heap[0];
        const int64_t place = place_of_entry(entry), anchor = place % s->anchors, label = place / s->anchors;
        if (is_bound(entry)) {
            advance(&w, anchor, INFINITY, -1);
            continue;
        }
        if (passed++ == s->anchors)
            return false;
        visit(&w, anchor, label, score_of_entry(entry));
        advance(&w, anchor, score_of_entry(entry), label);
    }
    return true;
}

/* ---- class by class ---- */

/* The first of the largest numbers; there are LANES zeros after them. */
static int64_t first_largest(const float *x, int64_t count)
{
    float max[LANES] = {0};
    int32_t at[LANES] = {0}, first = 0;
    for (int64_t i = 0; i < count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const bool more = x[i + lane] > max[lane];
            at[lane] = more ? (int32_t)i + lane : at[lane];
            max[lane] = more ? x[i + lane] : max[lane];
        }
    for (int lane = 1; lane < LANES; lane++)
        if (max[lane] > max[first] || (max[lane] == max[first] && at[lane] < at[first]))
            first = lane;
    return at[first];
}

/* Puts a box where it belongs, after those of the same score. */
static void insert(struct image *image, const float box[4], float score, int32_t label)
{
    int32_t at = image->count;
    while (at > 0 && score > image->scores[at - 1])
        at--;
    if (at == image->s->attr.max_boxes)
        return;
    image->count += image->count < image->s->attr.max_boxes;
    const size_t moved = (size_t)(image->count - 1 - at);
    memmove(image->scores + at + 1, image->scores + at, moved * sizeof(float));
    memmove(image->classes + at + 1, image->classes + at, moved * sizeof(int32_t));
    memmove(image->boxes + 4 * ((int64_t)at + 1), image->boxes + 4 * (int64_t)at, moved * 4 * sizeof(float));
    image->scores[at] = score;
    image->classes[at] = label;
    memcpy(image->boxes + 4 * (int64_t)at, box, 4 * sizeof(float));
}

static void detect_class(struct image *image, struct planes boxes, float *scores, int32_t label)
{
    const struct detect *s = image->s;
    const float iou = s->attr.iou, min = s->attr.score;
    for (int64_t a = 0; a < s->anchors; a++) {
        const float score = (float)cvy_box_score((double)image->logits[a * s->columns + 1 + label]);
        scores[a] = score > min ? score : 0;
    }
    for (int64_t kept = 0; kept < s->capacity; kept++) {
        const int64_t best = first_largest(scores, s->anchors);
        const float score = scores[best];
        float box[4], area = boxes.first[4 * boxes.stride + best];
        if (score == 0 || (image->count == s->attr.max_boxes && score <= image->scores[image->count - 1]))
            return; /* none left, or none that could be among the first */
        box_at(boxes, best, box);
        for (int64_t a = 0; a < s->anchors; a++)
            scores[a] = overlap_of(boxes, a, box, area) > iou ? 0 : scores[a];
        scores[best] = 0; /* also where it has no area */
        decode(image, best, box);
        if (cvy_box_clip(box))
            insert(image, box, score, label);
    }
}

static void detect_classes(struct image *image, char *memory)
{
    const struct detect *s = image->s;
    float *scores = (float *)memory;
    const struct planes boxes = {scores + s->anchors + LANES, s->anchors};
    memset(scores + s->anchors, 0, LANES * sizeof(float));
    for (int64_t a = 0; a < s->anchors; a++) {
        float box[4];
        decode(image, a, box);
        place_box(boxes, a, box);
    }
    image->count = 0;
    for (int64_t label = 0; label < s->columns - 1; label++)
        detect_class(image, boxes, scores, (int32_t)label);
}

/* ---- the kernel ---- */

static struct image image_of(const struct detect *s, void *const *in, void *const *out, int64_t n)
{
    const int64_t max = s->attr.max_boxes;
    return (struct image){.s = s,
                          .codes = (const float *)in[0] + n * s->anchors * 4,
                          .logits = (const float *)in[1] + n * s->anchors * s->columns,
                          .boxes = (float *)out[0] + n * max * 4,
                          .scores = (float *)out[1] + n * max,
                          .classes = (int32_t *)out[2] + n * max};
}

/* Zeros after the detections. */
static void fill_rest(const struct image *image)
{
    const size_t rest = (size_t)(image->s->attr.max_boxes - image->count);
    memset(image->boxes + 4 * (int64_t)image->count, 0, rest * 4 * sizeof(float));
    memset(image->scores + image->count, 0, rest * sizeof(float));
    memset(image->classes + image->count, 0, rest * sizeof(int32_t));
}

cvy_status cpu_detect_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    const struct detect *s = plan->state;
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    const int64_t rows = s->images * s->anchors;
    const float *logits = in[1];
    char *memory = scratch; /* of each thread, then the largest score of each anchor */
    float *scores = (float *)(memory + s->walk_bytes * (size_t)device->threads);
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t first = 0; first < rows; first += CHUNK) {
            const size_t count = (size_t)(rows - first < CHUNK ? rows - first : CHUNK);
            kernels->row_maxima(scores + first, logits + first * s->columns + 1, count, (size_t)s->columns,
                                (size_t)s->columns - 1);
            kernels->f32->unary[CVY_OP_SIGMOID](scores + first, scores + first, count);
        }
#pragma omp for schedule(dynamic)
        for (int64_t n = 0; n < s->images; n++) {
            char *own = memory + s->walk_bytes * (size_t)omp_get_thread_num();
            struct image image = image_of(s, in, out, n);
            if (!walk_image(&image, own, scores + n * s->anchors))
                detect_classes(&image, own);
            fill_rest(&image);
            ((int32_t *)out[3])[n] = image.count;
        }
    }
    return CVY_OK;
}
