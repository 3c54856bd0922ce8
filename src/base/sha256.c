#include "base/sha256.h"

#include <stdint.h>
#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4, 0xAB1C5ED5,
    0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE, 0x9BDC06A7, 0xC19BF174,
    0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F, 0x4A7484AA, 0x5CB0A9DC, 0x76F988DA,
    0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7, 0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967,
    0x27B70A85, 0x2E1B2138, 0x4D2C6DFC, 0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85,
    0xA2BFE8A1, 0xA81A664B, 0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070,
    0x19A4C116, 0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
    0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7, 0xC67178F2};

static uint32_t turn(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void add_block(uint32_t state[8], const uint8_t block[64])
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t high = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25);
        const uint32_t low = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
        const uint32_t first = s[7] + high + choice + constants[i] + w[i];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += first;
        s[0] = first + low + majority;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void cvy_sha256_begin(struct cvy_sha256 *sha)
{
    /* The fractional parts of the square roots of the first 8 primes. */
    *sha = (struct cvy_sha256){
        .state = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}};
}

void cvy_sha256_add(struct cvy_sha256 *sha, const void *data, size_t size)
{
    const uint8_t *bytes = data;

    while (size > 0) {
        const size_t used = sha->size % 64, part = size < 64 - used ? size : 64 - used;

        if (part == 64) {
            add_block(sha->state, bytes);
        } else {
            memcpy(sha->block + used, bytes, part);
            if (used + part == 64)
                add_block(sha->state, sha->block);
        }
        sha->size += part;
        bytes += part;
        size -= part;
    }
}

/* What is left, a 1 bit, zeros, and the length in bits. */
void cvy_sha256_end(struct cvy_sha256 *sha, uint8_t digest[CVY_SHA256_BYTES])
{
    const uint64_t bits = sha->size * 8;
    const size_t used = sha->size % 64;
    uint8_t padding[72] = {0x80};
    const size_t zeros = (used < 56 ? 56 : 120) - used;

    for (size_t i = 0; i < 8; i++)
        padding[zeros + 7 - i] = (uint8_t)(bits >> 8 * i);
    cvy_sha256_add(sha, padding, zeros + 8);
    for (size_t i = 0; i < CVY_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

char *cvy_sha256_text(const void *data, size_t size, char text[65])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[CVY_SHA256_BYTES];
    struct cvy_sha256 sha;

    cvy_sha256_begin(&sha);
    cvy_sha256_add(&sha, data, size);
    cvy_sha256_end(&sha, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[64] = 0;
    return text;
}

/* ---- HMAC ---- */

void cvy_hmac_begin(struct cvy_hmac *hmac, const void *key, size_t key_size)
{
    uint8_t padded[64];

    memset(hmac->key, 0, sizeof hmac->key);
    if (key_size > sizeof hmac->key) {
        cvy_sha256_begin(&hmac->inner);
        cvy_sha256_add(&hmac->inner, key, key_size);
        cvy_sha256_end(&hmac->inner, hmac->key);
    } else if (key_size > 0) {
        memcpy(hmac->key, key, key_size);
    }
    for (size_t i = 0; i < sizeof padded; i++)
        padded[i] = hmac->key[i] ^ 0x36;
    cvy_sha256_begin(&hmac->inner);
    cvy_sha256_add(&hmac->inner, padded, sizeof padded);
}

void cvy_hmac_add(struct cvy_hmac *hmac, const void *data, size_t size)
{
    cvy_sha256_add(&hmac->inner, data, size);
}

void cvy_hmac_end(struct cvy_hmac *hmac, uint8_t code[CVY_SHA256_BYTES])
{
    struct cvy_sha256 outer;
    uint8_t padded[64], digest[CVY_SHA256_BYTES];

    cvy_sha256_end(&hmac->inner, digest);
    for (size_t i = 0; i < sizeof padded; i++)
        padded[i] = hmac->key[i] ^ 0x5c;
    cvy_sha256_begin(&outer);
    cvy_sha256_add(&outer, padded, sizeof padded);
    cvy_sha256_add(&outer, digest, sizeof digest);
    cvy_sha256_end(&outer, code);
}
