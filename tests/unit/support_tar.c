#include "support_tar.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 512 };

void support_tar_add(struct cvy_text *tar, char kind, const char *name, const void *data, size_t size,
                     const char *size_field)
{
    char block[BLOCK] = {0};
    const char zeros[BLOCK] = {0};
    unsigned sum = 0;

    snprintf(block, 100, "%s", name);
    memcpy(block + 100, "0000644", 8);
    snprintf(block + 124, 12, "%011zo", size);
    if (size_field)
        memcpy(block + 124, size_field, 12);
    memset(block + 148, ' ', 8);
    block[156] = kind;
    memcpy(block + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    cvy_text_append(tar, block, BLOCK);
    cvy_text_append(tar, data, size);
    cvy_text_append(tar, zeros, (BLOCK - size % BLOCK) % BLOCK);
}

void support_tar_end(struct cvy_text *tar)
{
    const char zeros[2 * BLOCK] = {0};

    cvy_text_append(tar, zeros, sizeof zeros);
}
