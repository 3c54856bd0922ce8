#include "support_executor.h"
#include "base/memory.h"
#include "support_test.h"

static void check(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("status %d: %s", status, cvy_error());
}

cvy_device *executor_device(const char *name, int threads)
{
    cvy_device *device = NULL;

    check(cvy_device_open(name, threads, &device));
    return device;
}

static void *device_memory(cvy_device *device, const struct cvy_tensor *tensor)
{
    size_t bytes = device->backend->tensor_bytes(device, tensor);
    void *memory = NULL;

    assert_true(bytes > 0);
    check(device->backend->allocate(device, bytes, &memory));
    return memory;
}

void executor_open(struct executor *executor, cvy_device *device, const struct cvy_graph *graph, int64_t batch)
{
    check(cvy_graph_status(graph));
    executor->device = device;
    executor->graph = graph;
    executor->value_count = graph->value_count;
    executor->tensors = calloc((size_t)graph->value_count, sizeof *executor->tensors);
    executor->memory = calloc((size_t)graph->value_count, sizeof *executor->memory);
    assert_true(executor->tensors && executor->memory);
    for (cvy_val v = 0; v < graph->value_count; v++) {
        const struct cvy_value *value = &graph->values[v];
        struct cvy_tensor *tensor = &executor->tensors[v];
        tensor->shape = cvy_shape_bind(&value->shape, batch);
        tensor->dtype = value->dtype;
        if (value->input >= 0 && graph->input_list[value->input].nhwc)
            tensor->layout.kind = CVY_LAYOUT_NHWC;
        executor->memory[v] = device_memory(device, tensor);
    }
}

void executor_close(struct executor *executor)
{
    for (cvy_val v = 0; v < executor->value_count; v++)
        executor->device->backend->release(executor->device, executor->memory[v]);
    free(executor->tensors);
    free(executor->memory);
}

int64_t executor_elements(const struct executor *executor, cvy_val value)
{
    return cvy_shape_elements(&executor->tensors[value].shape);
}

/* Where element i (in plain order) is stored. */
static int64_t position(const struct cvy_tensor *tensor, int64_t i)
{
    const int64_t *d = tensor->shape.dim;

    if (tensor->layout.kind != CVY_LAYOUT_NHWC)
        return i;
    return (i / (d[1] * d[2] * d[3]) * d[2] * d[3] + i % (d[2] * d[3])) * d[1] + i / (d[2] * d[3]) % d[1];
}

void executor_write(struct executor *executor, cvy_val value, const double *numbers)
{
    const struct cvy_tensor *tensor = &executor->tensors[value];
    const int64_t count = executor_elements(executor, value);
    const size_t bytes = (size_t)count * cvy_dtype_size(tensor->dtype);
    char *host = malloc(bytes);

    assert_non_null(host);
    for (int64_t i = 0; i < count; i++) {
        char *at = host + (size_t)position(tensor, i) * cvy_dtype_size(tensor->dtype);
        if (tensor->dtype == CVY_F64)
            memcpy(at, &numbers[i], sizeof(double));
        else if (tensor->dtype == CVY_F32)
            memcpy(at, &(float){(float)numbers[i]}, sizeof(float));
        else if (tensor->dtype == CVY_I32)
            memcpy(at, &(int32_t){(int32_t)numbers[i]}, sizeof(int32_t));
        else if (tensor->dtype == CVY_U8)
            memcpy(at, &(uint8_t){(uint8_t)numbers[i]}, sizeof(uint8_t));
        else
            fail_msg("the executor does not write %s", cvy_dtype_name(tensor->dtype));
    }
    check(executor->device->backend->upload(executor->device, executor->memory[value], host, bytes));
    free(host);
}

void executor_read(const struct executor *executor, cvy_val value, double *numbers)
{
    const struct cvy_tensor *tensor = &executor->tensors[value];
    const int64_t count = executor_elements(executor, value);
    const size_t bytes = (size_t)count * cvy_dtype_size(tensor->dtype);
    char *host = malloc(bytes);

    assert_non_null(host);
    check(executor->device->backend->download(executor->device, host, executor->memory[value], bytes));
    for (int64_t i = 0; i < count; i++) {
        const char *at = host + (size_t)position(tensor, i) * cvy_dtype_size(tensor->dtype);
        if (tensor->dtype == CVY_F64)
            numbers[i] = *(const double *)at;
        else if (tensor->dtype == CVY_F32)
            numbers[i] = (double)*(const float *)at;
        else if (tensor->dtype == CVY_I32)
            numbers[i] = *(const int32_t *)at;
        else if (tensor->dtype == CVY_U8)
            numbers[i] = *(const uint8_t *)at;
        else
            fail_msg("the executor does not read %s", cvy_dtype_name(tensor->dtype));
    }
    free(host);
}

/* ---- one kernel ---- */

static cvy_status run_kernel(cvy_device *device, struct cvy_kernel_plan *plan, void *const *in, void *const *out)
{
    void *scratch = NULL;
    cvy_status status;

    if (plan->scratch_bytes)
        check(device->backend->allocate(device, plan->scratch_bytes, &scratch));
    status = plan->kernel->run(device, plan, in, out, scratch);
    if (status == CVY_OK)
        status = device->backend->synchronize(device);
    device->backend->release(device, scratch);
    return status;
}

struct cvy_op_desc executor_desc(enum cvy_op op, int32_t inputs, int32_t outputs)
{
    struct cvy_op_desc desc = {.op = op, .inputs = inputs, .outputs = outputs};

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    return desc;
}

struct cvy_tensor executor_tensor(enum cvy_dtype dtype, struct cvy_shape shape)
{
    return (struct cvy_tensor){.shape = shape, .dtype = dtype};
}

static void reorder(cvy_device *device, const struct cvy_tensor *from, void *source, const struct cvy_tensor *to,
                    void *target)
{
    struct cvy_op_desc desc = executor_desc(CVY_OP_REORDER, 1, 1);
    struct cvy_kernel_plan plan;
    void *const in[CVY_MAX_INPUTS] = {source}, *const out[CVY_MAX_OUTPUTS] = {target};

    desc.in[0] = *from;
    desc.out[0] = *to;
    check(cvy_kernel_select(device, &desc, &plan));
    plan.out_bytes[0] = device->backend->tensor_bytes(device, to);
    check(run_kernel(device, &plan, in, out));
    cvy_kernel_release(device, &plan);
}

/* Run `desc` (layouts: what the memory has) on device memory. kernel: NULL for the device's choice. */
static cvy_status run_desc(cvy_device *device, const struct cvy_kernel *kernel, const struct cvy_op_desc *given,
                           void *const *in, void *const *out)
{
    struct cvy_op_desc desc = *given;
    struct cvy_kernel_plan plan;
    void *own_in[CVY_MAX_INPUTS] = {NULL}, *own_out[CVY_MAX_OUTPUTS] = {NULL};
    void *use_in[CVY_MAX_INPUTS] = {NULL}, *use_out[CVY_MAX_OUTPUTS] = {NULL};
    cvy_status status =
        kernel ? cvy_kernel_prepare(device, kernel, &desc, &plan) : cvy_kernel_select(device, &desc, &plan);

    if (status != CVY_OK)
        return status;
    for (int i = 0; i < desc.inputs; i++) {
        if (!cvy_tensor_present(&desc.in[i]))
            continue;
        use_in[i] = in[i];
        if (cvy_layout_equal(&desc.in[i].layout, &given->in[i].layout))
            continue;
        use_in[i] = own_in[i] = device_memory(device, &desc.in[i]);
        reorder(device, &given->in[i], in[i], &desc.in[i], own_in[i]);
    }
    for (int i = 0; i < desc.outputs; i++) {
        if (!cvy_tensor_present(&desc.out[i]))
            continue;
        plan.out_bytes[i] = device->backend->tensor_bytes(device, &desc.out[i]);
        use_out[i] = out[i];
        if (cvy_layout_equal(&desc.out[i].layout, &given->out[i].layout))
            continue;
        use_out[i] = own_out[i] = device_memory(device, &desc.out[i]);
        const int32_t over = plan.in_place[i]; /* then as the planner does where it can */
        if (over >= 0 && own_in[over] && device->backend->tensor_bytes(device, &desc.in[over]) >= plan.out_bytes[i])
            use_out[i] = own_in[over];
    }
    status = run_kernel(device, &plan, use_in, use_out);
    for (int i = 0; i < desc.outputs; i++) {
        if (own_out[i] && status == CVY_OK)
            reorder(device, &desc.out[i], use_out[i], &given->out[i], out[i]);
        device->backend->release(device, own_out[i]);
    }
    for (int i = 0; i < desc.inputs; i++)
        device->backend->release(device, own_in[i]);
    cvy_kernel_release(device, &plan);
    return status;
}

static void run_node(struct executor *executor, const struct cvy_node *node)
{
    struct cvy_op_desc desc = executor_desc(node->op, node->inputs, node->outputs);
    void *in[CVY_MAX_INPUTS] = {NULL}, *out[CVY_MAX_OUTPUTS] = {NULL};

    desc.attr = node->attr;
    for (int i = 0; i < CVY_MAX_INPUTS; i++) {
        if (i < node->inputs && node->in[i] != CVY_NONE) {
            desc.in[i] = executor->tensors[node->in[i]];
            in[i] = executor->memory[node->in[i]];
        }
    }
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        if (i < node->outputs && node->out[i] != CVY_NONE) {
            desc.out[i] = executor->tensors[node->out[i]];
            out[i] = executor->memory[node->out[i]];
        }
    }
    check(run_desc(executor->device, NULL, &desc, in, out));
}

void executor_run(struct executor *executor, int32_t first, int32_t end)
{
    for (int32_t n = first; n < end; n++)
        run_node(executor, &executor->graph->nodes[n]);
}

cvy_status executor_run_kernel(cvy_device *device, const struct cvy_kernel *kernel, struct cvy_op_desc *desc,
                               const void *const *in, void *const *out)
{
    const struct cvy_backend *backend = device->backend;
    void *device_in[CVY_MAX_INPUTS] = {NULL}, *device_out[CVY_MAX_OUTPUTS] = {NULL};
    cvy_status status;

    for (int i = 0; i < desc->inputs; i++) {
        if (!cvy_tensor_present(&desc->in[i]))
            continue;
        device_in[i] = device_memory(device, &desc->in[i]);
        check(backend->upload(device, device_in[i], in[i], backend->tensor_bytes(device, &desc->in[i])));
    }
    for (int i = 0; i < desc->outputs; i++) {
        if (cvy_tensor_present(&desc->out[i]))
            device_out[i] = device_memory(device, &desc->out[i]);
    }
    status = run_desc(device, kernel, desc, device_in, device_out);
    for (int i = 0; i < desc->outputs; i++) {
        if (cvy_tensor_present(&desc->out[i]) && status == CVY_OK)
            check(backend->download(device, out[i], device_out[i], backend->tensor_bytes(device, &desc->out[i])));
        backend->release(device, device_out[i]);
    }
    for (int i = 0; i < desc->inputs; i++)
        backend->release(device, device_in[i]);
    return status;
}

cvy_status executor_run_op(cvy_device *device, struct cvy_op_desc *desc, const void *const *in, void *const *out)
{
    return executor_run_kernel(device, NULL, desc, in, out);
}

void executor_run_checked(cvy_device *device, struct cvy_op_desc *desc, const void *const *in, void *const *out)
{
    check(executor_run_op(device, desc, in, out));
}

void executor_prepare_starved(cvy_device *device, const struct cvy_kernel *kernel, const struct cvy_op_desc *desc)
{
    enum { MAX_ALLOCATIONS = 64 };
    struct cvy_kernel_plan plan;
    cvy_status status;

    for (int n = 0; n <= MAX_ALLOCATIONS; n++) { /* 0: with all memory */
        struct cvy_op_desc attempt = *desc;
        cvy_memory_fail_after(n, false);
        status = cvy_kernel_prepare(device, kernel, &attempt, &plan);
        cvy_memory_fail_after(0, false);
        if (status == CVY_OK)
            cvy_kernel_release(device, &plan);
        if (n == 0 ? status != CVY_OK : status == CVY_OK)
            return;
        if (n > 0 && status != CVY_NO_MEMORY)
            fail_msg("%s: allocation %d fails, and that is status %d: %s", kernel->name, n, status, cvy_error());
    }
}

int executor_setup(void **state)
{
    *state = executor_device("ref", 2);
    return 0;
}

int executor_teardown(void **state)
{
    cvy_device_close(*state);
    return 0;
}

void executor_same(const double *is, const double *wanted, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(wanted[i]) ? !isnan(is[i]) : !(fabs(is[i] - wanted[i]) <= tolerance || is[i] == wanted[i]))
            fail_msg("element %zu is %.17g, not %.17g", i, is[i], wanted[i]);
    }
}
