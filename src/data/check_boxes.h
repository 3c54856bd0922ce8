/* What convoy check finds out about the boxes of a detection set. */
#ifndef CVY_DATA_CHECK_BOXES_H
#define CVY_DATA_CHECK_BOXES_H

#include "convoy/dataset.h"
#include "data/dataset.h"

/* How the anchors of SSD320 find the boxes of one image. Zero-initialise a counter, one for each thread; release
 * accepts a zeroed one. */
struct cvy_box_matcher {
    float *anchors;   /* (count, 4) */
    int32_t *matched; /* (count) box of each; -1: none */
    int32_t count;
};
CVY_CHECKED cvy_status cvy_box_matcher_open(struct cvy_box_matcher *matcher);
void cvy_box_matcher_release(struct cvy_box_matcher *matcher);

/* Of one image. */
struct cvy_box_finding {
    int64_t anchors; /* matched, all boxes together */
    int32_t forced;  /* boxes that only the rule finds that each gets its best anchor */
    int32_t missed;  /* boxes whose best anchor another one has */
};
/* The first CVY_MAX_BOXES objects of a sample, as training would match them without a crop. */
void cvy_box_matcher_match(struct cvy_box_matcher *matcher, const struct cvy_dataset *dataset, uint32_t sample,
                           struct cvy_box_finding *finding);

/* Add a data set's boxes to the report; findings: (sample_count). */
CVY_CHECKED cvy_status cvy_check_count_boxes(struct cvy_check_report *report, const struct cvy_dataset *dataset,
                                             bool val, const struct cvy_box_finding *findings);
/* The sentence for an odd box of a data set with that source. */
void cvy_check_describe_odd(const struct cvy_odd_box *box, const char *source, char *text, size_t size);

#endif
