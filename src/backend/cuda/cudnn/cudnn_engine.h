/* Shared by the files that bring convolutions to cuDNN: cudnn_graph.c describes them, cudnn_plan.c asks cuDNN for
 * kernels, cudnn_autotune.c decides between them by cudnn_fastest.c, which times (cudnn_time.c) and compares
 * (cudnn_compare.c) them, cudnn_cache.c and cudnn_faults.c say what is kept of them, cudnn_conv.c runs. */
#ifndef CVY_BACKEND_CUDA_CUDNN_CUDNN_ENGINE_H
#define CVY_BACKEND_CUDA_CUDNN_CUDNN_ENGINE_H

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/libraries.h"
#include "base/cache.h"

/* The unique ids of a graph's tensors; plans that were saved carry them. */
enum cudnn_tensor {
    CUDNN_X = 1,
    CUDNN_W,
    CUDNN_Y,
    CUDNN_BIAS,
    CUDNN_RESIDUAL,
    CUDNN_SUMS,    /* of y, for each channel */
    CUDNN_SQUARES, /* of y's squares */
    CUDNN_SCALE,   /* of the preceding batch norm: 16 bits, as the bias after it */
    CUDNN_SHIFT,
    CUDNN_NORM_X, /* of a data gradient: that batch norm's input and numbers, and what its gradient needs */
    CUDNN_NORM_MEAN,
    CUDNN_NORM_RSTD,
    CUDNN_GAMMA,
    CUDNN_BETA,
    CUDNN_VIRTUAL = 16, /* and those after it */
    CUDNN_DGAMMA = 64,
    CUDNN_DBETA,
    CUDNN_SLOPES /* three more vectors that are not read */
};

/* How a convolution with bias, residual or ReLU is executed; saved with plans, so append only. */
enum cudnn_form {
    CUDNN_FORM_ALONE,    /* there is nothing but the convolution */
    CUDNN_FORM_NARROW,   /* one graph; the bias is rounded to the 16 bits of the images before, as the engines want it
                            that need not be compiled first */
    CUDNN_FORM_WIDE,     /* one graph; the bias, if there is one, is f32 */
    CUDNN_FORM_SEPARATE, /* the convolution, followed by our own kernel (gpu_epilogue) */
    CUDNN_FORM_SUMS, /* one graph that also sums y and its squares for each channel; a small kernel after it turns the
                        sums into mean and variance */
    CUDNN_FORM_PROLOGUE, /* scale, shift and ReLU of x before it, of 16 bits, which a small kernel makes; forward with
                            the sums of CUDNN_FORM_SUMS after */
    CUDNN_FORM_GRADIENT_SUMS, /* the data gradient, masked by ReLU, and its sums for batch norm */
    CUDNN_FORMS
};

/* A cuDNN plan and what is known about it. */
struct cudnn_plan {
    cudnnBackendDescriptor_t descriptor;
    enum cudnn_form form;
    int64_t engine;
    bool tensor_cores, compiled; /* compiled: by NVRTC when the plan was made */
    bool compared;               /* with separate kernels, as far as there are any */
    size_t workspace;
};
void cudnn_plan_close(const struct gpu_libraries *libraries, struct cudnn_plan *plan); /* accepts a zeroed one */

/* ---- cudnn_graph.c ---- */
/* The problem in this form as an operation graph, destroyed by the caller. */
CVY_CHECKED cvy_status cudnn_graph_make(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                                        enum cudnn_form form, cudnnBackendDescriptor_t *graph);

/* ---- cudnn_plan.c ---- */
enum { CUDNN_MAX_CONFIGS = 96 };
struct cudnn_config {
    cudnnBackendDescriptor_t descriptor;
    int64_t engine;
    bool tensor_cores, compiled;
    bool second; /* named by mode B of the heuristics, which is asked after mode A */
};
struct cudnn_configs {
    struct cudnn_config list[CUDNN_MAX_CONFIGS];
    int count, compiled; /* compiled: how many of them will be */
};
/* What cuDNN proposes for the graph, best first, without what must not be used: engines that sum in less than f32, in
 * no fixed order unless `problem` allows it, and tensor cores for f32 unless it does. `both`: the slower heuristics are
 * asked too, which may repeat what the others said. May be none. */
void cudnn_configs_find(const struct gpu_libraries *libraries, const struct gpu_conv_problem *problem,
                        cudnnBackendDescriptor_t graph, bool both, struct cudnn_configs *configs);
void cudnn_configs_close(const struct gpu_libraries *libraries, struct cudnn_configs *configs);
/* CVY_UNAVAILABLE where it cannot be. */
CVY_CHECKED cvy_status cudnn_plan_make(const struct gpu_libraries *libraries, const struct cudnn_config *config,
                                       struct cudnn_plan *plan);
/* The plan as JSON, freed with cvy_free; and made again from it: the rest of *plan is given, workspace is set. */
CVY_CHECKED cvy_status cudnn_plan_save(const struct gpu_libraries *libraries, const struct cudnn_plan *plan,
                                       char **json);
CVY_CHECKED cvy_status cudnn_plan_load(const struct gpu_libraries *libraries, const char *json,
                                       struct cudnn_plan *plan);

/* ---- cudnn_conv.c: running ---- */
/* What a plan of the problem needs of scratch: its workspace, and room for the bias in its own type or place and for
 * sums. */
size_t cudnn_scratch_bytes(const struct gpu_conv_problem *problem, const struct cudnn_plan *plan);
/* Queues it. */
CVY_CHECKED cvy_status cudnn_run(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                 const struct cudnn_plan *plan, const struct gpu_conv_memory *memory);

/* ---- cudnn_time.c ---- */
enum { CUDNN_TIMING_BUFFERS = 16 };
/* Buffers for a problem, filled with random numbers, and the stream's clock. */
struct cudnn_timing {
    struct gpu_conv_memory memory;
    void *allocated[CUDNN_TIMING_BUFFERS];
    void *before, *after; /* events */
};
/* CVY_NO_MEMORY when the GPU has no room. Closed in any case. */
CVY_CHECKED cvy_status cudnn_timing_open(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                         size_t scratch_bytes, struct cudnn_timing *timing);
void cudnn_timing_close(struct cudnn_timing *timing);
CVY_CHECKED cvy_status cudnn_time(struct gpu_device *device, gpu_conv_runner *run, const void *context,
                                  const struct cudnn_timing *timing, double *seconds);

/* ---- cudnn_compare.c ---- */
/* One way to compute a problem. */
struct cudnn_way {
    gpu_conv_runner *run;
    const void *context;
};
/* Whether `candidate` writes what `expected` writes, within the roundings of the type: both run once, on the buffers of
 * the timing, whose results the candidate's then are. CVY_UNAVAILABLE says what differs and where; CVY_NO_MEMORY: there
 * is no memory to keep both results. */
CVY_CHECKED cvy_status cudnn_compare(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                     const struct cudnn_timing *timing, struct cudnn_way expected,
                                     struct cudnn_way candidate);

/* ---- cudnn_faults.c: plans that must not be used on this GPU ---- */
/* Plans whose results were wrong, and those that took a process with them. Kept in the cache. */
struct cudnn_faults {
    struct cvy_cache *cache;
    char *path;  /* of what this process is trying; NULL: nothing is kept */
    int refused; /* plans in the cache that must not be used */
    bool trying; /* `file` is there, with a lock on it */
    int file;
    bool kept; /* and stays there: a plan took the GPU's context with it, and the cache cannot say so */
};
/* Reads the cache, and takes up what ended processes were trying, with a warning for each: a plan with which two ended
 * is refused. */
CVY_CHECKED cvy_status cudnn_faults_open(struct cudnn_faults *faults, struct cvy_cache *cache);
void cudnn_faults_close(struct cudnn_faults *faults); /* accepts a zeroed one */
/* The name of a plan of a problem, which the others take: "refused <key> engine 67 form 5 <hash>". NULL: no memory. */
char *cudnn_faults_name(const struct gpu_libraries *libraries, const char *key, const struct cudnn_plan *plan);
bool cudnn_faults_refuses(const struct cudnn_faults *faults, const char *name);
/* From the next line on the plan is run for the first time; after the last one no longer. */
void cudnn_faults_try(struct cudnn_faults *faults, const char *name);
void cudnn_faults_tried(struct cudnn_faults *faults);
/* The plan is not to be used again. Whether the cache's file says so now. */
bool cudnn_faults_refuse(struct cudnn_faults *faults, const char *name);

/* ---- cudnn_fastest.c ---- */
/* What a fused kernel's results are compared with: the same problem by separate kernels. `plan` NULL: with nothing, for
 * nothing is fused, or nothing does it separately. */
struct cudnn_reference {
    struct gpu_conv_problem problem;
    const struct cudnn_plan *plan;
};
/* *chosen is the index of the fastest plan, in *seconds; 0, in 0 seconds, where there is no memory to try them in.
 * Notes of plans whether they were compared. CVY_UNAVAILABLE where none of them runs as it must; CVY_FAILED where one
 * has broken the GPU's context. */
CVY_CHECKED cvy_status cudnn_find_fastest(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                          const char *key, const struct cudnn_reference *reference,
                                          struct cudnn_plan *plans, int count, int *chosen, double *seconds);

/* cudnn_compare with a plan as what is expected. */
CVY_CHECKED cvy_status cudnn_compare_with(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                          const struct cudnn_plan *plan, const struct cudnn_timing *timing,
                                          struct cudnn_way candidate);

/* ---- cudnn_autotune.c ---- */
/* What is known of convolutions so far; of a device's libraries. */
struct cudnn_autotuner {
    struct cudnn_tuned *first;
    struct cvy_cache cache;
    struct cudnn_faults faults;
    int timed;
};
/* One problem and its plan, shared by all equal convolutions of a device. */
struct cudnn_tuned {
    struct cudnn_tuned *next;
    char *key;
    struct cudnn_plan plan;
    int candidates;   /* among which it was chosen */
    double seconds;   /* that it took; 0: it is the first that could be made */
    bool remembered;  /* from an earlier run */
    bool provisional; /* made for a dry run: what will run is timed */
};
/* "forward f16 n256 c64 ...": what makes two problems the same. */
void cudnn_problem_key(const struct gpu_conv_problem *problem, struct cvy_text *key);
/* The tuned plan for a problem, made now if necessary; valid until the device is closed. */
CVY_CHECKED cvy_status cudnn_choose(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                    const struct cudnn_tuned **choice);
/* The same for who holds the libraries' lock. */
CVY_CHECKED cvy_status cudnn_choose_locked(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                           const struct cudnn_tuned **choice);

/* ---- cudnn_cache.c ---- */
/* A choice as it is kept. */
struct cudnn_cache_entry {
    const char *key;
    enum cudnn_form form;
    int64_t engine;
    bool tensor_cores, compiled, compared;
    int candidates;
    int64_t nanoseconds;
    uint64_t plan_hash;
    const char *plan; /* JSON; NULL: in a file of its own */
};
/* Opens and reads the cache of one GPU and version of cuDNN. Saved and closed by the caller. */
CVY_CHECKED cvy_status cudnn_cache_open(struct cvy_cache *cache, const char *identity);
/* The record's texts are `key` and the cache's. */
bool cudnn_cache_find(const struct cvy_cache *cache, const char *key, struct cudnn_cache_entry *record);
/* The JSON of a record's plan, freed with cvy_free; NULL where it is lost. */
char *cudnn_cache_plan(const struct cvy_cache *cache, const struct cudnn_cache_entry *record);
/* Remembers `record` with `plan`; written now and then. Failures are warnings. */
void cudnn_cache_add(struct cvy_cache *cache, const struct cudnn_cache_entry *record, const char *plan);

#endif
