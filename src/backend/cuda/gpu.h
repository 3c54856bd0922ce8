/* The CUDA module's own header: its device, what its kernels share, and the kernels themselves. Prefix gpu_. */
#ifndef CVY_BACKEND_CUDA_GPU_H
#define CVY_BACKEND_CUDA_GPU_H

#include "backend/backend.h"
#include "backend/cuda/runtime.h"
#include "base/error.h"

struct gpu_libraries; /* cuDNN and cuBLASLt of a device, with their caches */
struct gpu_group;     /* the GPUs of other ranks (nccl.c) */

/* Asynchronous uploads of batches: two pinned buffers used in turn, and a stream of their own. */
struct gpu_uploads {
    void *stream;
    void *pinned[2];
    size_t pinned_bytes[2];
    void *copied[2]; /* event: the copies out of pinned[i] are done */
    void *queued[2]; /* events: work queued before the last call, and before the one before it */
    int turn;
    int32_t calls;
};

/* Asynchronous downloads to the host. */
struct gpu_downloads {
    char *pinned[2]; /* CVY_ASYNC_DOWNLOAD_BYTES each */
    void *arrived[2];
};

struct gpu_device {
    struct cvy_device base;
    int index; /* among the GPUs that the process sees */
    struct gpu_info info;
    void *stream;                    /* all work of the device is queued here */
    struct gpu_libraries *libraries; /* of the convolutions and matrix products */
    enum gpu_statistics_selection {
        GPU_STATISTICS_TIMED,          /* convolutions of 16-bit floats: in its own kernel where that was faster */
        GPU_STATISTICS_ALWAYS_FUSED,   /* wherever it can be */
        GPU_STATISTICS_ALWAYS_SEPARATE /* by batch norm, from what the convolution has written */
    } statistics;                      /* CONVOY_CUDA_STATISTICS */
    /* The same for convolutions with the batch norm before them, forward and backward: CONVOY_CUDA_PATTERNS takes
     * the same words. */
    enum gpu_statistics_selection patterns;
    enum gpu_own_selection {
        GPU_OWN_TIMED, /* 16-bit floats use our own kernels where these were faster */
        GPU_OWN_ALWAYS,
        GPU_OWN_NEVER
    } grouped;                        /* CONVOY_CUDA_GROUPED */
    enum gpu_own_selection first;     /* CONVOY_CUDA_FIRST: the same for convolutions of images of few channels */
    enum gpu_own_selection pointwise; /* CONVOY_CUDA_POINTWISE: for 1x1 convolutions with statistics */
    /* Whether kernels of cuDNN's whose results differ from run to run may be taken: CONVOY_CUDA_DETERMINISTIC is "yes",
     * "no", or "sums", which admits those that add up statistics and sums of channels in any order. */
    enum gpu_order { GPU_ORDER_FIXED, GPU_ORDER_ANY, GPU_ORDER_ANY_OF_SUMS } order;
    /* Whether a fused kernel's results are compared with those of separate ones before it is taken for its speed:
     * CONVOY_CUDA_COMPARE. */
    bool compares;
    /* Only described, by a file of properties: kernels can be planned for it, nothing can run. */
    bool described;
    char *description_json;
    struct gpu_uploads uploads;
    struct gpu_downloads downloads;
    uint32_t *tickets;       /* GPU_TICKETS counters that are zero between kernels */
    struct gpu_group *group; /* NULL: no collective sums */
};
static inline struct gpu_device *gpu_of(cvy_device *device)
{
    return (struct gpu_device *)device;
}
enum { GPU_TICKETS = 4096 };
/* Makes this GPU the calling thread's current one. */
static inline CVY_CHECKED cvy_status gpu_enter_of(const struct gpu_device *device)
{
    return device->described ? CVY_OK : gpu_enter(device->index);
}

/* CVY_OK, or the error of what was queued last. */
CVY_CHECKED cvy_status gpu_queued(const struct gpu_device *device);

/* ---- random numbers for what is timed (noise.c) ---- */
/* f32 on the device, for gpu_allocate_noise; to be released, also after a failure. */
CVY_CHECKED cvy_status gpu_noise_open(struct gpu_device *device, void **noise);
/* Device memory of so many elements, through which the noise is repeated; `which`: of buffers that are to differ. */
CVY_CHECKED cvy_status gpu_allocate_noise(struct gpu_device *device, enum cvy_dtype dtype, int64_t elements,
                                          const void *noise, int which, void **memory);

/* ---- other GPUs (nccl.c) ---- */
/* Waits until what is queued has run, or (event not NULL) what was queued before the event; in a group, no longer than
 * its time limit (backend/collective.h). */
CVY_CHECKED cvy_status gpu_wait(struct gpu_device *device, void *event);
extern const struct cvy_collective gpu_collective;
extern const struct cvy_image_decoding gpu_image_decoding; /* image_decoder.c */
void gpu_group_close(
    struct gpu_device *device); /* cleans up a group that was not left properly; does nothing without one */

/* ---- layouts (layout.c) ---- */
/* Images and convolution weights lie channels-last; where there are one to three channels (images as they come), they
 * are padded with zeros to what cuDNN's first-layer kernels take without a copy: 8 in bf16, else 4. */
struct cvy_layout gpu_image_layout(enum cvy_dtype dtype, int64_t channels);
static inline struct cvy_layout gpu_plain(void)
{
    return (struct cvy_layout){CVY_LAYOUT_PLAIN, NULL, 0};
}
/* Channels as stored: 4 or 8 in the padded layouts. */
int64_t gpu_stored_channels(const struct cvy_tensor *tensor);
size_t gpu_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor);
/* Gives every present tensor of rank 4 among those of the masks its image layout, all others the plain one; an input in
 * the form NUMBERS keeps it, for it begins as the plain one does, and one in the form SIGN. */
void gpu_lay_out(struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs);
/* The same, but few channels are not padded either. */
void gpu_lay_out_dense(struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs);

/* ---- forms (layout.c): layouts that only this module knows, of what lies between its own kernels in a training plan.
 * They spare small kernels that would each bring a vector, or a layer's gradient, into its plain form. ---- */
enum gpu_form {
    GPU_FORM_NONE,
    /* A gradient of weights, f32, as a convolution's kernel leaves it: channels-last and in 16 bits. */
    GPU_FORM_NARROW,
    /* A mean and a variance as the sums of elements and of their squares. Only a batch norm reads them. */
    GPU_FORM_SUMS,
    /* rstd, and after it what the batch norm does to x as x * scale + shift, in the type of x. */
    GPU_FORM_NUMBERS,
    /* Ones and zeros, of images: bits, as gpu_sign_bytes has them. A batch norm's gradient reads them, and
     * the gradient of data that does its sums. */
    GPU_FORM_SIGN
};
/* `dtype`: f16 or bf16, of what is not f32. */
struct cvy_layout gpu_form_layout(enum gpu_form form, enum cvy_dtype dtype);
enum gpu_form gpu_form_of(const struct cvy_tensor *tensor);
/* The tensor in its form as one of a layout that others know, of the form's type: NARROW only. */
struct cvy_tensor gpu_form_widened(const struct cvy_tensor *tensor);
/* Where scale and shift of NUMBERS begin. */
void *gpu_form_scale(const void *numbers, int64_t channels);
void *gpu_form_shift(const void *numbers, int64_t channels);
/* Whether outputs of this node may have forms: not where another device looks at them. */
static inline bool gpu_may_form(const cvy_device *device, const struct cvy_op_desc *desc)
{
    return desc->training && !device->checked;
}

/* ---- types ---- */
/* CVY_UNAVAILABLE with a sentence unless the present tensors of the two masks share one type, f32, f16 or bf16, and all
 * others are f32, except those of the last two masks, which may be anything. The shared type goes to *dtype. */
CVY_CHECKED cvy_status gpu_expect(const struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs,
                                  uint32_t except_inputs, uint32_t except_outputs, enum cvy_dtype *dtype);

/* Sets plan->state to a copy of a block of the kernel's parameters that holds no pointers. */
CVY_CHECKED cvy_status gpu_state(struct cvy_kernel_plan *plan, const void *bytes, size_t size);
void gpu_state_release(cvy_device *device, struct cvy_kernel_plan *plan);

/* ---- kernels: each file has the rows of its ops, table.c puts them into one table ---- */
#define GPU_ROW(name)                                                                                                  \
    cvy_status gpu_##name##_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);       \
    cvy_status gpu_##name##_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,               \
                                void *const *out, void *scratch)
#define CVY_OP(ID, name, ...) GPU_ROW(name);
#define CVY_OP_UNARY(...)
#define CVY_OP_INT8(...)
#define CVY_OP_CLOSED(...)
#define CVY_OP_BINARY(...)
#include "graph/ops.def"
GPU_ROW(conv2d_prologue);
GPU_ROW(conv2d_statistics);
GPU_ROW(conv2d_bwd_data_sums);
GPU_ROW(conv2d_bwd_weights_prologue);
GPU_ROW(conv2d_first);
GPU_ROW(conv2d_pointwise);
GPU_ROW(conv2d_grouped);
GPU_ROW(conv2d_bwd_data_grouped);
GPU_ROW(conv2d_bwd_data_pointwise);
GPU_ROW(conv2d_bwd_weights_first);
GPU_ROW(conv2d_bwd_weights_grouped);
GPU_ROW(conv2d_plain);
GPU_ROW(conv2d_bwd_data_plain);
GPU_ROW(conv2d_bwd_weights_plain);
#undef GPU_ROW
/* For all elementwise ops. */
cvy_status gpu_elementwise_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status gpu_unary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                         void *scratch);
cvy_status gpu_binary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch);
cvy_status gpu_move_run_many(cvy_device *device, const struct cvy_kernel_call *calls, int count);
void gpu_conv2d_release(cvy_device *device, struct cvy_kernel_plan *plan);
void gpu_linear_release(cvy_device *device, struct cvy_kernel_plan *plan);

cvy_status gpu_upload_async(cvy_device *device, void *const *to, const void *const *from, const size_t *bytes,
                            int count);
void gpu_uploads_close(struct gpu_uploads *uploads);

cvy_status gpu_download_async(cvy_device *device, int place, const void *const *from, const size_t *bytes, int count);
cvy_status gpu_download_wait(cvy_device *device, int place, void *host, size_t bytes);
void gpu_downloads_close(struct gpu_downloads *downloads);

/* ---- patterns.c ---- */
/* Fuses a batch norm into the convolution after it where that was measured to be faster. */
cvy_status gpu_rewrite(cvy_device *device, struct cvy_graph *graph, int64_t batch);

cvy_status gpu_update(cvy_device *device, const struct cvy_update *step);
cvy_status gpu_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                       const float *share);
cvy_status gpu_peak(cvy_device *device, enum cvy_peak_part last, struct cvy_device_peak *limits);
cvy_status gpu_upload_small(cvy_device *device, void *to, const void *host, size_t bytes);

#endif
