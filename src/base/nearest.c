/* Distance of names: letters inserted, left out, replaced, or exchanged with their neighbour (optimal string alignment;
 * Damerau, "A technique for computer detection and correction of spelling errors", CACM 1964). */
#include "base/nearest.h"
#include "convoy/program/program.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LENGTH = 48, FAR = 1000 };

/* Case, and hyphens against underscores, do not count. */
static char plain(char c)
{
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* FAR for texts too long to be names. */
static int distance(const char *a, const char *b)
{
    const size_t rows = strlen(a), columns = strlen(b);
    int line[3][MAX_LENGTH + 1];

    if (rows > MAX_LENGTH || columns > MAX_LENGTH)
        return FAR;
    for (size_t j = 0; j <= columns; j++)
        line[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        int *now = line[i % 3], *last = line[(i + 2) % 3], *before = line[(i + 1) % 3];

        now[0] = (int)i;
        for (size_t j = 1; j <= columns; j++) {
            const int replaced = plain(a[i - 1]) != plain(b[j - 1]);
            now[j] = smaller(smaller(last[j] + 1, now[j - 1] + 1), last[j - 1] + replaced);
            if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) && plain(a[i - 2]) == plain(b[j - 1]))
                now[j] = smaller(now[j], before[j - 2] + 1);
        }
    }
    return line[rows % 3][columns];
}

struct cvy_nearest cvy_nearest_begin(const char *text)
{
    const size_t length = strlen(text);

    /* One mistake in three letters, three at most. */
    return (struct cvy_nearest){.text = text, .distance = length < 3 ? 1 : length < 6 ? 2 : length < 9 ? 3 : 4};
}

void cvy_nearest_offer(struct cvy_nearest *nearest, const char *name)
{
    const int found = name ? distance(nearest->text, name) : FAR;

    if (found >= nearest->distance)
        return;
    nearest->distance = found;
    nearest->best = name;
}

const char *cvy_nearest_text(const struct cvy_nearest *nearest)
{
    static _Thread_local char text[MAX_LENGTH + 16];

    snprintf(text, sizeof text, "%s%s", nearest->best ? ", perhaps " : "", nearest->best ? nearest->best : "");
    return text;
}

const char *cvy_nearest_of(const char *text, const char *const *names, size_t count)
{
    struct cvy_nearest nearest = cvy_nearest_begin(text);

    for (size_t i = 0; i < count; i++)
        cvy_nearest_offer(&nearest, names[i]);
    return cvy_nearest_text(&nearest);
}

const char *cvy_nearest_name(const char *text, const char *const *names, size_t count)
{
    struct cvy_nearest nearest;

    if (!text || !names)
        return NULL;
    nearest = cvy_nearest_begin(text);
    for (size_t i = 0; i < count; i++)
        cvy_nearest_offer(&nearest, names[i]);
    return nearest.best;
}
