#include "models/naming_rules.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* ---- names ---- */

bool cvy_naming_begins(const char *name, const char *front)
{
    return strncmp(name, front, strlen(front)) == 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number below 1000 without leading zeros; what follows it, NULL where there is none. */
static const char *read_number(const char *text, int *number)
{
    const char *at = text;

    for (*number = 0; is_digit(*at) && at - text < 3; at++)
        *number = 10 * *number + (*at - '0');
    return at == text || is_digit(*at) || (*text == '0' && at - text > 1) ? NULL : at;
}

/* What follows the pattern at the front of the name, NULL where it is not there. */
static const char *match(const char *pattern, const char *name, int numbers[CVY_NAMING_NUMBERS])
{
    int count = 0;

    for (; *pattern; pattern++) {
        if (*pattern == '#' && count < CVY_NAMING_NUMBERS) {
            name = read_number(name, &numbers[count++]);
            if (!name)
                return NULL;
        } else if (*pattern != *name++) {
            return NULL;
        }
    }
    return name;
}

/* The pattern with its numbers, larger by sign * more, and the leaf. False where a number is none any more or the text
 * too long. */
static bool fill(const char *pattern, const int numbers[CVY_NAMING_NUMBERS], const int more[CVY_NAMING_NUMBERS],
                 int sign, const char *leaf, char text[CVY_NAMING_TEXT])
{
    size_t used = 0;
    int count = 0;

    for (; *pattern; pattern++) {
        const int number = *pattern == '#' ? numbers[count] + sign * more[count] : 0;

        if (number < 0 || used + 8 > CVY_NAMING_TEXT)
            return false;
        if (*pattern == '#') {
            used += (size_t)snprintf(text + used, CVY_NAMING_TEXT - used, "%d", number);
            count++;
        } else {
            text[used++] = *pattern;
        }
    }
    return (size_t)snprintf(text + used, CVY_NAMING_TEXT - used, "%s", leaf) < CVY_NAMING_TEXT - used;
}

bool cvy_naming_rename(const struct cvy_naming_table *table, bool write, const char *name, char text[CVY_NAMING_TEXT])
{
    for (size_t i = 0; i < table->count; i++) {
        const struct cvy_naming_rule *rule = &table->rules[i];
        int numbers[CVY_NAMING_NUMBERS] = {0};
        const char *leaf = match(write ? rule->ours : rule->theirs, name, numbers);

        for (int k = 0; leaf && k < CVY_NAMING_LEAVES && rule->leaves[k].ours; k++) {
            const struct cvy_naming_leaf *pair = &rule->leaves[k];
            if (strcmp(leaf, write ? pair->ours : pair->theirs) == 0)
                return fill(write ? rule->theirs : rule->ours, numbers, rule->more, write ? 1 : -1,
                            write ? pair->theirs : pair->ours, text);
        }
    }
    return false;
}

static const struct copy {
    const char *ours, *theirs;
} copies[] = {
    {CVY_MOMENTUM_PREFIX, "/Momentum"},
    {CVY_SQUARE_PREFIX, "/RMSProp"},
    {CVY_EMA_PREFIX, "/ExponentialMovingAverage"},
};

const char *cvy_naming_cut_copy(bool write, const char *name, char text[CVY_NAMING_TEXT])
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        const size_t front = write ? strlen(copies[i].ours) : 0, tail = write ? 0 : strlen(copies[i].theirs);

        if (length <= front + tail || (write && !cvy_naming_begins(name, copies[i].ours)) ||
            (!write && strcmp(name + length - tail, copies[i].theirs) != 0))
            continue;
        snprintf(text, CVY_NAMING_TEXT, "%.*s", (int)(length - front - tail), name + front);
        return write ? copies[i].theirs : copies[i].ours;
    }
    snprintf(text, CVY_NAMING_TEXT, "%s", name);
    return "";
}

/* ---- values ---- */

cvy_status cvy_naming_reorder(struct cvy_arena *arena, bool write, struct cvy_named_tensor *tensor)
{
    const size_t size = cvy_dtype_size(tensor->dtype), bytes = tensor->bytes;
    const bool matrix = tensor->shape.rank == 2; /* (1,1,I,O): turned over, it goes the same way twice */
    const bool back = write && !matrix;
    const int was[4] = {back ? 2 : 3, back ? 3 : 2, back ? 1 : 0,
                        back ? 0 : 1}; /* which old dimension is each new one */
    const uint8_t *from = tensor->data;
    int64_t old[4] = {1, 1, 1, 1}, new[4], step[4]; /* step: elements, in the old order */
    uint8_t *to, *copy;

    if (tensor->shape.rank != 4 && !matrix)
        return CVY_OK;
    for (int i = 0; i < tensor->shape.rank; i++)
        old[4 - tensor->shape.rank + i] = tensor->shape.dim[i];
    for (int i = 0; i < 4; i++) {
        new[i] = old[was[i]];
        step[i] = 1;
        for (int k = was[i] + 1; k < 4; k++)
            step[i] *= old[k];
    }
    tensor->shape = matrix ? cvy_shape2(new[0], new[1]) : cvy_shape4(new[0], new[1], new[2], new[3]);
    if (!from) /* shapes alone */
        return CVY_OK;
    copy = to = cvy_arena_alloc(arena, bytes);
    if (!copy)
        return cvy_fail_memory(bytes, tensor->name);
    for (int64_t a = 0; a < new[0]; a++)
        for (int64_t b = 0; b < new[1]; b++)
            for (int64_t c = 0; c < new[2]; c++)
                for (int64_t d = 0; d < new[3]; d++, to += size)
                    memcpy(to, from + (size_t)(a * step[0] + b * step[1] + c * step[2] + d * step[3]) * size, size);
    tensor->data = copy;
    return CVY_OK;
}

/* ---- files ---- */

cvy_status cvy_naming_describe(struct cvy_tensor_file *file, const struct cvy_tensor_meta *entries, size_t count)
{
    const size_t bytes = (file->metadata_count + count) * sizeof *entries;
    struct cvy_tensor_meta *more = cvy_arena_alloc(&file->arena, bytes);
    size_t used = file->metadata_count;

    if (!more)
        return cvy_fail_memory(bytes, "metadata");
    if (used > 0)
        memcpy(more, file->metadata, used * sizeof *more);
    for (size_t i = 0; i < count; i++)
        if (!cvy_tensor_metadata(file, entries[i].key))
            more[used++] = entries[i];
    file->metadata = more;
    file->metadata_count = used;
    return CVY_OK;
}
