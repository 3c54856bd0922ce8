/* What the linker puts before two functions of the library (--wrap), in copies of it: the networks keep their layers
 * and have 16 channels everywhere, so that a run takes a tenth of the time for as many calls. Networks with groups stay
 * as they are. Scripts take it with `narrow` (cli/support_common.sh), unit tests by a list (CMakeLists.txt), where what
 * is tested is the same for any width. The weights of one are not for the other. */
#include <stdbool.h>

#include "models/resnet.h"
#include "ops/ops.h"

enum { CHANNELS = 16, MIN_WIDTH = 64 };

static _Thread_local bool wide; /* a network with groups is being built */

cvy_val __real_cvy_resnet_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                                const void *config);
cvy_val __wrap_cvy_resnet_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                                const void *config);
cvy_val __real_cvy_conv2d(struct cvy_graph *graph, cvy_val x, const struct cvy_conv2d *options);
cvy_val __wrap_cvy_conv2d(struct cvy_graph *graph, cvy_val x, const struct cvy_conv2d *options);

/* The widths of the table; what is multiplied with `expansion` stays the number of channels of a block. */
cvy_val __wrap_cvy_resnet_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                                const void *config)
{
    struct cvy_resnet narrow = *(const struct cvy_resnet *)config;

    if (narrow.groups > 1) {
        wide = true;
        const cvy_val built = __real_cvy_resnet_build(graph, image, options, config);
        wide = false;
        return built;
    }
    for (int stage = 0; stage < 4; stage++)
        narrow.width[stage] = CHANNELS / narrow.expansion;
    return __real_cvy_resnet_build(graph, image, options, &narrow);
}

/* The first convolution of a ResNet and all of a detector, whose widths are powers of two. What predicts has as many
 * channels as it needs, which is a multiple of 3. */
cvy_val __wrap_cvy_conv2d(struct cvy_graph *graph, cvy_val x, const struct cvy_conv2d *options)
{
    struct cvy_conv2d narrow = *options;

    if (!wide && narrow.groups <= 1 && narrow.out >= MIN_WIDTH && (narrow.out & (narrow.out - 1)) == 0)
        narrow.out = CHANNELS;
    return __real_cvy_conv2d(graph, x, &narrow);
}
