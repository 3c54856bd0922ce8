/* Plans of one network beside one another: what kernels want alike of the parameters is made and kept once, the rest is
 * each plan's own, and answers are those of plans by themselves. */
#include "backend/plan.h"
#include "base/system.h"
#include "eval/evaluate.h"
#include "support_network.h"
#include "support_subject.h"
#include "support_test.h"

enum { SIZE = 64, BATCH = PAINTED_BATCH, CLASSES = PAINTED_CLASSES };

static uint8_t images[BATCH * SIZE * SIZE * 3] __attribute__((aligned(64)));

/* A device that has 3x3 windows by Winograd's algorithm ("1"), whose weights it wants otherwise, or not ("0"). */
static void open_device(struct subject *subject, const char *winograd)
{
    *subject = (struct subject){0};
    setenv("CONVOY_CPU_WINOGRAD", winograd, 1);
    must(cvy_device_open("cpu", 1, &subject->device));
    unsetenv("CONVOY_CPU_WINOGRAD");
}

static void open_network(struct subject *subject, const char *winograd)
{
    open_device(subject, winograd);
    subject->model = cvy_model_options_make(CLASSES, SIZE);
    must(cvy_network_open(&subject->network, subject->device, cvy_architecture_find("resnet18"), &subject->model,
                          CVY_F32, false));
    subject_draw(&subject->network);
    subject->network.constant = true;
}

static void open_beside(struct subject *subject, const char *winograd, struct subject *owner)
{
    open_device(subject, winograd);
    must(cvy_network_open_beside(&subject->network, subject->device, &owner->network.model, &owner->network));
}

static const float *answer(struct cvy_evaluator *evaluator)
{
    must(cvy_evaluator_run(evaluator, images, evaluator->batch, false));
    return evaluator->logits;
}

static int count_steps(const struct cvy_plan *plan, bool left_out)
{
    int count = 0;

    for (int32_t s = 0; s < plan->step_count; s++)
        count += plan->steps[s].setup && plan->steps[s].left_out == left_out;
    return count;
}

/* Bytes of the constants, the plan's own or those it has elsewhere. */
static size_t constant_bytes(const struct cvy_plan *plan, bool own)
{
    size_t bytes = 0;

    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->tensors[t].storage == CVY_STORE_CONSTANT && !plan->tensors[t].shared == own)
            bytes += plan->tensors[t].bytes;
    }
    return bytes;
}

/* Another thread may read what is shared while the plan makes the rest. */
static void expect_own_outputs(const struct cvy_plan *plan)
{
    for (int32_t s = 0; s < plan->step_count; s++) {
        for (int i = 0; plan->steps[s].setup && !plan->steps[s].left_out && i < CVY_MAX_OUTPUTS; i++)
            assert_true(plan->steps[s].out[i] < 0 || !plan->tensors[plan->steps[s].out[i]].shared);
    }
}

static void other_batch_shares_all(void **state)
{
    struct subject subject;
    struct cvy_evaluator first, second, alone;

    open_network(&subject, "0");
    must(cvy_evaluator_open(&first, &subject.network, 1));
    must(cvy_evaluator_open_beside(&second, &subject.network, BATCH, &first));
    must(cvy_evaluator_open(&alone, &subject.network, BATCH));
    const struct cvy_plan *plan = cvy_evaluator_plan(&second), *whole = cvy_evaluator_plan(&alone);
    assert_true(whole->constant_bytes > 0);
    if (plan->constant_bytes == 0) { /* always where kernels do not depend on the batch */
        assert_int_equal(count_steps(plan, false), 0);
        assert_true(constant_bytes(plan, false) == constant_bytes(whole, true));
    }
    assert_true(constant_bytes(plan, false) > constant_bytes(whole, true) / 2);
    assert_memory_equal(answer(&second), answer(&alone), BATCH * CLASSES * sizeof(float));
    cvy_evaluator_close(&alone);
    cvy_evaluator_close(&second);
    cvy_evaluator_close(&first);
    subject_close(&subject);
}

static void other_kernels_share_the_rest(void **state)
{
    struct subject direct, tiles, again;
    struct cvy_evaluator first, second, third, alone;

    if (cvy_cpu_isa() < CVY_ISA_AVX2)
        skip();
    open_network(&direct, "0");
    open_beside(&tiles, "1", &direct);
    open_beside(&again, "0", &direct);
    must(cvy_evaluator_open(&first, &direct.network, BATCH));
    must(cvy_evaluator_open_beside(&second, &tiles.network, BATCH, &first));
    must(cvy_evaluator_open(&alone, &tiles.network, BATCH));
    const struct cvy_plan *mixed = cvy_evaluator_plan(&second);
    assert_true(constant_bytes(mixed, true) > 0);  /* of 3x3 windows */
    assert_true(constant_bytes(mixed, false) > 0); /* of 1x1 windows, their biases, the classifier */
    assert_true(count_steps(mixed, true) > 0 && count_steps(mixed, false) > 0);
    expect_own_outputs(mixed);
    assert_true(mixed->constant_bytes < cvy_evaluator_plan(&alone)->constant_bytes);
    assert_memory_equal(answer(&second), answer(&alone), BATCH * CLASSES * sizeof(float));
    /* Beside the one that has half of it: the other half is found at the first one. */
    must(cvy_evaluator_open_beside(&third, &again.network, BATCH, &second));
    assert_int_equal(cvy_evaluator_plan(&third)->constant_bytes, 0);
    assert_memory_equal(answer(&third), answer(&first), BATCH * CLASSES * sizeof(float));
    assert_memory_equal(answer(&second), answer(&alone), BATCH * CLASSES * sizeof(float));
    cvy_evaluator_close(&alone);
    cvy_evaluator_close(&third);
    cvy_evaluator_close(&second);
    cvy_evaluator_close(&first);
    subject_close(&again);
    subject_close(&tiles);
    subject_close(&direct);
}

/* What has the same place and form, but is made of other parameters, is another constant. */
static void constants_of_equal_form_are_told_apart(void **state)
{
    struct subject subject;
    struct cvy_evaluator first, second;

    open_network(&subject, "0");
    must(cvy_evaluator_open(&first, &subject.network, BATCH));
    must(cvy_evaluator_open_beside(&second, &subject.network, BATCH, &first));
    const struct cvy_plan *plan = cvy_evaluator_plan(&second), *owner = cvy_evaluator_plan(&first);
    int equal_form = 0;
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        for (int32_t u = 0; u < t && plan->tensors[t].shared; u++) {
            equal_form += plan->tensors[u].shared && plan->tensors[u].bytes == plan->tensors[t].bytes;
            assert_ptr_not_equal(plan->tensors[u].shared, plan->tensors[t].shared);
        }
    }
    assert_true(equal_form > 0);
    assert_int_equal(plan->tensor_count, owner->tensor_count);
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        if (plan->tensors[t].shared)
            assert_ptr_equal(plan->tensors[t].shared, owner->constants + owner->tensors[t].offset);
    }
    cvy_evaluator_close(&second);
    cvy_evaluator_close(&first);
    subject_close(&subject);
}

static int set_up(void **state)
{
    paint_images(images, SIZE);
    setenv("CONVOY_KERNELS", "first", 1); /* nothing is timed */
    return 0;
}

RUN_TESTS(set_up, NULL, TEST(other_batch_shares_all), TEST(other_kernels_share_the_rest),
          TEST(constants_of_equal_form_are_told_apart))
