/* `convoy info`: the devices of this machine. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "info/info_internal.h"

/* What would sum gradients between several of the device's kind. */
static void add_collective(cvy_device *device, struct cvy_info_device *found)
{
    const struct cvy_collective *collective = device->backend->collective;
    const size_t used = strlen(found->text);
    struct cvy_collective_view view = {0};

    if (!collective)
        return;
    if (collective->query(device, &view) == CVY_OK)
        snprintf(found->text + used, sizeof found->text - used, ", %s %s", collective->name, view.version);
    else
        snprintf(found->text + used, sizeof found->text - used, ", no %s", collective->name);
}

/* What decodes images on it. */
static void add_decoder(cvy_device *device, struct cvy_info_device *found)
{
    const struct cvy_image_decoding *decoding = device->backend->decoding;
    const struct cvy_image_decoder_options options = {.side = 1, .lanes = 1, .threads = 1};
    const size_t used = strlen(found->text);
    struct cvy_image_decoder *decoder;

    if (!decoding)
        return;
    if (decoding->open(device, &options, &decoder) != CVY_OK) {
        snprintf(found->text + used, sizeof found->text - used, ", no %s", decoding->name);
        return;
    }
    snprintf(found->text + used, sizeof found->text - used, ", %s", decoding->description(decoder));
    decoding->close(decoder);
}

cvy_status cvy_info_find_devices(struct cvy_info_facts *facts, int threads)
{
    static const char *const names[CVY_INFO_DEVICES] = {"cpu", "ref", "cuda"};
    cvy_status status = CVY_OK;

    for (int i = 0; i < CVY_INFO_DEVICES && status == CVY_OK; i++) {
        struct cvy_info_device *found = &facts->devices[i];
        cvy_device *device = NULL;

        found->name = names[i];
        found->available = cvy_device_open(names[i], threads, &device) == CVY_OK;
        snprintf(found->text, sizeof found->text, "%s", found->available ? device->description : cvy_error());
        if (found->available) {
            add_collective(device, found);
            add_decoder(device, found);
        }
        if (found->available && !device->gpu && device->backend->measure_peak)
            status = device->backend->measure_peak(device, CVY_PEAK_OPERATIONS, &facts->peak);
        if (status == CVY_OK && found->available && device->backend->describe)
            status = device->backend->describe(device, &found->properties);
        cvy_device_close(device);
    }
    return status;
}
