/* The table of architectures. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "models/models.h"
#include "models/resnet.h"
#include "models/ssd320.h"

/* He et al., "Deep residual learning for image recognition", table 1. */
static const struct cvy_resnet resnet18 = {
    .bottleneck = false, .blocks = {2, 2, 2, 2}, .width = {64, 128, 256, 512}, .expansion = 1, .groups = 1};
static const struct cvy_resnet resnet34 = {
    .bottleneck = false, .blocks = {3, 4, 6, 3}, .width = {64, 128, 256, 512}, .expansion = 1, .groups = 1};
static const struct cvy_resnet resnet50 = {
    .bottleneck = true, .blocks = {3, 4, 6, 3}, .width = {64, 128, 256, 512}, .expansion = 4, .groups = 1};
static const struct cvy_resnet resnet101 = {
    .bottleneck = true, .blocks = {3, 4, 23, 3}, .width = {64, 128, 256, 512}, .expansion = 4, .groups = 1};
static const struct cvy_resnet resnet152 = {
    .bottleneck = true, .blocks = {3, 8, 36, 3}, .width = {64, 128, 256, 512}, .expansion = 4, .groups = 1};

/* Xie et al., "Aggregated residual transformations for deep neural networks": 32 groups of d channels in the first
 * stage, twice as many in each further one; the channels between the blocks stay those of a ResNet. */
static const struct cvy_resnet resnext50_32x4d = {
    .bottleneck = true, .blocks = {3, 4, 6, 3}, .width = {128, 256, 512, 1024}, .expansion = 2, .groups = 32};
static const struct cvy_resnet resnext101_32x4d = {
    .bottleneck = true, .blocks = {3, 4, 23, 3}, .width = {128, 256, 512, 1024}, .expansion = 2, .groups = 32};
static const struct cvy_resnet resnext101_32x8d = {
    .bottleneck = true, .blocks = {3, 4, 23, 3}, .width = {256, 512, 1024, 2048}, .expansion = 1, .groups = 32};

/* Named in the help texts of the reference program and defined in no version of it that is known: what the name says,
 * basic blocks with the channels and groups of 32x8d. */
static const struct cvy_resnet resnext101_32x8d_basic = {
    .bottleneck = false, .blocks = {3, 4, 23, 3}, .width = {256, 512, 1024, 2048}, .expansion = 1, .groups = 32};

/* Squeeze-and-excitation (Hu et al.): 16 hidden units in every stage, as the reference program has them; the paper's
 * C / 16 is an option. */
static const struct cvy_architecture architectures[] = {
    {CVY_TASK_CLASSIFY, "resnet18", NULL, cvy_resnet_build, &resnet18, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnet34", NULL, cvy_resnet_build, &resnet34, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnet50", NULL, cvy_resnet_build, &resnet50, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnet101", NULL, cvy_resnet_build, &resnet101, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnet152", NULL, cvy_resnet_build, &resnet152, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnext50-32x4d", NULL, cvy_resnet_build, &resnext50_32x4d, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnext101-32x4d", NULL, cvy_resnet_build, &resnext101_32x4d, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnext101-32x8d", NULL, cvy_resnet_build, &resnext101_32x8d, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "resnext101-32x8d-basic", NULL, cvy_resnet_build, &resnext101_32x8d_basic, NULL, 224, 0},
    {CVY_TASK_CLASSIFY, "se-resnet50", "seresnet50", cvy_resnet_build, &resnet50, NULL, 224, 16},
    {CVY_TASK_CLASSIFY, "se-resnext101-32x4d", "seresnext101-32x4d", cvy_resnet_build, &resnext101_32x4d, NULL, 224,
     16},
    {CVY_TASK_DETECT, "ssd320", NULL, NULL, NULL, cvy_ssd320_build, 320, 0},
};
enum { ARCHITECTURE_COUNT = sizeof architectures / sizeof *architectures };

static bool same_name(const char *name, const char *given)
{
    for (; *name && *given; name++, given++) {
        if (*name != *given && !(*name == '-' && *given == '_'))
            return false;
    }
    return *name == *given;
}

const struct cvy_architecture *cvy_architecture_find(const char *name)
{
    for (size_t i = 0; name && i < ARCHITECTURE_COUNT; i++) {
        const char *alias = architectures[i].alias;

        if (same_name(architectures[i].name, name) || (alias && same_name(alias, name)))
            return &architectures[i];
    }
    return NULL;
}

const struct cvy_architecture *cvy_architecture_at(size_t index)
{
    return index < ARCHITECTURE_COUNT ? &architectures[index] : NULL;
}

cvy_status cvy_architecture_fail(const char *name)
{
    struct cvy_nearest nearest = cvy_nearest_begin(name);
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 0; cvy_architecture_at(i) && used < sizeof names; i++) {
        cvy_nearest_offer(&nearest, cvy_architecture_at(i)->name);
        const int length =
            snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", cvy_architecture_at(i)->name);
        used += length > 0 ? (size_t)length : 0;
    }
    return cvy_fail(CVY_USAGE, "option --arch: unknown network %s%s; there are %s", cvy_quote(name),
                    cvy_nearest_text(&nearest), names);
}
