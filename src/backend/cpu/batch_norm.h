/* What training (batch_norm.c, batch_norm_bwd.c), its two passes over an image (batch_norm_pass.c) and the batch norms
 * whose statistics are known (batch_norm_apply.c) share. */
#ifndef CVY_BACKEND_CPU_BATCH_NORM_H
#define CVY_BACKEND_CPU_BATCH_NORM_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/parts.h"

struct batch_norm {
    struct cpu_image image;
    float eps, momentum;
    enum cvy_activation activation;
    bool stream; /* images are too large for the cache: results that do not replace operands go past it */
    bool sign;   /* backward: what passes the activation is there in bits, instead of y */
};
/* Tensors whose bits are set are images of one layout. `sign`: one of the others that lies in bits (sign.h), for which
 * images are channels-last; NULL: none. The kernel's state is a struct batch_norm; its scratch memory has one struct
 * cpu_affine for each block of channels. */
CVY_CHECKED cvy_status batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan,
                                          uint32_t image_inputs, uint32_t image_outputs, struct cvy_tensor *sign);
/* y = (x - mean) * rstd * gamma + beta for a block of channels: forward and backward make the numbers of y here, so
 * that both get the same sign. mean, beta: NULL is 0. */
void batch_norm_affine(const float *mean, const float *rstd, const float *gamma, const float *beta, int64_t first,
                       int32_t block, struct cpu_affine *lanes);

/* y = affine(x) (+ residual), then the activation, for blocks [b, end) of an image, whose first numbers they point to;
 * more than one block where the image is channels-last. residual and sign (struct cpu_rows) may be NULL; lanes: of all
 * blocks. */
void batch_norm_write(const struct cpu_loops *loops, const struct batch_norm *state, void *y, uint32_t *sign,
                      const void *x, const void *residual, const struct cpu_affine *lanes, int64_t b, int64_t end);

/* Part by part: channels-last images alone. */
bool batch_norm_cut(const struct batch_norm *state, struct cvy_cut *cut);
/* Bytes from pixel 0 of all images to the part's first one. */
size_t batch_norm_part_offset(const struct batch_norm *state, const struct cpu_part *part);
/* batch_norm_write for the pixels of a part; all pointers are to pixel 0. */
void batch_norm_write_part(const struct cpu_loops *loops, const struct batch_norm *state, const struct cpu_part *part,
                           void *y, void *sign, const void *x, const void *residual, const struct cpu_affine *lanes);

/* What a pass keeps between its halves, one after the other in the kernel's scratch memory. */
struct batch_norm_kept {
    struct cpu_affine *lanes; /* of each block: batch_norm_affine */
    struct cpu_slope *slopes; /* of each block, backwards */
    struct cpu_sums *sums;    /* of each block of each image, by channel */
    double *shared;           /* (2, C), with other ranks; else NULL */
};
/* `given`: there are sums of the whole batch alone. */
size_t batch_norm_kept_bytes(const cvy_device *device, const struct cpu_image *image, bool given);
struct batch_norm_kept batch_norm_kept_at(const cvy_device *device, const struct cpu_image *image, bool given,
                                          void *scratch);
/* Values of a channel in this rank's batch. */
double batch_norm_own_count(const struct cpu_image *image);

/* Both directions of training measure an image, finish the numbers of each block of channels from all images, and apply
 * them to every image. Blocks [b, end) of image n at a time: more than one where the image is channels-last
 * (cpu_in_rows). What is NULL of the first and the last is left out. Where batches of several ranks count as one,
 * `share` puts what the images of this rank came to into `shared`, two numbers for each channel, and finish reads there
 * what all came to. */
struct batch_norm_pass {
    void (*measure)(const void *operands, int64_t n, int64_t b, int64_t end);
    void (*share)(const void *operands, int64_t b);
    void (*finish)(const void *operands, int64_t b);
    void (*apply)(const void *operands, int64_t n, int64_t b, int64_t end);
    const void *operands;
    double *shared; /* (2, C); NULL: this rank's batch is all there is */
};
CVY_CHECKED cvy_status batch_norm_run_pass(const cvy_device *device, const struct cpu_image *image,
                                           const struct batch_norm_pass *pass);
/* `apply` alone. */
void batch_norm_run_apply(const cvy_device *device, const struct cpu_image *image, const struct batch_norm_pass *pass);

#endif
