/* convoy convert: from one weights file to another. */
#include "convoy/convert.h"

#include <stdio.h>

#include "convoy/program/program.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

/* IN and OUT; or --checkpoint-path and --weight-path, whose program writes bare weights by the names that it gives
 * them.
 */
static cvy_status take_names(const struct arguments *arguments, struct cvy_convert_options *convert)
{
    const bool there = convert->input || convert->output;

    if (there ? arguments->count > 0 || !convert->input || !convert->output : arguments->count != 2)
        return terminal_fail(CVY_USAGE, there ? "options --checkpoint-path and --weight-path name IN and OUT together, "
                                                "without further arguments"
                                              : "convert needs IN OUT (convoy convert --help says more)");
    convert->weights_only = convert->weights_only || there;
    if (there && !convert->naming)
        convert->naming = "nvidia";
    if (there)
        return CVY_OK;
    convert->input = arguments->value[0];
    convert->output = arguments->value[1];
    return CVY_OK;
}

cvy_status verb_convert(int argc, char **argv)
{
    struct cvy_convert_options convert = CVY_CONVERT_DEFAULTS;
    struct cvy_convert_result result = {0};
    struct arguments arguments;
    const struct option options[] = {
        OPT_TEXT(
            "naming", 0, &convert.naming, "SCHEME",
            "names of the tensors: torchvision, timm, nvidia, nvidia2019, tensorflow or, of ssd320, slim (default: "
            "torchvision)"),
        OPT_FLAG("ema", 0, &convert.ema, "write the moving average of the weights, and nothing else"),
        OPT_FLAG("weights-only", 0, &convert.weights_only, "leave out optimizer, average and state of the training"),
        OPT_TEXT("arch", 'a', &convert.arch, "NAME",
                 "architecture (default: the file's, else the one its tensors fit)"),
        OPT_INT("image-size", 0, &convert.image_size, "PIXELS",
                "side of the input of an .onnx file (default: that of IN)", 32, 4096),
        OPT_TEXT("padding", 0, &convert.padding, "torch|same",
                 "of strided windows in an .onnx file, for an IN that does not say it (default: torch)"),
        OPT_TEXT("backbone-strides", 0, &convert.backbone_strides, "slim|torchvision",
                 "of a detector, for an IN that does not say them; OUT then does (default: slim)"),
        /* checkpoint2model.py of PyTorch's program: weights alone */
        OPT_TEXT("checkpoint-path", 0, &convert.input, "FILE", NULL),
        OPT_TEXT("weight-path", 0, &convert.output, "FILE", NULL),
    };
    const struct option_table table = {
        .verb = "convert",
        .arguments = "IN OUT",
        .summary = "Writes the weights in IN to OUT; the suffix of OUT says in which format.",
        .options = options,
        .count = OPT_COUNT(options),
        .max_arguments = 2,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = take_names(&arguments, &convert);
    if (status != CVY_OK)
        return status;
    status = cvy_convert(&convert, &result);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    printf("%s: %s, %s, %s\n", convert.output, result.arch, cvy_counted(result.num_classes, "class"),
           cvy_counted((int64_t)result.tensors, "tensor"));
    return CVY_OK;
}
