/* Plans: memory by liveness never overlaps, gradients are announced once and in order, inputs bind, errors are said. */
#include "backend/plan_internal.h"
#include "models/models.h"
#include "ops/ops.h"
#include "support_test.h"

static void open_plan(struct cvy_plan *plan, cvy_device *device, const char *arch, int32_t size, int64_t batch,
                      enum cvy_model_mode mode)
{
    struct cvy_model_options options = {.num_classes = 10, .image_size = size, .std = {1, 1, 1}};
    struct cvy_graph graph;

    assert_int_equal(cvy_model_graph(cvy_architecture_find(arch), &options, mode, true, &graph), CVY_OK);
    if (cvy_plan_open(plan, device, NULL, &graph, batch) != CVY_OK)
        fail_msg("%s", cvy_error());
}

static bool is_activation(const struct cvy_plan_tensor *t)
{
    return t->storage == CVY_STORE_ACTIVATION && t->first >= 0;
}

/* Replays the plan: every write marks its bytes as belonging to the tensor, every read must find them untouched. */
static void check_no_overlap(const struct cvy_plan *plan)
{
    const size_t grain = 256;
    size_t cells = plan->activation_bytes / grain + 1;
    int32_t *owner = malloc(cells * sizeof *owner);

    assert_non_null(owner);
    for (size_t i = 0; i < cells; i++)
        owner[i] = -1;
    for (int32_t s = 0; s < plan->step_count; s++) {
        const struct cvy_plan_step *step = &plan->steps[s];
        for (int i = 0; i < CVY_MAX_INPUTS; i++) {
            const struct cvy_plan_tensor *t = step->in[i] >= 0 ? &plan->tensors[step->in[i]] : NULL;
            if (!t || !is_activation(t))
                continue;
            for (size_t c = t->offset / grain; c * grain < t->offset + t->bytes; c++)
                assert_int_equal(owner[c], step->in[i]);
        }
        for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
            const struct cvy_plan_tensor *t = step->out[i] >= 0 ? &plan->tensors[step->out[i]] : NULL;
            if (!t || !is_activation(t))
                continue;
            assert_true(t->offset + t->bytes <= plan->activation_bytes);
            /* Not over an input of this step, unless the kernel allows it to work in place. */
            for (int j = 0; j < CVY_MAX_INPUTS; j++) {
                const struct cvy_plan_tensor *in = step->in[j] >= 0 ? &plan->tensors[step->in[j]] : NULL;
                if (in && is_activation(in) && t->offset < in->offset + in->bytes && in->offset < t->offset + t->bytes)
                    assert_int_equal(step->kernel.in_place[i], j);
            }
            for (size_t c = t->offset / grain; c * grain < t->offset + t->bytes; c++)
                owner[c] = step->out[i];
        }
    }
    free(owner);
}

static void memory_is_tight_and_never_shared(void **state)
{
    static const struct {
        const char *arch, *device;
        int32_t size;
        int64_t batch;
        enum cvy_model_mode mode;
    } cases[] = {
        {"resnet18", "cpu", 64, 8, CVY_MODEL_TRAIN},  {"resnet50", "cpu", 224, 4, CVY_MODEL_TRAIN},
        {"resnet50", "cpu", 224, 1, CVY_MODEL_INFER}, {"resnet34", "cpu", 97, 3, CVY_MODEL_INFER},
        {"resnet18", "ref", 64, 2, CVY_MODEL_TRAIN},  {"resnet101", "cpu", 64, 2, CVY_MODEL_TRAIN},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvy_device *device;
        struct cvy_plan plan;

        assert_int_equal(cvy_device_open(cases[i].device, 1, &device), CVY_OK);
        open_plan(&plan, device, cases[i].arch, cases[i].size, cases[i].batch, cases[i].mode);
        check_no_overlap(&plan);
        /* The bound of doc/benchmarks.md: at most 1.1 times the largest live set. */
        assert_true(plan.activation_bytes <= 1.1 * (double)cvy_plan_live_bytes(&plan));
        cvy_plan_close(&plan);
        cvy_device_close(device);
    }
}

/* One wait for the device a step: the four losses that are read lie side by side. */
static void losses_of_a_detector_lie_together(void **state)
{
    static const char *const names[] = {"loss", "localization_loss", "classification_loss", "regularization_loss"};
    size_t begin = SIZE_MAX, end = 0;
    cvy_device *device;
    struct cvy_plan plan;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    open_plan(&plan, device, "ssd320", 64, 2, CVY_MODEL_TRAIN);
    check_no_overlap(&plan);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int32_t t = cvy_plan_result_tensor(&plan, cvy_graph_find_result(&plan.graph, names[i]));
        assert_true(t >= 0);
        begin = plan.tensors[t].offset < begin ? plan.tensors[t].offset : begin;
        end = plan.tensors[t].offset > end ? plan.tensors[t].offset : end;
    }
    assert_int_equal(end - begin, 3 * CVY_PLAN_ALIGNMENT);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

static void every_gradient_is_announced_once_in_order(void **state)
{
    cvy_device *device;
    struct cvy_plan plan;
    int32_t trainable = 0;
    char *seen;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    open_plan(&plan, device, "resnet18", 64, 2, CVY_MODEL_TRAIN);
    seen = calloc((size_t)plan.graph.param_count, 1);
    assert_non_null(seen);
    for (int32_t i = 0; i < plan.ready_count; i++) {
        assert_true(i == 0 || plan.ready[i].step >= plan.ready[i - 1].step);
        assert_int_equal(seen[plan.ready[i].param], 0);
        seen[plan.ready[i].param] = 1;
    }
    for (int32_t p = 0; p < plan.graph.param_count; p++)
        trainable += plan.graph.params[p].kind == CVY_PARAM_TRAINABLE;
    assert_int_equal(plan.ready_count, trainable);
    /* The classifier's gradient is ready first, the stem's last; and they come during the backward pass, not after it.
     */
    assert_non_null(strstr(plan.graph.params[plan.ready[0].param].name, "fc."));
    assert_true(plan.ready[plan.ready_count / 2].step < plan.step_count * 9 / 10);
    assert_string_equal(plan.graph.params[plan.ready[plan.ready_count - 1].param].name, "conv1.weight");
    free(seen);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

static void inference_sets_up_once(void **state)
{
    cvy_device *device;
    struct cvy_plan plan;
    int32_t setup = 0;

    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    open_plan(&plan, device, "resnet50", 64, 2, CVY_MODEL_INFER);
    for (int32_t s = 0; s < plan.step_count; s++) {
        const struct cvy_plan_step *step = &plan.steps[s];
        assert_true(s == 0 || !step->setup || plan.steps[s - 1].setup); /* setup steps come first */
        setup += step->setup;
        assert_true(step->desc.op != CVY_OP_FOLD_BATCH_NORM || step->setup);
    }
    assert_true(setup >= 53); /* one fold for each batch norm */
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

static void errors_are_said(void **state)
{
    struct cvy_model_options options = {.num_classes = 10, .image_size = 32, .std = {1, 1, 1}};
    cvy_device *device;
    struct cvy_plan plan;
    struct cvy_graph graph;

    assert_fails(cvy_device_open("tpu", 1, &device), CVY_USAGE, "tpu");
    assert_fails(cvy_device_open("cpu", 4097, &device), CVY_USAGE, "4097 is above 4096");
    assert_null(device);
    assert_int_equal(cvy_device_open("cuda:0", 1, &device), CVY_UNAVAILABLE);
    assert_int_equal(cvy_device_open("cpu", 1, &device), CVY_OK);
    /* One value per channel: 1x1 maps at the end of a 32-pixel network, batch 1. */
    assert_int_equal(cvy_model_graph(cvy_architecture_find("resnet18"), &options, CVY_MODEL_TRAIN, true, &graph),
                     CVY_OK);
    assert_fails(cvy_plan_open(&plan, device, NULL, &graph, 1), CVY_USAGE, "more than one value per channel");
    open_plan(&plan, device, "resnet18", 32, 1, CVY_MODEL_INFER);
    assert_int_equal(cvy_plan_run(&plan, NULL), CVY_FAILED);
    assert_int_equal(cvy_plan_bind(&plan, "nothing", &plan), CVY_FAILED);
    cvy_plan_close(&plan);
    cvy_device_close(device);
}

RUN_TESTS(NULL, NULL, TEST(memory_is_tight_and_never_shared), TEST(losses_of_a_detector_lie_together),
          TEST(every_gradient_is_announced_once_in_order), TEST(inference_sets_up_once), TEST(errors_are_said))
