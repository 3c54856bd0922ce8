/* Reordering of nodes, shared by the rewrites. */
#ifndef CVY_GRAPH_ORDER_H
#define CVY_GRAPH_ORDER_H

#include "graph/graph.h"

/* Detaches the node: it reads and writes nothing, and the next cvy_graph_sort drops it. */
void cvy_graph_detach(struct cvy_graph *graph, int32_t node);
/* Lets `node` write `value` instead of its first output, which is left without producer. */
void cvy_graph_move_output(struct cvy_graph *graph, int32_t node, cvy_val value);
/* The only node that reads `value`; -1 when there are several readers, a result among them, or none. */
int32_t cvy_graph_sole_reader(const struct cvy_graph *graph, cvy_val value);
/* Whether the node has so many outputs, all of them written. */
bool cvy_node_writes(const struct cvy_node *node, int32_t count);
/* `weights`, which layer `node` is to multiply by, rounded by a new quantizer with the name of that layer's. */
cvy_val cvy_quantized_weights(struct cvy_graph *graph, int32_t node, cvy_val weights,
                              const struct cvy_fake_quantize_attr *form);
/* Sorts the nodes into the given order of indexes (NULL: as they are), each node moved back as far as its inputs
 * require. Nodes that are not listed, or that were detached, are dropped. */
void cvy_graph_sort(struct cvy_graph *graph, const int32_t *order, int32_t count);

#endif
