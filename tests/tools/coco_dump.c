/* COCO's evaluation of the cases in a text file, for comparisons:
 *
 *   coco_dump CASES [THREADS]
 *
 * Lines of CASES: "case CATEGORIES" begins one; "image ID"; "t CATEGORY X Y WIDTH HEIGHT AREA CROWD" and
 * "d CATEGORY X Y WIDTH HEIGHT SCORE" belong to the image before them. For each case one line of numbers: the twelve,
 * then of each category its average precision (all, 0.50, 0.75) and recall. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "eval/coco_evaluation.h"

enum { MOST = 100000 }; /* objects or detections on one image */

struct reader {
    struct cvy_coco_evaluation evaluation;
    struct cvy_coco_truth *truths;
    struct cvy_coco_detection *detections;
    size_t truth_count, detection_count;
    long long image;
    bool in_case, in_image;
    int threads;
};

static cvy_status end_image(struct reader *r)
{
    cvy_status status = CVY_OK;

    if (r->in_image)
        status = cvy_coco_add(&r->evaluation, r->image, r->truths, r->truth_count, r->detections, r->detection_count);
    r->truth_count = r->detection_count = 0;
    r->in_image = false;
    return status;
}

static cvy_status end_case(struct reader *r)
{
    struct cvy_coco_result result;

    CVY_TRY(end_image(r));
    if (!r->in_case)
        return CVY_OK;
    CVY_TRY(cvy_coco_finish(&r->evaluation, r->threads, &result));
    for (int i = 0; i < CVY_COCO_STATS; i++)
        printf("%.17g ", result.stats[i]);
    for (int32_t c = 0; c < result.category_count; c++) {
        const struct cvy_coco_category *category = &result.categories[c];
        printf("%.17g %.17g %.17g %.17g ", category->ap, category->ap50, category->ap75, category->recall);
    }
    putchar('\n');
    cvy_coco_result_release(&result);
    cvy_coco_close(&r->evaluation);
    r->in_case = false;
    return CVY_OK;
}

/* `count` numbers after the word of a line. */
static bool read_numbers(char *text, double *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        char *end;
        numbers[i] = strtod(text, &end);
        if (end == text)
            return false;
        text = end;
    }
    return true;
}

static cvy_status read_line(struct reader *r, char *line)
{
    double n[7];

    if (strncmp(line, "case ", 5) == 0 && read_numbers(line + 5, n, 1)) {
        CVY_TRY(end_case(r));
        r->in_case = true;
        return cvy_coco_open(&r->evaluation, (int32_t)n[0]);
    }
    if (strncmp(line, "image ", 6) == 0) {
        CVY_TRY(end_image(r));
        r->image = strtoll(line + 6, NULL, 10);
        r->in_image = true;
        return CVY_OK;
    }
    if (r->in_image && strncmp(line, "t ", 2) == 0 && r->truth_count < MOST && read_numbers(line + 2, n, 7)) {
        r->truths[r->truth_count++] = (struct cvy_coco_truth){
            .category = (int32_t)n[0], .box = {n[1], n[2], n[3], n[4]}, .area = n[5], .crowd = n[6] != 0};
        return CVY_OK;
    }
    if (r->in_image && strncmp(line, "d ", 2) == 0 && r->detection_count < MOST && read_numbers(line + 2, n, 6)) {
        r->detections[r->detection_count++] =
            (struct cvy_coco_detection){.category = (int32_t)n[0], .box = {n[1], n[2], n[3], n[4]}, .score = n[5]};
        return CVY_OK;
    }
    return cvy_fail(CVY_BAD_DATA, "cannot read the line %s", cvy_quote(line));
}

int main(int argc, char **argv)
{
    struct reader r = {.threads = argc > 2 ? atoi(argv[2]) : 2};
    void *text = NULL;
    size_t size;
    cvy_status status;

    if (argc < 2)
        return 2;
    r.truths = calloc(MOST, sizeof *r.truths);
    r.detections = calloc(MOST, sizeof *r.detections);
    status = r.truths && r.detections ? cvy_file_read(argv[1], (size_t)1 << 30, &text, &size)
                                      : cvy_fail(CVY_NO_MEMORY, "out of memory");
    for (char *line = status == CVY_OK ? strtok(text, "\n") : NULL; line && status == CVY_OK; line = strtok(NULL, "\n"))
        status = read_line(&r, line);
    if (status == CVY_OK)
        status = end_case(&r);
    if (status != CVY_OK)
        fprintf(stderr, "coco_dump: %s\n", cvy_error());
    cvy_coco_close(&r.evaluation);
    cvy_free(text);
    free(r.truths);
    free(r.detections);
    return (int)status;
}
