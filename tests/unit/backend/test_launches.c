/* What a plan says it costs, beside what the emulated GPU is given to do.
 *
 *   test_launches DEVICE [all]     77: it is not here, or does not count */
#include <dlfcn.h>

#include "support_network.h"
#include "support_test.h"
#include "trainer/trainer.h"

enum { BATCH = 2 };

static const char *name;
static bool all;
static int64_t (*starts)(void);
static uint8_t *pixels;

static void must(cvy_status status, const char *what)
{
    if (status != CVY_OK)
        fail_msg("%s: %s", what, cvy_error());
}

/* One pass kernel by kernel, after the first step, which binds the plan's inputs. */
static int64_t count_pass(struct cvy_trainer *trainer, int32_t size)
{
    struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = BATCH};
    float loss;
    int64_t before;

    paint_images(pixels, size);
    must(cvy_trainer_step(trainer, &batch, 0.01), "a step");
    must(cvy_trainer_loss(trainer, &loss), "a loss");
    trainer->plan.capture = false;
    before = starts();
    must(cvy_plan_run(&trainer->plan, NULL), "a pass");
    return starts() - before;
}

static void plans_count_their_launches(void **state)
{
    static const struct {
        const char *arch, *precision, *how;
        enum cvy_quantize quantize;
    } rows[] = {{"resnet50", "fp16", "fused", CVY_QUANTIZE_NONE},
                {"resnet18", "fp32", "separate", CVY_QUANTIZE_SYMMETRIC},
                {"resnet18", "fp16", "separate", CVY_QUANTIZE_NONE},
                {"se-resnet50", "bf16", "fused", CVY_QUANTIZE_NONE},
                {"resnext50-32x4d", "fp16", "fused", CVY_QUANTIZE_NONE}};

    for (size_t r = 0; r < (all ? sizeof rows / sizeof *rows : 2); r++) {
        struct cvy_model_options model = cvy_model_options_make(PAINTED_CLASSES, 32);
        struct cvy_optimizer_options optimizer = {.momentum = 0.9F};
        struct cvy_network network;
        struct cvy_trainer trainer;
        struct cvy_plan_totals totals;
        struct cvy_comm comm;
        cvy_device *device;
        enum cvy_dtype dtype;

        setenv("CONVOY_CUDA_STATISTICS", rows[r].how, 1);
        setenv("CONVOY_CUDA_PATTERNS", rows[r].how, 1);
        model.quantize = rows[r].quantize;
        must(cvy_device_open(name, 0, &device), name);
        must(cvy_precision_choose(rows[r].precision, device, &dtype), rows[r].precision);
        cvy_comm_single(&comm);
        must(cvy_network_open(&network, device, cvy_architecture_find(rows[r].arch), &model, dtype, true),
             rows[r].arch);
        must(cvy_network_initialize(&network, 1), rows[r].arch);
        must(cvy_trainer_open(&trainer, &network, &comm, &optimizer, BATCH), rows[r].arch);
        cvy_plan_sum(&trainer.plan, &totals);
        print_message("%s %s %s: %d launches, %.3f GB\n", rows[r].arch, rows[r].precision, rows[r].how,
                      (int)totals.launches, (double)totals.bytes * 1e-9);
        assert_int_equal(count_pass(&trainer, 32), totals.launches);
        cvy_trainer_close(&trainer);
        cvy_network_close(&network);
        cvy_device_close(device);
    }
}

/* One step or two, and the weights after them: with what lies between the module's own kernels in forms that only they
 * know, and (`checked`, as on the check device) with all of it in plain tensors. */
static float *train(const char *arch, const char *precision, bool checked, int steps, int64_t *count, int64_t *launches)
{
    const struct cvy_model_options model = cvy_model_options_make(PAINTED_CLASSES, 32);
    const struct cvy_optimizer_options optimizer = {.momentum = 0.9F, .weight_decay = 1e-4F};
    struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = PAINTED_BATCH};
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_plan_totals totals;
    struct cvy_comm comm;
    cvy_device *device;
    enum cvy_dtype dtype;
    float *numbers, loss[2] = {0};
    int64_t weights, state;

    setenv("CONVOY_CUDA_STATISTICS", "fused", 1);
    setenv("CONVOY_CUDA_PATTERNS", "fused", 1);
    must(cvy_device_open(name, 0, &device), name);
    device->checked = checked;
    must(cvy_precision_choose(precision, device, &dtype), precision);
    cvy_comm_single(&comm);
    must(cvy_network_open(&network, device, cvy_architecture_find(arch), &model, dtype, true), arch);
    must(cvy_network_initialize(&network, 1), arch);
    must(calm_network(&network), arch);
    must(cvy_trainer_open(&trainer, &network, &comm, &optimizer, PAINTED_BATCH), arch);
    cvy_plan_sum(&trainer.plan, &totals);
    *launches = totals.launches;
    paint_images(pixels, 32);
    for (int i = 0; i < steps; i++) {
        must(cvy_trainer_step(&trainer, &batch, 0.01), "a step");
        must(cvy_trainer_loss(&trainer, &loss[i]), "a loss");
    }
    weights = network.store.trainable_elements;
    state = network.store.state_elements;
    *count = weights + state + 2;
    numbers = cvy_calloc((size_t)*count, sizeof *numbers);
    assert_non_null(numbers);
    must(device->backend->download(device, numbers, network.store.weights, (size_t)weights * sizeof *numbers),
         "weights");
    must(device->backend->download(device, numbers + weights, network.store.state, (size_t)state * sizeof *numbers),
         "statistics");
    memcpy(numbers + weights + state, loss, sizeof loss);
    cvy_trainer_close(&trainer);
    cvy_network_close(&network);
    cvy_device_close(device);
    return numbers;
}

/* Fewer launches, the same bits. */
static void forms_change_no_bits(void **state)
{
    static const char *const rows[][2] = {{"resnet18", "fp16"}, {"resnet18", "bf16"}, {"resnet18", "fp32"}};

    for (size_t r = 0; r < (all ? sizeof rows / sizeof *rows : 1); r++) {
        int64_t count[2], launches[2];
        float *formed = train(rows[r][0], rows[r][1], false, 2, &count[0], &launches[0]);
        float *plain = train(rows[r][0], rows[r][1], true, 2, &count[1], &launches[1]);

        assert_int_equal(count[0], count[1]);
        assert_true(launches[0] < launches[1]);
        print_message("%s %s: %d and %d launches, loss %g and %g\n", rows[r][0], rows[r][1], (int)launches[0],
                      (int)launches[1], (double)formed[count[0] - 1], (double)plain[count[0] - 1]);
        assert_true(isfinite(formed[count[0] - 1]));
        assert_memory_equal(formed, plain, (size_t)count[0] * sizeof *formed);
        cvy_free(formed);
        cvy_free(plain);
    }
}

static double distance(const float *a, const float *b, int64_t count, double *size)
{
    double square = 0, difference = 0;

    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        square += (double)a[i] * (double)a[i];
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    *size = sqrt(square / (double)count);
    return sqrt(difference / (double)count);
}

/* Gradients of data that add, mask and sum where a block ends: the same step but for sums in another order. A step
 * later the difference is that of two programs that round otherwise. */
static void block_ends_change_the_order_of_sums(void **state)
{
    int64_t count[2], launches[2];
    float *ended, *separate;
    double size, apart;

    if (!all)
        skip();
    ended = train("resnet50", "fp16", false, 1, &count[0], &launches[0]);
    setenv("CONVOY_CUDA_POINTWISE", "cudnn", 1);
    separate = train("resnet50", "fp16", false, 1, &count[1], &launches[1]);
    unsetenv("CONVOY_CUDA_POINTWISE");
    assert_int_equal(count[0], count[1]);
    assert_int_equal(launches[0], launches[1]);
    assert_true(ended[count[0] - 2] == separate[count[0] - 2]); /* the first loss: forward nothing is different */
    apart = distance(ended, separate, count[0], &size);
    print_message("resnet50 fp16: weights of %g are %g apart\n", size, apart);
    assert_true(apart > 0 && apart < 1e-5 * size);
    cvy_free(ended);
    cvy_free(separate);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_count_their_launches),
                                       cmocka_unit_test(forms_change_no_bits),
                                       cmocka_unit_test(block_ends_change_the_order_of_sums)};
    const char *module = getenv("CONVOY_CUDA_MODULE");
    void *library, *symbol;
    cvy_device *device;
    int result;

    name = argc > 1 ? argv[1] : "cuda:0";
    all = argc > 2 && strcmp(argv[2], "all") == 0;
    if (cvy_device_open(name, 0, &device) != CVY_OK) {
        fprintf(stderr, "skipped: %s\n", cvy_error());
        return 77;
    }
    library = module ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;
    symbol = library ? dlsym(library, "emulated_starts") : NULL;
    if (!symbol) {
        fprintf(stderr, "skipped: this device does not count what it is given\n");
        cvy_device_close(device);
        return 77;
    }
    memcpy(&starts, &symbol, sizeof starts);
    pixels = cvy_calloc_aligned(PAINTED_BATCH * 32 * 32 * 3);
    result = pixels ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    cvy_free_aligned(pixels);
    cvy_device_close(device);
    dlclose(library);
    return result;
}
