/* convoy convert: from one weights file to another. */
#include "convoy/convert.h"

#include <stdio.h>

#include "options.h"
#include "terminal.h"
#include "verbs.h"

cvy_status verb_convert(int argc, char **argv)
{
    struct cvy_convert_options convert = CVY_CONVERT_DEFAULTS;
    struct cvy_convert_result result = {0};
    struct arguments arguments;
    const struct option options[] = {
        {"naming", NULL, 0, false, OPTION_TEXT, &convert.naming, "SCHEME",
         "names of the tensors: torchvision, timm, nvidia, nvidia2019 or, of ssd320, slim (default: torchvision)", 0,
         0},
        {"ema", NULL, 0, false, OPTION_FLAG, &convert.ema, NULL,
         "write the moving average of the weights, and nothing else", 0, 0},
        {"weights-only", NULL, 0, false, OPTION_FLAG, &convert.weights_only, NULL,
         "leave out optimizer, average and state of the training", 0, 0},
        {"arch", NULL, 'a', false, OPTION_TEXT, &convert.arch, "NAME",
         "architecture (default: the file's, else the one its tensors fit)", 0, 0},
        {"image-size", NULL, 0, false, OPTION_INT, &convert.image_size, "PIXELS",
         "side of the input of an .onnx file (default: that of IN)", 32, 4096},
        {"padding", NULL, 0, false, OPTION_TEXT, &convert.padding, "torch|same",
         "of strided windows in an .onnx file, for an IN that does not say it (default: torch)", 0, 0},
        {"backbone-strides", NULL, 0, false, OPTION_TEXT, &convert.backbone_strides, "slim|torchvision",
         "of a detector, for an IN that does not say them; OUT then does (default: slim)", 0, 0},
    };
    const struct option_table table = {
        .verb = "convert",
        .arguments = "IN OUT",
        .summary = "Writes the weights in IN to OUT; the suffix of OUT says in which format.",
        .options = options,
        .count = sizeof(options) / sizeof(options[0]),
        .min_arguments = 2,
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    convert.input = arguments.value[0];
    convert.output = arguments.value[1];
    status = cvy_convert(&convert, &result);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    printf("%s: %s, %d classes, %zu tensors\n", convert.output, result.arch, result.num_classes, result.tensors);
    return CVY_OK;
}
