/* The kernel checker: an operation with data, run by the reference and by another device, in any layout, with guarded
 * buffers. */
#ifndef SUPPORT_KERNELS_H
#define SUPPORT_KERNELS_H

#include "backend/backend.h"

/* |got - want| <= ulps * 2^-24 * max(scale, largest |want|); ulps 0: equal (NaN equals NaN, 0 equals -0). */
struct kernel_bound {
    double ulps, scale;
};

/* What fills an input. */
enum kernel_fill {
    FILL_SMALL,      /* FLOATS: uniform(-1, 1); INTEGERS: -2..2; SPECIAL: now and then NaN, infinity, -0 */
    FILL_RARE,       /* the same, but of SPECIAL only one in 97 is not an ordinary number */
    FILL_DYADIC,     /* i / 64 in -2..2, so that differences and products with powers of two are exact */
    FILL_EIGHTHS,    /* i / 8 in -2..2 */
    FILL_BETWEEN,    /* the same and 1/2048: no sum of it and of products of the two above is 0 */
    FILL_POWERS,     /* 1/2, 1, 2 */
    FILL_POSITIVE,   /* uniform(0.5, 2) */
    FILL_FAR,        /* 1000 + FILL_SMALL: much further from zero than from each other */
    FILL_RECTIFIED,  /* max(FILL_SMALL, 0) */
    FILL_SHARES,     /* rows that sum to about 1 */
    FILL_ACROSS,     /* FLOATS: uniform(-2, 8); else 3 * FILL_SMALL + 3: on both sides of 0 and of 6, and both */
    FILL_SIXES,      /* i / 8 in 4..8 */
    FILL_UNIT,       /* uniform(0, 1), now and then 0 or 1 */
    FILL_LOGITS,     /* around -4, most between -12 and 4 */
    FILL_LABELS,     /* 0..bound - 1 */
    FILL_FEW_LABELS, /* the same, but most are 0 */
    FILL_PARTNERS,   /* i32: the index of an element, any and some twice */
    FILL_BYTES,
    FILL_GIVEN /* the case brings its own data */
};
enum kernel_data { DATA_INTEGERS, DATA_FLOATS, DATA_SPECIAL };

struct kernel_case {
    char name[160];
    struct cvy_op_desc desc; /* all tensors plain, except those of `fixed` cases */
    uint32_t images;         /* inputs whose layout may vary */
    bool fixed;              /* layouts are part of the case (reorders, images of bytes) */
    bool narrowed;           /* by kernel_narrow: `want` of a 16-bit output holds floats */
    bool optional;          /* a device need not have a kernel for it: only rewrites make such a node, and ask before */
    bool output_statistics; /* outputs 1 and 2 are mean and variance of output 0, rounded to its type or not */
    double inner_roundings; /* of 16 bits: by what is rounded within, each output is off by this many of its units */
    bool rounded_weights;   /* f32 gradients of weights have been through the type of the images, as on GPUs */
    enum kernel_data data;
    enum kernel_fill fill[CVY_MAX_INPUTS];
    int32_t labels; /* FILL_LABELS, FILL_FEW_LABELS: how many */
    struct kernel_bound bound[CVY_MAX_OUTPUTS];
    double flops, bytes;         /* for --time */
    void *in[CVY_MAX_INPUTS];    /* plain data */
    void *want[CVY_MAX_OUTPUTS]; /* plain, what the reference says */
};
void kernel_case_release(struct kernel_case *kernel);
/* Memory for a test, which ends where there is none; free() gives it back. */
void *kernel_allocate(size_t bytes);

/* Tensors of f32, plain. kernel_input returns the input's number. */
int32_t kernel_input(struct kernel_case *kernel, struct cvy_shape shape, enum kernel_fill fill);
int32_t kernel_output(struct kernel_case *kernel, struct cvy_shape shape, struct kernel_bound bound);
void kernel_absent_input(struct kernel_case *kernel);

/* Draw the inputs; `seed` makes the data. */
void kernel_fill_inputs(struct kernel_case *kernel, uint64_t seed);
/* Fill `want` by the reference device. */
cvy_status kernel_reference(struct kernel_case *kernel, cvy_device *ref);

/* How a run starts out and what came of it. */
enum kernel_variant { VARIANT_PLAIN, VARIANT_BLOCKED16, VARIANT_BLOCKED8, VARIANT_NHWC, VARIANT_MIXED, VARIANT_COUNT };
struct kernel_run {
    const struct cvy_kernel *row; /* of the device's table; NULL: the one that the planner takes */
    enum kernel_variant variant;  /* layouts that the image inputs have at first */
    int32_t in_place;             /* output that takes over its input's memory where the kernel allows it, or -1 */
    bool few_threads;             /* OpenMP gives one, however many the kernel asks for */
    double seconds;               /* > 0: repeat for so long, and put the shortest time here */
    struct cvy_op_desc desc;      /* as the kernel completed it */
    struct cvy_kernel_plan plan;  /* kernel and implementation stay readable after the run; state does not */
    bool ran_in_place;
    void *got[CVY_MAX_OUTPUTS]; /* plain; freed by kernel_run_release */
    char failure[256];          /* what went wrong ("" if nothing) */
};
void kernel_run(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run);
/* The case as kernels are asked for it. */
struct cvy_op_desc kernel_asked(const struct kernel_case *kernel, enum kernel_variant variant);
/* Only the layouts: fills run->desc. False: refused, and run->trouble says why. */
bool kernel_prepare_only(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run);
void kernel_run_release(struct kernel_run *run);
/* Make the case one of bf16 or f16: the tensors that `f32_inputs` and `f32_outputs` do not hold at f32 change their
 * type, and the inputs among them lose the digits that it does not have. Before `kernel_reference`, which is done here:
 * in f32, on the same inputs; `ref` NULL: not done. */
cvy_status kernel_narrow(struct kernel_case *kernel, cvy_device *ref, enum cvy_dtype dtype, uint32_t f32_inputs,
                         uint32_t f32_outputs);
/* Compare with `want`; the first difference goes into trouble. A 16-bit float may be off by the bound and half a unit
 * in its own last place, times the kernel's roundings to it. */
void kernel_compare(const struct kernel_case *kernel, struct kernel_run *run);

#endif
