/* Any bytes as a tar archive, as they are and with checksums that fit their headers: refused with a sentence, or
 * members and samples lie inside the bytes, one after the other. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/set/tar_set.h"
#include "formats/container/tar.h"
#include "support_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each block gets the sum that it would have as a header. */
static void fix_checksums(uint8_t *data, size_t size)
{
    for (size_t at = 0; size - at >= CVY_TAR_BLOCK; at += CVY_TAR_BLOCK) {
        unsigned sum = 0;
        char text[8];
        if (data[at] == 0 || memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (int i = 0; i < CVY_TAR_BLOCK; i++)
            sum += data[at + (size_t)i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(data + at + 148, text, 7);
    }
}

static void walk(int file, size_t size)
{
    static struct cvy_tar tar;
    static struct cvy_tar_member member;
    uint64_t end = 0;
    bool found = true;

    must(cvy_tar_open(&tar, "input", file) == CVY_OK);
    while (found) {
        const cvy_status status = cvy_tar_next(&tar, &member, &found);
        if (status != CVY_OK) {
            expect_sentence(status);
            return;
        }
        must(!found || (member.header >= end && member.data == member.header + CVY_TAR_BLOCK && member.data <= size &&
                        member.size <= size - member.data && memchr(member.name, 0, sizeof member.name)));
        end = member.data + member.size;
    }
}

static void scan(int file, size_t size)
{
    struct cvy_tar_list list;
    const cvy_status status = cvy_tar_scan("input", file, &list);

    if (status != CVY_OK)
        expect_sentence(status);
    for (size_t i = 0; i < list.count; i++)
        must(read_sample(CVY_SHARD_TAR, file, list.places[i].header, list.places[i].size) &&
             list.places[i].header <= size && list.places[i].size >= CVY_TAR_BLOCK &&
             list.places[i].size <= size - list.places[i].header && list.places[i].label >= 0 &&
             (i == 0 || list.places[i].header > list.places[i - 1].header));
    cvy_free(list.places);
}

static void read_file(const uint8_t *data, size_t size)
{
    const int file = file_of(data, size);

    walk(file, size);
    scan(file, size);
    close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        return 0;
    memcpy(copy, data, size);
    read_file(copy, size);
    fix_checksums(copy, size);
    read_file(copy, size);
    free(copy);
    return 0;
}
