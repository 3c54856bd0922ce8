#include "formats/container/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

/* Fields of a header block: where they begin and how long they are. */
enum {
    NAME = 0,
    NAME_SIZE = 100,
    LENGTH = 124,
    LENGTH_SIZE = 12,
    SUM = 148,
    SUM_SIZE = 8,
    KIND = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_SIZE = 155
};
/* More is no list of attributes of one file. */
enum { MAX_EXTENDED = 1 << 20 };

static cvy_status damaged(const struct cvy_tar *tar, uint64_t at, const char *what)
{
    return cvy_fail(CVY_BAD_DATA, "%s: %s at byte %llu", cvy_quote(tar->what), what, (unsigned long long)at);
}

static cvy_status read_bytes(const struct cvy_tar *tar, uint64_t from, void *bytes, size_t size)
{
    size_t got;

    CVY_TRY(cvy_file_read_at(tar->what, tar->file, from, bytes, size, &got));
    return got == size ? CVY_OK : damaged(tar, from, "the archive is truncated");
}

/* Octal digits, with spaces before and spaces or zeros after; or, where the first bit is set, binary. */
static bool read_number(const uint8_t *field, size_t size, uint64_t *number)
{
    size_t i = 0, digits = 0;

    *number = 0;
    if (field[0] & 0x80) {
        for (i = 0; i < size; i++) {
            if (*number >> 55)
                return false;
            *number = *number << 8 | (i == 0 ? field[0] & 0x7F : field[i]);
        }
        return true;
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++, digits++)
        *number = *number << 3 | (uint64_t)(field[i] - '0'); /* 12 digits at most */
    for (; i < size; i++)
        if (field[i] != ' ' && field[i] != 0)
            return false;
    return digits > 0;
}

/* The sum of all bytes, the field of the sum taken for spaces; some programs added signed bytes. */
static bool sum_fits(const uint8_t *block)
{
    uint64_t said;
    int64_t plain = 0, with_signs = 0;

    for (int i = 0; i < CVY_TAR_BLOCK; i++) {
        const uint8_t byte = i >= SUM && i < SUM + SUM_SIZE ? ' ' : block[i];
        plain += byte;
        with_signs += (int8_t)byte;
    }
    return read_number(block + SUM, SUM_SIZE, &said) && ((int64_t)said == plain || (int64_t)said == with_signs);
}

static bool is_empty(const uint8_t *block)
{
    for (int i = 0; i < CVY_TAR_BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

void cvy_tar_block_name(const uint8_t block[CVY_TAR_BLOCK], char name[257])
{
    /* "ustar" and a zero; GNU's has a space there, and other things in the place of the prefix. */
    const bool has_prefix = memcmp(block + MAGIC, "ustar", 6) == 0 && block[PREFIX];
    const char *prefix = (const char *)block + PREFIX, *own = (const char *)block + NAME;

    snprintf(name, 257, "%.*s%s%.*s", has_prefix ? PREFIX_SIZE : 0, prefix, has_prefix ? "/" : "", NAME_SIZE, own);
}

/* ---- what is said about the next member ---- */

static cvy_status take_long_name(struct cvy_tar *tar, uint64_t data, uint64_t size)
{
    if (size == 0 || size > sizeof tar->long_name)
        return damaged(tar, data, "a name is too long");
    CVY_TRY(read_bytes(tar, data, tar->long_name, (size_t)size));
    tar->long_name[size - 1] = 0; /* is the end already, unless a program wrote none */
    return CVY_OK;
}

/* One attribute of pax: "length key=value\n", the length that of all of it. */
static cvy_status take_attribute(struct cvy_tar *tar, uint64_t data, char *text, size_t left, size_t *used)
{
    size_t length = 0, i = 0;
    char *value;

    for (; i < left && text[i] >= '0' && text[i] <= '9' && length <= left; i++)
        length = length * 10 + (size_t)(text[i] - '0');
    if (i == 0 || i >= left || text[i] != ' ' || length <= i + 1 || length > left || text[length - 1] != '\n')
        return damaged(tar, data, "a list of attributes is damaged");
    text[length - 1] = 0;
    char *key = text + i + 1;
    value = strchr(key, '=');
    if (!value)
        return damaged(tar, data, "a list of attributes is damaged");
    *value++ = 0;
    *used = length;
    if (strcmp(key, "path") == 0) {
        if (!*value || strlen(value) >= sizeof tar->long_name)
            return damaged(tar, data, "a name is too long");
        memcpy(tar->long_name, value, strlen(value) + 1);
    } else if (strcmp(key, "size") == 0) {
        tar->long_size = 0;
        for (const char *c = value; *c || c == value; c++) {
            if (*c < '0' || *c > '9' || tar->long_size > UINT64_MAX / 20)
                return damaged(tar, data, "a list of attributes is damaged");
            tar->long_size = tar->long_size * 10 + (uint64_t)(*c - '0');
        }
        tar->sized = true;
    }
    return CVY_OK;
}

static cvy_status take_attributes(struct cvy_tar *tar, uint64_t data, uint64_t size)
{
    cvy_status status = CVY_OK;
    size_t used = 0;

    if (size > MAX_EXTENDED)
        return damaged(tar, data, "a list of attributes is too long");
    char *text = cvy_calloc((size_t)size + 1, 1);
    if (!text)
        return cvy_fail_memory((size_t)size, "attributes of a file");
    CVY_GOTO(read_bytes(tar, data, text, (size_t)size));
    for (size_t at = 0; at < size; at += used)
        CVY_GOTO(take_attribute(tar, data, text + at, (size_t)size - at, &used));
fail:
    cvy_free(text);
    return status;
}

/* ---- members ---- */

cvy_status cvy_tar_open(struct cvy_tar *tar, const char *what, int file)
{
    struct stat about;

    *tar = (struct cvy_tar){.what = what, .file = file};
    if (fstat(file, &about) != 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(what));
    tar->size = (uint64_t)about.st_size;
    return CVY_OK;
}

/* A header block at tar->at; *data bytes follow it. */
static cvy_status read_header(struct cvy_tar *tar, uint8_t block[CVY_TAR_BLOCK], uint64_t *size)
{
    if (tar->size - tar->at < CVY_TAR_BLOCK)
        return damaged(tar, tar->at, "the archive is truncated");
    CVY_TRY(read_bytes(tar, tar->at, block, CVY_TAR_BLOCK));
    *size = 0;
    if (is_empty(block))
        return CVY_OK;
    if (!sum_fits(block))
        return damaged(tar, tar->at, tar->at == 0 ? "this is no tar archive, or it is damaged" : "a header is damaged");
    const char kind = (char)block[KIND];
    const bool extended = kind == 'L' || kind == 'K' || kind == 'x' || kind == 'g' || kind == 'X';
    if (kind >= '1' && kind <= '6') /* links, devices, folders */
        return CVY_OK;
    if (!read_number(block + LENGTH, LENGTH_SIZE, size))
        return damaged(tar, tar->at, "a header is damaged");
    if (tar->sized && !extended)
        *size = tar->long_size;
    if (*size > tar->size - tar->at - CVY_TAR_BLOCK)
        return damaged(tar, tar->at, "the archive is truncated within the member");
    return CVY_OK;
}

cvy_status cvy_tar_next(struct cvy_tar *tar, struct cvy_tar_member *member, bool *found)
{
    uint8_t block[CVY_TAR_BLOCK];
    uint64_t size = 0;

    *found = false;
    while (tar->at < tar->size) {
        CVY_TRY(read_header(tar, block, &size));
        if (is_empty(block)) /* the end; what may follow it fills up a tape's block */
            return CVY_OK;
        const uint64_t header = tar->at, data = header + CVY_TAR_BLOCK;
        const uint64_t padded = (size + CVY_TAR_BLOCK - 1) / CVY_TAR_BLOCK * CVY_TAR_BLOCK;
        tar->at = padded > tar->size - data ? tar->size : data + padded;
        const char kind = (char)block[KIND];
        if (kind == 'L') {
            CVY_TRY(take_long_name(tar, data, size));
            continue;
        }
        if (kind == 'x' || kind == 'X') {
            CVY_TRY(take_attributes(tar, data, size));
            continue;
        }
        if (kind == 'K' || kind == 'g')
            continue;
        const bool file = kind == '0' || kind == 0 || kind == '7';
        if (file) {
            member->header = header;
            member->data = data;
            member->size = size;
            if (tar->long_name[0])
                memcpy(member->name, tar->long_name, sizeof member->name);
            else
                cvy_tar_block_name(block, member->name);
        }
        tar->long_name[0] = 0;
        tar->sized = false;
        *found = file;
        if (file)
            return CVY_OK;
    }
    return damaged(tar, tar->size, "the archive is truncated: the block that ends it is missing");
}
