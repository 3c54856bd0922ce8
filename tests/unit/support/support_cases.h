/* Kernel cases of every op, for given shapes. Each function checks all forms of its ops. */
#ifndef SUPPORT_CASES_H
#define SUPPORT_CASES_H

#include "support_checker.h"

/* ---- windows (support_cases_window.c) ---- */
struct conv_shape {
    int n, c, h, w, k, r, s, stride[2], pad[4], dilation[2], groups;
};
/* The convolution, its gradients, and batch norm folded into its weights. */
void check_conv(const struct conv_shape *shape, enum kernel_data data);
struct pool_shape {
    int n, c, h, w, r, s, stride[2], pad[4];
};
void check_pool(const struct pool_shape *shape, enum kernel_data data);

/* ---- batch norm (support_cases_norm.c); x (N,C,H,W), or (N,C) where said ---- */
void check_norm_forward(struct cvy_shape x, enum kernel_data data); /* also (N,C) */
void check_norm_backward(struct cvy_shape x, enum kernel_data data);

/* ---- images of any extent (support_cases_image.c); the same ---- */
void check_elementwise(struct cvy_shape x, enum kernel_data data); /* also (N,C) */
void check_mean(struct cvy_shape x, enum kernel_data data);
void check_scale_channels(struct cvy_shape x, enum kernel_data data);
void check_reorders(struct cvy_shape x);
void check_casts(struct cvy_shape x);
void check_upsample(struct cvy_shape x, enum kernel_data data);
/* The maps of up to three levels: x, and x at half and a quarter of its extent. */
void check_levels(struct cvy_shape x, enum kernel_data data);
void check_image(struct cvy_shape x); /* bytes to floats */

/* ---- matrices (support_cases_dense.c) ---- */
/* x (n, c), weights w: (k, c) or (k, c, 1, 1) */
void check_linear(int n, int c, int k, struct cvy_shape w, enum kernel_data data);
void check_loss(int n, int k);

/* ---- detectors (support_cases_detection.c) ---- */
/* Anchors of SSD320 for images of this size. */
struct detection_shape {
    int n, height, width, classes /* without background */, rows /* of truth */;
};
void check_detection(const struct detection_shape *shape);

#endif
