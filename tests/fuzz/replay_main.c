/* Runs a fuzz target without libFuzzer, so that every compiler and build can: over the files given (or those in the
 * folders given), and with --mutate N over N changed versions of each and over each cut short at many places. The
 * changes come from a fixed seed: a finding stays found. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_FILE = 16 << 20, MAX_CUTS = 512 };

static size_t inputs;

/* The bytes at the end of their own allocation, so that a sanitizer sees every read past them. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (!copy)
        return;
    if (size > 0)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    inputs++;
}

/* One to four of: a random byte, a flipped bit, an extreme byte, a removed or a doubled stretch. Returns the size. */
static size_t mutate(struct cvy_rng *rng, uint8_t *data, size_t size, size_t capacity)
{
    static const uint8_t extremes[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '{', '[', '9', '-'};
    for (uint32_t i = cvy_rng_below(rng, 4) + 1; i > 0 && size > 0; i--) {
        size_t at = cvy_rng_below(rng, (uint32_t)size);
        size_t length = 1 + cvy_rng_below(rng, 16);
        if (length > size - at)
            length = size - at;
        switch (cvy_rng_below(rng, 5)) {
        case 0:
            data[at] = (uint8_t)cvy_rng_u32(rng);
            break;
        case 1:
            data[at] ^= (uint8_t)(1u << cvy_rng_below(rng, 8));
            break;
        case 2:
            data[at] = extremes[cvy_rng_below(rng, sizeof extremes)];
            break;
        case 3:
            memmove(data + at, data + at + length, size - at - length);
            size -= length;
            break;
        default:
            if (size + length <= capacity) {
                memmove(data + at + length, data + at, size - at);
                size += length;
            }
        }
    }
    return size;
}

static int replay_file(const char *path, uint32_t mutations)
{
    void *data;
    size_t size;
    if (cvy_file_read(path, MAX_FILE, &data, &size) != CVY_OK) {
        fprintf(stderr, "%s\n", cvy_error());
        return 1;
    }
    size_t capacity = size + 64;
    uint8_t *changed = malloc(capacity);
    if (!changed) {
        cvy_free(data);
        return 1;
    }
    run_one(data, size);
    for (size_t i = 0; mutations > 0 && i < MAX_CUTS && i < size; i++)
        run_one(data, size <= MAX_CUTS ? i : size * i / MAX_CUTS);
    for (uint32_t i = 0; i < mutations; i++) {
        struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_TEST, 0, i);
        memcpy(changed, data, size);
        size_t new_size = mutate(&rng, changed, size, capacity);
        run_one(changed, new_size);
    }
    free(changed);
    cvy_free(data);
    return 0;
}

static int replay_folder(const char *path, uint32_t mutations)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort), failed = count < 0;
    for (int i = 0; i < count; i++) {
        char *file = cvy_path_join(path, entries[i]->d_name);
        if (!file || (!cvy_path_is_directory(file) && replay_file(file, mutations) != 0))
            failed = 1;
        cvy_free(file);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    uint32_t mutations = 0;
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--mutate") && i + 1 < argc)
            mutations = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (cvy_path_is_directory(argv[i]))
            failed |= replay_folder(argv[i], mutations);
        else
            failed |= replay_file(argv[i], mutations);
    }
    printf("%zu inputs\n", inputs);
    return failed || inputs == 0; /* a corpus that is not there must not pass */
}
