/* Any bytes as a pipeline configuration of TensorFlow's program: refused with one sentence, or options of ssd320 with a
 * length and the folder of the records. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "options/pipeline_config.h"
#include "options/train_options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cvy_train_options options;

    cvy_train_options_init(&options);
    const cvy_status status = cvy_pipeline_config_apply(&options, "some.config", (const char *)data, size);
    if (status != CVY_OK) {
        if ((status != CVY_BAD_DATA && status != CVY_USAGE) || !cvy_error()[0] || strchr(cvy_error(), '\n'))
            abort();
        return 0;
    }
    if (strcmp(options.arch, "ssd320") != 0 || options.steps < 1 || options.batch_size < 1 || !options.data[0] ||
        options.source[cvy_train_option_find("steps")] != CVY_FROM_RECIPE)
        abort();
    return 0;
}
