/* Convolutions as the rows of conv.c ask for them: cuDNN's graphs (cudnn_*.c), and in the tests plain loops
 * (tests/emulated_cuda). Images are NHWC, weights K x R x S x C/g, both of one type; sums run in fp32. */
#ifndef CVY_BACKEND_CUDA_CONV_ENGINE_H
#define CVY_BACKEND_CUDA_CONV_ENGINE_H

#include "backend/cuda/gpu.h"

enum gpu_conv_pass { GPU_CONV_FORWARD, GPU_CONV_DATA, GPU_CONV_WEIGHTS };

/* Mean and biased variance of y, and how they come about. */
enum gpu_conv_statistics {
    GPU_STATISTICS_NONE,
    GPU_STATISTICS_APART, /* by a kernel of ours that reads y */
    GPU_STATISTICS_FUSED  /* from sums that the convolution's own kernel makes while it has y at hand */
};

/* Work on x around the convolution, of the batch norm with ReLU in front of it, and who does it. */
enum gpu_conv_part {
    GPU_PART_NONE,
    GPU_PART_APART, /* a kernel of ours, which reads and writes the tensor */
    GPU_PART_FUSED  /* the convolution's own kernel; 16-bit floats only */
};

struct gpu_conv_problem {
    enum gpu_conv_pass pass;
    enum cvy_dtype dtype;        /* of x, w and y, and of what a backward pass writes: f32, f16, bf16 */
    int64_t n, c, h, w, k, p, q; /* x: n,c,h,w; y: n,k,p,q; c as stored (padded) */
    int32_t r, s, stride[2], dilation[2], pad[4], groups; /* pad: top, bottom, left, right */
    /* Of the forward pass: y = x * w + bias (f32) + residual (like y), then the activation. */
    bool bias, residual;
    enum cvy_activation activation;
    enum gpu_conv_statistics statistics; /* of what it writes; FUSED: y = x * w alone */
    enum gpu_conv_part prologue;         /* FORWARD, WEIGHTS: x is relu(batch_norm(x)) on its way in */
    enum gpu_conv_part gradient_sums;    /* DATA: what it writes is masked, and dgamma and dbeta are made of it */
    bool unmasked; /* of sums apart: only to be timed, as BATCH_NORM_BWD makes them, which masks again later */
    bool tf32;     /* f32 on tensor cores */
};

/* A prepared convolution. */
struct gpu_conv;

/* CVY_UNAVAILABLE with the reason where nothing does it. On a device that can run, the candidates are timed, unless an
 * earlier choice is remembered. */
CVY_CHECKED cvy_status gpu_conv_open(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                     struct gpu_conv **conv);
void gpu_conv_close(struct gpu_conv *conv); /* accepts NULL */
size_t gpu_conv_scratch(const struct gpu_conv *conv);
/* For `info --plan`: "cudnn engine 62" and why. */
void gpu_conv_text(const struct gpu_conv *conv, char implementation[48], char reason[160]);
/* The time that was measured for it, all kernels that it takes together; 0: none was. */
double gpu_conv_seconds(const struct gpu_conv *conv);

/* Whether gpu_conv_open finds times: it takes them itself, or an earlier run did. Makes no plan. */
bool gpu_conv_is_timed(struct gpu_device *device, const struct gpu_conv_problem *problem);

/* Device memory of a convolution; NULL where there is nothing. */
struct gpu_conv_memory {
    void *x, *w, *y, *scratch;
    const float *bias;
    const void *residual;
    float *mean, *variance;
    /* Of the batch norm of `prologue` and `gradient_sums`, for each channel of x; norm_x, of the latter: its input. */
    const float *gamma, *beta;
    float *norm_mean, *norm_rstd; /* read only */
    const void *norm_x;
    float *dgamma, *dbeta;
};
/* FORWARD reads x and w and writes y, mean and variance; DATA reads w and y (its gradient) and writes x, dgamma and
 * dbeta; WEIGHTS reads x and y and writes w. */
CVY_CHECKED cvy_status gpu_conv_run(struct gpu_device *device, const struct gpu_conv *conv,
                                    const struct gpu_conv_memory *memory);

/* Times another way to do the work of a problem, as gpu_conv_open times its candidates: `run` queues it once, on
 * buffers like those of the problem. What was found is kept under `name`. 0 seconds where nothing is timed. */
typedef cvy_status gpu_conv_runner(struct gpu_device *device, const void *context,
                                   const struct gpu_conv_memory *memory);
CVY_CHECKED cvy_status gpu_conv_measure(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                        const char *name, gpu_conv_runner *run, const void *context,
                                        size_t scratch_bytes, double *seconds);

/* ---- grouped.c ---- */
/* What the kernels of grouped.cu save of a problem whose parts are done apart, where they are faster than the engine;
 * else 0. CVY_UNAVAILABLE where they are to be taken in any case. */
CVY_CHECKED cvy_status gpu_grouped_gain(struct gpu_device *device, struct gpu_conv_problem problem, double *seconds);

/* ---- conv.c ---- */
/* What a row of the description is about; parts are done apart. x, w and y are inputs or outputs as the op has it. */
CVY_CHECKED cvy_status gpu_conv_describe(struct cvy_op_desc *desc, struct gpu_conv_problem *problem);
/* CVY_UNAVAILABLE with the reason where no engine can have a fused part. */
CVY_CHECKED cvy_status gpu_check_fusable(const struct gpu_conv_problem *problem);

/* ---- conv_norm.c: the batch norm in front of a convolution, on kernels of ours ---- */
/* Scratch memory around one call. */
struct gpu_norm_room {
    void *x;                   /* APART: what the prologue makes; else NULL */
    void *scale, *shift;       /* FUSED: what it consists of, in the type of x */
    const float *gamma, *beta; /* FUSED: where they are aligned for the engine, as is what it writes */
    float *vectors[2], *dgamma, *dbeta, *slopes[3];
    float *sums; /* APART: of gpu_batch_norm_bwd */
};
/* Divides `memory` (NULL: it only counts) and returns the bytes that are needed. */
size_t gpu_norm_room(const struct gpu_conv_problem *problem, char *memory, struct gpu_norm_room *room);
/* What has to be queued before the convolution and behind it. */
CVY_CHECKED cvy_status gpu_norm_before(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                       const struct gpu_conv_memory *memory, struct gpu_norm_room *room);
CVY_CHECKED cvy_status gpu_norm_behind(struct gpu_device *device, const struct gpu_conv_problem *problem,
                                       const struct gpu_conv_memory *memory, const struct gpu_norm_room *room);

/* What was found fastest so far, opened and closed with the libraries. */
CVY_CHECKED cvy_status cudnn_choices_open(struct gpu_device *device);
void cudnn_choices_close(struct gpu_device *device); /* accepts a device without */
/* What the device keeps for it: libraries, handles, what was found fastest. gpu_libraries_open fails with
 * CVY_UNAVAILABLE and the reason when cuDNN or cuBLASLt is not to be found. */
CVY_CHECKED cvy_status gpu_libraries_open(struct gpu_device *device);
void gpu_libraries_close(struct gpu_device *device);
/* "cuDNN 9.19.0, cuBLASLt 13.0.2" */
void gpu_libraries_text(const struct gpu_device *device, char *text, size_t size);

#endif
