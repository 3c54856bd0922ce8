/* What convoy check finds out about the boxes of a detection set. */
#ifndef CVY_DATASET_TOOLS_CHECK_BOXES_H
#define CVY_DATASET_TOOLS_CHECK_BOXES_H

#include "backend/backend.h"
#include "convoy/program/check.h"
#include "data/set/dataset.h"

/* Which anchors training would assign to the boxes of an image, computed by the CPU's matching kernel. */
struct cvy_box_matcher {
    cvy_device *device;
    struct cvy_op_desc desc;
    struct cvy_kernel_plan kernel;
    float *anchors; /* (count, 4) */
    int32_t count;
};
/* SSD320 for square images of `size` pixels. Zero-initialise; release accepts a zeroed one. */
CVY_CHECKED cvy_status cvy_box_matcher_open(struct cvy_box_matcher *matcher, int32_t size);
void cvy_box_matcher_release(struct cvy_box_matcher *matcher);

/* The per-thread state of matching. Zero-initialise; release accepts a zeroed one. */
struct cvy_box_matching {
    int32_t *boxes; /* (count) of each anchor, from 1; 0: none */
    float *targets; /* (count, 4) */
    void *scratch;
};
CVY_CHECKED cvy_status cvy_box_matching_open(struct cvy_box_matching *matching, const struct cvy_box_matcher *matcher);
void cvy_box_matching_release(struct cvy_box_matching *matching);

/* The result for one image. */
struct cvy_box_finding {
    int64_t anchors; /* matched, all boxes together */
    int32_t forced;  /* boxes whose anchors do not overlap enough: each box gets its best one nevertheless */
    int32_t missed;  /* boxes whose best anchor was assigned to another box */
};
/* The first CVY_MAX_BOXES objects of a sample, without a crop. */
CVY_CHECKED cvy_status cvy_box_matcher_match(const struct cvy_box_matcher *matcher, struct cvy_box_matching *matching,
                                             const struct cvy_dataset *dataset, uint32_t sample,
                                             struct cvy_box_finding *finding);

/* Add a data set's boxes to the report; findings: (sample_count). */
CVY_CHECKED cvy_status cvy_check_count_boxes(struct cvy_check_report *report, const struct cvy_dataset *dataset,
                                             bool val, const struct cvy_box_finding *findings);
/* The sentence for an odd box of a data set with that source. */
void cvy_check_describe_odd(const struct cvy_odd_box *box, const char *source, char *text, size_t size);

#endif
