/* Which precisions a GPU has by its generation. */
#include "network/network.h"
#include "network/precision.h"
#include "support_test.h"

static void precisions(void **state)
{
    static const struct cvy_backend cuda = {.name = "cuda"};
    cvy_device ampere = {.backend = &cuda, .gpu = true}, turing = {.backend = &cuda, .gpu = true, .older = true};
    enum cvy_dtype dtype;

    assert_int_equal(cvy_precision_choose("auto", &ampere, &dtype), CVY_OK);
    assert_true(dtype == CVY_F32 && ampere.tf32);
    assert_int_equal(cvy_precision_choose("bf16", &ampere, &dtype), CVY_OK);
    assert_true(dtype == CVY_BF16);
    assert_int_equal(cvy_precision_choose("auto", &turing, &dtype), CVY_OK);
    assert_true(dtype == CVY_F32 && !turing.tf32);
    assert_int_equal(cvy_precision_choose("fp16", &turing, &dtype), CVY_OK);
    assert_true(dtype == CVY_F16);
    assert_fails(cvy_precision_choose("bf16", &turing, &dtype), CVY_UNAVAILABLE,
                 "--precision bf16 needs a GPU of compute capability 8.0");
    assert_fails(cvy_precision_choose("tf32", &turing, &dtype), CVY_UNAVAILABLE,
                 "--precision tf32 needs a GPU of compute capability 8.0");
}

RUN_TESTS(NULL, NULL, TEST(precisions))
