/* The convolution engine under the rows of conv.c: cuDNN's graphs (cudnn_*.c), and in the tests plain loops
 * (tests/emulated_cuda). Images are NHWC, weights K x R x S x C/g, both of one type; sums run in fp32. */
#ifndef CVY_BACKEND_CUDA_CONV_ENGINE_H
#define CVY_BACKEND_CUDA_CONV_ENGINE_H

#include "backend/cuda/gpu.h"

enum gpu_conv_pass { GPU_CONV_FORWARD, GPU_CONV_DATA, GPU_CONV_WEIGHTS };

/* Mean and biased variance of y, and what computes them. */
enum gpu_conv_statistics {
    GPU_STATISTICS_NONE,
    GPU_STATISTICS_SEPARATE, /* by our own kernel, which reads y */
    GPU_STATISTICS_FUSED     /* from sums that the convolution's own kernel makes while it has y at hand */
};

/* The work of the batch norm with ReLU before the convolution, and what does it. */
enum gpu_conv_part {
    GPU_PART_NONE,
    GPU_PART_SEPARATE, /* our own kernel, which reads and writes the tensor */
    GPU_PART_FUSED     /* the convolution's own kernel; 16-bit floats only */
};

struct gpu_conv_problem {
    enum gpu_conv_pass pass;
    enum cvy_dtype dtype;        /* of x, w and y, and of what a backward pass writes: f32, f16, bf16 */
    int64_t n, c, h, w, k, p, q; /* x: n,c,h,w; y: n,k,p,q; c as stored (padded) */
    int32_t r, s, stride[2], dilation[2], pad[4], groups; /* pad: top, bottom, left, right */
    /* Forward pass: y = x * w + bias (f32) + residual (like y), then the activation. DATA with separate sums: what it
     * writes is added to `residual` (like x) before it is masked, by the sign that is given. */
    bool bias, residual;
    enum cvy_activation activation;
    enum gpu_conv_statistics statistics; /* statistics of what it writes; FUSED: y = x * w alone */
    enum gpu_conv_part prologue;         /* FORWARD, WEIGHTS: x is relu(batch_norm(x)) on load */
    enum gpu_conv_part gradient_sums;    /* DATA: what it writes is masked, and dgamma and dbeta are made of it */
    bool unmasked;  /* for separate sums: only to be timed, as BATCH_NORM_BWD makes them, which masks again later */
    bool tf32;      /* f32 on tensor cores */
    bool any_order; /* sums may be added in the order in which blocks happen to finish: other bits in each run */
};

/* A prepared convolution. */
struct gpu_conv;

/* CVY_UNAVAILABLE with the reason where no engine supports it. On a device that can run, the candidates are timed,
 * unless an earlier result is cached. */
CVY_CHECKED cvy_status gpu_conv_open(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                     struct gpu_conv **conv);
void gpu_conv_close(struct gpu_conv *conv); /* accepts NULL */
size_t gpu_conv_scratch(const struct gpu_conv *conv);
/* What it queues and moves beyond one kernel that reads its inputs and writes its outputs once. Of a library's call one
 * launch is counted; some of them are several. */
struct gpu_conv_extra {
    int32_t launches;
    int64_t bytes;
};
struct gpu_conv_extra gpu_conv_extra(const struct gpu_conv *conv);
/* For `info --plan`: "cudnn engine 62" and why. */
void gpu_conv_text(const struct gpu_conv *conv, char implementation[48], char reason[160]);
/* The measured time, the sum over all its kernels; 0: not measured. */
double gpu_conv_seconds(const struct gpu_conv *conv);

/* Whether gpu_conv_open finds times: it takes them itself, or an earlier run did. Makes no plan. */
bool gpu_conv_is_timed(struct gpu_device *device, const struct gpu_conv_problem *problem);

/* Device memory of a convolution; NULL where there is nothing. */
struct gpu_conv_memory {
    void *x, *w, *y, *scratch;
    const float *bias;
    const void *residual;
    float *mean, *variance;
    float *sums, *squares;     /* FUSED statistics: instead of those, what they are made of */
    const void *scale, *shift; /* FUSED prologue: what it does to x, where that is known already */
    /* The parameters of the batch norm of `prologue` and `gradient_sums`, for each channel of x; norm_x (gradient_sums
     * only): its input. */
    const float *gamma, *beta;
    float *norm_mean, *norm_rstd; /* read only */
    const void *norm_x;
    const void *sign; /* with `residual`: what of y passes, in bits (GPU_FORM_SIGN), or y itself */
    bool sign_in_bits;
    float *dgamma, *dbeta;
};
/* FORWARD reads x and w and writes y, mean and variance; DATA reads w and y (its gradient) and writes x, dgamma and
 * dbeta; WEIGHTS reads x and y and writes w. */
CVY_CHECKED cvy_status gpu_conv_run(struct gpu_device *device, const struct gpu_conv *conv,
                                    const struct gpu_conv_memory *memory);

/* Times an alternative implementation of a problem, as gpu_conv_open times its candidates: `run` queues it once, on
 * buffers like those of the problem. The result is cached under `name`. 0 seconds where nothing is timed. */
typedef cvy_status gpu_conv_runner(struct gpu_device *device, const void *context,
                                   const struct gpu_conv_memory *memory);
CVY_CHECKED cvy_status gpu_conv_measure(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                        const char *name, gpu_conv_runner *run, const void *context,
                                        size_t scratch_bytes, double *seconds);

/* ---- own.c: kernels of our own on tensor cores, beside the engine's ---- */
struct gpu_own_conv {
    const char *name; /* under which times are kept */
    gpu_conv_runner *run;
    const void *context;
    size_t scratch_bytes;
};
/* CVY_UNAVAILABLE where the GPU cannot run them. */
CVY_CHECKED cvy_status gpu_check_tensor_cores(const struct gpu_device *device);
/* What ours take; 0: not timed. */
CVY_CHECKED cvy_status gpu_own_seconds(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                       const struct gpu_own_conv *own, double *seconds);
/* What the engine takes, with statistics the way they would be made (a rearrangement of weights' gradients does not
 * count); 0: not timed. CVY_UNAVAILABLE where it has nothing. */
CVY_CHECKED cvy_status gpu_engine_seconds(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds);
/* CVY_UNAVAILABLE where the engine's was measured to be faster, and where nothing is timed; both times go to
 * plan->reason. */
CVY_CHECKED cvy_status gpu_own_compare(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                       const struct gpu_own_conv *own, struct cvy_kernel_plan *plan);

/* ---- grouped.c ---- */
/* The seconds that the kernels of grouped.cu save on a problem whose parts are separate, where they are faster than the
 * engine; else 0. CVY_UNAVAILABLE where they must be used in any case. */
CVY_CHECKED cvy_status gpu_grouped_gain(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds);

/* ---- pointwise.c ---- */
/* The seconds that the kernels of pointwise.cu take for a gradient of data with separate sums and a residual; 0 where
 * they are to be used whatever they take. CVY_UNAVAILABLE where they cannot do it, and where nothing is timed. */
CVY_CHECKED cvy_status gpu_pointwise_backward_ask(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                                  double *seconds);

/* ---- conv.c ---- */
/* The problem that a description stands for; parts are separate. x, w and y are inputs or outputs as the op has it. */
CVY_CHECKED cvy_status gpu_conv_describe(struct cvy_op_desc *desc, struct gpu_conv_problem *problem);
/* CVY_UNAVAILABLE with the reason where no engine can have a fused part. */
CVY_CHECKED cvy_status gpu_check_fusable(const struct gpu_conv_problem *problem);

/* ---- conv_norm.c: the batch norm before a convolution, on our own kernels ---- */
/* Scratch memory around one call. */
struct gpu_norm_scratch {
    void *x;                   /* SEPARATE: what the prologue makes; else NULL */
    const void *scale, *shift; /* FUSED: what it consists of, in the type of x: given, or made here */
    void *made_scale, *made_shift;
    const float *gamma, *beta; /* FUSED: where they are aligned for the engine, as is what it writes */
    float *vectors[2], *dgamma, *dbeta, *slopes[3];
    float *sums; /* SEPARATE: of gpu_batch_norm_bwd */
};
/* Divides up `memory` (NULL: only counts) and returns the bytes needed. */
size_t gpu_norm_scratch(const struct gpu_conv_problem *problem, char *memory, struct gpu_norm_scratch *scratch);
/* What the kernels around the convolution, and the one that makes statistics of its output, add to it. */
struct gpu_conv_extra gpu_norm_extra(const struct gpu_conv_problem *problem);
/* Queues what must run before the convolution and after it. */
CVY_CHECKED cvy_status gpu_norm_before(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                       const struct gpu_conv_memory *memory, struct gpu_norm_scratch *scratch);
CVY_CHECKED cvy_status gpu_norm_after(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                      const struct gpu_conv_memory *memory, const struct gpu_norm_scratch *scratch);

/* What was found fastest so far, opened and closed with the libraries. */
CVY_CHECKED cvy_status cudnn_autotuner_open(struct gpu_device *device);
void cudnn_autotuner_close(struct gpu_device *device); /* accepts a device without */
/* What the device keeps for convolutions: libraries, handles, autotuning results. gpu_libraries_open fails with
 * CVY_UNAVAILABLE and the reason when cuDNN or cuBLASLt is not to be found. */
CVY_CHECKED cvy_status gpu_libraries_open(struct gpu_device *device);
void gpu_libraries_close(struct gpu_device *device);
/* "cuDNN 9.19.0, cuBLASLt 13.0.2" */
void gpu_libraries_text(const struct gpu_device *device, char *text, size_t size);

#endif
