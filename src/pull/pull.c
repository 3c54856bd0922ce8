/* convoy pull: from the table to a file in the cache. */
#include "convoy/pull.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/api.h"
#include "base/sized.h"
#include "models/models.h"
#include "pull/download.h"
#include "pull/pull.h"
#include "pull/unpack.h"
#include "weights/model_variant.h"

/* The limit where nobody states a size; the largest file of the table has 340 MiB. */
static const int64_t max_unknown = INT64_C(2) << 30;

/* ---- where from ---- */

static cvy_status choose_url(const struct cvy_published_weights *weights, struct cvy_text *url, bool *https_only)
{
    const char *mirror = getenv("CONVOY_WEIGHTS_URL");
    size_t length = mirror ? strlen(mirror) : 0;

    *https_only = length == 0;
    if (length == 0) {
        cvy_text_puts(url, weights->url);
    } else if (strncmp(mirror, "https://", 8) != 0 && strncmp(mirror, "http://", 7) != 0 &&
               strncmp(mirror, "file:///", 8) != 0) {
        return cvy_fail(CVY_USAGE,
                        "CONVOY_WEIGHTS_URL is the address of a folder (https://..., http://..., file:///...)"
                        ", not %s",
                        cvy_quote(mirror));
    } else {
        *https_only = strncmp(mirror, "https://", 8) == 0;
        while (length > 8 && mirror[length - 1] == '/')
            length--;
        cvy_text_append(url, mirror, length);
        cvy_text_printf(url, "/%s", weights->file);
    }
    return url->failed ? cvy_fail_memory(url->capacity, "an address") : CVY_OK;
}

/* ---- is it what it should be? ---- */

static cvy_status digest_file(const char *path, char text[65])
{
    struct cvy_mapping mapping = {0};

    CVY_TRY(cvy_file_map(path, &mapping));
    cvy_sha256_text(mapping.data, mapping.size, text);
    const cvy_status status = cvy_mapping_check(&mapping, path);
    cvy_file_unmap(&mapping);
    return status;
}

static cvy_status check_sum(const struct cvy_published_weights *weights, const struct cvy_download *download,
                            int *digits)
{
    char sum[65];

    *digits = (int)strlen(weights->sha256);
    if (*digits < 64 && download->sha256[0])
        *digits = 64;
    if (*digits == 0)
        return CVY_OK;
    CVY_TRY(digest_file(download->part, sum));
    for (int stated = 0; stated < 2; stated++) {
        const char *expected = stated ? download->sha256 : weights->sha256;
        if (strncmp(sum, expected, strlen(expected)) != 0)
            return cvy_fail(CVY_BAD_DATA,
                            "what came as %s is another file or damaged: its SHA-256 begins with %.*s instead of %.*s; "
                            "nothing is kept of it",
                            weights->name, 16, sum, 16, expected);
    }
    return CVY_OK;
}

/* The file is opened as training and inference open it, and its tensors are those of the network. */
static cvy_status check_weights(const struct cvy_published_weights *weights, const char *path)
{
    struct cvy_model_options model = cvy_model_options_make(1, 224);
    const struct cvy_architecture *architecture = NULL;
    struct cvy_tensor_file file = {0};
    cvy_status status = cvy_weights_open(&file, path);

    if (status == CVY_OK && !cvy_weights_is_backbone(&file)) {
        status = cvy_weights_identify(&file, weights->name, weights->arch, &architecture, &model);
        if (status == CVY_OK)
            status = cvy_weights_check_model(architecture, &model, &file, weights->name);
    }
    cvy_tensor_file_close(&file);
    return status == CVY_OK
               ? CVY_OK
               : cvy_fail_context(status, "what came as %s cannot be used, and nothing is kept of it", weights->name);
}

/* ---- into the cache ---- */

/* What an archive holds is unpacked and opened under other names: what was there before stays until then. */
static cvy_status install_archive(const struct cvy_published_weights *weights, const struct cvy_download *download,
                                  char *path, size_t size)
{
    static const char ending[] = ".tar.gz";
    const int stem = (int)(strlen(download->path) - (sizeof ending - 1));
    struct cvy_text target = {0}, checkpoint = {0};
    bool pulled;
    cvy_status status;

    cvy_text_printf(&target, "%.*s.new%s", stem, download->path, ending);
    cvy_text_printf(&checkpoint, "%.*s.new.ckpt", stem, download->path);
    if (target.failed || checkpoint.failed) {
        status = cvy_fail_memory((size_t)stem, "a path");
        goto fail;
    }
    cvy_unpack_remove(target.text); /* of a call that was killed */
    CVY_GOTO(cvy_unpack_checkpoint(download->part, target.text));
    status = check_weights(weights, checkpoint.text);
    if (status == CVY_OK)
        status = cvy_unpack_rename(target.text, download->path);
    if (status != CVY_OK)
        cvy_unpack_remove(target.text);
    if (status == CVY_OK)
        status = cvy_published_path(weights, path, size, &pulled);
fail:
    cvy_text_release(&target);
    cvy_text_release(&checkpoint);
    return status;
}

/* The part becomes the file; of an archive, what is in it. */
static cvy_status install(const struct cvy_published_weights *weights, const struct cvy_download *download, char *path,
                          size_t size)
{
    if (!cvy_unpack_is_archive(weights->file)) {
        CVY_TRY(check_weights(weights, download->part));
        return cvy_file_rename(download->part, path);
    }
    CVY_TRY(install_archive(weights, download, path, size));
    unlink(download->part);
    return CVY_OK;
}

static cvy_status pull_locked(const struct cvy_published_weights *weights, const struct cvy_pull_options *options,
                              const char *path, struct cvy_pull_result *result)
{
    struct cvy_download download = {.path = path, .progress = options->progress, .context = options->context};
    struct cvy_text url = {0};
    cvy_status status = choose_url(weights, &url, &download.https_only);

    download.url = url.text;
    /* A published size is rounded, and a mirror may have packed the same tensors a little differently. */
    download.max_bytes = weights->bytes ? weights->bytes + weights->bytes / 100 : max_unknown;
    if (status == CVY_OK)
        status = cvy_download(&download);
    result->bytes = download.bytes;
    if (status == CVY_OK) {
        status = check_sum(weights, &download, &result->sha256_digits);
        if (status == CVY_OK)
            status = install(weights, &download, result->path, sizeof result->path);
        if (status == CVY_OK)
            cvy_download_finish(&download);
    }
    if (status == CVY_BAD_DATA && download.part)
        cvy_download_discard(&download);
    cvy_text_release(&url);
    return status;
}

/* Two at once would write one part: who comes second waits until the first has ended, as long as that takes. */
static cvy_status lock_part(const struct cvy_published_weights *weights, const struct cvy_pull_options *options,
                            const char *path, int *lock)
{
    const struct timespec pause = {0, 100000000};
    bool held = false, said = false;

    do {
        CVY_TRY(cvy_cache_try_lock(path, lock, &held));
        if (held && !said)
            cvy_log(CVY_LOG_INFO, "another process is pulling %s: waiting for it", weights->name);
        said = held;
        if (held && options->progress && !options->progress(options->context, 0, 0))
            return cvy_fail(CVY_STOPPED, "stopped while another process was pulling %s", weights->name);
        if (held)
            nanosleep(&pause, NULL);
    } while (held);
    return CVY_OK;
}

cvy_status cvy_pull_weights(const struct cvy_published_weights *weights, const struct cvy_pull_options *options,
                            struct cvy_pull_result *result)
{
    char *slash, path[sizeof result->path];
    cvy_status status;
    int lock;

    *result = (struct cvy_pull_result){0};
    snprintf(result->name, sizeof result->name, "%s", weights->name);
    CVY_TRY(cvy_published_path(weights, result->path, sizeof result->path, &result->there));
    if (result->there && !options->again)
        return CVY_OK;
    result->there = false;
    snprintf(path, sizeof path, "%s", result->path);
    slash = strrchr(path, '/');
    if ((size_t)snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s", weights->file) >
        sizeof path - (size_t)(slash + 1 - path) - 16) /* ".part.from" */
        return cvy_fail(CVY_USAGE, "the path of the cache is too long");
    CVY_TRY(lock_part(weights, options, path, &lock));
    status = cvy_published_path(weights, result->path, sizeof result->path, &result->there); /* by who was first */
    result->there = result->there && !options->again;
    if (status == CVY_OK && !result->there)
        status = pull_locked(weights, options, path, result);
    cvy_cache_unlock(lock);
    return status;
}

cvy_status cvy_pull(const struct cvy_pull_options *options, struct cvy_pull_result *result)
{
    CVY_REQUIRE(options);
    CVY_REQUIRE(result);
    struct cvy_pull_options known = CVY_PULL_DEFAULTS;
    const struct cvy_published_weights *weights;

    CVY_TRY(cvy_sized_take(&known, sizeof known, options, "cvy_pull_options"));
    if (!known.name)
        return cvy_fail(CVY_USAGE, "pull needs the name of published weights");
    weights = cvy_published_find(known.name);
    if (!weights) {
        struct cvy_nearest nearest = cvy_nearest_begin(known.name);
        for (size_t i = 0; cvy_published_at(i); i++) {
            cvy_nearest_offer(&nearest, cvy_published_at(i)->name);
            cvy_nearest_offer(&nearest, cvy_published_at(i)->arch);
        }
        return cvy_fail(CVY_USAGE, "there are no published weights %s%s; \"convoy pull\" lists those that are known",
                        cvy_quote(known.name), cvy_nearest_text(&nearest));
    }
    return cvy_pull_weights(weights, &known, result);
}
