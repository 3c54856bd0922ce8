/* Networks on a GPU against the CPU: 20 steps in each precision, recorded and step by step, every architecture, and
 * what a device that is only described answers.
 *
 *   test_gpu_networks DEVICE [LEFT_OUT [TAKEN]]     patterns of names of tests; 77: the device is not here */
#include <dlfcn.h>

#include "support_network.h"
#include "support_test.h"
#include "support_threads.h"
#include "trainer/trainer.h"

enum { BATCH = PAINTED_BATCH, CLASSES = PAINTED_CLASSES, STEPS = 20 };

static cvy_device *gpu, *cpu;
static const char *name;
static uint8_t *pixels;

static void must(cvy_status status, const char *what)
{
    if (status != CVY_OK)
        fail_msg("%s: %s", what, cvy_error());
}

/* ---- a training ---- */

struct training {
    struct cvy_network network;
    struct cvy_trainer trainer;
    struct cvy_comm comm;
};

/* Mixed samples and weighted classes, for all trainings that are opened while it is set. */
static bool with_mixup;

static void open_training_by(struct training *t, cvy_device *device, const char *arch, int32_t size,
                             const char *precision, struct cvy_optimizer_options optimizer)
{
    static const struct cvy_mixup mixup = {1, CVY_MIXUP_TORCH, 1, 0, 1};
    static const float weights[CLASSES] = {0.5f, 1, 2};
    struct cvy_model_options model = cvy_model_options_make(CLASSES, size);
    enum cvy_dtype dtype;
    float start;

    model.mixup = model.class_weights = with_mixup;
    model.label_smoothing = with_mixup ? 0.1f : 0;
    memset(t, 0, sizeof *t);
    paint_images(pixels, size);
    cvy_comm_single(&t->comm);
    must(cvy_precision_choose(precision, device, &dtype), precision);
    if (dtype == CVY_F16) {
        assert_true(cvy_scaler_rule_find("torch", &optimizer.scaler, &start));
        optimizer.loss_scale = 128;
    }
    must(cvy_network_open(&t->network, device, cvy_architecture_find(arch), &model, dtype, true), arch);
    must(cvy_network_initialize(&t->network, 1), arch);
    must(calm_network(&t->network), arch);
    must(cvy_trainer_open(&t->trainer, &t->network, &t->comm, &optimizer, BATCH), arch);
    cvy_trainer_set_mixup(&t->trainer, &mixup);
    must(cvy_trainer_set_class_weights(&t->trainer, weights), arch);
}

static void open_training(struct training *t, cvy_device *device, const char *arch, int32_t size, const char *precision)
{
    open_training_by(t, device, arch, size, precision,
                     (struct cvy_optimizer_options){.momentum = 0.9f, .weight_decay = 1e-4f});
}

static void close_training(struct training *t)
{
    cvy_trainer_close(&t->trainer);
    cvy_network_close(&t->network);
}

static void take_steps(struct training *t, int count, double rate, float *losses)
{
    struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = BATCH};

    for (int i = 0; i < count; i++) {
        batch.index = i;
        must(cvy_trainer_step(&t->trainer, &batch, rate), "a step");
        must(cvy_trainer_loss(&t->trainer, &losses[i]), "a loss");
    }
}

static void train(cvy_device *device, const char *arch, int32_t size, const char *precision, int steps, double rate,
                  float *losses)
{
    struct training t;

    open_training(&t, device, arch, size, precision);
    take_steps(&t, steps, rate, losses);
    close_training(&t);
}

/* The device once more, with another choice of the kernels that make statistics, and of those that do batch norm's work
 * with a convolution's; the test's own is "fused" for both. */
static cvy_device *open_with(const char *statistics, const char *patterns)
{
    cvy_device *device;

    setenv("CONVOY_CUDA_DETERMINISTIC", "sums", 1); /* cuDNN's fused kernels have no fixed order */
    setenv("CONVOY_CUDA_STATISTICS", statistics, 1);
    setenv("CONVOY_CUDA_PATTERNS", patterns, 1);
    must(cvy_device_open(name, 0, &device), statistics);
    setenv("CONVOY_CUDA_DETERMINISTIC", "yes", 1);
    setenv("CONVOY_CUDA_STATISTICS", "fused", 1);
    setenv("CONVOY_CUDA_PATTERNS", "fused", 1);
    return device;
}

/* ---- curves ---- */

/* The losses of 20 steps against those of the CPU in fp32, which itself is held to PyTorch's. The loss falls by most of
 * what it starts with, so that a wrong gradient would show. What is allowed is about three times what the emulated GPU,
 * whose sums have no further rounding, differs by: 45 roundings of 2^-24 of the first loss in fp32, 5 to 9 of 2^-11 in
 * fp16, 3 of 2^-8 in bf16 (fewer of the larger ones, for they are of single numbers and average out). The same holds
 * however statistics are made of 16-bit floats: sums in f32 lose less than rounding their terms to 16 bits has lost. */
static void curves_follow_the_cpu(void **state)
{
    static const struct {
        const char *precision, *statistics, *patterns;
        double unit, units;
    } rows[] = {{"fp32", "fused", "fused", 0x1p-24, 128},   {"tf32", "fused", "fused", 0x1p-11, 16},
                {"fp16", "fused", "separate", 0x1p-11, 16}, {"fp16", "fused", "fused", 0x1p-11, 16},
                {"fp16", "separate", "fused", 0x1p-11, 16}, {"bf16", "fused", "separate", 0x1p-8, 10},
                {"bf16", "timed", "timed", 0x1p-8, 10}};
    float expected[STEPS], found[STEPS], before[STEPS] = {0};

    train(cpu, "resnet18", 32, "fp32", STEPS, 0.01, expected);
    assert_true(expected[STEPS - 1] < 0.3f * expected[0]);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const double allowed = rows[r].units * rows[r].unit * (double)expected[0];
        const bool again = r > 0 && strcmp(rows[r].precision, rows[r - 1].precision) == 0;
        cvy_device *device = open_with(rows[r].statistics, rows[r].patterns);
        double worst = 0, furthest = 0;
        const bool emulated = strstr(device->description, "emulated") != NULL;
        if (emulated && (strcmp(rows[r].precision, "tf32") == 0 || strcmp(rows[r].statistics, "timed") == 0)) {
            cvy_device_close(device); /* f32 there, and one of the two others */
            continue;
        }
        train(device, "resnet18", 32, rows[r].precision, STEPS, 0.01, found);
        cvy_device_close(device);
        for (int i = 0; i < STEPS; i++) {
            const double off = fabs((double)found[i] - (double)expected[i]);
            const double moved = again ? fabs((double)found[i] - (double)before[i]) : 0;
            assert_true(isfinite(found[i]));
            worst = off > worst ? off : worst;
            furthest = moved > furthest ? moved : furthest;
            before[i] = found[i];
        }
        print_message("%s, statistics %s, patterns %s: largest difference %.3g, %.1f units; from the row before %.3g\n",
                      rows[r].precision, rows[r].statistics, rows[r].patterns, worst,
                      worst / (double)expected[0] / rows[r].unit, furthest);
        if (!(worst <= allowed) || !(furthest <= allowed))
            fail_msg("%s, statistics %s: the losses are off by %.3g, and by %.3g from those of other statistics; %.3g "
                     "is allowed",
                     rows[r].precision, rows[r].statistics, worst, furthest, allowed);
    }
}

/* Recorded work gives the same bits as the same work step by step. */
static void captures_change_nothing(void **state)
{
    float stepwise[4], recorded[4];
    struct training t;

    open_training(&t, gpu, "resnet18", 32, "fp16");
    t.trainer.plan.capture = false;
    take_steps(&t, 4, 0.01, stepwise);
    assert_null(t.trainer.plan.captures[0].parts);
    close_training(&t);
    open_training(&t, gpu, "resnet18", 32, "fp16");
    take_steps(&t, 4, 0.01, recorded);
    if (gpu->backend->capture_begin) { /* not so of the check device */
        assert_non_null(t.trainer.plan.captures[0].parts);
        assert_non_null(t.trainer.plan.captures[1].parts);
    }
    close_training(&t);
    assert_memory_equal(stepwise, recorded, sizeof stepwise);
}

/* Gradient hooks of a played pass: each gradient is announced once, in the order of the plan, and when the hook is
 * called for one after which the recording is cut, it is what it is at the end. */
static struct {
    struct training *training;
    int32_t next;
    float first_elements[256];
} heard;

static cvy_status note_gradient(void *context, int32_t param)
{
    const struct cvy_plan *plan = &heard.training->trainer.plan;
    const struct cvy_store *store = &heard.training->network.store;

    assert_int_equal(param, plan->ready[heard.next].param);
    must(gpu->backend->download(gpu, &heard.first_elements[heard.next],
                                store->gradients + plan->graph.params[param].offset, sizeof(float)),
         "a gradient");
    heard.next++;
    return CVY_OK;
}

static void hooks_come_between_the_parts(void **state)
{
    struct training t;
    struct cvy_plan *plan = &t.trainer.plan;
    struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = BATCH};
    struct cvy_host_batch parts = {.images = pixels, .labels = painted_labels};

    if (!gpu->backend->capture_begin)
        skip();
    open_training(&t, gpu, "resnet18", 32, "fp32");
    heard.training = &t;
    assert_in_range(plan->ready_count, 3, 256);
    for (int32_t i = 0; i < plan->ready_count; i++)
        plan->ready[i].ends_part = i % 5 == 2 || i + 1 == plan->ready_count;
    must(cvy_trainer_step(&t.trainer, &batch, 0.01), "a step");
    for (int pass = 0; pass < 3; pass++) {
        must(cvy_batch_upload_bind(&t.trainer.upload, plan, &parts), "a batch");
        heard.next = 0;
        must(cvy_plan_run(plan, &(struct cvy_plan_pass){.ready = note_gradient, .kind = 2 /* which has run */}),
             "a pass");
        assert_non_null(plan->captures[0].parts);
        assert_int_equal(heard.next, plan->ready_count);
        for (int32_t i = 0; i < plan->ready_count; i++) {
            float value;
            must(gpu->backend->download(gpu, &value,
                                        t.network.store.gradients + plan->graph.params[plan->ready[i].param].offset,
                                        sizeof value),
                 "a gradient");
            assert_memory_equal(&value, &heard.first_elements[i], sizeof value);
        }
        /* Stale ones of the pass before would do too: */
        must(gpu->backend->combine(gpu, CVY_COMBINE_ADD, t.network.store.gradients, t.network.store.gradients,
                                   t.network.store.trainable_elements, NULL),
             "doubling");
    }
    close_training(&t);
}

/* The answers of a store's weights, by a plan that changes between stores. */
static void ask(struct cvy_evaluator *evaluator, struct cvy_store *store, float logits[BATCH * CLASSES])
{
    cvy_plan_use_store(cvy_evaluator_plan(evaluator), store);
    must(cvy_evaluator_run(evaluator, pixels, evaluator->batch, false), "an answer");
    memcpy(logits, evaluator->logits, BATCH * CLASSES * sizeof *logits);
}

/* Steps of two batches by RMSprop, with a moving average of the weights: recorded or not, the bits are the same. The
 * plan of an evaluation takes turns between weights and average. */
static void rules_live_outside_captures(void **state)
{
    static const struct cvy_optimizer_options rules = {.kind = CVY_UPDATE_RMSPROP,
                                                       .momentum = 0.9f,
                                                       .weight_decay = 1e-4f,
                                                       .alpha = 0.9,
                                                       .epsilon = 0.01,
                                                       .accumulate = 2,
                                                       .average_decay = 0.9};
    float losses[2][6], answers[2][5][BATCH * CLASSES];

    for (int recorded = 0; recorded < 2; recorded++) {
        struct cvy_evaluator evaluator;
        struct training t;

        open_training_by(&t, gpu, "resnet18", 32, "fp16", rules);
        must(cvy_network_start_average(&t.network), "the average");
        t.trainer.plan.capture = recorded == 1;
        take_steps(&t, 6, 1e-3, losses[recorded]);
        assert_true(losses[recorded][0] != losses[recorded][2]); /* after every second batch there is a step */
        t.network.store.version++;
        must(cvy_evaluator_open(&evaluator, &t.network, BATCH), "an evaluator");
        cvy_evaluator_plan(&evaluator)->capture = recorded == 1;
        for (int i = 0; i < 5; i++)
            ask(&evaluator, i % 2 ? &t.network.average : &t.network.store, answers[recorded][i]);
        cvy_evaluator_close(&evaluator);
        close_training(&t);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_memory_equal(answers[0], answers[1], sizeof answers[0]);
    assert_memory_equal(answers[0][0], answers[0][4], sizeof answers[0][0]);
    assert_memory_equal(answers[0][1], answers[0][3], sizeof answers[0][0]);
    assert_memory_not_equal(answers[0][0], answers[0][1], sizeof answers[0][0]);
}

/* Mixed samples and weighted classes: the losses of the CPU, within the limits above. */
static void mixup_follows_the_cpu(void **state)
{
    float expected[4], found[4];

    with_mixup = true;
    train(cpu, "resnet18", 32, "fp32", 4, 0.01, expected);
    for (int p = 0; p < 2; p++) {
        const double allowed = p ? 16 * 0x1p-11 : 128 * 0x1p-24;
        train(gpu, "resnet18", 32, p ? "fp16" : "fp32", 4, 0.01, found);
        for (int i = 0; i < 4; i++) {
            print_message("%s: loss %d: %.7g, on the CPU %.7g\n", p ? "fp16" : "fp32", i, (double)found[i],
                          (double)expected[i]);
            if (!(fabs((double)found[i] - (double)expected[i]) <= allowed * (double)expected[0]))
                fail_msg("%s: loss %d is %.7g, not %.7g", p ? "fp16" : "fp32", i, (double)found[i],
                         (double)expected[i]);
        }
    }
    with_mixup = false;
}

/* What is read of a batch while the next one is on its way, or of the last two in the end, is what is read of each at
 * once, mixed or not. */
static void reading_late(bool mixed, const char *precision)
{
    enum { BATCHES = 5, AT_ONCE = 0, LATE, IN_THE_END, WAYS };
    struct cvy_batch batch = {.images = pixels, .labels = painted_labels, .count = BATCH};
    struct cvy_trainer_result results[WAYS][BATCHES];
    struct training t;

    with_mixup = mixed;
    for (int way = 0; way < WAYS; way++) {
        open_training(&t, gpu, "resnet18", 32, precision);
        for (int i = 0; i < BATCHES; i++) {
            const bool last = i + 1 == BATCHES;
            batch.index = i;
            must(cvy_trainer_step(&t.trainer, &batch, 0.01), "a step");
            if (i > 0 && (way == LATE || (way == IN_THE_END && last)))
                must(cvy_trainer_result(&t.trainer, 1, &results[way][i - 1]), "the batch before");
            if (way == AT_ONCE || last)
                must(cvy_trainer_result(&t.trainer, 0, &results[way][i]), "the batch");
        }
        close_training(&t);
    }
    with_mixup = false;
    assert_memory_equal(results[AT_ONCE], results[LATE], sizeof results[0]);
    assert_memory_equal(&results[AT_ONCE][BATCHES - 2], &results[IN_THE_END][BATCHES - 2], 2 * sizeof results[0][0]);
    assert_true(results[AT_ONCE][0].loss != results[AT_ONCE][BATCHES - 1].loss);
    assert_true(results[AT_ONCE][BATCHES - 1].scaler.good == (strcmp(precision, "fp16") == 0 ? BATCHES : 0));
}

static void losses_are_read_late(void **state)
{
    struct cvy_trainer_result none;
    struct training t;

    reading_late(false, "fp32");
    reading_late(true, "fp16");
    open_training(&t, gpu, "resnet18", 32, "fp32");
    assert_int_equal(cvy_trainer_result(&t.trainer, 0, &none), CVY_FAILED);
    take_steps(&t, 1, 0.01, &none.loss);
    assert_int_equal(cvy_trainer_result(&t.trainer, 1, &none), CVY_FAILED);
    close_training(&t);
}

/* Whatever the rules, a step is the copies of its batch, its rates, one recording for each batch, and the numbers for
 * the host: counted on the emulated GPU, which knows what the host starts. */
static void a_step_is_one_capture(void **state)
{
    static const struct cvy_optimizer_options rules[] = {
        {.momentum = 0.9f, .weight_decay = 1e-4f},
        {.kind = CVY_UPDATE_RMSPROP, .momentum = 0.9f, .alpha = 0.9, .epsilon = 0.01, .average_decay = 0.9},
        {.momentum = 0.9f, .accumulate = 3, .average_decay = 0.9},
    };
    const char *module = getenv("CONVOY_CUDA_MODULE");
    void *library = module ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;
    int64_t (*starts)(void) = NULL;
    void *symbol = library ? dlsym(library, "emulated_starts") : NULL;

    if (!symbol || !gpu->backend->capture_begin)
        skip();
    memcpy(&starts, &symbol, sizeof starts);
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        const int batches = rules[r].accumulate ? (int)rules[r].accumulate : 1;
        float losses[16];
        struct training t;
        int64_t before;

        open_training_by(&t, gpu, "resnet18", 32, "fp16", rules[r]);
        if (rules[r].average_decay > 0)
            must(cvy_network_start_average(&t.network), "the average");
        take_steps(&t, 3 * batches, 0.01, losses); /* once as it comes, and a recording for each place of the batch */
        before = starts();
        take_steps(&t, 2 * batches, 0.01, losses);
        /* Images, labels, rates, the recording, loss and scaler. */
        assert_int_equal(starts() - before, 2 * batches * 6);
        close_training(&t);
    }
    dlclose(library);
}

/* A scale that overflows is halved until it fits; until then the weights stay. */
static void overflow_is_survived(void **state)
{
    struct cvy_scaler scaler;
    float losses[8];
    struct training t;
    int taken = 0;

    open_training(&t, gpu, "resnet18", 32, "fp16");
    scaler = (struct cvy_scaler){.scale = 0x1p24f};
    must(cvy_trainer_set_scaler(&t.trainer, &scaler), "the scale");
    for (int i = 0; i < 8; i++) {
        take_steps(&t, 1, 0.01, &losses[i]);
        must(cvy_trainer_get_scaler(&t.trainer, &scaler), "the scale");
        taken = i + 1 - scaler.skipped;
        assert_true(isfinite(losses[i]));
        if (i + 1 < 8 && taken == 0) /* nothing has changed but running statistics */
            assert_true(scaler.scale == ldexpf(1, 24 - (i + 1)));
    }
    assert_true(scaler.skipped > 0);
    assert_true(losses[1] == losses[0]); /* the first step was left out */
    close_training(&t);
}

/* ---- architectures ---- */

static void deep_networks_follow_their_gradients(void **state)
{
    static const char *const archs[] = {"resnet50", "se-resnext101-32x4d"}; /* all ops of the other networks too */
    static const char *const precisions[] = {"bf16", "fp16"};

    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct cvy_evaluator evaluator;
        struct training t;
        float losses[2];
        open_training(&t, gpu, archs[i], i % 2 ? 49 : 32, precisions[i]);
        take_steps(&t, 2, 1e-4, losses);
        if (!(isfinite(losses[0]) && losses[1] < losses[0]))
            fail_msg("%s: loss %g, then %g", archs[i], (double)losses[0], (double)losses[1]);
        must(cvy_evaluator_open(&evaluator, &t.network, BATCH), archs[i]);
        for (int turn = 0; turn < 3; turn++) { /* step by step, recorded, played */
            must(cvy_evaluator_run(&evaluator, pixels, evaluator.batch, true), archs[i]);
            for (int n = 0; n < BATCH; n++) {
                float sum = 0;
                for (int k = 0; k < CLASSES; k++)
                    sum += evaluator.probabilities[n * CLASSES + k];
                assert_true(fabsf(sum - 1) <= 1e-5f); /* roundings of a few numbers below 1 */
            }
        }
        cvy_evaluator_close(&evaluator);
        close_training(&t);
    }
}

/* ---- inference ---- */

/* Weights trained on the GPU answer alike there and on the CPU. */
static void answers_agree_with_the_cpu(void **state)
{
    struct training t, other;
    struct cvy_evaluator there, here;
    float losses[4], *weights;
    size_t bytes;

    open_training(&t, gpu, "resnet50", 32, "fp32");
    take_steps(&t, 4, 0.01, losses);
    open_training(&other, cpu, "resnet50", 32, "fp32");
    for (int part = 0; part < 2; part++) {
        float *from = part ? t.network.store.state : t.network.store.weights;
        float *to = part ? other.network.store.state : other.network.store.weights;
        bytes = (size_t)(part ? t.network.table.state_elements : t.network.table.trainable_elements) * sizeof *weights;
        assert_non_null(weights = malloc(bytes));
        must(gpu->backend->download(gpu, weights, from, bytes), "weights");
        must(cpu->backend->upload(cpu, to, weights, bytes), "weights");
        free(weights);
    }
    other.network.store.version++;
    must(cvy_evaluator_open(&there, &t.network, BATCH), "gpu");
    must(cvy_evaluator_open(&here, &other.network, BATCH), "cpu");
    must(cvy_evaluator_run(&there, pixels, there.batch, false), "gpu");
    must(cvy_evaluator_run(&here, pixels, here.batch, false), "cpu");
    for (int i = 0; i < BATCH * CLASSES; i++) /* 50 layers of sums in another order */
        assert_true(fabsf(there.logits[i] - here.logits[i]) <= 1e-3f);
    cvy_evaluator_close(&there);
    cvy_evaluator_close(&here);
    close_training(&t);
    close_training(&other);
}

/* Nothing stops on a GPU for a label that is no class; the loss that is read of it says so. */
static void wrong_labels_are_refused(void **state)
{
    static const int32_t wrong[] = {-1, CLASSES, 1 << 30};
    int32_t labels[BATCH];
    struct cvy_batch batch = {.images = pixels, .labels = labels, .count = BATCH};
    struct training t;
    float loss;

    open_training(&t, gpu, "resnet18", 32, "fp32");
    for (int i = 0; i < 3; i++) {
        memcpy(labels, painted_labels, sizeof labels);
        labels[BATCH - 1] = wrong[i];
        batch.index = i;
        must(cvy_trainer_step(&t.trainer, &batch, 0), "a step");
        assert_fails(cvy_trainer_loss(&t.trainer, &loss), CVY_FAILED, "outside 0 to 2");
    }
    take_steps(&t, 1, 0, &loss);
    assert_true(loss > 0);
    close_training(&t);
}

/* ---- several GPUs in one process ---- */

struct turn {
    struct training *training;
    float losses[2];
};

static void *take_turn(void *context)
{
    struct turn *turn = context;

    take_steps(turn->training, 2, 0.01, turn->losses);
    return NULL;
}

/* Whatever thread calls, and whatever GPU it had before. */
static void gpus_take_turns(void **state)
{
    struct training first, second;
    float losses[2][4];
    struct turn turn = {.training = &second};
    cvy_device *other;
    pthread_t thread;

    if (cvy_device_open("cuda:1", 0, &other) != CVY_OK)
        skip();
    open_training(&first, gpu, "resnet18", 32, "fp32");
    open_training(&second, other, "resnet18", 32, "fp32");
    for (int i = 0; i < 2; i++) {
        take_steps(&first, 1, 0.01, &losses[0][i]);
        take_steps(&second, 1, 0.01, &losses[1][i]);
    }
    take_steps(&first, 2, 0.01, &losses[0][2]);
    start_thread(&thread, take_turn, &turn);
    join_thread(thread);
    memcpy(&losses[1][2], turn.losses, sizeof turn.losses);
    for (int i = 0; i < 4; i++)
        assert_true(losses[0][i] == losses[1][i]);
    close_training(&first);
    close_training(&second);
    cvy_device_close(other);
}

/* ---- main ---- */

static int open_devices(void **state)
{
    cvy_status status;

    setenv("CONVOY_CUDA_STATISTICS", "fused", 1); /* "timed" may choose either */
    setenv("CONVOY_CUDA_PATTERNS", "fused", 1);
    status = cvy_device_open(name, 0, &gpu);
    if (status == CVY_UNAVAILABLE) {
        fprintf(stderr, "skipped: %s\n", cvy_error());
        exit(77);
    }
    pixels = cvy_calloc_aligned(PAINTED_BATCH * PAINTED_LARGEST * PAINTED_LARGEST * 3);
    return status != CVY_OK || !pixels || cvy_device_open("cpu", 0, &cpu) != CVY_OK;
}

static int close_devices(void **state)
{
    cvy_device_close(gpu);
    cvy_device_close(cpu);
    cvy_free_aligned(pixels);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_labels_are_refused),   cmocka_unit_test(curves_follow_the_cpu),
        cmocka_unit_test(captures_change_nothing),    cmocka_unit_test(hooks_come_between_the_parts),
        cmocka_unit_test(losses_are_read_late),       cmocka_unit_test(a_step_is_one_capture),
        cmocka_unit_test(overflow_is_survived),       cmocka_unit_test(rules_live_outside_captures),
        cmocka_unit_test(answers_agree_with_the_cpu), cmocka_unit_test(deep_networks_follow_their_gradients),
        cmocka_unit_test(mixup_follows_the_cpu),      cmocka_unit_test(gpus_take_turns),
    };

    name = argc > 1 ? argv[1] : "cuda:0";
    if (argc > 2)
        cmocka_set_skip_filter(argv[2]);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
