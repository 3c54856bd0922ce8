/* Any bytes as a label map: refused with a sentence, or names that are found again, also after writing them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/detection/label_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cvy_label_map map, again;
    struct cvy_text text = {0};

    const cvy_status status = cvy_label_map_parse("some.pbtxt", (const char *)data, size, &map);
    if (status != CVY_OK) {
        if (status != CVY_BAD_DATA || !cvy_error()[0] || strchr(cvy_error(), '\n') || map.labels)
            abort();
        return 0;
    }
    for (size_t i = 0; i < map.count; i++) {
        if (map.labels[i].id < 0 || strlen(map.labels[i].name) > 255 ||
            cvy_label_map_find(&map, map.labels[i].name) < map.labels[i].id)
            abort();
        cvy_label_map_write(&text, map.labels[i].id, map.labels[i].name);
    }
    if (cvy_label_map_parse("again", text.text, text.length, &again) != CVY_OK || again.count != map.count)
        abort();
    for (size_t i = 0; i < map.count; i++)
        if (strcmp(again.labels[i].name, map.labels[i].name) != 0 || again.labels[i].id != map.labels[i].id)
            abort();
    cvy_text_release(&text);
    cvy_label_map_release(&again);
    cvy_label_map_release(&map);
    return 0;
}
