/* Structs of programs that were compiled with an older or a newer header. */
#include "base/sized.h"
#include "convoy/convoy.h"
#include "support_test.h"

struct old {
    size_t size;
    int first;
};
struct now {
    size_t size;
    int first, second;
    const char *third;
};
struct newer {
    struct now now;
    double fourth;
};

static void take(struct now *own, const void *given)
{
    *own = (struct now){.size = sizeof *own, .first = 1, .second = -2, .third = "default"};
    if (cvy_sized_take(own, sizeof *own, given, "now") != CVY_OK)
        fail_msg("%s", cvy_error());
    assert_int_equal(own->size, sizeof *own);
}

static void the_same_version(void **state)
{
    const struct now given = {.size = sizeof given, .first = 7, .second = 0, .third = "given"};
    struct now own;

    (void)state;
    take(&own, &given);
    assert_true(own.first == 7 && own.second == 0);
    assert_string_equal(own.third, "given");
}

/* What an old program does not know has its default. */
static void an_older_program(void **state)
{
    struct {
        struct old old;
        unsigned char beyond[64];
    } given;
    struct now own;

    (void)state;
    memset(&given, 0xff, sizeof given);
    given.old.size = offsetof(struct now, second); /* 12: where its struct ends */
    given.old.first = 7;
    take(&own, &given);
    assert_true(own.first == 7 && own.second == -2);
    assert_string_equal(own.third, "default");
}

/* What a new program leaves as it was is no reason to refuse it; what it sets would be ignored. */
static void a_newer_program(void **state)
{
    struct newer given = {.now = {.size = sizeof given, .first = 7}};
    struct now own;

    (void)state;
    take(&own, &given);
    assert_int_equal(own.first, 7);
    assert_null(own.third);
    given.fourth = 0.5;
    assert_fails(cvy_sized_take(&own, sizeof own, &given, "now"), CVY_USAGE, "struct now");
    assert_error("what only a newer library knows");
}

static void no_size(void **state)
{
    static const size_t wrong[] = {0, 1, sizeof(size_t), 65537, (size_t)-1};
    struct now own = {.size = sizeof own}, given = {0};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        given.size = wrong[i];
        assert_fails(cvy_sized_take(&own, sizeof own, &given, "now"), CVY_USAGE, "struct now begins with its size");
    }
}

/* Every public function that takes such options looks at their size before anything else. */
static void public_functions(void **state)
{
    static max_align_t opened[64]; /* nothing looks into it before the options are looked at */
    const struct cvy_classifier_options network = {.weights = "x"};
    struct cvy_quantize_options quantize = CVY_QUANTIZE_DEFAULTS;
    struct cvy_train_options *options = cvy_train_options_new();
    struct cvy_quantize_result quantized;
    struct cvy_tfrecord_result records;
    struct cvy_pack_result packed;
    struct cvy_pull_result pulled;
    struct cvy_evaluation evaluation;
    cvy_classifier *classifier;
    cvy_detector *detector;
    cvy_training *training;
    char *text;

    (void)state;
#define NO_SIZE(call) assert_fails(call, CVY_USAGE, "begins with its size, and 0 is none")
    NO_SIZE(cvy_classifier_open(&network, &classifier));
    NO_SIZE(cvy_detector_open(&network, &detector));
    NO_SIZE(cvy_evaluate_with((cvy_classifier *)opened, "x", &(struct cvy_evaluate_options){0}, &evaluation));
    NO_SIZE(cvy_convert(&(struct cvy_convert_options){.input = "x", .output = "y"}, NULL));
    NO_SIZE(cvy_write_pack("x", "y", &(struct cvy_pack_options){0}, &packed));
    NO_SIZE(cvy_write_tfrecords("x", "y", &(struct cvy_tfrecord_options){0}, &records));
    NO_SIZE(cvy_info(&(struct cvy_info_options){0}, &text));
    NO_SIZE(cvy_pull(&(struct cvy_pull_options){.name = "resnet18"}, &pulled));
    NO_SIZE(cvy_training_new(options, &(struct cvy_train_events){0}, &training));
    NO_SIZE(cvy_quantize_network(&(struct cvy_quantize_options){.network = &network}, &quantized));
    quantize.network = &network;
    quantize.output = quantize.data = "x";
    NO_SIZE(cvy_quantize_network(&quantize, &quantized));
    cvy_train_options_free(options);
}

RUN_TESTS(NULL, NULL, TEST(the_same_version), TEST(an_older_program), TEST(a_newer_program), TEST(no_size),
          TEST(public_functions))
