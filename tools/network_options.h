/* The options that evaluate, classify, detect and serve share: rows of an option table over a struct
 * cvy_classifier_options. `quantize` has some of them. */
#ifndef TOOLS_NETWORK_OPTIONS_H
#define TOOLS_NETWORK_OPTIONS_H

#include "convoy/infer.h"
#include "options.h"

#define INT_LIMIT 2147483647.0

/* clang-format off */
#define MODEL_OPTIONS(o) \
    OPT_TEXT("arch", 'a', &(o).arch, "NAME", "architecture, for a file that does not name its own"), \
    OPT_INT("num-classes", 0, &(o).num_classes, "N", "number of classes the file must have (default: the file's)", 1, INT_LIMIT), \
    OPT_INT("image-size", 0, &(o).image_size, "PIXELS", "side of the network's input (default: the file's)", 32, 4096), \
    OPT_TEXT("device", 0, &(o).device, "DEVICE", "auto, cpu, cuda, cuda:1, ref or check:cpu (default: auto)")
#define THREAD_OPTIONS(o) \
    OPT_INT("threads", 0, &(o).threads, "N", "compute threads (default: all cores this process may use)", 1, 4096), \
    OPT_INT("workers", 'j', &(o).workers, "N", "threads that read and decode images (default: chosen)", 1, 1024)
#define WORK_OPTIONS(o) \
    THREAD_OPTIONS(o), \
    OPT_BATCH("batch-size", 'b', &(o).batch_size, "N|auto", "images computed together; auto: the largest batch for the memory (default: 32, detectors 8)", 1, 65536)
#define PRECISION_OPTION(o) \
    OPT_TEXT("precision", 0, &(o).precision, "TYPE", "auto, fp32, bf16; tf32 or fp16 on a GPU; fp64 with --device ref (default: auto)")
#define DETECTOR_OPTIONS(o) \
    OPT_TEXT("weights", 'w', &(o).weights, "FILE", "weights or checkpoint to load, or a run's folder (required)"), \
    MODEL_OPTIONS(o), \
    PRECISION_OPTION(o), \
    WORK_OPTIONS(o)
#define STRIDES_OPTION(o) \
    OPT_TEXT("backbone-strides", 0, &(o).backbone_strides, "slim|torchvision", "of a detector, for a file that does not say them (default: slim)")
#define CLASSIFIER_OPTIONS(o) \
    OPT_TEXT("padding", 0, &(o).padding, "torch|same", "of strided windows, for a file that does not say it (default: torch)"), \
    OPT_INT("eval-resize", 0, &(o).resize, "PIXELS", "shorter side before the central crop (default: the file's, else round(size * 256 / 224))", 32, 16384), \
    OPT_TEXT("data-backend", 0, &(o).data_backend, "NAME", "whose rules crop and resize: pytorch, tensorflow, dali-cpu, dali-gpu or tensorflow-dali (default: the file's, else pytorch)"), \
    OPT_TEXT("interpolation", 0, &(o).interpolation, "bilinear|bicubic", "filter that resizes (default: the file's, else bilinear)")
#define NETWORK_OPTIONS(o) \
    DETECTOR_OPTIONS(o), \
    CLASSIFIER_OPTIONS(o)
/* clang-format on */

#endif
