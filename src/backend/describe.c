/* A node of a graph as kernels see it. */
#include "backend/backend.h"

static void describe_value(const struct cvy_graph *graph, cvy_val value, int64_t batch, struct cvy_tensor *tensor)
{
    tensor->shape.rank = -1;
    if (value == CVY_NONE)
        return;
    tensor->shape = cvy_shape_bind(&graph->values[value].shape, batch);
    tensor->dtype = graph->values[value].dtype;
}

void cvy_node_describe(const struct cvy_graph *graph, const struct cvy_node *node, int64_t batch,
                       struct cvy_op_desc *desc)
{
    *desc = (struct cvy_op_desc){.op = node->op,
                                 .attr = node->attr,
                                 .inputs = node->inputs,
                                 .outputs = node->outputs,
                                 .inference = !graph->training,
                                 .training = graph->training};
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        describe_value(graph, i < node->inputs ? node->in[i] : CVY_NONE, batch, &desc->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        describe_value(graph, i < node->outputs ? node->out[i] : CVY_NONE, batch, &desc->out[i]);
}
