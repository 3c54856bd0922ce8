/* Files of networks for other programs: ONNX from a graph for inference. */
#ifndef CVY_EXPORT_API_H
#define CVY_EXPORT_API_H

#include "export/onnx.h"

#endif
