/* Files in class folders that no decoder here reads: counted by their endings, so that nothing is left out silently. */
#ifndef CVY_DATA_SET_OTHER_FILES_H
#define CVY_DATA_SET_OTHER_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { CVY_OTHER_KINDS = 8, CVY_OTHER_ENDING_MAX = 12 };

struct cvy_other_files {
    int64_t count;
    struct {
        char ending[CVY_OTHER_ENDING_MAX]; /* ".cr2", in lower case; "" for a name without one */
        int64_t count;
    } kinds[CVY_OTHER_KINDS]; /* the first that were met; count 0: unused. Files of further kinds are in `count` alone
                               */
    char first[256];          /* path of the one that comes first bytewise; "": none, or too long */
};

void cvy_other_files_add(struct cvy_other_files *others, const char *path);
/* "12 files in class folders are no images of a kind that is read and are left out: 9 .cr2, 2 .txt, 1 other (the first:
 * "a/1.cr2")", with a remedy where they are images of another kind. Writes at most `size` bytes and returns `text`; ""
 * where there are none. */
const char *cvy_other_files_describe(const struct cvy_other_files *others, char *text, size_t size);

#endif
