/* Any bytes as a list of images, without and with known classes: refused with a sentence, or a whole data set whose
 * labels are classes and whose samples are in order. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/set/list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_set(const struct cvy_dataset *set)
{
    if (set->sample_count < 1 || set->class_count < 1)
        abort();
    for (int32_t c = 0; c < set->class_count; c++) {
        if (!set->classes[c] || strlen(set->classes[c]) > 255)
            abort();
    }
    for (uint32_t i = 0; i < set->sample_count; i++) {
        const struct cvy_sample *sample = &set->samples[i], *before = i > 0 ? sample - 1 : sample;
        const size_t length = strlen(sample->path);
        if (length < 1 || length > 4095 || strpbrk(sample->path, "\t\n") || sample->label < 0 ||
            sample->label >= set->class_count || sample->label < before->label ||
            (sample->label == before->label && strcmp(sample->path, before->path) < 0))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const classes[] = {"dog", "cat", "0"};

    for (int known = 0; known < 2; known++) {
        struct cvy_dataset set;
        char *text = malloc(size + 1);
        if (!text)
            return 0;
        memcpy(text, data, size);
        text[size] = '\0';
        const cvy_status status = cvy_dataset_read_list(&set, "some/list", text, size, known ? classes : NULL, 3);
        free(text);
        if (status == CVY_OK)
            check_set(&set);
        else if (status != CVY_BAD_DATA || !cvy_error()[0] || strchr(cvy_error(), '\n') || set.samples)
            abort();
        cvy_dataset_close(&set);
    }
    return 0;
}
