/* Times the loading of a weights file into a network, as `classify` does it; prints milliseconds of each of REPEAT
 * loads: until the tensors are open and checked, and until the network holds them.
 *
 *   load_time FILE [REPEAT] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "weights/weights.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static cvy_status load(const char *path)
{
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    const struct cvy_architecture *architecture = NULL;
    struct cvy_tensor_file file = {0};
    struct cvy_network network = {0};
    cvy_device *device = NULL;
    double start, opened;
    cvy_status status;

    CVY_GOTO(cvy_device_open("cpu", 0, &device));
    start = now();
    CVY_GOTO(cvy_weights_open(&file, path));
    opened = now();
    CVY_GOTO(cvy_weights_identify(&file, path, NULL, &architecture, &model));
    CVY_GOTO(cvy_network_open(&network, device, architecture, &model, CVY_F32, false));
    CVY_GOTO(cvy_weights_load(&network, &file, path, &CVY_WEIGHTS_LOAD_DEFAULTS));
    printf("%.3f %.3f\n", opened - start, now() - start);
fail:
    cvy_network_close(&network);
    cvy_tensor_file_close(&file);
    cvy_device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    const int repeat = argc > 2 ? atoi(argv[2]) : 1;

    if (argc < 2) {
        fprintf(stderr, "usage: load_time FILE [REPEAT]\n");
        return CVY_USAGE;
    }
    for (int i = 0; i < repeat; i++) {
        cvy_status status = load(argv[1]);
        if (status != CVY_OK) {
            fprintf(stderr, "load_time: %s\n", cvy_error());
            return (int)status;
        }
    }
    return 0;
}
