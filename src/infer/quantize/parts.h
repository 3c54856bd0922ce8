/* What of a network has 8 bits: its quantizers, and the layers and values that they belong to. */
#ifndef CVY_INFER_QUANTIZE_PARTS_H
#define CVY_INFER_QUANTIZE_PARTS_H

#include "graph/graph.h"
#include "network/network.h"

/* A quantizer of the network (graph/quantizer.h): its state is parameter `param`. */
struct cvy_ptq_quantizer {
    int32_t param;
    struct cvy_fake_quantize_attr attr;
    bool layers;       /* a layer reads it: it is on when one of these layers has 8 bits */
    float observed[3]; /* what the state is where the quantizer is on */
};

enum { CVY_PTQ_INPUTS = 8 }; /* values that the layer is applied to: a detector's are shared by its levels */
/* What can be left in floats: a layer with its inputs, or a value that no layer reads. */
struct cvy_ptq_part {
    const char *name;                            /* in the arena */
    int32_t weights;                             /* its quantizer; -1: a value */
    int32_t inputs[CVY_PTQ_INPUTS], input_count; /* quantizers; of a value itself */
    int32_t param;                               /* the weights; -1 of a value */
    int64_t elements;                            /* of them */
    bool gate;                                   /* makes the factors of a squeeze-and-excitation: stays in floats */
    bool quantized;
    double signal, error; /* sums of squares: of the values, of what 8 bits change about them */
    double cost;          /* -1: not measured */
};

/* A convolution or linear node of the unfused graph with the parameter that its mean can be corrected by: the running
 * mean of the batch norm after it, or its bias. */
struct cvy_ptq_node {
    int32_t part;
    int32_t param; /* -1: there is none */
    bool mean;     /* a running mean, to which the error is added; from a bias it is subtracted */
    int64_t channels;
};

struct cvy_ptq_parts {
    struct cvy_arena arena;
    struct cvy_ptq_quantizer *quantizers;
    struct cvy_ptq_part *parts;
    struct cvy_ptq_node *nodes;
    int32_t quantizer_count, part_count, node_count;
};
/* Finds them in the network's unfused graph for inference (its table). Zero-initialise for release. */
CVY_CHECKED cvy_status cvy_ptq_parts_find(const struct cvy_graph *table, struct cvy_ptq_parts *parts);
void cvy_ptq_parts_release(struct cvy_ptq_parts *parts);

/* ---- graphs over the network's table ---- */

enum cvy_ptq_graph {
    CVY_PTQ_FLOATS,  /* without quantizers, fused; the values that have an own quantizer are results */
    CVY_PTQ_COMPARE, /* the same not fused; node i in floats and, from the same input, in 8 bits are results */
    CVY_PTQ_ROUNDED  /* with quantizers, fused */
};
CVY_CHECKED cvy_status cvy_ptq_graph(const struct cvy_network *network, enum cvy_ptq_graph kind,
                                     struct cvy_graph *graph);
/* Names of those results: of the value whose quantizer has this parameter; of node i. Return buffer. */
const char *cvy_ptq_value_name(int32_t param, char buffer[32]);
const char *cvy_ptq_node_name(int32_t node, bool rounded, char buffer[32]);

#endif
