/* convoy info: what this build and machine can use; what a network or a weights file is; its plan. */
#include "convoy/info.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "terminal.h"
#include "verbs.h"

enum mode { MODE_INFER, MODE_TRAIN };
enum format { FORMAT_TEXT, FORMAT_JSON };

cvy_status verb_info(int argc, char **argv)
{
    struct cvy_info_options info = CVY_INFO_DEFAULTS;
    struct arguments arguments;
    int mode = MODE_INFER, format = FORMAT_TEXT;
    char *text = NULL;
    info.runs = 3;
    const struct option options[] = {
        OPT_FLAG("plan", 0, &info.plan, "show every step of the plan: kernel, layout, type, reason, time"),
        OPT_INT("runs", 0, &info.runs, "N", "times that --plan runs the plan to measure it; 0: only look (default: 3)",
                0, 1000),
        OPT_CHOICE("mode", 0, &mode, "infer|train", "which plan (default: infer)"),
        OPT_INT("batch-size", 'b', &info.batch_size, "N", "images in a batch (default: 1 for infer, 32 for train)", 1,
                65536),
        OPT_INT("image-size", 0, &info.image_size, "PIXELS", "side of the network's input", CVY_MIN_IMAGE_SIZE,
                CVY_MAX_IMAGE_SIZE),
        OPT_INT("num-classes", 0, &info.num_classes, "N",
                "number of classes (default: the file's, else 1000; ssd320: 90)", 1, 2147483647.0),
        OPT_TEXT("padding", 0, &info.padding, "torch|same",
                 "of strided windows: torch or TensorFlow's (default: the file's, else torch)"),
        OPT_TEXT("squeeze-width", 0, &info.squeeze_width, "N|c/N",
                 "hidden units of squeeze-and-excitation (default: the file's, else 16)"),
        OPT_TEXT("arch", 'a', &info.arch, "NAME", "architecture, for a FILE that does not name its own"),
        OPT_TEXT("backbone-strides", 0, &info.backbone_strides, "slim|torchvision",
                 "of a detector, for a FILE that does not say them (default: slim)"),
        OPT_TEXT("device", 0, &info.device, "DEVICE", "auto, cpu, cuda, cuda:1, ref or check:cpu (default: auto)"),
        OPT_TEXT("deterministic", 0, &info.deterministic, "yes|sums|no",
                 "of a GPU's plan: whether results may differ from run to run (default: yes)"),
        OPT_TEXT("precision", 0, &info.precision, "TYPE",
                 "auto, fp32, bf16; tf32 or fp16 on a GPU; fp64 with --device ref (default: auto)"),
        OPT_INT("threads", 0, &info.threads, "N", "compute threads (default: all cores)", 1, 4096),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print (default: text)"),
    };
    const struct option_table table = {
        .verb = "info",
        .arguments = "[ARCH|FILE]",
        .summary =
            "Shows what this build and machine can use; with ARCH (resnet50) or FILE (weights) what the network is.",
        .options = options,
        .count = OPT_COUNT(options),
        .max_arguments = 1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (info.plan && arguments.count == 0)
        return terminal_fail(CVY_USAGE, "option --plan needs an architecture or a weights file");
    info.subject = arguments.count ? arguments.value[0] : NULL;
    info.training = mode == MODE_TRAIN;
    info.json = format == FORMAT_JSON;
    status = cvy_info(&info, &text);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    fputs(text, stdout);
    if (!*text || text[strlen(text) - 1] != '\n')
        putchar('\n');
    cvy_info_free(text);
    return CVY_OK;
}
