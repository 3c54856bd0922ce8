/* Writes the state dictionary of a network, one line for each tensor in order: name, a space, extents joined by "x"
 * ("-" for a scalar).
 *
 *   list_parameters ARCH CLASSES [SQUEEZE-WIDTH] */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "weights/model_variant.h"

static void print_parameter(const struct cvy_param *param)
{
    printf("%s ", param->name);
    for (int32_t i = 0; i < param->shape.rank; i++)
        printf("%s%lld", i ? "x" : "", (long long)param->shape.dim[i]);
    printf("%s\n", param->shape.rank == 0 ? "-" : "");
}

static cvy_status list(const char *arch, const char *classes, const char *squeeze_width)
{
    const struct cvy_architecture *architecture = cvy_architecture_find(arch);
    struct cvy_model_options model = cvy_model_options_make((int32_t)strtol(classes, NULL, 10), 224);
    struct cvy_graph graph;

    if (!architecture)
        return cvy_fail(CVY_USAGE, "unknown architecture %s", cvy_quote(arch));
    CVY_TRY(cvy_model_choose(&model, NULL, squeeze_width));
    CVY_TRY(cvy_model_graph(architecture, &model, CVY_MODEL_INFER, false, &graph));
    for (int32_t i = 0; i < graph.param_count; i++)
        print_parameter(&graph.params[i]);
    cvy_graph_release(&graph);
    return CVY_OK;
}

int main(int argc, char **argv)
{
    cvy_status status = argc == 3 || argc == 4
                            ? list(argv[1], argv[2], argv[3])
                            : cvy_fail(CVY_USAGE, "usage: list_parameters ARCH CLASSES [SQUEEZE-WIDTH]");

    if (status != CVY_OK)
        fprintf(stderr, "list_parameters: %s\n", cvy_error());
    return status;
}
