/* For tests of one kernel of convolutions alone, in fp32 and without groups: random problems, what plain sums in double
 * say, and runs with the weights in the kernel's own layout. Failures end the test. */
#ifndef SUPPORT_CONVOLUTION_H
#define SUPPORT_CONVOLUTION_H

#include "backend/cpu/cpu.h"
#include "base/rng.h"

/* x (N, C, H, W), y (N, K, P, Q) and w (K, C, R, S), or their gradients. y lies in blocks of channels, the last of
 * which may have zeros beyond them; x does where its channels divide. */
struct convolution {
    enum cvy_op op;
    struct cvy_conv2d_attr attr;
    struct cvy_tensor x, y, w;
    int64_t block; /* channels of a block */
    bool bias, residual;
    float *images[2]; /* x and y: what is read, random in any case */
    float *weights, *shift, *more;
    float *result;
    double *expected, *size; /* size: the sum of the magnitudes of what is summed */
};

struct cvy_tensor convolution_tensor(int64_t a, int64_t b, int64_t c, int64_t d);
/* Extents along one axis: x's for a result of one pixel at least; the outputs of one. */
int64_t convolution_outputs(const struct cvy_conv2d_attr *attr, int axis, int64_t input);
/* Draws the numbers of a problem whose op, attributes and tensors are set, and forward what is added, for this device's
 * blocks; released by convolution_release(). */
void convolution_draw(struct convolution *convolution, cvy_device *device, struct cvy_rng *rng);
void convolution_release(struct convolution *convolution);
struct cvy_op_desc convolution_describe(const struct convolution *convolution);

/* A kernel, and how weights get into its layout. */
struct convolution_kernel {
    cvy_status (*prepare)(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
    cvy_status (*run)(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch);
    cvy_status (*prepare_weights)(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
    cvy_status (*run_weights)(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch);
};
/* Runs and checks it on the first device, and wants the same bits of the others; the last one writes over what is
 * added.
 */
void convolution_try(struct convolution *convolution, const struct convolution_kernel *kernel,
                     cvy_device *const *devices, int count, int number, double roundings);

#endif
