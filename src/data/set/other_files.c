#include "data/set/other_files.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* Its ending in lower case; "" where there is none, a long one, or one of other than letters and digits: it is shown.
 */
static void ending_of(const char *path, char ending[CVY_OTHER_ENDING_MAX])
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const size_t length = dot ? strlen(dot) : 0;

    ending[0] = '\0';
    if (length < 2 || length >= CVY_OTHER_ENDING_MAX)
        return;
    for (size_t i = 1; i < length; i++) {
        const unsigned char c = (unsigned char)dot[i];
        if (c >= 0x80 || !isalnum(c))
            return;
    }
    for (size_t i = 0; i <= length; i++)
        ending[i] = (char)tolower((unsigned char)dot[i]);
}

void cvy_other_files_add(struct cvy_other_files *others, const char *path)
{
    char ending[CVY_OTHER_ENDING_MAX];
    int kind = 0;

    ending_of(path, ending);
    while (kind < CVY_OTHER_KINDS && others->kinds[kind].count > 0 && strcmp(others->kinds[kind].ending, ending) != 0)
        kind++;
    if (kind < CVY_OTHER_KINDS) {
        memcpy(others->kinds[kind].ending, ending, sizeof ending);
        others->kinds[kind].count++;
    }
    others->count++;
    if (strlen(path) < sizeof others->first && (!others->first[0] || strcmp(path, others->first) < 0))
        snprintf(others->first, sizeof others->first, "%s", path);
}

static bool is_image_ending(const char *ending)
{
    static const char *const endings[] = {".jp2", ".jxl", ".svg", ".psd", ".dng", ".cr2",
                                          ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (strcmp(ending, endings[i]) == 0)
            return true;
    }
    return false;
}

const char *cvy_other_files_describe(const struct cvy_other_files *others, char *text, size_t size)
{
    int64_t rest = others->count;
    bool images = false, shown[CVY_OTHER_KINDS] = {false};
    const bool one = others->count == 1;
    size_t used;

    text[0] = '\0';
    if (others->count == 0)
        return text;
    used = (size_t)snprintf(text, size,
                            "%" PRId64 " file%s in class folders %s no image%s of a kind that is read and %s left out:",
                            others->count, one ? "" : "s", one ? "is" : "are", one ? "" : "s", one ? "is" : "are");
    for (int n = 0; n < CVY_OTHER_KINDS; n++) { /* the most frequent first; of equals by the ending */
        int next = -1;

        for (int k = 0; k < CVY_OTHER_KINDS && others->kinds[k].count > 0; k++) {
            if (shown[k])
                continue;
            if (next < 0 || others->kinds[k].count > others->kinds[next].count ||
                (others->kinds[k].count == others->kinds[next].count &&
                 strcmp(others->kinds[k].ending, others->kinds[next].ending) < 0))
                next = k;
        }
        if (next < 0)
            break;
        shown[next] = true;
        rest -= others->kinds[next].count;
        images |= is_image_ending(others->kinds[next].ending);
        if (used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s %" PRId64 " %s", n ? "," : "", others->kinds[next].count,
                                 others->kinds[next].ending[0] ? others->kinds[next].ending : "without an ending");
    }
    if (rest > 0 && used < size)
        used += (size_t)snprintf(text + used, size - used, ", %" PRId64 " other", rest);
    if (others->first[0] && used < size)
        used += (size_t)snprintf(text + used, size - used, " (the first: %s)", cvy_quote(others->first));
    if (images && used < size)
        snprintf(text + used, size - used, "; convert images to JPEG or PNG to use them");
    return text;
}
