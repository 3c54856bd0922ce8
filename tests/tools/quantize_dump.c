/* One call of FAKE_QUANTIZE and of its gradient on given values, for comparison with PyTorch
 * (tests/parity/quantize.py).
 *
 *   quantize_dump IN OUT DEVICE symmetric|asymmetric
 *
 * IN holds "x" and "dy" f32 (N) and "observed" f32 (3): lowest, highest, batches seen. OUT receives "y" and "dx" (N),
 * of a quantizer of activations that keeps its range. */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/error.h"
#include "formats/weights/safetensors.h"

enum { X, DY, OBSERVED, Y, DX, TENSORS };
static const char *const names[TENSORS] = {"x", "dy", "observed", "y", "dx"};

struct dump {
    struct cvy_tensor_file file;
    cvy_device *device;
    struct cvy_tensor tensors[TENSORS];
    void *memory[TENSORS]; /* on the device, which must be the host */
};

static cvy_status read_tensors(struct dump *dump)
{
    for (int i = 0; i < TENSORS; i++) {
        const struct cvy_named_tensor *tensor = cvy_tensor_find(&dump->file, names[i < Y ? i : X]);

        if (!tensor || tensor->dtype != CVY_F32 || tensor->shape.rank != 1)
            return cvy_fail(CVY_BAD_DATA, "there is no usable tensor \"%s\"", names[i < Y ? i : X]);
        dump->tensors[i] = (struct cvy_tensor){.shape = tensor->shape, .dtype = CVY_F32};
        CVY_TRY(dump->device->backend->allocate(dump->device, tensor->bytes, &dump->memory[i]));
        memcpy(dump->memory[i], tensor->data, tensor->bytes);
    }
    return CVY_OK;
}

static cvy_status run(struct dump *dump, enum cvy_op op, bool symmetric, const int *in, int inputs, int out)
{
    struct cvy_op_desc desc = {.op = op, .inputs = inputs, .outputs = 1, .out = {dump->tensors[out]}};
    void *from[CVY_MAX_INPUTS] = {NULL}, *to[CVY_MAX_OUTPUTS] = {dump->memory[out]}, *scratch = NULL;
    struct cvy_kernel_plan plan;
    cvy_status status;

    desc.attr.fake_quantize.symmetric = symmetric;
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        desc.in[i].shape.rank = -1;
    for (int i = 1; i < CVY_MAX_OUTPUTS; i++)
        desc.out[i].shape.rank = -1;
    for (int i = 0; i < inputs; i++) {
        desc.in[i] = dump->tensors[in[i]];
        from[i] = dump->memory[in[i]];
    }
    CVY_TRY(cvy_kernel_select(dump->device, &desc, &plan));
    status = dump->device->backend->allocate(dump->device, plan.scratch_bytes + 64, &scratch);
    if (status == CVY_OK)
        status = plan.kernel->run(dump->device, &plan, from, to, scratch);
    dump->device->backend->release(dump->device, scratch);
    cvy_kernel_release(dump->device, &plan);
    return status;
}

static cvy_status dump_all(struct dump *dump, char **arguments)
{
    const bool symmetric = strcmp(arguments[4], "symmetric") == 0;
    struct cvy_named_tensor out[2];

    CVY_TRY(cvy_st_open(&dump->file, arguments[1]));
    CVY_TRY(cvy_device_open(arguments[3], 2, &dump->device));
    if (!dump->device->backend->host_memory)
        return cvy_fail(CVY_USAGE, "a device with the host's memory is needed");
    CVY_TRY(read_tensors(dump));
    CVY_TRY(run(dump, CVY_OP_FAKE_QUANTIZE, symmetric, (const int[]){X, OBSERVED}, 2, Y));
    CVY_TRY(run(dump, CVY_OP_FAKE_QUANTIZE_BWD, symmetric, (const int[]){X, OBSERVED, DY}, 3, DX));
    for (int i = 0; i < 2; i++)
        out[i] = (struct cvy_named_tensor){names[Y + i], CVY_F32, dump->tensors[Y + i].shape, dump->memory[Y + i],
                                           (size_t)dump->tensors[Y + i].shape.dim[0] * sizeof(float)};
    return cvy_st_write(arguments[2], out, 2, NULL, 0);
}

int main(int argc, char **argv)
{
    struct dump dump = {0};
    cvy_status status = CVY_USAGE;

    if (argc != 5)
        fprintf(stderr, "usage: quantize_dump IN OUT DEVICE symmetric|asymmetric\n");
    else
        status = dump_all(&dump, argv);
    if (argc == 5 && status != CVY_OK)
        fprintf(stderr, "quantize_dump: %s\n", cvy_error());
    for (int i = 0; i < TENSORS && dump.device; i++)
        dump.device->backend->release(dump.device, dump.memory[i]);
    cvy_device_close(dump.device);
    cvy_tensor_file_close(&dump.file);
    return status;
}
