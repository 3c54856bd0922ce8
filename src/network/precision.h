/* The type of a network's arithmetic: its names, what a device does, and what would be faster. */
#ifndef CVY_NETWORK_PRECISION_H
#define CVY_NETWORK_PRECISION_H

#include "backend/backend.h"

/* "auto", "fp32", "tf32", "fp16", "bf16" or "fp64" -> the type of the arithmetic; device->tf32 is set as it says
 * ("auto" is TF32 on a GPU). CVY_USAGE for what the device does not do, CVY_UNAVAILABLE for bf16 on a CPU without
 * AVX-512. */
CVY_CHECKED cvy_status cvy_precision_choose(const char *precision, cvy_device *device, enum cvy_dtype *dtype);
/* "fp32", "tf32", "fp16", "bf16" or "fp64": of a network of this type on the device as it is set. */
const char *cvy_precision_name(enum cvy_dtype dtype, const cvy_device *device);
/* What --amp means on the device: "fp16" on a GPU, else "bf16". */
const char *cvy_precision_mixed(const cvy_device *device);
/* How many times as many operations a second the device does in bf16 as in fp32, 0 where it has no
 * instructions for bf16, -1 for GPUs and devices that cannot be measured. Measured in some hundredths of a second the
 * first time, and kept in the cache for later runs on this processor with as many threads; what was measured beside
 * other programs is measured again. */
double cvy_precision_gain(cvy_device *device);
/* From here on bf16 is worth while: networks gain less than their products, at twice the operations they train 1.5
 * times as fast. */
#define CVY_PRECISION_WORTH 1.6
/* Says in one line of the log when another type would be much faster on this processor: bf16 where fp32 is used, and
 * fp32 where bf16 has no instructions of its own. `option`: how to ask for bf16, such as "--amp". Says nothing of GPUs
 * and of devices that cannot be measured. */
void cvy_precision_advise(cvy_device *device, enum cvy_dtype dtype, const char *option);

#endif
