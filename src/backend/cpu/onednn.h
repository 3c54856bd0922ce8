/* What onednn.c and onednn_conv.c share. Included by these two only: nothing else sees oneDNN's types.
 * What differs between oneDNN 2.x and 3.x is in onednn_api.h. */
#ifndef CVY_BACKEND_CPU_ONEDNN_H
#define CVY_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn_api.h"

struct known_layout {
    struct known_layout *next;
    onednn_md desc;
};
struct cpu_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* A prepared primitive with its arguments: where each comes from is fixed, the pointers are put in by each run. */
enum onednn_source { FROM_INPUT, FROM_OUTPUT, FROM_SCRATCH };
#define ONEDNN_ARGUMENTS 6
struct onednn_call {
    dnnl_primitive_t primitive;
    int32_t count;
    dnnl_exec_arg_t arguments[ONEDNN_ARGUMENTS];
    enum onednn_source source[ONEDNN_ARGUMENTS];
    int32_t index[ONEDNN_ARGUMENTS]; /* of the input or output */
    size_t copy_bytes;               /* of the residual that becomes the output, when it is not there already */
};

/* CVY_OK, or CVY_NO_MEMORY / CVY_FAILED with "oneDNN: <what>: <its status>". */
CVY_CHECKED cvy_status onednn_check(dnnl_status_t status, const char *what);
/* oneDNN plans and runs with OpenMP's current number of threads: set the device's, of which OpenMP must not leave out
 * some while the machine is busy (OMP_DYNAMIC), and restore the caller's settings. */
struct onednn_threads {
    int count;
    bool dynamic;
};
struct onednn_threads onednn_enter(const cvy_device *device);
void onednn_leave(struct onednn_threads before);
/* f32 or bf16, whichever the tensor is. */
dnnl_data_type_t onednn_type(enum cvy_dtype dtype);
/* A description of an image tensor in one of our layouts; dims N, C, H, W. The caller releases it. */
CVY_CHECKED cvy_status onednn_image(onednn_md *desc, const struct cvy_tensor *tensor, enum cvy_layout_kind kind);
/* Our name for a weight layout: plain where it is row-major, else opaque. */
CVY_CHECKED cvy_status onednn_layout(onednn_md_view desc, struct cvy_layout *layout);
CVY_CHECKED cvy_status onednn_argument(struct cpu_device *device, struct onednn_call *call, int kind,
                                       onednn_md_view desc, enum onednn_source source, int32_t index);
/* The primitive of `desc`, its scratch memory as an argument (size into plan->scratch_bytes). */
CVY_CHECKED cvy_status onednn_primitive(struct cpu_device *device, struct onednn_call *call, dnnl_primitive_desc_t desc,
                                        struct cvy_kernel_plan *plan);
CVY_CHECKED cvy_status onednn_run(cvy_device *device, const struct onednn_call *call, void *const *in, void *const *out,
                                  void *scratch);
void onednn_call_free(struct onednn_call *call); /* accepts NULL and half-built ones */

#endif
