/* Reading: the end record, the directory, the header of each member. Every number is checked against the file. */
#include "formats/container/zip.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/crc32.h"

enum {
    END_BYTES = 22,      /* end record without its comment */
    LOCATOR_BYTES = 20,  /* where the end record of zip64 is */
    WIDE_END_BYTES = 56, /* end record of zip64 */
    ENTRY_BYTES = 46,    /* of the directory, without name, extra fields and comment */
    HEADER_BYTES = 30,   /* before a member, without name and extra fields */
    LONGEST_COMMENT = 0xFFFF,
    WIDE_FIELD = 0x0001, /* the extra field with 64-bit numbers */
};
static const uint32_t END_MARK = 0x06054b50, LOCATOR_MARK = 0x07064b50, WIDE_END_MARK = 0x06064b50,
                      ENTRY_MARK = 0x02014b50, HEADER_MARK = 0x04034b50, ELSEWHERE = 0xFFFFFFFF;

struct reader {
    const char *what;
    const unsigned char *bytes;
    size_t size;
    size_t directory, directory_end; /* where the directory lies */
    uint64_t count;
};

static uint64_t number(const unsigned char *bytes, int size)
{
    uint64_t value = 0;

    while (size > 0)
        value = value << 8 | bytes[--size];
    return value;
}

static uint32_t u16(const unsigned char *bytes)
{
    return (uint32_t)number(bytes, 2);
}

static uint32_t u32(const unsigned char *bytes)
{
    return (uint32_t)number(bytes, 4);
}

static cvy_status damaged(const struct reader *r, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: damaged zip file: %s", cvy_quote(r->what), why);
}

static const char *quoted(struct cvy_arena *arena, const struct cvy_zip_member *member)
{
    return cvy_quote(cvy_arena_printf(arena, "%.*s", (int)member->name_length, member->name));
}

static cvy_status bad_member(const struct reader *r, struct cvy_arena *arena, const struct cvy_zip_member *member,
                             const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: member %s %s", cvy_quote(r->what), quoted(arena, member), why);
}

/* ---- the end ---- */

/* The end record precedes a comment that ends with the file. */
static cvy_status find_end(const struct reader *r, size_t *end)
{
    for (size_t comment = 0; comment <= LONGEST_COMMENT && r->size >= END_BYTES + comment; comment++) {
        const size_t at = r->size - END_BYTES - comment;
        if (u32(r->bytes + at) == END_MARK && u16(r->bytes + at + 20) == comment) {
            *end = at;
            return CVY_OK;
        }
    }
    return cvy_fail(CVY_BAD_DATA, "%s: the directory at the end of the zip file is missing (truncated?)",
                    cvy_quote(r->what));
}

static cvy_status read_end(struct reader *r)
{
    size_t end = 0;
    uint64_t place, length;

    CVY_TRY(find_end(r, &end));
    const unsigned char *record = r->bytes + end;
    if (u16(record + 4) != 0 || u16(record + 6) != 0)
        return damaged(r, "it is a part of several");
    r->count = u16(record + 10);
    length = u32(record + 12);
    place = u32(record + 16);
    if (end >= LOCATOR_BYTES && u32(record - LOCATOR_BYTES) == LOCATOR_MARK) {
        const uint64_t wide = number(record - LOCATOR_BYTES + 8, 8);
        if (wide > end - LOCATOR_BYTES || end - LOCATOR_BYTES - wide < WIDE_END_BYTES ||
            u32(r->bytes + wide) != WIDE_END_MARK)
            return damaged(r, "no zip64 end record where one should be");
        record = r->bytes + wide;
        end = (size_t)wide;
        r->count = number(record + 32, 8);
        length = number(record + 40, 8);
        place = number(record + 48, 8);
    }
    if (place > end || length > end - place)
        return damaged(r, "the directory lies outside of the file");
    if (r->count > length / ENTRY_BYTES)
        return damaged(r, "the directory is too short for its members");
    r->directory = (size_t)place;
    r->directory_end = (size_t)(place + length);
    return CVY_OK;
}

/* ---- members ---- */

/* 64-bit numbers stand in an extra field, in this order, where the 32-bit ones say so. */
static bool read_wide(const unsigned char *extra, size_t length, uint64_t *values[], int count)
{
    while (length >= 4) {
        const uint32_t kind = u16(extra), bytes = u16(extra + 2);
        if (bytes > length - 4)
            return false;
        if (kind == WIDE_FIELD) {
            if (bytes < 8 * (uint32_t)count)
                return false;
            for (int i = 0; i < count; i++)
                *values[i] = number(extra + 4 + 8 * i, 8);
            return true;
        }
        extra += 4 + bytes;
        length -= 4 + bytes;
    }
    return false;
}

/* The header before the data: only its length matters, but it must be of this member. */
static cvy_status find_data(const struct reader *r, struct cvy_arena *arena, struct cvy_zip_member *member,
                            uint64_t place, uint64_t size)
{
    size_t start;

    if (place > r->directory || r->directory - place < HEADER_BYTES)
        return bad_member(r, arena, member, "lies outside of the file");
    const unsigned char *header = r->bytes + place;
    if (u32(header) != HEADER_MARK || u16(header + 26) != member->name_length)
        return bad_member(r, arena, member, "is not where the directory says");
    start = (size_t)place + HEADER_BYTES + u16(header + 26) + u16(header + 28);
    if (start > r->directory || size > r->directory - start)
        return bad_member(r, arena, member, "lies outside of the file");
    if (memcmp(header + HEADER_BYTES, member->name, member->name_length) != 0 ||
        (u16(header + 8) != 0) != member->compressed)
        return bad_member(r, arena, member, "is another one in the directory than in its place");
    member->data = r->bytes + start;
    member->size = (size_t)size;
    member->begin = (size_t)place;
    member->end = start + (size_t)size;
    return CVY_OK;
}

static cvy_status read_entry(const struct reader *r, struct cvy_arena *arena, size_t *at, struct cvy_zip_member *member)
{
    const unsigned char *entry = r->bytes + *at;
    const size_t capacity = r->directory_end - *at;

    if (capacity < ENTRY_BYTES || u32(entry) != ENTRY_MARK)
        return damaged(r, "an entry of the directory is none");
    const size_t name = u16(entry + 28), extra = u16(entry + 30), comment = u16(entry + 32);
    if (name + extra + comment > capacity - ENTRY_BYTES)
        return damaged(r, "an entry of the directory goes beyond its end");
    member->name = (const char *)entry + ENTRY_BYTES;
    member->name_length = name;
    member->crc = u32(entry + 16);
    if (u16(entry + 8) & 1)
        return bad_member(r, arena, member, "is encrypted");
    member->compressed = u16(entry + 10) != 0;

    uint64_t packed = u32(entry + 20), size = u32(entry + 24), place = u32(entry + 42), *wide[3];
    int wides = 0;
    if (size == ELSEWHERE)
        wide[wides++] = &size;
    if (packed == ELSEWHERE)
        wide[wides++] = &packed;
    if (place == ELSEWHERE)
        wide[wides++] = &place;
    if (wides > 0 && !read_wide(entry + ENTRY_BYTES + name, extra, wide, wides))
        return bad_member(r, arena, member, "lacks its 64-bit sizes");
    if (packed != size && !member->compressed)
        return bad_member(r, arena, member, "has two sizes, although it is not compressed");
    *at += ENTRY_BYTES + name + extra + comment;
    return find_data(r, arena, member, place, packed);
}

/* ---- all of them ---- */

static int compare_places(const void *a, const void *b)
{
    const struct cvy_zip_member *left = a, *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

static int compare_name(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);

    return order ? order : a_length < b_length ? -1 : a_length > b_length;
}

static int compare_names(const void *a, const void *b)
{
    const struct cvy_zip_member *left = a, *right = b;

    return compare_name(left->name, left->name_length, right->name, right->name_length);
}

cvy_status cvy_zip_open(struct cvy_zip *zip, const char *what, const void *data, size_t size, struct cvy_arena *arena)
{
    struct reader r = {.what = what, .bytes = data, .size = size};
    size_t at;

    *zip = (struct cvy_zip){0};
    CVY_TRY(read_end(&r));
    at = r.directory;
    zip->members = cvy_arena_alloc(arena, (size_t)r.count * sizeof *zip->members); /* count: at most size / 46 */
    if (!zip->members)
        return cvy_fail_memory((size_t)r.count * sizeof *zip->members, "the directory of a zip file");
    for (; zip->count < r.count; zip->count++)
        CVY_TRY(read_entry(&r, arena, &at, &zip->members[zip->count]));
    if (at != r.directory_end)
        return damaged(&r, "the directory is longer than its members");
    qsort(zip->members, zip->count, sizeof *zip->members, compare_places);
    for (size_t i = 1; i < zip->count; i++)
        if (zip->members[i - 1].end > zip->members[i].begin)
            return bad_member(&r, arena, &zip->members[i], "overlaps the one before it");
    qsort(zip->members, zip->count, sizeof *zip->members, compare_names);
    for (size_t i = 1; i < zip->count; i++)
        if (compare_names(&zip->members[i - 1], &zip->members[i]) == 0)
            return bad_member(&r, arena, &zip->members[i], "stands twice");
    return CVY_OK;
}

const struct cvy_zip_member *cvy_zip_find(const struct cvy_zip *zip, const char *name, size_t length)
{
    const struct cvy_zip_member wanted = {.name = name, .name_length = length};

    if (zip->count == 0)
        return NULL;
    return bsearch(&wanted, zip->members, zip->count, sizeof *zip->members, compare_names);
}

bool cvy_zip_check(const struct cvy_zip_member *member)
{
    return cvy_crc32(0, member->data, member->size) == member->crc;
}
