/* SHA-256 against the examples of FIPS 180-4, HMAC against those of RFC 4231. */
#include <string.h>

#include "base/sha256.h"
#include "support_test.h"

static void to_text(const uint8_t digest[CVY_SHA256_BYTES], char text[65])
{
    for (size_t i = 0; i < CVY_SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

static void digests(void **state)
{
    static const struct {
        const char *text, *digest;
    } examples[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    char text[65];

    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        assert_string_equal(cvy_sha256_text(examples[i].text, strlen(examples[i].text), text), examples[i].digest);
}

/* However the bytes are divided: around the 55, 56 and 64 bytes at which the padding changes. */
static void digests_in_parts(void **state)
{
    uint8_t bytes[200], digest[CVY_SHA256_BYTES];
    char whole[65], parts[65];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        cvy_sha256_text(bytes, size, whole);
        for (size_t part = 1; part < 70; part += 9) {
            struct cvy_sha256 sha;

            cvy_sha256_begin(&sha);
            for (size_t at = 0; at < size; at += part)
                cvy_sha256_add(&sha, bytes + at, size - at < part ? size - at : part);
            cvy_sha256_end(&sha, digest);
            to_text(digest, parts);
            assert_string_equal(parts, whole);
        }
    }
}

/* The test cases 1 to 4, 6 and 7 of RFC 4231. */
static void rfc_4231(void **state)
{
    uint8_t key[131], data[64], code[CVY_SHA256_BYTES];
    char text[65];
    struct {
        size_t key_size, size;
        uint8_t key_byte, data_byte; /* 0: `words` */
        const char *key, *words, *code;
    } const cases[] = {
        {20, 8, 0x0b, 0, NULL, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {4, 28, 0, 0, "Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {20, 50, 0xaa, 0xdd, NULL, NULL, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {25, 50, 0, 0xcd, "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20\21\22\23\24\25\26\27\30\31", NULL,
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {131, 54, 0xaa, 0, NULL, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {131, 152, 0xaa, 0, NULL,
         "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
         "hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_hmac hmac;

        memset(key, cases[i].key_byte, sizeof key);
        memset(data, cases[i].data_byte, sizeof data);
        cvy_hmac_begin(&hmac, cases[i].key ? (const void *)cases[i].key : key, cases[i].key_size);
        cvy_hmac_add(&hmac, cases[i].words ? (const void *)cases[i].words : data, cases[i].size);
        cvy_hmac_end(&hmac, code);
        to_text(code, text);
        assert_string_equal(text, cases[i].code);
    }
}

RUN_TESTS(NULL, NULL, TEST(digests), TEST(digests_in_parts), TEST(rfc_4231))
