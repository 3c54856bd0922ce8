/* Challenge and response with the key of a run. */
#include "comm/auth.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const char magic[8] = "CVYAUTH1";

static cvy_status draw(void *bytes, size_t size)
{
    return getrandom(bytes, size, 0) == (ssize_t)size
               ? CVY_OK
               : cvy_fail_errno(CVY_FAILED, "the system gives no random numbers");
}

/* `purpose` keeps the code of one message from being taken for that of another. */
static void authenticate(const char *key, const char purpose[8], const void *nonces, size_t nonces_size,
                         const void *message, size_t bytes, uint8_t code[CVY_SHA256_BYTES])
{
    struct cvy_hmac hmac;

    cvy_hmac_begin(&hmac, key, strlen(key));
    cvy_hmac_add(&hmac, purpose, 8);
    cvy_hmac_add(&hmac, nonces, nonces_size);
    cvy_hmac_add(&hmac, message, bytes);
    cvy_hmac_end(&hmac, code);
}

/* Takes as long whatever the bytes are. */
static bool is_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    uint8_t difference = 0;

    for (size_t i = 0; i < size; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

static void find_mark(const char *key, const struct cvy_challenge *challenge, uint8_t code[CVY_SHA256_BYTES])
{
    authenticate(key, "key mark", challenge->nonce, sizeof challenge->nonce, NULL, 0, code);
}

cvy_status cvy_challenge_make(const char *key, struct cvy_challenge *challenge)
{
    uint8_t code[CVY_SHA256_BYTES];

    memcpy(challenge->magic, magic, sizeof magic);
    CVY_TRY(draw(challenge->nonce, sizeof challenge->nonce));
    find_mark(key, challenge, code);
    memcpy(challenge->mark, code, sizeof challenge->mark);
    return CVY_OK;
}

bool cvy_challenge_fits(const char *key, const struct cvy_challenge *challenge)
{
    uint8_t code[CVY_SHA256_BYTES];

    find_mark(key, challenge, code);
    return memcmp(challenge->magic, magic, sizeof magic) == 0 &&
           is_equal(challenge->mark, code, sizeof challenge->mark);
}

static void join_nonces(const struct cvy_challenge *challenge, const struct cvy_proof *proof,
                        struct cvy_session *session)
{
    memcpy(session->nonces, challenge->nonce, CVY_AUTH_NONCE_BYTES);
    memcpy(session->nonces + CVY_AUTH_NONCE_BYTES, proof->nonce, CVY_AUTH_NONCE_BYTES);
}

cvy_status cvy_proof_make(const char *key, const struct cvy_challenge *challenge, const void *message, size_t bytes,
                          struct cvy_proof *proof, struct cvy_session *session)
{
    CVY_TRY(draw(proof->nonce, sizeof proof->nonce));
    join_nonces(challenge, proof, session);
    authenticate(key, "call    ", session->nonces, sizeof session->nonces, message, bytes, proof->code);
    return CVY_OK;
}

bool cvy_proof_holds(const char *key, const struct cvy_challenge *challenge, const void *message, size_t bytes,
                     const struct cvy_proof *proof, struct cvy_session *session)
{
    uint8_t code[CVY_SHA256_BYTES];

    join_nonces(challenge, proof, session);
    authenticate(key, "call    ", session->nonces, sizeof session->nonces, message, bytes, code);
    return is_equal(code, proof->code, sizeof code);
}

void cvy_answer_code(const char *key, const struct cvy_session *session, const void *answer, size_t bytes,
                     uint8_t code[CVY_SHA256_BYTES])
{
    authenticate(key, "answer  ", session->nonces, sizeof session->nonces, answer, bytes, code);
}

bool cvy_answer_holds(const char *key, const struct cvy_session *session, const void *answer, size_t bytes,
                      const uint8_t code[CVY_SHA256_BYTES])
{
    uint8_t expected[CVY_SHA256_BYTES];

    cvy_answer_code(key, session, answer, bytes, expected);
    return is_equal(code, expected, sizeof expected);
}

/* ---- a key in a file ---- */

cvy_status cvy_key_draw(char key[33])
{
    uint8_t random[16];

    CVY_TRY(draw(random, sizeof random));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(key + 2 * i, 3, "%02x", random[i]);
    return CVY_OK;
}

/* It appears whole: a rank never reads half a key. */
cvy_status cvy_key_file_make(const char *path, char key[33])
{
    char temporary[4096 + 8];
    int file;
    bool done;

    CVY_TRY(cvy_key_draw(key));
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return cvy_fail(CVY_CANNOT_CREATE, "%s: the name is too long", cvy_quote(path));
    file = mkostemp(temporary, O_CLOEXEC); /* 0600 */
    if (file < 0)
        return cvy_fail_errno(CVY_CANNOT_CREATE,
                              "cannot create %s, the key of the ranks (CONVOY_COMM_KEY goes without)", cvy_quote(path));
    done = write(file, key, 32) == 32;
    done = close(file) == 0 && done && rename(temporary, path) == 0;
    if (done)
        return CVY_OK;
    (void)unlink(temporary);
    return cvy_fail(CVY_CANNOT_CREATE, "cannot write %s, the key of the ranks (CONVOY_COMM_KEY goes without)",
                    cvy_quote(path));
}

bool cvy_key_file_read(const char *path, char key[33])
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat about;
    bool good;

    if (file < 0)
        return false;
    good = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
           (about.st_mode & (S_IRWXG | S_IRWXO)) == 0 && about.st_size == 32 && read(file, key, 32) == 32;
    close(file);
    key[good ? 32 : 0] = '\0';
    return good;
}
