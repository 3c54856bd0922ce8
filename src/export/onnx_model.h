/* An ONNX model built piece by piece and written as one file. Knows ONNX, not our graphs: the mapping is in onnx.c. The
 * first error sticks; cvy_onnx_model_write returns it. Texts are copied, the tensors' data is borrowed. */
#ifndef CVY_EXPORT_ONNX_MODEL_H
#define CVY_EXPORT_ONNX_MODEL_H

#include "formats/weights/tensors.h"

/* What every current runtime reads, and the version of the file format that belongs to it. */
#define CVY_ONNX_OPSET      13
#define CVY_ONNX_IR_VERSION 7

struct cvy_onnx_model;
struct cvy_onnx_node;

/* NULL without memory. `name` is the graph's. */
struct cvy_onnx_model *cvy_onnx_model_new(const char *name, const char *description);
void cvy_onnx_model_free(struct cvy_onnx_model *model); /* accepts NULL */

/* Inputs and outputs of the graph: f32; a dimension of CVY_BATCH becomes the symbol "batch". */
void cvy_onnx_add_input(struct cvy_onnx_model *model, const char *name, const struct cvy_shape *shape);
void cvy_onnx_add_output(struct cvy_onnx_model *model, const char *name, const struct cvy_shape *shape);
/* A constant: f32, i64, i32, i8 or u8. Its data must stay until the model is written. */
void cvy_onnx_add_initializer(struct cvy_onnx_model *model, const struct cvy_named_tensor *tensor);
void cvy_onnx_add_metadata(struct cvy_onnx_model *model, const char *key, const char *value);

/* A node with one output. Node and output get the name "<scope>/<op_type>", with "_1", "_2", ... where there is one of
 * that name; cvy_onnx_node_output gives it. Returns NULL once the model has failed, which every function accepts. */
struct cvy_onnx_node *cvy_onnx_add_node(struct cvy_onnx_model *model, const char *scope, const char *op_type,
                                        int inputs, const char *const *in);
const char *cvy_onnx_node_output(const struct cvy_onnx_node *node); /* "" of NULL */
void cvy_onnx_set_int(struct cvy_onnx_node *node, const char *name, int64_t value);
void cvy_onnx_set_ints(struct cvy_onnx_node *node, const char *name, int count, const int32_t *values);
void cvy_onnx_set_string(struct cvy_onnx_node *node, const char *name, const char *value);
void cvy_onnx_set_float(struct cvy_onnx_node *node, const char *name, float value);
/* Renames a value that nodes compute or read. */
void cvy_onnx_rename(struct cvy_onnx_model *model, const char *from, const char *to);

/* The file, whole or not at all. CVY_FAILED for more than the 2 GiB that a protobuf message can hold. */
CVY_CHECKED cvy_status cvy_onnx_model_write(const struct cvy_onnx_model *model, const struct cvy_tensor_file *source,
                                            const char *source_name, const char *path);

#endif
