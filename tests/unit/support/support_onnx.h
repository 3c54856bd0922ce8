/* ONNX files for tests: graphs with tensors for their parameters, and what was written, read back with the code that
 * protobuf-c makes of ONNX's schema. Whatever is not as expected ends the test. */
#ifndef TESTS_SUPPORT_ONNX_H
#define TESTS_SUPPORT_ONNX_H

#include <onnx.pb-c.h>

#include "export/onnx.h"
#include "graph/graph.h"

struct onnx_example {
    struct cvy_graph graph;
    struct cvy_named_tensor *tensors;
    size_t count;
    float *values;
};

/* Tensors in the order of the parameters, all in one block; the counters are there too, as in a weights file. */
void onnx_make_tensors(struct onnx_example *e);
/* The graph's result, and its tensors. */
void onnx_finish(struct onnx_example *e, cvy_val logits);
void onnx_release(struct onnx_example *e);

/* Every name in it is made before it is read, and made once. Freed with onnx__model_proto__free_unpacked. */
Onnx__ModelProto *onnx_read(const char *path);
size_t onnx_count(const Onnx__GraphProto *graph, const char *op_type);
const Onnx__NodeProto *onnx_node(const Onnx__GraphProto *graph, const char *name);
const Onnx__AttributeProto *onnx_attribute(const Onnx__NodeProto *node, const char *name);
void onnx_check_int(const Onnx__NodeProto *node, const char *name, int64_t value);
void onnx_check_ints(const Onnx__NodeProto *node, const char *name, size_t count, const int64_t *values);
/* A float tensor whose first dimension is the symbol "batch". */
void onnx_check_value(const Onnx__ValueInfoProto *value, const char *name, size_t rank, const int64_t *dims);
/* All parameters but the counters, in their order, with their bytes; and no other constants. */
void onnx_check_initializers(const struct onnx_example *e, const Onnx__GraphProto *graph);
/* The operations in their order. */
void onnx_check_types(const Onnx__GraphProto *graph, size_t count, const char *const *types);

#endif
