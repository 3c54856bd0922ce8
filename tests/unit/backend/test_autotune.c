/* Choosing between candidates, on a fake_device whose kernels take as long as the test says (its clock stands still but
 * for them): what is timed, what is remembered, what a checkpoint and the environment decide, and that nothing about
 * the kept file is ever an error. */
#include "backend/autotune.h"
#include "base/file.h"
#include "base/system.h"
#include "support_autotune.h"
#include "support_test.h"

static void the_fastest_is_timed_once(void **state)
{
    char reason[160];

    fake_cache("once");
    fake_times(900, 300, -1);
    fake_open();
    assert_string_equal(fake_reason(fake_describe(4), true, reason), "fake.fast");
    assert_non_null(strstr(reason, "timed 0.3"));
    assert_non_null(strstr(reason, "fake.slow 0.9"));
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 1);
    assert_true(fake.runs[SLOW] > 1 && fake.runs[FAST] > 1 && fake.runs[REORDER] == 0);
    memset(fake.runs, 0, sizeof fake.runs);
    assert_string_equal(fake_choose(4), "fake.fast"); /* the same again: nothing runs */
    assert_int_equal(fake.runs[SLOW] + fake.runs[FAST], 0);
    assert_string_equal(fake_choose(5), "fake.fast"); /* another shape */
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 2);
    fake_close();
    fake_times(100, 900, -1); /* a later process times nothing, whatever it would find */
    fake_open();
    assert_string_equal(fake_reason(fake_describe(4), true, reason), "fake.fast");
    assert_non_null(strstr(reason, "timed 0.3"));
    assert_string_equal(fake_reason(fake_describe(5), false, reason), "fake.fast");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    assert_int_equal(fake.runs[SLOW] + fake.runs[FAST], 0);
    assert_string_equal(fake_log, "");
    fake_close();
}

static void the_key_tells_what_matters_apart(void **state)
{
    struct cvy_op_desc desc[8];
    struct cvy_text keys[8] = {{0}}, again = {0};

    for (int i = 0; i < 8; i++)
        desc[i] = fake_describe(4);
    desc[1].attr.conv2d.pad[3] = 0;
    desc[2].in[0].layout.kind = CVY_LAYOUT_NHWC;
    desc[3].inference = true;
    desc[4].in[1].dtype = CVY_BF16;
    desc[5].attr.conv2d.groups = 2;
    desc[6].out[0].dtype = CVY_BF16;
    for (int i = 0; i < 8; i++) {
        cvy_autotune_key(&desc[i], i == 7 ? 2 : 3, &keys[i]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(keys[k].text, keys[i].text);
    }
    cvy_autotune_key(&desc[0], 3, &again);
    assert_string_equal(again.text, keys[0].text);
    assert_string_equal(again.text, "conv2d k3x3 s1x1 d1x1 p1,1,1,1 g1 2x4x4x4:f32:plain 8x4x3x3:f32:plain -> "
                                    "2x8x4x4:f32 train t3");
    cvy_text_release(&again);
    for (int i = 0; i < 8; i++)
        cvy_text_release(&keys[i]);
}

static void what_is_settled_is_not_timed(void **state)
{
    const char *key, *row;

    fake_cache("settled");
    fake_open();
    fake_times(900, 300, -1);
    assert_string_equal(fake_choose(4), "fake.fast");
    assert_true(cvy_autotuner_at(fake_device.autotuner, 0, &key, &row));
    cvy_autotuner_freeze(fake_device.autotuner);
    assert_false(cvy_autotuner_at(fake_device.autotuner, 0, &key, &row));
    assert_string_equal(fake_choose(5), "fake.slow"); /* the table's order: it was not timed before */
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 1);
    assert_string_equal(fake_choose(4), "fake.fast"); /* what is known stays */
    assert_true(cvy_autotuner_at(fake_device.autotuner, 1, &key, &row));
    assert_false(cvy_autotuner_at(fake_device.autotuner, 2, &key, &row));
    fake_close();
    cvy_autotuner_freeze(NULL);
}

static void noise_does_not_turn_the_order(void **state)
{
    fake_cache("noise");
    fake_open();
    fake_times(2000, 1980, -1); /* 1 % */
    assert_string_equal(fake_choose(4), "fake.slow");
    fake_times(2000, 1800, -1); /* 10 % */
    assert_string_equal(fake_choose(5), "fake.fast");
    fake_times(2000, 2200, 1000);
    assert_string_equal(fake_choose(6), "fake.wide");
    fake_rows[SLOW].lead = 0.15; /* this row wants more */
    fake_times(2000, 1800, -1);
    assert_string_equal(fake_choose(21), "fake.slow");
    fake_times(2000, 1600, -1);
    assert_string_equal(fake_choose(22), "fake.fast");
    fake_rows[SLOW].lead = 0;
    fake_close();
}

static void reorders_are_paid_for(void **state)
{
    struct cvy_op_desc desc;
    char reason[160];

    fake_cache("reorders");
    fake_open();
    fake_times(1000, -1, 500);
    fake.wide_input = CVY_LAYOUT_NHWC;
    fake.reorder = 200; /* 700 against 1000 */
    assert_string_equal(fake_choose(4), "fake.wide");
    assert_true(fake.runs[REORDER] > 1);
    fake.reorder = 800; /* 1300 */
    assert_string_equal(fake_choose(5), "fake.slow");
    desc = fake_describe(6); /* what is there already costs nothing; but now the other one pays */
    desc.in[0].layout.kind = CVY_LAYOUT_NHWC;
    assert_string_equal(fake_reason(desc, true, reason), "fake.wide");
    fake.reorder = 300; /* before it and after it: 1100 */
    fake.wide_output = true;
    assert_string_equal(fake_choose(7), "fake.slow");
    /* Weights of an inference are packed once. */
    fake.wide_output = false;
    fake.wide_input = CVY_LAYOUT_OPAQUE;
    fake.reorder = 800;
    desc = fake_describe(8);
    desc.inference = true;
    assert_string_equal(fake_reason(desc, true, reason), "fake.wide");
    assert_string_equal(fake_choose(8), "fake.slow");
    fake_close();
}

static void without_a_question_nothing_is_timed(void **state)
{
    struct cvy_selection selection;
    struct cvy_kernel_plan plan;
    struct cvy_op_desc desc = fake_describe(6);
    char reason[160];

    fake_cache("question");
    fake_open();
    fake_times(-1, 300, -1); /* one accepts */
    assert_string_equal(fake_reason(fake_describe(4), true, reason), "fake.fast");
    assert_string_equal(reason, "fake.slow: not today; fake.wide: not today");
    fake_times(900, 300, -1);
    assert_string_equal(fake_reason(fake_describe(5), false, reason), "fake.slow"); /* a dry-run plan */
    assert_int_equal(cvy_kernel_select(&fake_device, &desc, &plan), CVY_OK);        /* no plan at all */
    assert_string_equal(plan.kernel->name, "fake.slow");
    desc = fake_describe(6);
    cvy_selection_begin(&selection, &fake_device, true, 1);
    selection.seconds = 0; /* the budget is spent */
    assert_int_equal(cvy_selection_select(&selection, &desc, &plan), CVY_OK);
    assert_string_equal(plan.kernel->name, "fake.slow");
    cvy_selection_end(&selection, true);
    fake_rows[SLOW].candidate = false; /* the first one is what there is */
    assert_string_equal(fake_choose(7), "fake.slow");
    fake_rows[SLOW].candidate = true;
    desc = fake_describe(8);
    desc.in[1].dtype = CVY_I32; /* no numbers to make up */
    assert_string_equal(fake_reason(desc, true, reason), "fake.slow");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    assert_int_equal(fake.runs[SLOW] + fake.runs[FAST], 0);
    assert_false(cvy_path_exists(getenv("CONVOY_CACHE_DIR"))); /* and nothing is kept */
    fake_times(-1, -1, -1);
    desc = fake_describe(9);
    assert_fails(cvy_kernel_select(&fake_device, &desc, &plan), CVY_UNAVAILABLE, "fake.wide: not today");
    fake_close();
}

static void the_budget_ends(void **state)
{
    struct cvy_selection selection;
    int slow = 0;

    fake_cache("budget");
    fake_open();
    fake_times(20000, 10000, -1);
    cvy_selection_begin(&selection, &fake_device, true, 1);
    selection.seconds = 0.25;
    for (int i = 0; i < 8; i++) {
        struct cvy_op_desc desc = fake_describe(4 + i);
        struct cvy_kernel_plan plan;
        assert_int_equal(cvy_selection_select(&selection, &desc, &plan), CVY_OK);
        slow += strcmp(plan.kernel->name, "fake.slow") == 0;
    }
    assert_int_equal(slow, 6); /* each takes 0.17 s: two begin within 0.25 s */
    assert_int_equal(selection.timed, 2);
    cvy_selection_end(&selection, true);
    assert_string_equal(fake_choose(11), "fake.fast"); /* the next plan continues */
    fake_close();
}

static void the_checkpoint_decides(void **state)
{
    struct cvy_text keys[4] = {{0}};
    struct cvy_text on_others = {0}, of_others = {0};
    const char *key, *row;

    for (int i = 0; i < 4; i++) {
        const struct cvy_op_desc desc = fake_describe(4 + i);
        cvy_autotune_key(&desc, fake_device.threads, &keys[i]);
    }
    const struct cvy_op_desc first = fake_describe(4);
    cvy_autotune_key(&first, 117, &of_others);
    cvy_autotune_key_for_threads(keys[0].text, 117, &on_others);
    assert_string_equal(on_others.text, of_others.text);
    cvy_text_release(&on_others);
    cvy_text_release(&of_others);
    fake_cache("pinned");
    fake_times(900, 300, -1);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast"); /* the file says fast */
    fake_close();
    fake_open();
    assert_int_equal(cvy_autotuner_pin(fake_device.autotuner, keys[0].text, "fake.slow", "in the checkpoint"), CVY_OK);
    assert_int_equal(cvy_autotuner_pin(fake_device.autotuner, keys[1].text, "fake.slow", "in the checkpoint"), CVY_OK);
    assert_int_equal(cvy_autotuner_pin(fake_device.autotuner, keys[2].text, "fake.wide", "in the checkpoint"), CVY_OK);
    assert_int_equal(cvy_autotuner_pin(fake_device.autotuner, keys[3].text, "fake.gone", "in the checkpoint"), CVY_OK);
    assert_string_equal(fake_choose(5), "fake.slow"); /* nobody has measured this one */
    assert_string_equal(fake_choose(4), "fake.slow");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    assert_string_equal(fake_log, "");
    assert_string_equal(fake_choose(6), "fake.fast"); /* wide refuses */
    assert_non_null(strstr(fake_log, "\"fake.wide\", which is not available here (not today)"));
    fake_log[0] = '\0';
    assert_string_equal(fake_choose(7), "fake.fast"); /* gone */
    assert_string_equal(fake_log, "");                /* one sentence */
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 2);
    /* What the next checkpoint says, by key. */
    assert_true(cvy_autotuner_at(fake_device.autotuner, 1, &key, &row));
    assert_string_equal(key, keys[1].text);
    assert_string_equal(row, "fake.slow");
    assert_true(cvy_autotuner_at(fake_device.autotuner, 3, &key, &row));
    assert_string_equal(key, keys[3].text);
    assert_string_equal(row, "fake.fast");
    assert_false(cvy_autotuner_at(fake_device.autotuner, 4, &key, &row));
    assert_false(cvy_autotuner_at(fake_device.autotuner, -1, &key, &row));
    assert_false(cvy_autotuner_at(NULL, 0, &key, &row));
    fake_close();
    assert_int_equal(setenv("CONVOY_KERNELS", "first", 1), 0);
    fake_open();
    assert_int_equal(cvy_autotuner_pin(fake_device.autotuner, keys[0].text, "fake.fast", "in the checkpoint"), CVY_OK);
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    assert_int_equal(unsetenv("CONVOY_KERNELS"), 0);
    for (int i = 0; i < 4; i++)
        cvy_text_release(&keys[i]);
}

static void the_environment_decides(void **state)
{
    static const char *const bad[] = {"conv2d",
                                      "conv2d=fake.none",
                                      "nothing=fake.fast",
                                      "conv2d#0=fake.fast",
                                      "conv2d#=fake.fast",
                                      "conv2d#1x=fake.fast",
                                      "conv2d=fake.reorder"};
    struct cvy_selection selection;
    struct cvy_op_desc desc;
    struct cvy_kernel_plan plan;
    const char *names[3];

    fake_cache("environment");
    fake_times(900, 300, -1);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.fast");
    fake_close();
    assert_int_equal(setenv("CONVOY_KERNELS", "first", 1), 0);
    fake_open();
    assert_string_equal(fake_choose(4), "fake.slow"); /* the file is not asked */
    assert_string_equal(fake_choose(5), "fake.slow");
    assert_int_equal(cvy_autotuner_timed(fake_device.autotuner), 0);
    fake_close();
    assert_int_equal(setenv("CONVOY_KERNELS", "best", 1), 0);
    assert_fails(cvy_autotuner_open(&fake_device, &fake_device.autotuner), CVY_USAGE, "\"best\"");
    assert_null(fake_device.autotuner);
    assert_int_equal(setenv("CONVOY_KERNELS", "timed", 1), 0);
    assert_int_equal(setenv("CONVOY_KERNEL", "conv2d#2=fake.fast,conv2d=fake.wide,conv2d=fake.slow", 1), 0);
    fake_open();
    cvy_selection_begin(&selection, &fake_device, true, 1);
    for (int i = 0; i < 3; i++) {
        desc = fake_describe(4);
        assert_int_equal(cvy_selection_select(&selection, &desc, &plan), CVY_OK);
        names[i] = plan.kernel->name;
    }
    cvy_selection_end(&selection, true);
    assert_string_equal(names[0], "fake.slow"); /* wide refuses, slow is next */
    assert_string_equal(names[1], "fake.fast");
    assert_string_equal(names[2], "fake.slow");
    fake_close();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(setenv("CONVOY_KERNEL", bad[i], 1), 0);
        if (cvy_autotuner_open(&fake_device, &fake_device.autotuner) != CVY_USAGE || !strstr(cvy_error(), bad[i]))
            fail_msg("CONVOY_KERNEL=%s: %s", bad[i], cvy_error());
    }
    assert_int_equal(unsetenv("CONVOY_KERNEL"), 0);
    assert_int_equal(unsetenv("CONVOY_KERNELS"), 0);
}

static void failing_memory(void **state)
{
    cvy_status status = CVY_NO_MEMORY;
    int failures = 0;

    fake_cache("memory");
    fake_times(30, 10, -1);
    for (int n = 1; n < 60; n++) {
        struct cvy_op_desc desc = fake_describe(n);
        struct cvy_selection selection;
        struct cvy_kernel_plan plan;
        cvy_memory_fail_after(n, false);
        status = cvy_autotuner_open(&fake_device, &fake_device.autotuner);
        if (status == CVY_OK) {
            cvy_selection_begin(&selection, &fake_device, true, 1);
            status = cvy_selection_select(&selection, &desc, &plan);
            cvy_selection_end(&selection, true);
        }
        cvy_memory_fail_after(0, false);
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        failures += status != CVY_OK;
        fake_close();
    }
    assert_int_equal(status, CVY_OK);
    assert_true(failures >= 5);
}

/* The settings of a run that continues. */
static void what_must_be_as_it_was(void **state)
{
    static const struct {
        const char *then, *now;
        bool agree;
    } cases[] = {
        {"", "", true},
        {"A=1", "A=1", true},
        {"A=1", "A=2", false},
        {"A=1", "A=11", false},
        {"A=1 B=2", "B=2 A=1", true},
        {"A=1 B=2", "A=1", false},
        {"A=1", "", false},
        {"A=1", "A=1 CONVOY_TEST_OLD=timed", true}, /* newer than the checkpoint, and nobody set it */
        {"", "CONVOY_TEST_OLD=timed", true},
        {"AA=1", "A=1", false},
        {"A=1", "A=1 CONVOY_TEST_NEW=fused", false}, /* somebody did */
        {"A=1 CONVOY_TEST_NEW=fused", "A=1 CONVOY_TEST_NEW=fused", true},
        {"A=1 CONVOY_TEST_NEWER=fused", "A=1 CONVOY_TEST_NEW=fused", false},
    };

    assert_int_equal(setenv("CONVOY_TEST_NEW", "fused", 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cvy_settings_agree(cases[i].then, cases[i].now) != cases[i].agree)
            fail_msg("\"%s\" and \"%s\"", cases[i].then, cases[i].now);
    assert_int_equal(unsetenv("CONVOY_TEST_NEW"), 0);
}

RUN_TESTS(fake_set_up, fake_tear_down, TEST(the_fastest_is_timed_once), TEST(the_key_tells_what_matters_apart),
          TEST(what_is_settled_is_not_timed), TEST(noise_does_not_turn_the_order), TEST(reorders_are_paid_for),
          TEST(without_a_question_nothing_is_timed), TEST(the_budget_ends), TEST(the_checkpoint_decides),
          TEST(the_environment_decides), TEST(failing_memory), TEST(what_must_be_as_it_was))
