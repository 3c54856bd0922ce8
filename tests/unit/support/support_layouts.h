/* Part of the kernel checker: tensors in their layouts, and memory that detects out-of-bounds writes. */
#ifndef SUPPORT_LAYOUTS_H
#define SUPPORT_LAYOUTS_H

#include "backend/backend.h"

/* In the plain layout. */
size_t layout_plain_bytes(const struct cvy_tensor *tensor);
/* Plain to laid out, or back. False when padding channels that are read back are not zero. */
bool layout_convert(const struct cvy_tensor *tensor, char *laid_out, char *plain, bool to_plain);
/* The same for weights that only their own device can read: by its reorder kernel. */
cvy_status layout_convert_opaque(cvy_device *device, const struct cvy_tensor *tensor, void *laid_out, void *plain,
                                 bool to_plain);

struct guarded {
    unsigned char *block;
    void *memory; /* NULL: absent */
    void *device; /* the same block on a device with memory of its own */
    size_t bytes;
    uint64_t sum;
};

/* Filled with NaN. */
struct guarded guarded_new(size_t bytes);
bool guarded_intact(const struct guarded *g);
uint64_t guarded_checksum(const struct guarded *g);
/* Where a kernel finds it: on a device with memory of its own, a copy there, which comes back when asked for. */
void *guarded_place(cvy_device *device, struct guarded *g);
bool guarded_bring_back(cvy_device *device, struct guarded *g);
void guarded_release(cvy_device *device, struct guarded *g);

#endif
