/* Networks on small painted images. */
#include "support_network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

const int32_t painted_labels[PAINTED_BATCH] = {0, 1, 2, 1};

void paint_images(uint8_t *pixels, int32_t size)
{
    struct cvy_rng rng = cvy_rng_new(7, CVY_RNG_INIT, 0, 0);
    uint8_t *pixel = pixels;

    for (int i = 0; i < PAINTED_BATCH; i++)
        for (int y = 0; y < size; y++)
            for (int x = 0; x < size; x++)
                for (int c = 0; c < 3; c++) {
                    const double phase = 9.0 * ((i & 1 ? x : y) * (1 + i) + (c + i) * 5) / size;
                    *pixel++ = (uint8_t)(128 + 90 * sin(phase) + cvy_rng_range(&rng, -30, 30));
                }
}

cvy_status calm_network(struct cvy_network *network)
{
    const bool bottleneck = cvy_graph_find_param(&network->table, "layer1.0.bn3.weight") >= 0;
    cvy_device *device = network->device;

    for (int32_t i = 0; i < network->table.param_count; i++) {
        const struct cvy_param *param = &network->table.params[i];
        const int64_t count = cvy_shape_elements(&param->shape);
        float *values;
        cvy_status status;
        if (!strstr(param->name, bottleneck ? ".bn3.weight" : ".bn2.weight"))
            continue;
        values = malloc((size_t)count * sizeof *values);
        if (!values)
            return cvy_fail_memory((size_t)count * sizeof *values, "the start values");
        for (int64_t k = 0; k < count; k++)
            values[k] = 0.2f;
        status = device->backend->upload(device, network->store.weights + param->offset, values,
                                         (size_t)count * sizeof *values);
        free(values);
        CVY_TRY(status);
    }
    network->store.version++;
    return CVY_OK;
}
