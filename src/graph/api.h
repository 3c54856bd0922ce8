/* Networks as static graphs: values, nodes, shapes and parameters, the backward pass, and rewrites that change nodes
 * but not what is computed. */
#ifndef CVY_GRAPH_API_H
#define CVY_GRAPH_API_H

#include "graph/boxes.h"
#include "graph/graph.h"
#include "graph/int8.h"
#include "graph/op.h"
#include "graph/quantizer.h"

#endif
