/* Between the two halves of the check backend: check.c runs both kernels, check_compare.c judges the outputs. */
#ifndef CVY_BACKEND_CHECK_INTERNAL_H
#define CVY_BACKEND_CHECK_INTERNAL_H

#include "backend/backend.h"

/* One call of a kernel as the judge sees it. Everything is plain and in double, except images (u8, NHWC), labels (i32)
 * and positions (u8); NULL where absent. */
struct check_case {
    const struct cvy_op_desc *desc; /* shapes, and the types that the checked kernel computes in */
    void *in[CVY_MAX_INPUTS];
    void *checked[CVY_MAX_OUTPUTS];   /* what the checked kernel gave */
    void *reference[CVY_MAX_OUTPUTS]; /* what the reference gave; rounded to the output's type for exact ops */
    double *scale[CVY_MAX_OUTPUTS];   /* of each element: see check_judge() */
};

/* How the size of the terms behind each output is found. */
enum check_scale_kind {
    CHECK_EXACT,    /* the op does not round, or rounds once: equal to the last bit */
    CHECK_ABSOLUTE, /* a sum of products: the reference run again on absolute values */
    CHECK_FORMULA   /* check_fill_scales() */
};
enum check_scale_kind check_scale_kind(enum cvy_op op);
/* Make the inputs absolute values; a mean that is subtracted becomes a negative one. */
void check_make_absolute(struct check_case *item);
void check_fill_scales(struct check_case *item);

/* Compare output `index`. *error = rms(checked - reference) / rms(scale), where scale is the sum of the absolute values
 * of the terms that make up the element: what rounding errors are proportional to, also where the terms cancel.
 * *limit comes from the number of terms. Whether error <= limit. */
bool check_judge(const struct check_case *item, int32_t index, double *error, double *limit);
double check_unit(enum cvy_dtype dtype); /* half the distance from 1 to the next number */

/* ---- ReLU masks that the backward pass of batch norm recomputes ---- */
/* mask = 1 where the recomputed y > 0, else 0 (shape of x). */
void check_fill_mask(const struct check_case *item, double *mask);
/* Where y is so near to 0 that its sign is a matter of rounding, the checked kernel may mask either way: take its
 * choice, read from its dx. The sums follow from it and are compared as strictly as ever. Whether the mask changed. */
bool check_follow_mask(const struct check_case *item, double *mask);

#endif
