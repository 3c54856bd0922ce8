/* Checks of whole graphs, shared by the tests of graph, ops and models. */
#ifndef TESTS_SUPPORT_GRAPH_H
#define TESTS_SUPPORT_GRAPH_H

#include "models/models.h"

/* Fails the test unless every invariant of graph.h holds: indexes in range, inputs computed before they are read,
 * producers right, counts as in the op table, gradients shaped like their parameters and f32 like the arenas. */
void check_graph(const struct cvy_graph *graph);
/* Fails the test unless the graph has failed with this status and a sentence that contains `part`. */
void check_graph_error(const struct cvy_graph *graph, cvy_status status, const char *part);
/* Nodes of one kind; forward, backward or both. */
int32_t count_nodes(const struct cvy_graph *graph, enum cvy_op op);
/* The first node of a kind at or after `from`; -1. */
int32_t find_node(const struct cvy_graph *graph, enum cvy_op op, int32_t from);
/* A new graph with the input "x" f32 (CVY_BATCH, channels, height, width). */
cvy_val start_graph(struct cvy_graph *graph, bool training, int64_t channels, int64_t height, int64_t width);
/* The value of the gradient result of a named parameter; CVY_NONE if it has none. */
cvy_val gradient_of(const struct cvy_graph *graph, const char *param);

/* A convolution of 3x3, a batch norm; both in a scope of their own. */
cvy_val add_conv(struct cvy_graph *graph, cvy_val x, const char *name, int32_t out);
cvy_val add_norm(struct cvy_graph *graph, cvy_val x, const char *name);
/* Pool, classify, loss, backward. */
void add_loss(struct cvy_graph *graph, cvy_val x);

/* Options of a usual network; one of the registry's, checked; a parameter by name, which must be there. */
struct cvy_model_options network_options(int32_t num_classes, int32_t image_size);
void build_network(struct cvy_graph *graph, const char *name, const struct cvy_model_options *options,
                   enum cvy_model_mode mode, bool fuse);
const struct cvy_param *named_param(const struct cvy_graph *graph, const char *name);

/* Gives every quantizer of the graph the range -6 to 6, or 0 to 6: in `state`, the values of the state parameters. */
void set_quantizer_ranges(const struct cvy_graph *graph, float *state);

/* x through every CVY_OP_UNARY of graph/ops.def, one after the other. */
cvy_val every_unary_op(struct cvy_graph *graph, cvy_val x);

#endif
