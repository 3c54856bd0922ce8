/* ONNX files from inference graphs: for ONNX Runtime, TensorRT, OpenVINO and others. */
#ifndef CVY_EXPORT_ONNX_H
#define CVY_EXPORT_ONNX_H

#include "formats/weights/tensors.h"
#include "graph/graph.h"

struct cvy_onnx_options {
    const char *name;                       /* of the network */
    const struct cvy_tensor_meta *metadata; /* goes into the file as it is */
    size_t metadata_count;
    const struct cvy_tensor_file
        *source; /* whose the tensors' data is: not written where it has changed; NULL: none's */
    const char *source_name;
};

/* Write a graph of CVY_MODEL_INFER, not fused: batch norms stay nodes and the constants keep the parameters' names;
 * runtimes fold them themselves. Opset CVY_ONNX_OPSET.
 *
 * `tensors` hold all parameters by name, f32, and must stay until the call returns. The file's input is "input", the
 * normalised image (batch, 3, H, W) (the graph's normalize node is left out), its output the result "logits"
 * (batch, K); `batch` is a symbol. Everything that the logits do not need is left out. A detector's outputs are "boxes"
 * (batch, A, 4), as shares of the image and not cut to it, and "scores" (batch, A, K) of all anchors.
 *
 * CVY_FAILED for an operation that has no form in ONNX, a missing parameter, or more than 2 GiB; else as cvy_output. */
CVY_CHECKED cvy_status cvy_onnx_write(const char *path, const struct cvy_graph *graph,
                                      const struct cvy_named_tensor *tensors, size_t tensor_count,
                                      const struct cvy_onnx_options *options);

#endif
