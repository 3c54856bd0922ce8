/* SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104). */
#ifndef CVY_BASE_SHA256_H
#define CVY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { CVY_SHA256_BYTES = 32 };

/* The digest of bytes that come in parts. */
struct cvy_sha256 {
    uint32_t state[8];
    uint64_t size;     /* bytes so far */
    uint8_t block[64]; /* the last, incomplete one */
};
void cvy_sha256_begin(struct cvy_sha256 *sha);
void cvy_sha256_add(struct cvy_sha256 *sha, const void *data, size_t size);
void cvy_sha256_end(struct cvy_sha256 *sha, uint8_t digest[CVY_SHA256_BYTES]);

/* As 64 hexadecimal digits, terminated. Returns `text`. */
char *cvy_sha256_text(const void *data, size_t size, char text[65]);

/* A message authentication code of bytes that come in parts: whoever lacks the key can neither make nor check it. */
struct cvy_hmac {
    struct cvy_sha256 inner;
    uint8_t key[64];
};
void cvy_hmac_begin(struct cvy_hmac *hmac, const void *key, size_t key_size);
void cvy_hmac_add(struct cvy_hmac *hmac, const void *data, size_t size);
void cvy_hmac_end(struct cvy_hmac *hmac, uint8_t code[CVY_SHA256_BYTES]);

#endif
