#include "pull/unpack.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "base/api.h"
#include "formats/container/tar.h"

static const char ending[] = ".tar.gz";
static const uint64_t max_unpacked = UINT64_C(2) << 30;
/* What a checkpoint may consist of, the file to open last. A graph (.meta) is not needed. */
static const char *const parts[] = {".data-00000-of-00001", ".index", ""};
enum { INDEX = 1, PARTS = 3, BLOCK = 1 << 16 };

bool cvy_unpack_is_archive(const char *name)
{
    const size_t length = strlen(name), end = sizeof ending - 1;

    return length > end && strcmp(name + length - end, ending) == 0;
}

/* "<stem>.ckpt<part>"; NULL when memory runs out. */
static char *part_path(const char *target, const char *part)
{
    struct cvy_text text = {0};

    cvy_text_append(&text, target, strlen(target) - (sizeof ending - 1));
    cvy_text_printf(&text, ".ckpt%s", part);
    if (!text.failed)
        return text.text;
    cvy_text_release(&text);
    return NULL;
}

static cvy_status inflate_to(gzFile in, const char *from, struct cvy_output *out)
{
    char *block = cvy_calloc(BLOCK, 1);
    uint64_t total = 0;
    cvy_status status = block ? CVY_OK : cvy_fail_memory(BLOCK, "a block");

    while (status == CVY_OK) {
        const int got = gzread(in, block, BLOCK);
        int code;
        if (got < 0 || (got == 0 && (gzerror(in, &code), code != Z_OK && code != Z_STREAM_END)))
            status = cvy_fail(CVY_BAD_DATA, "%s is a damaged archive", cvy_quote(from));
        else if ((total += (uint64_t)got) > max_unpacked)
            status = cvy_fail(CVY_BAD_DATA, "%s unpacks to more than %llu bytes", cvy_quote(from),
                              (unsigned long long)max_unpacked);
        if (status != CVY_OK || got == 0)
            break;
        status = cvy_output_write(out, block, (size_t)got);
    }
    cvy_free(block);
    return status;
}

/* The archive without its compression, as a file that has no name any more. */
static cvy_status unpack_gzip(const char *from, const char *target, int *file)
{
    char *path = part_path(target, ".tar");
    struct cvy_output out = {0};
    gzFile in = NULL;
    cvy_status status = path ? cvy_output_open(&out, path) : cvy_fail_memory(strlen(target), "a path");

    *file = -1;
    if (status == CVY_OK && !(in = gzopen(from, "rb")))
        status = cvy_fail_open(from, "");
    if (status == CVY_OK)
        status = inflate_to(in, from, &out);
    if (in)
        gzclose(in);
    if (status == CVY_OK)
        status = cvy_output_commit(&out);
    else
        cvy_output_abort(&out);
    if (status == CVY_OK && (*file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        status = cvy_fail_open(path, "");
    if (path)
        unlink(path);
    cvy_free(path);
    return status;
}

/* The index in `parts` of what a member is; -1: nothing of a checkpoint. */
static int part_of(const char *name)
{
    const char *slash = strrchr(name, '/'), *ckpt = strstr(slash ? slash : name, ".ckpt");

    for (int i = 0; ckpt && i < PARTS; i++)
        if (strcmp(ckpt + 5, parts[i]) == 0)
            return i;
    return -1;
}

static cvy_status copy_member(const char *from, int file, const struct cvy_tar_member *member, const char *path)
{
    struct cvy_output out;
    char *block = cvy_calloc(BLOCK, 1);
    cvy_status status = block ? cvy_output_open(&out, path) : cvy_fail_memory(BLOCK, "a block");

    if (status != CVY_OK) {
        cvy_free(block);
        return status;
    }
    for (uint64_t at = 0; status == CVY_OK && at < member->size;) {
        const size_t size = member->size - at < BLOCK ? (size_t)(member->size - at) : BLOCK;
        size_t got;
        status = cvy_file_read_at(from, file, member->data + at, block, size, &got);
        if (status == CVY_OK && got < size)
            status = cvy_fail(CVY_BAD_DATA, "%s: the archive is truncated", cvy_quote(from));
        if (status == CVY_OK)
            status = cvy_output_write(&out, block, size);
        at += size;
    }
    cvy_free(block);
    if (status == CVY_OK)
        return cvy_output_commit(&out);
    cvy_output_abort(&out);
    return status;
}

cvy_status cvy_unpack_checkpoint(const char *from, const char *target)
{
    struct cvy_tar_member *members = cvy_calloc(PARTS + 1, sizeof *members);
    bool have[PARTS] = {false}, found = true;
    struct cvy_tar tar;
    int file = -1;
    cvy_status status;

    if (!members)
        return cvy_fail_memory((PARTS + 1) * sizeof *members, "the members of an archive");
    CVY_GOTO(unpack_gzip(from, target, &file));
    CVY_GOTO(cvy_tar_open(&tar, from, file));
    while (found) {
        struct cvy_tar_member *member = &members[PARTS];
        CVY_GOTO(cvy_tar_next(&tar, member, &found));
        const int part = found ? part_of(member->name) : -1;
        if (part >= 0) {
            members[part] = *member;
            have[part] = true;
        }
    }
    if (!have[2] && !(have[0] && have[1])) {
        status = cvy_fail(CVY_BAD_DATA, "%s holds no checkpoint", cvy_quote(from));
        goto fail;
    }
    for (int i = 0; i < PARTS; i++) {
        char *path = have[i] ? part_path(target, parts[i]) : NULL;
        if (have[i])
            status = path ? copy_member(from, file, &members[i], path) : cvy_fail_memory(strlen(target), "a path");
        cvy_free(path);
        if (status != CVY_OK)
            goto fail;
    }
fail:
    if (status != CVY_OK)
        cvy_unpack_remove(target);
    if (file >= 0)
        close(file);
    cvy_free(members);
    return status;
}

static void remove_part(const char *target, int part)
{
    char *path = part_path(target, parts[part]);

    if (path)
        unlink(path);
    cvy_free(path);
}

/* *moved: it was there. */
static cvy_status rename_part(const char *from, const char *to, int part, bool *moved)
{
    char *path = part_path(from, parts[part]), *final = part_path(to, parts[part]);
    cvy_status status = CVY_OK;

    if (!path || !final)
        status = cvy_fail_memory(strlen(to), "a path");
    *moved = status == CVY_OK && cvy_path_is_file(path);
    if (*moved)
        status = cvy_file_rename(path, final);
    cvy_free(path);
    cvy_free(final);
    return status;
}

cvy_status cvy_unpack_rename(const char *from, const char *to)
{
    bool moved[PARTS];

    remove_part(to, INDEX); /* so that nobody sees it beside other data */
    for (int i = 0; i < PARTS; i++)
        CVY_TRY(rename_part(from, to, i, &moved[i]));
    for (int i = 0; i < PARTS; i++) /* of a checkpoint of the other kind */
        if (!moved[i])
            remove_part(to, i);
    return CVY_OK;
}

void cvy_unpack_remove(const char *target)
{
    for (int i = PARTS - 1; i >= 0; i--) /* what one opens first */
        remove_part(target, i);
}
