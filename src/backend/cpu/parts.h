/* Kernels that can be run part by part (chain.c). */
#ifndef CVY_BACKEND_CPU_PARTS_H
#define CVY_BACKEND_CPU_PARTS_H

#include "backend/cpu/cpu.h"

/* A part of a step's work: pixels [first, first + count) of all images. */
struct cpu_part {
    const struct cvy_kernel_plan *plan;
    void *const *in, *const *out; /* of pixel 0, also where only the part's own pixels are there */
    void *scratch;
    int thread;
    int64_t first;
    int32_t count;
    uint32_t near; /* outputs that the next steps read: they stay in the caches */
};

struct cpu_parts {
    /* Whether this plan's kernel can be cut, and how; what it does not set is 0. */
    bool (*cut)(cvy_device *device, const struct cvy_op_desc *desc, const struct cvy_kernel_plan *plan,
                struct cvy_cut *cut);
    /* Before the first part and after the last one; pixel operands may be NULL where `cut` lists them. NULL: nothing.
     */
    cvy_status (*begin)(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                        void *scratch);
    void (*run)(cvy_device *device, const struct cpu_part *part);
    cvy_status (*end)(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                      void *scratch);
};

extern const struct cpu_parts cpu_batch_norm_parts, cpu_batch_norm_bwd_parts, cpu_batch_norm_apply_parts,
    cpu_tile_product_parts, cpu_tile_product_bwd_data_parts, cpu_tile_gradient_parts;

#endif
