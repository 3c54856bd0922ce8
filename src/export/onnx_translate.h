/* Shared by the files that turn our operations into those of ONNX. */
#ifndef CVY_EXPORT_ONNX_TRANSLATE_H
#define CVY_EXPORT_ONNX_TRANSLATE_H

#include "export/onnx_model.h"
#include "formats/weights/tensors.h"
#include "graph/graph.h"

/* A value of rank 2 may exist as (N,C), as (N,C,1,1), or as both: global average pooling gives (N,C,1,1) in ONNX, and a
 * squeeze-and-excitation block written with 1x1 convolutions needs nothing else from there to its product. The form
 * that is missing is made where it is first asked for. */
struct cvy_onnx_names {
    const char *plain; /* in the value's own shape; NULL: not there yet */
    const char *map;   /* of rank 2: as (N,C,1,1) */
};

struct cvy_onnx_translator {
    const struct cvy_graph *graph;
    struct cvy_onnx_model *model;
    const struct cvy_named_tensor *tensors;
    size_t tensor_count;
    struct cvy_onnx_names *names;        /* by value */
    bool *needed;                        /* by node: the logits depend on it */
    bool has_axes, has_clip, has_scales; /* constants that are there already */
    bool failed;                         /* memory ran out */
    struct cvy_arena arena;              /* of constants that are made here: they outlive the model */
    struct cvy_quantizing *quantizing;   /* onnx_quantize.c */
};

/* A node of the file, named after `node`; its output. */
struct cvy_onnx_node *cvy_onnx_add(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type,
                                   int inputs, const char *const *in);
const char *cvy_onnx_add_simple(struct cvy_onnx_translator *t, const struct cvy_node *node, const char *op_type,
                                int inputs, const char *const *in);
/* The tensor of a parameter; NULL when there is none of its name, shape and type. */
const struct cvy_named_tensor *cvy_onnx_find_tensor(const struct cvy_onnx_translator *t, int32_t param);

/* ---- detectors (onnx_detect.c) ---- */
/* In the place of a CVY_OP_DETECT node, whose codes and logits have these names: the outputs "boxes" (batch, A, 4) and
 * "scores" (batch, A, K) of all anchors. */
CVY_CHECKED cvy_status cvy_onnx_detections(struct cvy_onnx_translator *t, const struct cvy_node *node,
                                           const char *codes, const char *logits);

/* ---- networks trained with fake quantisation (onnx_quantize.c) ---- */
/* Finds the quantizers that round and what they decide: which convolutions and linear layers have integer weights, and
 * which batch norms those take in. Before anything is translated. */
CVY_CHECKED cvy_status cvy_onnx_quantize_open(struct cvy_onnx_translator *t);
void cvy_onnx_quantize_close(struct cvy_onnx_translator *t); /* accepts one that was not opened */
/* Whether the file needs the constant that `node` reads through slot i as it is. */
bool cvy_onnx_reads_constant(const struct cvy_onnx_translator *t, int32_t node, int32_t i);
/* Whether the node vanishes in the one before it: a batch norm in a convolution, a ReLU in integers without negative
 * ones. Its output then has the names of its input. */
bool cvy_onnx_absorbed(const struct cvy_onnx_translator *t, int32_t node);
/* Weights and bias of a convolution or linear layer in integers, as names of the values that stand for them; *quantized
 * false: it stays a layer of floats. */
CVY_CHECKED cvy_status cvy_onnx_quantized_weights(struct cvy_onnx_translator *t, int32_t node, const char *in[3],
                                                  bool *quantized);
/* Whether a matrix product reads what the quantizer gives. */
bool cvy_onnx_feeds_matrix(const struct cvy_onnx_translator *t, int32_t node);
/* A quantizer: a pair of nodes, or nothing where it does not round yet. */
const char *cvy_onnx_quantize(struct cvy_onnx_translator *t, int32_t node, const char *x);
/* What the node gives, rounded already where only a ReLU or a maximum stands between it and its quantizer: rounding
 * changes places with both, and runtimes then find the pair after the product itself. */
const char *cvy_onnx_round_ahead(struct cvy_onnx_translator *t, int32_t node, const char *y);

#endif
