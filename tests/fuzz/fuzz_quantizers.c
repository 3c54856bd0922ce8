/* Any numbers as the states of a quantised network's quantizers: refused with a sentence, or the network computes in
 * integers by scales that are finite, can be divided by, and put their zero into a byte. */
#include <math.h>

#include "models/models.h"
#include "support_tensors.h"
#include "weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STATE_BYTES = 3 * sizeof(float) };

static struct cvy_graph build(const char *name, enum cvy_quantize quantize, bool fused)
{
    struct cvy_model_options options = cvy_model_options_make(10, 64);
    const struct cvy_architecture *architecture = cvy_architecture_find(name);
    struct cvy_graph graph;

    cvy_model_options_adapt(&options, architecture);
    options.quantize = quantize;
    if (cvy_model_graph(architecture, &options, CVY_MODEL_INFER, fused, &graph) != CVY_OK)
        abort();
    return graph;
}

/* A file of the states alone, which lie one after the other in the input, and from its beginning again where it ends.
 */
static struct cvy_tensor_file file_of_states(const struct cvy_graph *table, const uint8_t *data, size_t size)
{
    struct cvy_tensor_file file = {.tensors = calloc((size_t)table->param_count + 1, sizeof *file.tensors)};

    if (!file.tensors)
        abort();
    for (int32_t i = 0; i < table->param_count; i++) {
        const char *name = table->params[i].name, *end = strstr(name, CVY_QUANTIZER_SUFFIX);
        if (end && strcmp(end, CVY_QUANTIZER_SUFFIX) == 0)
            file.tensors[file.tensor_count++] =
                (struct cvy_named_tensor){.name = name,
                                          .dtype = CVY_F32,
                                          .shape = table->params[i].shape,
                                          .data = data + file.tensor_count * STATE_BYTES % (size - size % STATE_BYTES),
                                          .bytes = STATE_BYTES};
    }
    if (file.tensor_count == 0)
        abort();
    return file;
}

/* Scale 0: floats. */
static void check_levels(const struct cvy_int8_levels *levels)
{
    if (!isfinite(levels->scale) || levels->scale < 0 || (levels->scale > 0 && !isfinite(1 / levels->scale)) ||
        levels->zero < 0 || levels->zero > 255)
        abort();
}

static void check_integers(enum cvy_quantize quantize, const char *name, const float *states)
{
    struct cvy_graph graph = build(name, quantize, true);

    cvy_rewrite_int8(&graph, states);
    if (cvy_graph_status(&graph) != CVY_OK)
        abort();
    for (int32_t n = 0; n < graph.node_count; n++) {
        const struct cvy_int8_attr *attr = &graph.nodes[n].attr.int8;
        switch (graph.nodes[n].op) {
        case CVY_OP_CONV2D_INT8:
        case CVY_OP_ADD_INT8:
            check_levels(&attr->middle);
            check_levels(&attr->residual);
            check_levels(&attr->x);
            check_levels(&attr->y);
            break;
        case CVY_OP_MAX_POOL_INT8:
        case CVY_OP_QUANTIZE:
        case CVY_OP_DEQUANTIZE:
            check_levels(&attr->x);
            check_levels(&attr->y);
            break;
        default:
            break;
        }
    }
    cvy_graph_release(&graph);
}

/* The first byte chooses the network and the form, the rest are states. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"resnet18", "resnext50-32x4d", "se-resnet50"};
    static const enum cvy_quantize forms[] = {CVY_QUANTIZE_SYMMETRIC, CVY_QUANTIZE_CHANNELS};

    if (size < 1 + STATE_BYTES)
        return 0;
    const char *name = names[data[0] % 3];
    const enum cvy_quantize form = forms[data[0] / 3 % 2];
    struct cvy_graph table = build(name, form, false);
    struct cvy_tensor_file file = file_of_states(&table, data + 1, size - 1);
    const cvy_status status = cvy_weights_check_quantizers(&table, &file, "input");
    float *states = NULL;

    if (status == CVY_OK) {
        if (cvy_weights_quantizer_states(&table, &file, &states) != CVY_OK)
            abort();
        check_integers(form, name, states);
    } else if (status != CVY_BAD_DATA || !strstr(cvy_error(), "quantizer") || strchr(cvy_error(), '\n')) {
        abort();
    }
    cvy_free(states);
    free(file.tensors);
    cvy_graph_release(&table);
    return 0;
}
