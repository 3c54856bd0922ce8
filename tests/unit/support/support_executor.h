/* For tests: runs a graph node by node on any device, every value in a buffer of its own that can be written and read
 * as doubles. Failures end the test. */
#ifndef CVY_TESTS_SUPPORT_EXECUTOR_H
#define CVY_TESTS_SUPPORT_EXECUTOR_H

#include "backend/backend.h"

struct executor {
    cvy_device *device;            /* borrowed */
    const struct cvy_graph *graph; /* borrowed */
    int32_t value_count;
    struct cvy_tensor *tensors; /* per value: bound shape; plain, or NHWC for inputs declared so */
    void **memory;              /* per value, on the device, zeroed at first */
};

cvy_device *executor_device(const char *name, int threads); /* cvy_device_open, or the test fails */
void executor_open(struct executor *executor, cvy_device *device, const struct cvy_graph *graph, int64_t batch);
void executor_close(struct executor *executor);
int64_t executor_elements(const struct executor *executor, cvy_val value);
/* Values in logical (plain) order, converted to and from the value's type: f32, f64, u8, i32. */
void executor_write(struct executor *executor, cvy_val value, const double *numbers);
void executor_read(const struct executor *executor, cvy_val value, double *numbers);
/* Run the nodes first <= n < end; reorders are put around kernels that want other layouts. */
void executor_run(struct executor *executor, int32_t first, int32_t end);

/* A description without tensors, and a plain tensor. */
struct cvy_op_desc executor_desc(enum cvy_op op, int32_t inputs, int32_t outputs);
struct cvy_tensor executor_tensor(enum cvy_dtype dtype, struct cvy_shape shape);
/* One kernel alone: `desc` with plain layouts (NORMALIZE: NHWC), host data in plain layout; outputs are written whole.
 * Returns the status of selection or run instead of failing, so that refusals can be tested. */
cvy_status executor_run_op(cvy_device *device, struct cvy_op_desc *desc, const void *const *in, void *const *out);
/* The same by one kernel of the device's; NULL: the first that takes it. */
cvy_status executor_run_kernel(cvy_device *device, const struct cvy_kernel *kernel, struct cvy_op_desc *desc,
                               const void *const *in, void *const *out);
/* executor_run_op; failure ends the test. */
void executor_run_checked(cvy_device *device, struct cvy_op_desc *desc, const void *const *in, void *const *out);

/* Prepares a kernel with one allocation after the other failing: it must say that memory is missing, as far as it asks
 * for some, and sanitizers must find nothing. A kernel that refuses the operation is left alone. */
void executor_prepare_starved(cvy_device *device, const struct cvy_kernel *kernel, const struct cvy_op_desc *desc);

/* For cmocka: *state is the reference device with two threads. */
int executor_setup(void **state);
int executor_teardown(void **state);
/* The numbers are those that are wanted; NaN where NaN is, infinities exactly. */
void executor_same(const double *is, const double *wanted, size_t count, double tolerance);

#endif
