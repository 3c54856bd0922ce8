/* Matching anchors with boxes, and detections. graph/boxes.h has the arithmetic, in which every product is rounded by
 * itself, as on every other device. */
#include "backend/cuda/kernels/launch.h"
#define CVY_BOXES_FUNCTION GPU_BODY
#ifdef __CUDACC__
#define CVY_BOXES_PRODUCT(a, b) __fmul_rn(a, b)
#else
#define CVY_BOXES_PRODUCT(a, b) ((a) * (b))
#endif
#include "backend/cuda/kernels/kernels.h"

enum { BOX_THREADS = 256 };

/* The largest value of a block's threads and its index, the lowest among equals; every thread gets them. */
GPU_BODY void block_best(float *values, int32_t *indexes, float *value, int32_t *index)
{
    values[GPU_THREAD] = *value;
    indexes[GPU_THREAD] = *index;
    GPU_SYNC();
    for (int32_t step = BOX_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step) {
            const int32_t other = GPU_THREAD + step;
            if (values[other] > values[GPU_THREAD] ||
                (values[other] == values[GPU_THREAD] && indexes[other] < indexes[GPU_THREAD])) {
                values[GPU_THREAD] = values[other];
                indexes[GPU_THREAD] = indexes[other];
            }
        }
        GPU_SYNC();
    }
    *value = values[0];
    *index = indexes[0];
    GPU_SYNC();
}

/* ---- anchors ---- */

struct anchors_args {
    struct cvy_anchor_grid grid;
    float *anchors; /* (A, 4) */
};

#ifdef __CUDACC__ /* the levels are looked up where the arguments are; a plain kernel would make a copy for each       \
                     thread */
static __global__ void __launch_bounds__(BOX_THREADS) make_anchors(const __grid_constant__ struct anchors_args a)
#else
GPU_KERNEL(make_anchors, struct anchors_args, BOX_THREADS)
#endif
{
    const int32_t i = GPU_BLOCK_X * BOX_THREADS + GPU_THREAD;

    if (i < a.grid.count)
        cvy_anchor_at(&a.grid, i, a.anchors + 4 * (int64_t)i);
}

static int64_t anchor_blocks(const struct cvy_anchor_grid *grid)
{
    return ((int64_t)grid->count + BOX_THREADS - 1) / BOX_THREADS;
}

static void put_anchors(void *stream, const struct cvy_anchor_grid *grid, float *anchors)
{
    struct anchors_args args;

    args.grid = *grid;
    args.anchors = anchors;
    GPU_LAUNCH(make_anchors, stream, anchor_blocks(grid), 1, BOX_THREADS, args);
}

/* ---- matching ---- */

struct match_args {
    struct gpu_match what;
    float *anchors;  /* (A, 4) */
    int32_t *forced; /* (images, rows): the anchor of each row, -1: the row does not count */
    float *counts;   /* of each block of match_codes */
};

/* The row that each anchor prefers. */
GPU_KERNEL(match_anchors, struct match_args, BOX_THREADS)
{
    const int32_t i = GPU_BLOCK_X * BOX_THREADS + GPU_THREAD;
    const int64_t first = (int64_t)GPU_BLOCK_Y * a.what.rows;

    if (i < a.what.grid.count) {
        const float *anchor = a.anchors + 4 * (int64_t)i;
        const float area = cvy_box_area(anchor);
        float maximum = CVY_BELOW_MATCH_OVERLAP;
        int32_t found = -1;
        for (int64_t r = first; r < first + a.what.rows; r++) {
            const float *box = a.what.boxes + 4 * r;
            if (cvy_box_valid(a.what.labels[r], box)) {
                const float overlap = cvy_box_overlap(box, cvy_box_area(box), anchor, area);
                if (overlap > maximum) {
                    maximum = overlap;
                    found = (int32_t)(r - first);
                }
            }
        }
        a.what.classes[(int64_t)GPU_BLOCK_Y * a.what.grid.count + i] = found;
    }
}

/* The anchor that overlaps each row most: a block for each row of each image. */
GPU_KERNEL_SHARED(match_rows, struct match_args, BOX_THREADS)
{
    GPU_SHARED float values[BOX_THREADS];
    GPU_SHARED int32_t indexes[BOX_THREADS];
    const int64_t row = (int64_t)GPU_BLOCK_Y * a.what.rows + GPU_BLOCK_X;
    const float *box = a.what.boxes + 4 * row;
    const bool valid = cvy_box_valid(a.what.labels[row], box);
    const float area = cvy_box_area(box);
    float maximum = 0;
    int32_t found = 0;

    for (int32_t i = GPU_THREAD; valid && i < a.what.grid.count; i += BOX_THREADS) {
        const float *anchor = a.anchors + 4 * (int64_t)i;
        const float overlap = cvy_box_overlap(box, area, anchor, cvy_box_area(anchor));
        if (overlap > maximum) {
            maximum = overlap;
            found = i;
        }
    }
    block_best(values, indexes, &maximum, &found);
    if (GPU_THREAD == 0)
        a.forced[row] = !valid ? -1 : maximum > 0 ? found : 0;
}

/* Rows become classes and codes. */
GPU_KERNEL_SHARED(match_codes, struct match_args, BOX_THREADS)
{
    GPU_SHARED float shared_sums[BOX_THREADS];
    const int32_t i = GPU_BLOCK_X * BOX_THREADS + GPU_THREAD;
    const int64_t first = (int64_t)GPU_BLOCK_Y * a.what.rows;
    float count = 0;

    if (i < a.what.grid.count) {
        const int64_t at = (int64_t)GPU_BLOCK_Y * a.what.grid.count + i;
        double code[4] = {0, 0, 0, 0};
        int32_t row = a.what.classes[at];
        for (int64_t r = a.what.rows - 1; r >= 0; r--) { /* the first row has the last word */
            if (a.forced[first + r] == i)
                row = (int32_t)r;
        }
        if (row >= 0) {
            cvy_box_encode(a.what.boxes + 4 * (first + row), a.anchors + 4 * (int64_t)i, code);
            count = 1;
        }
        a.what.classes[at] = row < 0 ? 0 : a.what.labels[first + row];
        for (int32_t k = 0; k < 4; k++)
            a.what.targets[4 * at + k] = (float)code[k];
    }
    count = gpu_block_sum(shared_sums, count);
    if (GPU_THREAD == 0)
        a.counts[(int64_t)GPU_BLOCK_Y * GPU_BLOCKS_X + GPU_BLOCK_X] = count;
}

/* One block: max(number of matched anchors, 1). */
GPU_KERNEL_SHARED(count_matches, struct match_args, BOX_THREADS)
{
    GPU_SHARED float shared_sums[BOX_THREADS];
    const int64_t blocks = (a.what.grid.count + BOX_THREADS - 1) / BOX_THREADS * a.what.images;
    float sum = 0;

    for (int64_t i = GPU_THREAD; i < blocks; i += BOX_THREADS)
        sum += a.counts[i];
    sum = gpu_block_sum(shared_sums, sum);
    if (GPU_THREAD == 0)
        *a.what.positives = sum > 1 ? sum : 1;
}

GPU_EXTERN int64_t gpu_match_scratch(const struct gpu_match *what)
{
    return 4 * (int64_t)what->grid.count + what->images * (what->rows + anchor_blocks(&what->grid));
}

GPU_EXTERN void gpu_detection_match(void *stream, const struct gpu_match *what, float *scratch)
{
    const int64_t blocks = anchor_blocks(&what->grid);
    struct match_args args;

    args.what = *what;
    args.anchors = scratch;
    args.counts = scratch + 4 * (int64_t)what->grid.count;
    args.forced = (int32_t *)(args.counts + what->images * blocks);
    put_anchors(stream, &what->grid, args.anchors);
    GPU_LAUNCH(match_anchors, stream, blocks, what->images, BOX_THREADS, args);
    GPU_LAUNCH(match_rows, stream, what->rows, what->images, BOX_THREADS, args);
    GPU_LAUNCH(match_codes, stream, blocks, what->images, BOX_THREADS, args);
    GPU_LAUNCH(count_matches, stream, 1, 1, BOX_THREADS, args);
}

/* ---- detections ---- */

struct detect_args {
    struct gpu_detect what;
    float *anchors; /* (A, 4) */
    float *boxes;   /* (images, A, 5): corners in order, area */
    float *scores;  /* (images, classes, A): 0 once a candidate is out */
    /* (images, classes, max_per_class): of what suppression leaves, scores (0 after them) and anchors */
    float *kept_scores;
    int32_t *kept_anchors;
    int32_t *heads; /* (images, classes): how many are merged */
};

GPU_BODY void decoded(const struct detect_args *a, int64_t image, int32_t anchor, float box[4])
{
    const float *codes = a->what.codes + 4 * (image * a->what.grid.count + anchor);
    const double code[4] = {codes[0], codes[1], codes[2], codes[3]};

    cvy_box_decode(code, a->anchors + 4 * (int64_t)anchor, box);
}

GPU_KERNEL(decode_boxes, struct detect_args, BOX_THREADS)
{
    const int32_t i = GPU_BLOCK_X * BOX_THREADS + GPU_THREAD;

    if (i < a.what.grid.count) {
        float *to = a.boxes + 5 * ((int64_t)GPU_BLOCK_Y * a.what.grid.count + i), box[4];
        decoded(&a, GPU_BLOCK_Y, i, box);
        for (int32_t k = 0; k < 2; k++) {
            to[k] = box[k + 2] < box[k] ? box[k + 2] : box[k];
            to[k + 2] = box[k + 2] < box[k] ? box[k] : box[k + 2];
        }
        to[4] = cvy_box_area(to);
    }
}

/* A class of an image: the best candidate is kept and strikes out what overlaps it, until none is left. */
GPU_KERNEL_SHARED(suppress_class, struct detect_args, BOX_THREADS)
{
    GPU_SHARED float values[BOX_THREADS];
    GPU_SHARED int32_t indexes[BOX_THREADS];
    const struct gpu_detect *w = &a.what;
    const int32_t count = w->grid.count;
    const int64_t list = (int64_t)GPU_BLOCK_Y * w->classes + GPU_BLOCK_X;
    const float *logits = w->logits + (int64_t)GPU_BLOCK_Y * count * (w->classes + 1) + 1 + GPU_BLOCK_X;
    const float *boxes = a.boxes + 5 * (int64_t)GPU_BLOCK_Y * count;
    float *scores = a.scores + list * count;
    int32_t kept = 0;

    for (int32_t i = GPU_THREAD; i < count; i += BOX_THREADS) {
        const float score = (float)cvy_box_score((double)logits[(int64_t)i * (w->classes + 1)]);
        scores[i] = score > w->attr.score ? score : 0;
    }
    for (; kept < w->attr.max_per_class; kept++) {
        float best = 0;
        int32_t found = 0;
        for (int32_t i = GPU_THREAD; i < count; i += BOX_THREADS) {
            if (scores[i] > best) {
                best = scores[i];
                found = i;
            }
        }
        block_best(values, indexes, &best, &found);
        if (best == 0) /* for all threads alike */
            break;
        for (int32_t i = GPU_THREAD; i < count; i += BOX_THREADS) {
            const float *box = boxes + 5 * (int64_t)found, *other = boxes + 5 * (int64_t)i;
            if (i == found || cvy_box_overlap(box, box[4], other, other[4]) > w->attr.iou)
                scores[i] = 0;
        }
        if (GPU_THREAD == 0) {
            a.kept_scores[list * w->attr.max_per_class + kept] = best;
            a.kept_anchors[list * w->attr.max_per_class + kept] = found;
        }
    }
    for (kept += GPU_THREAD; kept < w->attr.max_per_class; kept += BOX_THREADS)
        a.kept_scores[list * w->attr.max_per_class + kept] = 0;
    if (GPU_THREAD == 0)
        a.heads[list] = 0;
}

/* The clipped box at the head of a class; false where it has no area. */
GPU_BODY bool head_of_class(const struct detect_args *a, int64_t image, int64_t list, float box[4])
{
    decoded(a, image, a->kept_anchors[list * a->what.attr.max_per_class + a->heads[list]], box);
    return cvy_box_clip(box);
}

/* Moves the head of a class to its next box that has an area inside the image; the score, 0 where there is none. */
GPU_BODY float next_of_class(const struct detect_args *a, int64_t image, int64_t list)
{
    const int32_t maximum = a->what.attr.max_per_class;
    float box[4];

    for (; a->heads[list] < maximum; a->heads[list]++) {
        const float score = a->kept_scores[list * maximum + a->heads[list]];
        if (score == 0 || head_of_class(a, image, list, box))
            return score;
    }
    return 0;
}

/* A block for each image: the lists of its classes, each in order, become one. Thread t looks after the classes t,
 * t + BOX_THREADS and so on. */
GPU_KERNEL_SHARED(merge_classes, struct detect_args, BOX_THREADS)
{
    GPU_SHARED float values[BOX_THREADS];
    GPU_SHARED int32_t indexes[BOX_THREADS];
    const int32_t classes = (int32_t)a.what.classes;
    const int64_t first = (int64_t)GPU_BLOCK_X * a.what.attr.max_boxes, lists = (int64_t)GPU_BLOCK_X * classes;
    int32_t count = 0;

    for (; count < a.what.attr.max_boxes; count++) {
        float best = 0;
        int32_t found = classes;
        for (int32_t label = GPU_THREAD; label < classes; label += BOX_THREADS) {
            const float score = next_of_class(&a, GPU_BLOCK_X, lists + label);
            if (score > best) {
                best = score;
                found = label;
            }
        }
        block_best(values, indexes, &best, &found);
        if (best == 0) /* for all threads alike */
            break;
        if (GPU_THREAD == found % BOX_THREADS) {
            float box[4];
            head_of_class(&a, GPU_BLOCK_X, lists + found, box);
            a.heads[lists + found]++;
            a.what.scores[first + count] = best;
            a.what.labels[first + count] = found;
            for (int32_t k = 0; k < 4; k++)
                a.what.boxes[4 * (first + count) + k] = box[k];
        }
    }
    for (int32_t i = count + GPU_THREAD; i < a.what.attr.max_boxes; i += BOX_THREADS) {
        a.what.scores[first + i] = 0;
        a.what.labels[first + i] = 0;
        for (int32_t k = 0; k < 4; k++)
            a.what.boxes[4 * (first + i) + k] = 0;
    }
    if (GPU_THREAD == 0)
        a.what.counts[GPU_BLOCK_X] = count;
}

GPU_EXTERN int64_t gpu_detect_scratch(const struct gpu_detect *what)
{
    return 4 * (int64_t)what->grid.count +
           what->images * (what->grid.count * (5 + what->classes) + what->classes * (2 * what->attr.max_per_class + 1));
}

GPU_EXTERN void gpu_detect(void *stream, const struct gpu_detect *what, float *scratch)
{
    const int64_t anchors = what->images * what->grid.count, lists = what->images * what->classes;
    struct detect_args args;

    args.what = *what;
    args.anchors = scratch;
    args.boxes = scratch + 4 * (int64_t)what->grid.count;
    args.scores = args.boxes + 5 * anchors;
    args.kept_scores = args.scores + anchors * what->classes;
    args.kept_anchors = (int32_t *)(args.kept_scores + lists * what->attr.max_per_class);
    args.heads = args.kept_anchors + lists * what->attr.max_per_class;
    put_anchors(stream, &what->grid, args.anchors);
    GPU_LAUNCH(decode_boxes, stream, anchor_blocks(&what->grid), what->images, BOX_THREADS, args);
    GPU_LAUNCH(suppress_class, stream, what->classes, what->images, BOX_THREADS, args);
    GPU_LAUNCH(merge_classes, stream, what->images, 1, BOX_THREADS, args);
}
