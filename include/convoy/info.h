/* What this build and machine can use; what a network or a weights file is; the plan for it. */
#ifndef CONVOY_INFO_H
#define CONVOY_INFO_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_info_options {
    size_t size;               /* sizeof(struct cvy_info_options) */
    const char *subject;       /* NULL: build and machine; an architecture's name; or a weights file */
    bool plan;                 /* add every step of the plan */
    int runs;                  /* with plan: of it, to measure the steps; 0: none */
    bool training;             /* the plan of a training step instead of inference */
    int batch_size;            /* 0: 32 for training, 1 for inference */
    int image_size;            /* 0: the subject's */
    int num_classes;           /* 0: the subject's, else 1000 */
    const char *padding;       /* "torch" or "same"; NULL: the subject's, else "torch" */
    const char *squeeze_width; /* "16", "c/16"; NULL: the subject's */
    const char *device;        /* NULL: "auto" */
    const char *precision;     /* NULL: "auto" */
    /* <= 0: all cores the process may use */
    int threads;
    bool json;                    /* JSON instead of text */
    const char *arch;             /* of a weights file; NULL: from the file */
    const char *backbone_strides; /* of a detector's weights file: "slim" or "torchvision"; NULL: from the file, else
                                   * "slim" */
    const char *deterministic;    /* "yes", "sums" or "no", as of a training; NULL: "yes" */
};
#define CVY_INFO_DEFAULTS CVY_SIZED(cvy_info_options)
/* *text is allocated; free it with cvy_info_free. */
CVY_API CVY_CHECKED cvy_status cvy_info(const struct cvy_info_options *options, char **text);
CVY_API void cvy_info_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
