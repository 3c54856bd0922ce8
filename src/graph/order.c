/* A stable topological sort of the nodes. */
#include "graph/order.h"

#include <string.h>

#include "base/error.h"

void cvy_graph_detach(struct cvy_graph *graph, int32_t node)
{
    struct cvy_node *n = &graph->nodes[node];

    for (int32_t i = 0; i < n->outputs; i++) {
        if (n->out[i] != CVY_NONE && graph->values[n->out[i]].producer == node)
            graph->values[n->out[i]].producer = -1;
    }
    n->inputs = n->outputs = 0;
}

void cvy_graph_move_output(struct cvy_graph *graph, int32_t node, cvy_val value)
{
    graph->values[graph->nodes[node].out[0]].producer = -1;
    graph->nodes[node].out[0] = value;
    graph->values[value].producer = node;
}

int32_t cvy_graph_sole_reader(const struct cvy_graph *graph, cvy_val value)
{
    if (cvy_graph_uses(graph, value) != 1)
        return -1;
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int32_t i = 0; i < graph->nodes[n].inputs; i++) {
            if (graph->nodes[n].in[i] == value)
                return n;
        }
    }
    return -1;
}

bool cvy_node_writes(const struct cvy_node *node, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (node->out[i] == CVY_NONE)
            return false;
    }
    return node->outputs == count;
}

enum mark { NEW, OPEN, PLACED };

struct sorter {
    struct cvy_graph *graph;
    struct cvy_node *sorted;
    int32_t *stack; /* nodes that wait for an input */
    unsigned char *marks;
    int32_t count; /* placed */
};

/* A node that must come before `node` and is not placed yet; -1 when there is none. */
static int32_t missing_producer(const struct sorter *s, int32_t node)
{
    const struct cvy_node *n = &s->graph->nodes[node];

    for (int32_t i = 0; i < n->inputs; i++) {
        int32_t producer = n->in[i] == CVY_NONE ? -1 : s->graph->values[n->in[i]].producer;
        if (producer >= 0 && s->marks[producer] != PLACED)
            return producer;
    }
    return -1;
}

/* Places `first`, and before it everything it needs. */
static void place(struct sorter *s, int32_t first)
{
    int32_t depth = 0;

    if (s->marks[first] == PLACED || s->graph->nodes[first].outputs == 0)
        return;
    s->stack[depth++] = first;
    s->marks[first] = OPEN;
    while (depth > 0) {
        int32_t node = s->stack[depth - 1], producer = missing_producer(s, node);

        if (producer >= 0 && s->marks[producer] == OPEN) {
            cvy_graph_fail(s->graph, CVY_FAILED, "the graph runs in a circle");
            return;
        }
        if (producer >= 0) {
            s->marks[producer] = OPEN;
            s->stack[depth++] = producer;
            continue;
        }
        s->sorted[s->count++] = s->graph->nodes[node];
        s->marks[node] = PLACED;
        depth--;
    }
}

static void adopt(struct sorter *s)
{
    struct cvy_graph *graph = s->graph;

    memcpy(graph->nodes, s->sorted, (size_t)s->count * sizeof *s->sorted);
    graph->node_count = s->count;
    for (cvy_val v = 0; v < graph->value_count; v++)
        graph->values[v].producer = -1;
    for (int32_t n = 0; n < graph->node_count; n++) {
        for (int32_t i = 0; i < graph->nodes[n].outputs; i++) {
            if (graph->nodes[n].out[i] != CVY_NONE)
                graph->values[graph->nodes[n].out[i]].producer = n;
        }
    }
}

void cvy_graph_sort(struct cvy_graph *graph, const int32_t *order, int32_t count)
{
    size_t capacity = (size_t)graph->node_count + 1;
    struct sorter s = {.graph = graph};

    if (graph->status != CVY_OK)
        return;
    s.sorted = cvy_calloc(capacity, sizeof *s.sorted);
    s.stack = cvy_calloc(capacity, sizeof *s.stack);
    s.marks = cvy_calloc(capacity, sizeof *s.marks);
    if (!s.sorted || !s.stack || !s.marks) {
        cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while ordering the graph");
        goto fail;
    }
    if (!order)
        count = graph->node_count;
    for (int32_t i = 0; i < count && graph->status == CVY_OK; i++)
        place(&s, order ? order[i] : i);
    if (graph->status == CVY_OK)
        adopt(&s);
fail:
    cvy_free(s.sorted);
    cvy_free(s.stack);
    cvy_free(s.marks);
}
