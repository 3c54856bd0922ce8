/* Who may connect: ranks that know the key of the run prove it without sending it, and so does the one they call.
 *
 *   accepting side                      calling side
 *   challenge: nonce, key's mark  ---->
 *                                 <----  message, ending in its proof: another nonce, a code of all of that
 *   answer, ending in a code      ---->
 *
 * Codes are HMAC-SHA-256 with the run's key, over both nonces: what was heard once is of no use again. Bytes that
 * follow are neither encrypted nor authenticated. */
#ifndef CVY_COMM_AUTH_H
#define CVY_COMM_AUTH_H

#include <stdbool.h>

#include "base/sha256.h"
#include "convoy/status.h"

enum { CVY_AUTH_NONCE_BYTES = 16 };

/* What the accepting side says first. Sent as it is. */
struct cvy_challenge {
    char magic[8];
    uint8_t nonce[CVY_AUTH_NONCE_BYTES];
    uint8_t mark[8]; /* tells the caller whether both have the same key */
};
/* The end of the calling side's first message. Sent as it is. */
struct cvy_proof {
    uint8_t nonce[CVY_AUTH_NONCE_BYTES], code[CVY_SHA256_BYTES];
};
/* A connection, as both sides know it. */
struct cvy_session {
    uint8_t nonces[2 * CVY_AUTH_NONCE_BYTES];
};

CVY_CHECKED cvy_status cvy_challenge_make(const char *key, struct cvy_challenge *challenge);
/* Whether it comes from a rank with this key. It proves nothing: the answer does. */
bool cvy_challenge_fits(const char *key, const struct cvy_challenge *challenge);
/* Makes the proof of a message of `bytes` that it will follow. */
CVY_CHECKED cvy_status cvy_proof_make(const char *key, const struct cvy_challenge *challenge, const void *message,
                                      size_t bytes, struct cvy_proof *proof, struct cvy_session *session);
bool cvy_proof_holds(const char *key, const struct cvy_challenge *challenge, const void *message, size_t bytes,
                     const struct cvy_proof *proof, struct cvy_session *session);
/* The code of the answer to a message, and whether it is right. */
void cvy_answer_code(const char *key, const struct cvy_session *session, const void *answer, size_t bytes,
                     uint8_t code[CVY_SHA256_BYTES]);
bool cvy_answer_holds(const char *key, const struct cvy_session *session, const void *answer, size_t bytes,
                      const uint8_t code[CVY_SHA256_BYTES]);

/* ---- a key in a file ---- */

/* Draws a key: 32 hexadecimal digits. */
CVY_CHECKED cvy_status cvy_key_draw(char key[33]);
/* Rank 0: a new key in a file that only its owner can read; one that is there is replaced. CVY_CANNOT_CREATE. */
CVY_CHECKED cvy_status cvy_key_file_make(const char *path, char key[33]);
/* False: it is not there (yet), or others than this user could have written or read it. */
bool cvy_key_file_read(const char *path, char key[33]);

#endif
