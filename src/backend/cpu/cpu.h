/* The CPU backend's own header: its device, helpers shared by its kernels, and the kernels themselves. */
#ifndef CVY_BACKEND_CPU_CPU_H
#define CVY_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/error.h"

/* How the weights (K, C/g, R, S) of an integer convolution are packed: for each group and panel of its output channels,
 * for each tap, for each four input channels: the four weights of 16 to 64 output channels. After the panels the sum of
 * each output channel's weights, 32 bits. Groups that are too narrow for a panel share one (`shared`): then each lane
 * has its own group's bytes. Input channels that are no multiple of 4 make rows (`rows`): the bytes of a row of the
 * window, taps and channels, are what is taken by fours. Where products of bytes are added in 16 bits (`sorted`), the
 * four weights of eight output channels at all taps and input channels follow each other, then those of the next eight;
 * after the sums lies for each eight the order in which these steps are taken (int8_pack.c). For tile products
 * (`step_bytes`): for each group and pair of tiles of 16 output channels, for each step, for each of the two, for each
 * four bytes of what the step takes: their weights of the 16. An opaque layout is described by this. */
enum { CPU_MAX_PACKINGS = 64 };
struct cpu_packing {
    int32_t groups, quads; /* quads: input channels of a group / 4, rounded up; with `rows` bytes of a row / 4 */
    bool shared, rows, sorted;
    /* Tiles alone. An output sums over runs of adjacent bytes, each of run_taps of the window's by run_channels; a run
     * is cut into run_steps of step_bytes. With `shared` run_channels are those of a block that some groups fill. */
    int32_t step_bytes, run_steps, run_taps, run_channels;
};
struct cpu_int8_kernels;
struct cpu_onednn; /* engine, stream and known weight layouts; onednn.c */

/* What a variable of the environment says of something that is done where it pays. */
enum cpu_choice { CPU_AUTO, CPU_ALWAYS, CPU_NEVER };
/* *choice: of this variable, CPU_AUTO where it is not set; CVY_USAGE where it is another word. */
CVY_CHECKED cvy_status cpu_read_choice(const char *variable, enum cpu_choice *choice);

/* Where Winograd's algorithm is used: CONVOY_CPU_WINOGRAD=0 (nowhere), weights (gradients of weights), auto (the
 * default: where its rounding error is no larger than direct sums' have, and in the forward pass of inference), 1
 * (everywhere). Tiles of 2 x 2 outputs have 0.7 times the error of direct sums, those at stride 2 no more. Tiles of 4 x
 * 4 have 2 times that of outputs and gradients of data (oneDNN's 4 to 5 times): over a whole network the logits of
 * inference stay within twice PyTorch's error, but twenty training steps with oneDNN's do not stay within four times
 * (resnet18: 4.9). For gradients of weights they have 0.3 to 2 times, for direct sums are long rows in float. */
enum cpu_winograd { CPU_WINOGRAD_NONE, CPU_WINOGRAD_WEIGHTS, CPU_WINOGRAD_AUTO, CPU_WINOGRAD_ALL };

struct cpu_device {
    struct cvy_device base;
    const struct cpu_kernels *kernels; /* of the instruction set in use */
    enum cvy_layout_kind blocked;      /* BLOCKED16 on AVX-512, else BLOCKED8 */
    bool forced;                       /* CONVOY_CPU_LAYOUT says which layout images have */
    bool nhwc_f32, nhwc_bf16;          /* images of this type are channels-last where the plan does not say */
    enum cpu_choice patterns;          /* convolutions by tiles work for the batch norms beside them (patterns.c) */
    enum cpu_choice closed;            /* batch norms at blocks' ends are computed in closed form, patterns or not */
    size_t stream_bytes;               /* images of this size are written past the cache */
    size_t chain_bytes;                /* steps whose images have this size are run part by part (chain.c) */
    int32_t chunk_units;               /* of gradients of weights in bf16 by vectors (conv/weight_gradient_plan.c) */
    enum cpu_winograd winograd;        /* from which setting on Winograd's algorithm is used */
    enum cpu_choice direct;            /* our own direct convolutions in fp32 (conv/direct_source.c) */
    struct cpu_onednn *onednn;
    const struct cpu_int8_kernels *int8;           /* of the instruction set in use (int8.h) */
    struct cpu_packing packings[CPU_MAX_PACKINGS]; /* the first packing_count: descriptions of opaque layouts */
    int packing_count;
};
static inline struct cpu_device *cpu_of(cvy_device *device)
{
    return (struct cpu_device *)device;
}
/* Adds "NAME=value" to the device's settings. */
void cpu_add_setting(struct cpu_device *device, const char *name, const char *value);

/* Reads CONVOY_CPU_CHUNK (conv/weight_gradient_plan.c): CVY_USAGE when it is none of auto, short, long. auto: long
 * where a core's first cache has 48 KiB. Their length changes how sums round. */
CVY_CHECKED cvy_status cpu_choose_chunks(struct cpu_device *device);

/* Reads CONVOY_CPU_WINOGRAD (conv/winograd.c): CVY_USAGE when it is none of 0, weights, auto, 1. */
CVY_CHECKED cvy_status cpu_choose_winograd(struct cpu_device *device);
/* CVY_UNAVAILABLE with a sentence where a convolution, or a gradient of one, is none of 3x3 windows at `stride` in f32,
 * or the device is set to less than `least`. */
CVY_CHECKED cvy_status cpu_expect_winograd(const struct cpu_device *device, const struct cvy_op_desc *desc,
                                           int32_t stride, enum cpu_winograd least, struct cvy_kernel_plan *plan);

/* Reads CONVOY_CPU_DIRECT (conv/direct_source.c): CVY_USAGE when it is none of auto, always, never. auto: 1x1 windows
 * alone with AVX2, all without; always: all. */
CVY_CHECKED cvy_status cpu_choose_direct(struct cpu_device *device);
/* Whether they take this convolution, or gradient of one; a refusal is the thread's error. */
bool cpu_direct_takes(const struct cpu_device *device, const struct cvy_op_desc *desc);

/* Reads CONVOY_CPU_CHAINS (chain.c): CVY_USAGE when it is none of auto, always, never. It does not change results. */
CVY_CHECKED cvy_status cpu_choose_chains(struct cpu_device *device);
size_t cpu_chain_bytes(const cvy_device *device);
bool cpu_cut_kernel(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                    struct cvy_cut *cut);
cvy_status cpu_run_chain(cvy_device *device, const struct cvy_chain *chain);

/* The loops of those given that there are tiles of bf16 for: those of the processor (AMX), or arrays in memory, which
 * do the same slowly, for tests (CONVOY_CPU_TILES=model, on processors with the vectors that do the rest). NULL: none.
 */
const void *cpu_tile_loops(const void *processor, const void *model);

/* ---- layouts (layout.c) ---- */
/* Channels side by side in memory, which are stored up to a multiple of it: 16, 8, or 1 for every other layout. */
int32_t cpu_block(const struct cvy_layout *layout);
/* Reads CONVOY_CPU_LAYOUT: CVY_USAGE when it is none of auto, blocked, nhwc. auto: channels-last for bf16 where the
 * processor has tiles (AMX), whose kernels in oneDNN read nothing else; for plans cpu_images says more. */
CVY_CHECKED cvy_status cpu_choose_layout(struct cpu_device *device);
/* Reads CONVOY_CPU_STREAM: CVY_USAGE when it is none of auto, always, never. auto: images of 16 MiB
 * and more, where the processor has tiles (AMX). The numbers are the same. */
CVY_CHECKED cvy_status cpu_choose_stream(struct cpu_device *device);
/* Reads CONVOY_CPU_PATTERNS and CONVOY_CPU_CLOSED: CVY_USAGE when one is none of auto, always, never. auto: sums and
 * closed forms where images are large. */
CVY_CHECKED cvy_status cpu_choose_patterns(struct cpu_device *device);
/* cvy_backend.rewrite */
cvy_status cpu_rewrite(cvy_device *device, struct cvy_graph *graph, int64_t batch);
/* cvy_backend.images: one layout where it is forced or the other is known to be slower, else both. */
int cpu_images(const cvy_device *device, enum cvy_dtype dtype, bool training, enum cvy_images layouts[CVY_MAX_IMAGES],
               const char **why);
/* Whether images of this type are channels-last in this plan on this device. */
static inline bool cpu_prefers_nhwc(const struct cpu_device *device, enum cvy_images images, enum cvy_dtype dtype)
{
    return images == CVY_IMAGES_DEVICE ? (dtype == CVY_BF16 ? device->nhwc_bf16 : device->nhwc_f32)
                                       : images == CVY_IMAGES_NHWC;
}
/* The layout that images of this many channels have there: channels-last or blocked where the channels divide, else
 * plain. */
struct cvy_layout cpu_image_layout(const struct cpu_device *device, enum cvy_images images, int64_t channels,
                                   enum cvy_dtype dtype);
/* The same for kernels that know no channels-last images. */
struct cvy_layout cpu_blocked_layout(const struct cpu_device *device, int64_t channels);
/* An image tensor of f32 or bf16 as runs: one channel block of one image each, `blocks` runs an image. */
struct cpu_image {
    int64_t batch, channels, blocks, pixels;
    int32_t block; /* channels in a run */
    size_t run;    /* elements in a run: pixels * block */
    size_t step;   /* elements from one group of CPU_LANES of a run to the next: CPU_LANES, or all channels in nhwc */
    size_t run_bytes, block_bytes; /* of a run; from one run of an image to the next */
    enum cvy_dtype dtype;
};
struct cpu_image cpu_image_of(const struct cvy_tensor *tensor);
/* Where the runs of an image lie among each other (nhwc), all of them are read together: make pieces of the images
 * that fit into a core's cache, as if they were that many smaller ones. Returns how many there are for one image. */
int64_t cpu_make_pieces(struct cpu_image *image);
/* Whether the runs of an image lie among each other: its pixels are then rows (struct cpu_rows). Not those of a
 * channels-last image of CPU_LANES channels, which is a single run. */
static inline bool cpu_in_rows(const struct cpu_image *image)
{
    return image->step != CPU_LANES;
}
/* That many blocks of such an image. */
static inline struct cpu_rows cpu_rows_of(const struct cpu_image *image, int64_t blocks)
{
    return (struct cpu_rows){
        .pixels = (size_t)image->pixels, .channels = (size_t)blocks * CPU_LANES, .stride = image->step};
}
/* Blocks that a task takes together, so that what belongs to them fits on the stack: one where runs are apart, several
 * where they are not, as long as every thread has some. `images`: those whose blocks are other tasks. */
enum { CPU_ROW_BLOCKS = 16 };
static inline int64_t cpu_blocks_together(const cvy_device *device, const struct cpu_image *image, int64_t images)
{
    const int64_t share = images * image->blocks / device->threads;
    const int64_t most = share < CPU_ROW_BLOCKS ? share : CPU_ROW_BLOCKS;
    return cpu_in_rows(image) && most > 1 ? most : 1;
}
/* What is left of them from block b on. */
static inline int64_t cpu_blocks_at(const struct cpu_image *image, int64_t b, int64_t together)
{
    const int64_t left = image->blocks - b;
    return left < together ? left : together;
}
/* Bytes before a run. */
static inline size_t cpu_run_offset(const struct cpu_image *image, int64_t n, int64_t b)
{
    return (size_t)(n * image->blocks) * image->run_bytes + (size_t)b * image->block_bytes;
}
static inline const struct cpu_loops *cpu_loops_for(const struct cvy_device *device, enum cvy_dtype dtype)
{
    const struct cpu_kernels *kernels = ((const struct cpu_device *)device)->kernels;
    return dtype == CVY_BF16 ? kernels->bf16 : kernels->f32;
}
/* Where a run of an image at `data` starts; NULL stays NULL. */
static inline void *cpu_run_at(void *data, size_t offset)
{
    return data ? (char *)data + offset : NULL;
}
static inline const void *cpu_run_of(const void *data, size_t offset)
{
    return data ? (const char *)data + offset : NULL;
}
/* Fold CPU_LANES sums into the sums of the block's channels, in lane order. */
void cpu_fold(const double lanes[CPU_LANES], int32_t block, double channels[CPU_LANES]);
/* The same divided by count, rounded once, into the numbers of the block's channels. */
void cpu_fold_mean(const double lanes[CPU_LANES], int32_t block, int64_t count, float *to);
/* lanes[i] = values[first + i % block] */
void cpu_spread(const float *values, int64_t first, int32_t block, float lanes[CPU_LANES]);
/* Makes in[i] and the image tensors that must match it agree on one layout that our loops can read: the one they have,
 * if it is the same for all and plain, channels-last or blocked without padding, else the device's for these channels.
 * Where one of them is opaque they are not images but weights (gradients of a shared weight that add up): plain, the
 * only layout that opaque weights reorder into. `inputs` and `outputs` are bit masks; absent tensors are left out. */
void cpu_agree(struct cpu_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs);
/* The same, but never channels-last. */
void cpu_agree_blocked(struct cpu_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs);
/* Makes all present inputs and outputs plain except those of the two masks. */
void cpu_plain(struct cvy_op_desc *desc, uint32_t except_inputs, uint32_t except_outputs);
/* CVY_UNAVAILABLE with a sentence unless all present tensors are f32, except those of the masks. */
CVY_CHECKED cvy_status cpu_expect_f32(const struct cvy_op_desc *desc, uint32_t except_inputs, uint32_t except_outputs);
/* CVY_UNAVAILABLE with a sentence where a convolution, or a gradient of one, is to do something for the batch norm
 * before or after it. */
CVY_CHECKED cvy_status cpu_no_norm(const struct cvy_op_desc *desc);
/* CVY_UNAVAILABLE with a sentence unless the present tensors of the two masks share one type, f32 or bf16, and all
 * others are f32, except those of the last two masks, which may be anything. */
CVY_CHECKED cvy_status cpu_expect_images(const struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs,
                                         uint32_t except_inputs, uint32_t except_outputs);
size_t cpu_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor);
/* Whether images are so few that the caches of the cores hold them, more or less: then each thread should take the same
 * pixels in every layer, for what another core has written comes slowly. */
bool cpu_is_few(cvy_device *device, const struct cvy_tensor *x, const struct cvy_tensor *y);

/* Elements of work that one task of a parallel loop takes where the loop is over plain elements. */
#define CPU_CHUNK 32768

/* ---- oneDNN (onednn.c, onednn_conv.c): the only files that know it ---- */
CVY_CHECKED cvy_status cpu_onednn_open(struct cpu_device *device);
void cpu_onednn_close(struct cpu_device *device); /* accepts a device whose open failed */
const char *cpu_onednn_version(void);
int cpu_onednn_major(void);
/* Bytes of an opaque layout. */
size_t cpu_onednn_bytes(const struct cvy_layout *layout);
/* Whether the tensor is weights (K, C, R, S) of fp32 in blocks of 16 of K by 16 of C, both of them multiples of 16: for
 * each block of K and each of C the window's places, in each 16 of C, in each 16 of K. */
bool cpu_onednn_has_blocks_16(const struct cvy_tensor *tensor);
/* Row-major C (m x n) = op(A) op(B), op = transpose where asked for. */
CVY_CHECKED cvy_status cpu_sgemm(cvy_device *device, bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                                 int64_t k, const float *a, const float *b, float *c);
/* A (m x k) by the transpose of B (n x k), in blocks that depend on the shape alone and have one thread each: the same
 * bits with any number of threads. */
CVY_CHECKED cvy_status cpu_sgemm_blocks(cvy_device *device, int64_t m, int64_t n, int64_t k, const float *a,
                                        const float *b, float *c);
/* The transpose of A (k x m) by B (k x n), likewise. */
CVY_CHECKED cvy_status cpu_sgemm_columns(cvy_device *device, int64_t m, int64_t n, int64_t k, const float *a,
                                         const float *b, float *c);
/* The direct algorithm takes every convolution, Winograd's those for which it is allowed and oneDNN has it. */
cvy_status cpu_conv2d_winograd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_conv2d_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_conv2d_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch);
void cpu_conv2d_release(cvy_device *device, struct cvy_kernel_plan *plan);
cvy_status cpu_unblock_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_unblock_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch);
cvy_status cpu_opaque_reorder_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_opaque_reorder_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch);
void cpu_opaque_reorder_release(cvy_device *device, struct cvy_kernel_plan *plan);

/* ---- our own kernels: each file has the rows of its ops, cpu.c puts them into one table ---- */
#define CPU_KERNEL(name)                                                                                               \
    cvy_status name##_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);             \
    cvy_status name##_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,   \
                          void *scratch)
#define CVY_OP(ID, name, ...) CPU_KERNEL(cpu_##name);
#define CVY_OP_PRODUCT(...)
#define CVY_OP_UNARY(...)
#define CVY_OP_BINARY(...)
#include "graph/ops.def"
CPU_KERNEL(cpu_weight_gradient);
CPU_KERNEL(cpu_tile_gradient);
/* Whether that kernel takes this CONV2D_BWD_WEIGHTS, which reads a batch norm's output so far, with the batch norm, as
 * no other one does, and is then faster than both by themselves: where it packs x once. Each panel of dy packs it
 * again, and from two of them on that takes as long as the batch norm by itself. */
bool cpu_tile_gradient_gains_by_norm(cvy_device *device, const struct cvy_op_desc *desc);
CPU_KERNEL(cpu_tile_product);
/* The same where weights do not change: never timed, so that plans of one image and of several share prepared weights.
 */
cvy_status cpu_tile_product_constant_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                             struct cvy_kernel_plan *plan);
CPU_KERNEL(cpu_tile_product_bwd_data);
CPU_KERNEL(cpu_reorder_tiles);
CPU_KERNEL(cpu_reorder_sign);
CPU_KERNEL(cpu_tile_window);
CPU_KERNEL(cpu_tile_window_bwd_data);
cvy_status cpu_tile_window_constant_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
/* Bytes of weights that lie as tile products want them (conv/tile_weights.c); 0: they do not. */
size_t cpu_tile_weights_bytes(const struct cvy_tensor *tensor);
cvy_status cpu_winograd_2x2_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_winograd_4x4_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_winograd_strided_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_winograd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch);
CPU_KERNEL(cpu_winograd_gradient);
cvy_status cpu_winograd_strided_gradient_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                 struct cvy_kernel_plan *plan);
CPU_KERNEL(cpu_reorder_winograd);
CPU_KERNEL(cpu_direct);
CPU_KERNEL(cpu_direct_gradient);
CPU_KERNEL(cpu_reorder_direct);
/* Bytes of weights that are packed for direct convolutions (conv/direct_weights.c); 0: they are not. */
size_t cpu_direct_weights_bytes(const struct cvy_tensor *tensor);
/* Bytes of weights that are transformed for Winograd's algorithm (conv/winograd_weights.c); 0: they are not. */
size_t cpu_winograd_weights_bytes(const struct cvy_tensor *tensor);
CPU_KERNEL(cpu_grouped_conv2d);
CPU_KERNEL(cpu_grouped_conv2d_bwd_data);
CPU_KERNEL(cpu_grouped_conv2d_bwd_weights);
CPU_KERNEL(cpu_linear);
CPU_KERNEL(cpu_linear_bwd_data);
CPU_KERNEL(cpu_linear_bwd_weights);
CPU_KERNEL(cpu_conv2d_int8_tiles);
CPU_KERNEL(cpu_conv2d_int8_woven);
CPU_KERNEL(cpu_conv2d_int8_plain);
CPU_KERNEL(cpu_reorder_int8);
#undef CPU_KERNEL
/* For all elementwise ops. */
cvy_status cpu_elementwise_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status cpu_unary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                         void *scratch);
cvy_status cpu_binary_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch);
/* Checks that the mixup partners lie in the batch: CVY_FAILED otherwise. NULL: nothing is mixed. */
CVY_CHECKED cvy_status cpu_check_partners(const int32_t *partner, int64_t batch);
/* Sets plan->state to a copy of a block of the kernel's parameters that holds no pointers. */
CVY_CHECKED cvy_status cpu_state(struct cvy_kernel_plan *plan, const void *bytes, size_t size);
/* The loops for this processor; whether it has instructions for products of bytes. */
const struct cpu_int8_kernels *cpu_choose_int8(bool *products);
void cpu_conv2d_int8_release(cvy_device *device, struct cvy_kernel_plan *plan);
void cpu_conv2d_int8_tiles_release(cvy_device *device, struct cvy_kernel_plan *plan);
void cpu_state_release(cvy_device *device, struct cvy_kernel_plan *plan);

cvy_status cpu_update(cvy_device *device, const struct cvy_update *step);
cvy_status cpu_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                       const float *share);
cvy_status cpu_device_peak(cvy_device *device, enum cvy_peak_part last, struct cvy_device_peak *limits);

#endif
