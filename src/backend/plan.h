/* A plan: a graph, a batch size and a device turned into a list of prepared kernels and one laid-out memory.
 * One thread uses a plan at a time; plans may share a parameter store. Running allocates nothing. */
#ifndef CVY_BACKEND_PLAN_H
#define CVY_BACKEND_PLAN_H

#include "backend/backend.h"

/* Parameters, gradients, momentum and running statistics on a device, laid out by a graph's parameter table.
 * Plans read and write them in place. */
struct cvy_store {
    cvy_device *device; /* borrowed */
    float *weights;     /* trainable_elements, logical OIHW, state-dict order */
    float *gradients;   /* trainable_elements, NULL in a store for inference */
    float *momentum;    /* trainable_elements, NULL in a store for inference */
    float *state;       /* state_elements: running statistics */
    /* trainable_elements, NULL unless cvy_store_extend asked for them. */
    float *square_average; /* RMSprop only */
    float *gradient_sum;   /* of the passes that came before in a step with accumulated gradients */
    int64_t trainable_elements, state_elements;
    uint64_t version; /* incremented by every change of weights or state outside a plan; plans then rerun their setup */
};
CVY_CHECKED cvy_status cvy_store_open(struct cvy_store *store, cvy_device *device, int64_t trainable_elements,
                                      int64_t state_elements, bool training);
/* Zeroed memory for what some training rules need in addition; what is there already stays. */
enum { CVY_EXTRA_SQUARE_AVERAGE = 1, CVY_EXTRA_GRADIENT_SUM = 2 };
CVY_CHECKED cvy_status cvy_store_extend(struct cvy_store *store, int extras);
void cvy_store_close(struct cvy_store *store); /* accepts a zeroed one */

/* Memory shared by plans of one device: what a plan keeps there is lost when another one runs. */
struct cvy_workspace {
    cvy_device *device; /* borrowed */
    void *memory;
    size_t bytes;
    const struct cvy_plan *user; /* the plan that ran last: only its constants are still there */
};
CVY_CHECKED cvy_status cvy_workspace_open(struct cvy_workspace *workspace, cvy_device *device, size_t bytes);
void cvy_workspace_close(struct cvy_workspace *workspace); /* accepts a zeroed one */

/* One step of the plan, for `info --plan`, tests and the checker. */
struct cvy_plan_step {
    struct cvy_kernel_plan kernel;
    struct cvy_op_desc desc; /* completed: final layouts */
    const char *scope;       /* of the node; for reorders the reader's */
    bool backward, setup;    /* setup: runs only when weights changed */
    bool left_out;           /* of the setup: another plan has made what it makes */
    bool gathered;           /* with its neighbours that are too: at once, where their kernels have the same run_many */
    cvy_val in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS]; /* tensors of the plan */
    void *in_ptr[CVY_MAX_INPUTS], *out_ptr[CVY_MAX_OUTPUTS], *scratch_ptr;
    size_t scratch_offset; /* in the activation area: scratch lives there for its one step */
    double flops;
    double seconds; /* total time spent while profiling */
    int32_t chain;  /* the chain that it is part of, or -1 */
};

/* A tensor of the plan: a graph value in one layout. */
enum cvy_storage {
    CVY_STORE_ACTIVATION,
    CVY_STORE_CONSTANT,
    CVY_STORE_INPUT,
    CVY_STORE_WEIGHT,
    CVY_STORE_GRADIENT,
    CVY_STORE_STATE
};
struct cvy_plan_tensor {
    struct cvy_tensor tensor;
    cvy_val value; /* of the graph */
    enum cvy_storage storage;
    int32_t first, last;  /* first and last step that touches it (live range) */
    int32_t param;        /* of gradients and running statistics: index in the parameter table */
    int32_t alias;        /* tensor whose memory it takes over (in place), or -1 */
    size_t bytes, offset; /* offset in its memory (activation or constant area) */
    char *shared;         /* of a constant: where another plan has it; NULL: it is this plan's own */
    bool local;           /* only ever there for a part of a chain: it has no memory here */
};

/* Steps [from, end) of the plan, which are run part by part. */
struct cvy_plan_chain {
    int32_t from, end;
    size_t offset; /* of the threads' memory, in the activation area */
    struct cvy_cut cuts[CVY_CHAIN_CALLS];
    struct cvy_chain chain;
};

/* A gradient is complete after step `step`, and no later step reads it. In ascending order of `step`, then `param`. */
struct cvy_plan_ready {
    int32_t step, param;
    /* Set by the plan's owner before the first pass: captures are split into parts, and one ends here, so that the
     * owner of a launched pass is notified of this gradient without delay. */
    bool ends_part;
};

/* Callbacks of the plan's owner during a pass; NULL: none. */
struct cvy_plan_pass {
    /* Called each time the gradient of a parameter (index in the graph's table) has become final. Never captured. */
    cvy_status (*ready)(void *context, int32_t param);
    /* Called after the steps. Never captured. */
    cvy_status (*fence)(void *context);
    /* Called last: queues work, which is captured with the steps where there is no fence, else by itself. It is not
     * called when the capture is launched, and called twice when capturing failed. */
    cvy_status (*tail)(void *context);
    int32_t kind; /* passes of the same kind queue the same tail: from 0, below CVY_PLAN_KINDS */
    void *context;
};

/* All steps of a plan except its setup, and the tail of a pass, captured by a device that supports it, for one set of
 * bound inputs. */
enum { CVY_PLAN_INPUTS = 8, CVY_PLAN_KINDS = 3, CVY_PLAN_CAPTURES = 2 * CVY_PLAN_KINDS }; /* feeds have two buffers */
struct cvy_plan_capture {
    void *
        *parts; /* the device's graphs: one more than there are cuts, and one for a separate tail; NULL: none. Owned */
    const void *inputs[CVY_PLAN_INPUTS];
    cvy_status (*fence)(void *context); /* as in the pass */
    cvy_status (*tail)(void *context);
    int32_t kind;
};

struct cvy_plan {
    cvy_device *device;      /* borrowed */
    struct cvy_store *store; /* borrowed */
    struct cvy_graph graph;  /* owned; the plan's own copy of names, shapes, results */
    int64_t batch;
    struct cvy_plan_step *steps;
    int32_t step_count;
    struct cvy_plan_tensor *tensors;
    int32_t tensor_count;
    struct cvy_plan_ready *ready;
    int32_t ready_count;
    struct cvy_plan_chain *chains;
    int32_t chain_count;
    struct cvy_workspace *workspace; /* borrowed; NULL: memory of its own */
    const struct cvy_plan *beside;   /* borrowed: a plan that has constants of this one, as the one beside it may */
    void *memory;                    /* its own, or NULL */
    char *activations, *constants;   /* one after the other */
    size_t activation_bytes, constant_bytes;
    size_t scratch_bytes;               /* the largest scratch of a step, a part of the activation area */
    uint64_t store_version;             /* of the last setup run */
    const void *bound[CVY_PLAN_INPUTS]; /* memory of the graph's inputs, in its order */
    struct cvy_plan_capture captures[CVY_PLAN_CAPTURES];
    int32_t next_capture; /* to be replaced */
    uint32_t seen;        /* bit set: kinds of passes that have run step by step */
    enum cvy_images images;
    char images_reason[160]; /* for `info --plan`; "" where there is no question */
    bool placed, profile;
    /* Passes may be captured and launched. During a launched pass the owner is notified of gradients between its parts,
     * of those that have become final in the part before: for owners that do not block then. */
    bool capture;
};

/* Takes over `graph` (released on failure too, left zeroed). The store may be NULL for a dry-run plan.
 */
CVY_CHECKED cvy_status cvy_plan_open(struct cvy_plan *plan, cvy_device *device, struct cvy_store *store,
                                     struct cvy_graph *graph, int64_t batch);
/* The same without memory: cvy_plan_allocate must follow before the plan can run. */
CVY_CHECKED cvy_status cvy_plan_prepare(struct cvy_plan *plan, cvy_device *device, struct cvy_store *store,
                                        struct cvy_graph *graph, int64_t batch);
/* Gives a prepared plan its memory: a workspace of at least cvy_plan_bytes, which must outlive it, or (NULL) its own.
 */
CVY_CHECKED cvy_status cvy_plan_allocate(struct cvy_plan *plan, struct cvy_workspace *workspace);
/* The same for a plan beside another one of the same network and kind of device, in inference: what `owner`, or a plan
 * that it was placed beside, has made of the parameters is read there; the plan has memory for its activations, and for
 * the constants that its kernels want otherwise (for another batch size or number of threads). Constants must then not
 * be made again: the store's version stays, and `owner` outlives the plan. `owner` must not run meanwhile, and may make
 * its constants here. */
CVY_CHECKED cvy_status cvy_plan_allocate_beside(struct cvy_plan *plan, struct cvy_plan *owner);
/* Switches the plan to other parameters of the same table. Its captures are destroyed, and its inputs must be bound
 * again. */
void cvy_plan_use_store(struct cvy_plan *plan, struct cvy_store *store);
size_t cvy_plan_bytes(const struct cvy_plan *plan); /* activations and constants */
void cvy_plan_close(struct cvy_plan *plan);         /* accepts a zeroed one */

/* Bind an input to device memory that stays valid until the next bind; its layout is the graph input's (NHWC or plain).
 * CVY_FAILED for an unknown name. */
CVY_CHECKED cvy_status cvy_plan_bind(struct cvy_plan *plan, const char *name, const void *memory);

/* One pass over all steps (setup steps only when the store's version changed), with the owner's callbacks; `pass` may
 * be NULL. */
CVY_CHECKED cvy_status cvy_plan_run(struct cvy_plan *plan, const struct cvy_plan_pass *pass);

/* Copy a named result to the host, after the queued work: `bytes` must be its plain size. */
CVY_CHECKED cvy_status cvy_plan_read(struct cvy_plan *plan, const char *name, void *host, size_t bytes);
/* Where some named results of one number each, f32 or f64, are copied from: one piece of memory where they lie close
 * together, else one for each. Valid as long as the plan and its memory are. */
enum { CVY_PLAN_NUMBERS = 4, CVY_PLAN_NUMBER_BYTES = 2048 /* of all pieces at most */ };
struct cvy_plan_numbers {
    int pieces;
    const void *from[CVY_PLAN_NUMBERS]; /* device memory */
    size_t bytes[CVY_PLAN_NUMBERS];
    int count;
    size_t at[CVY_PLAN_NUMBERS]; /* of a number in the concatenated pieces */
    bool wide[CVY_PLAN_NUMBERS]; /* f64 */
};
/* count: up to CVY_PLAN_NUMBERS. */
CVY_CHECKED cvy_status cvy_plan_find_numbers(const struct cvy_plan *plan, int count, const char *const *names,
                                             struct cvy_plan_numbers *numbers);
/* Extracts the numbers from the pieces in host memory. */
void cvy_plan_numbers_read(const struct cvy_plan_numbers *numbers, const char *bytes, float *values);
/* Largest sum of live activation bytes and scratch over the steps: a lower bound for any memory layout. */
size_t cvy_plan_live_bytes(const struct cvy_plan *plan);

/* ---- what a pass costs, as its kernels say it (plan_cost.c) ---- */
/* Memory that a step reads and writes. */
int64_t cvy_plan_step_bytes(const struct cvy_plan *plan, const struct cvy_plan_step *step);
/* What a pass does; its setup is not counted. */
struct cvy_plan_totals {
    int64_t launches; /* what is queued on the device: kernels, calls of its libraries, copies */
    int64_t bytes;
    double flops;
};
void cvy_plan_sum(const struct cvy_plan *plan, struct cvy_plan_totals *totals);

#endif
