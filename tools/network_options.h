/* The options that evaluate, classify and detect share: rows of an option table over a struct cvy_classifier_options.
 */
#ifndef TOOLS_NETWORK_OPTIONS_H
#define TOOLS_NETWORK_OPTIONS_H

#include "convoy/infer.h"
#include "options.h"

#define INT_LIMIT 2147483647.0

/* clang-format off */
#define DETECTOR_OPTIONS(o) \
    {"weights", NULL, 'w', false, OPTION_TEXT, &(o).weights, "FILE", "weights or checkpoint to load, or a run's folder (required)", 0, 0}, \
    {"arch", NULL, 'a', false, OPTION_TEXT, &(o).arch, "NAME", "architecture, for a file that does not name its own", 0, 0}, \
    {"num-classes", NULL, 0, false, OPTION_INT, &(o).num_classes, "N", "number of classes the file must have (default: the file's)", 1, INT_LIMIT}, \
    {"image-size", NULL, 0, false, OPTION_INT, &(o).image_size, "PIXELS", "side of the network's input (default: the file's)", 32, 4096}, \
    {"device", NULL, 0, false, OPTION_TEXT, &(o).device, "DEVICE", "auto, cpu, cuda, cuda:1, ref or check:cpu (default: auto)", 0, 0}, \
    {"precision", NULL, 0, false, OPTION_TEXT, &(o).precision, "TYPE", "auto, fp32, bf16; tf32 or fp16 on a GPU; fp64 with --device ref (default: auto)", 0, 0}, \
    {"threads", NULL, 0, false, OPTION_INT, &(o).threads, "N", "compute threads (default: all cores this process may use)", 1, 4096}, \
    {"workers", NULL, 'j', false, OPTION_INT, &(o).workers, "N", "threads that read and decode images (default: chosen)", 1, 1024}, \
    {"batch-size", NULL, 'b', false, OPTION_BATCH, &(o).batch_size, "N|auto", "images computed together; auto: the largest batch for the memory (default: 32, detectors 8)", 1, 65536}
#define STRIDES_OPTION(o) \
    {"backbone-strides", NULL, 0, false, OPTION_TEXT, &(o).backbone_strides, "slim|torchvision", "of a detector, for a file that does not say them (default: slim)", 0, 0}
#define NETWORK_OPTIONS(o) \
    DETECTOR_OPTIONS(o), \
    {"padding", NULL, 0, false, OPTION_TEXT, &(o).padding, "torch|same", "of strided windows, for a file that does not say it (default: torch)", 0, 0}, \
    {"eval-resize", NULL, 0, false, OPTION_INT, &(o).resize, "PIXELS", "shorter side before the central crop (default: the file's, else round(size * 256 / 224))", 32, 16384}
/* clang-format on */

#endif
