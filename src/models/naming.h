/* The naming schemes of weights files of residual networks, to and from Convoy's own names. Those of TensorFlow's
 * programs are in naming_slim.h, for ssd320 alone, and in naming_tensorflow.h.
 *
 *                 Convoy = torchvision, timm   NVIDIA                 NVIDIA 2019            timm legacy (Cadene)
 * stem            conv1, bn1                   the same               the same               layer0.conv1, layer0.bn1
 * stage s, block  layer<s+1>.<b>.              layers.<s>.<b>.        layer<s+1>.<b>.        layer<s+1>.<b>.
 * SE, first       se.fc1 (R,C,1,1)             squeeze.squeeze (R,C)  squeeze.squeeze (R,C)  se_module.fc1 (R,C,1,1)
 * SE, second      se.fc2 (C,R,1,1)             squeeze.expand (C,R)   squeeze.expand (C,R)   se_module.fc2 (C,R,1,1)
 * classifier      fc                           fc                     fc                     last_linear */
#ifndef CVY_MODELS_NAMING_H
#define CVY_MODELS_NAMING_H

#include "convoy/status.h"
#include "formats/weights/tensors.h"

enum cvy_naming {
    CVY_NAMING_TORCHVISION,
    CVY_NAMING_TIMM, /* differs from torchvision's only where torchvision has no network: squeeze and excitation */
    CVY_NAMING_NVIDIA,
    CVY_NAMING_NVIDIA2019,
    CVY_NAMING_SLIM,
    CVY_NAMING_TENSORFLOW,
    CVY_NAMING_LEGACY /* read only */
};

/* The scheme of a name that --naming takes: "torchvision", "timm", "nvidia", "nvidia2019", "slim", "tensorflow".
 * CVY_USAGE for others. */
CVY_CHECKED cvy_status cvy_naming_find(const char *text, enum cvy_naming *naming);

/* Give every tensor Convoy's name and shape, also after the prefixes of momentum and average, and for TensorFlow's also
 * its order of values. The scheme is recognised by itself: *found. CVY_BAD_DATA when two tensors get the same name.
 * `what` names the file. */
CVY_CHECKED cvy_status cvy_naming_read(struct cvy_tensor_file *file, const char *what, enum cvy_naming *found);
/* Does the scheme have such a tensor? TensorFlow does not count batches, and its ranges of quantised networks are not
 * ours. */
bool cvy_naming_has(enum cvy_naming naming, const struct cvy_named_tensor *tensor);
/* One tensor of the network `arch` from Convoy's name, shape and order of values to a scheme's; new ones live in the
 * arena. CVY_USAGE where there is no name for it. */
CVY_CHECKED cvy_status cvy_naming_write(enum cvy_naming naming, const char *arch, struct cvy_arena *arena,
                                        struct cvy_named_tensor *tensor);

#endif
