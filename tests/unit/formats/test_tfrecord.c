/* Checksums and framing of TFRecords against known numbers, and every way in which a record can be cut or damaged. */
#include "base/rng.h"
#include "formats/container/tfrecord.h"
#include "formats/crc32c.h"
#include "support_test.h"

static void known_sums(void **state)
{
    const uint8_t zeros[32] = {0};
    uint8_t ones[32];
    memset(ones, 0xFF, sizeof ones);
    /* The check value of the polynomial's definition; RFC 3720 B.4 has 32 zeros and 32 ones. */
    assert_int_equal(cvy_crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(cvy_crc32c_mask(0xE3069283), 0xC78AB0E5);
    assert_int_equal(cvy_crc32c(0, zeros, sizeof zeros), 0x8A9136AA);
    assert_int_equal(cvy_crc32c(0, ones, sizeof ones), 0x62A8AB43);
    assert_int_equal(cvy_crc32c(0, "", 0), 0);
    assert_int_equal(cvy_crc32c_plain(0, "123456789", 9), 0xE3069283);
}

static void both_ways_agree(void **state)
{
    uint8_t bytes[300];
    struct cvy_rng rng = cvy_rng_new(1, CVY_RNG_TEST, 0, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)cvy_rng_u32(&rng);
    for (size_t from = 0; from < 9; from++)
        for (size_t size = 0; size + from <= sizeof bytes; size++) {
            const uint32_t sum = cvy_crc32c(0, bytes + from, size);
            assert_int_equal(sum, cvy_crc32c_plain(0, bytes + from, size));
            /* In two parts. */
            assert_int_equal(
                sum, cvy_crc32c(cvy_crc32c(0, bytes + from, size / 3), bytes + from + size / 3, size - size / 3));
        }
}

static void one_record(void **state)
{
    /* The length 9 as TensorFlow frames it. */
    static const uint8_t payload_sum[] = {0xE5, 0xB0, 0x8A, 0xC7};
    struct cvy_text out = {0};
    const uint8_t *payload;
    size_t size, used;

    cvy_tfrecord_append(&out, "123456789", 9);
    cvy_tfrecord_append(&out, "", 0);
    assert_false(out.failed);
    assert_int_equal(out.length, 9 + 2 * CVY_TFRECORD_FRAME);
    assert_memory_equal(out.text, "\x09\0\0\0\0\0\0\0", 8);
    assert_memory_equal(out.text + CVY_TFRECORD_HEADER + 9, payload_sum, 4);
    assert_int_equal(cvy_tfrecord_parse("f", 0, out.text, out.length, &payload, &size, &used), CVY_OK);
    assert_int_equal(size, 9);
    assert_int_equal(used, 25);
    assert_memory_equal(payload, "123456789", 9);
    assert_int_equal(cvy_tfrecord_parse("f", used, out.text + used, out.length - used, &payload, &size, &used), CVY_OK);
    assert_int_equal(size, 0);
    cvy_text_release(&out);
}

static void damage_is_found(void **state)
{
    struct cvy_text out = {0};
    const uint8_t *payload;
    size_t size;

    cvy_tfrecord_append(&out, "a payload", 9);
    for (size_t cut = 0; cut < out.length; cut++) {
        assert_fails(cvy_tfrecord_parse("some.file", 7, out.text, cut, &payload, &size, NULL), CVY_BAD_DATA,
                     "\"some.file\" is truncated");
    }
    for (size_t bit = 0; bit < 8 * out.length; bit++) {
        out.text[bit / 8] ^= (char)(1 << bit % 8);
        assert_fails(cvy_tfrecord_parse("some.file", 7, out.text, out.length, &payload, &size, NULL), CVY_BAD_DATA,
                     "byte 7");
        out.text[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_int_equal(cvy_tfrecord_parse("some.file", 7, out.text, out.length, &payload, &size, NULL), CVY_OK);
    cvy_text_release(&out);
}

/* TFRecordOptions("GZIP") of TensorFlow. */
static void compressed(void **state)
{
    const uint8_t bytes[CVY_TFRECORD_HEADER] = {0x1F, 0x8B, 8};
    const uint8_t *payload;
    size_t size;

    assert_fails(cvy_tfrecord_parse("f", 0, bytes, sizeof bytes, &payload, &size, NULL), CVY_BAD_DATA,
                 "\"f\" is compressed by gzip");
    assert_fails(cvy_tfrecord_parse("f", 9, bytes, sizeof bytes, &payload, &size, NULL), CVY_BAD_DATA,
                 "the checksum of its length is wrong");
}

/* A length with a right checksum that no record has. */
static void absurd_length(void **state)
{
    uint8_t bytes[64] = {0};
    const uint8_t *payload;
    size_t size;

    cvy_tfrecord_header(UINT64_MAX, bytes);
    assert_fails(cvy_tfrecord_parse("f", 0, bytes, sizeof bytes, &payload, &size, NULL), CVY_BAD_DATA,
                 "18446744073709551615 bytes, more than");
    cvy_tfrecord_header(49, bytes);
    assert_fails(cvy_tfrecord_parse("f", 0, bytes, sizeof bytes, &payload, &size, NULL), CVY_BAD_DATA, "truncated");
}

RUN_TESTS(NULL, NULL, TEST(known_sums), TEST(both_ways_agree), TEST(one_record), TEST(damage_is_found),
          TEST(compressed), TEST(absurd_length))
