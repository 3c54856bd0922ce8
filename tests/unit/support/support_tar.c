#include "support_tar.h"
#include "support_images.h"
#include "support_test.h"

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

static void write_half(const char *folder, const char *name, const struct cvy_dataset *set, uint32_t half)
{
    struct cvy_text tar = {0};
    char text[256];

    for (uint32_t i = half * set->sample_count / 2; i < (half + 1) * set->sample_count / 2; i++) {
        struct cvy_encoded encoded;
        assert_int_equal(cvy_sample_read(&set->samples[i], &encoded), CVY_OK);
        snprintf(text, sizeof text, "%04u.jpg", i);
        support_tar_add(&tar, '0', text, encoded.data, encoded.size, NULL);
        cvy_encoded_release(&encoded);
        snprintf(text, sizeof text, "%04u.cls", i);
        char label[16];
        const int length = snprintf(label, sizeof label, "%d", (int)set->samples[i].label);
        support_tar_add(&tar, '0', text, label, (size_t)length, NULL);
    }
    support_tar_end(&tar);
    assert_false(tar.failed);
    snprintf(text, sizeof text, "%s-%u.tar", name, half);
    support_write(folder, text, tar.text, tar.length);
    cvy_text_release(&tar);
}

void support_write_tars(const char *folder, const char *name, const struct cvy_dataset *set)
{
    for (uint32_t half = 0; half < 2; half++)
        write_half(folder, name, set, half);
}
