/* From one weights file to another: other format, other names, without what only training needs. */
#ifndef CONVOY_CONVERT_H
#define CONVOY_CONVERT_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_convert_options {
    size_t size;         /* sizeof(struct cvy_convert_options) */
    const char *input;   /* any weights file that can be read (required) */
    const char *output;  /* its suffix is the format: .safetensors, .pth, .pt, .pth.tar, .index, .onnx (required) */
    const char *naming;  /* NULL or "torchvision", "timm", "nvidia", "nvidia2019", "slim", "tensorflow" */
    const char *arch;    /* NULL: from the file, else from its tensors */
    int image_size;      /* for an .onnx file; 0: from the file, else the architecture's */
    const char *padding; /* .onnx files only: "torch" or "same"; NULL: from the file, else "torch" */
    bool ema;            /* write the moving average of the weights as the weights (and nothing else) */
    bool weights_only;   /* leave out the optimizer's tensors, the average and the state of the training */
    /* Detectors only: "slim" or "torchvision", recorded in the output; NULL: from the file, else "slim". */
    const char *backbone_strides;
};
#define CVY_CONVERT_DEFAULTS CVY_SIZED(cvy_convert_options)

struct cvy_convert_result {
    char arch[64];
    int num_classes;
    size_t tensors; /* written */
};
/* The output appears whole or not at all. CVY_USAGE (suffix, naming, unknown network), CVY_NO_INPUT, CVY_BAD_DATA (not
 * a weights file, not the tensors of the network, no average where one is asked for), CVY_CANNOT_CREATE,
 * CVY_CANNOT_WRITE. `result` may be NULL. */
CVY_API CVY_CHECKED cvy_status cvy_convert(const struct cvy_convert_options *options,
                                           struct cvy_convert_result *result);

#ifdef __cplusplus
}
#endif
#endif
