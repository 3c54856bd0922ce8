/* Published weights. Sources, read in 2026:
 *
 * torchvision: torchvision/models/resnet.py (addresses, accuracies, sizes in MiB with three decimals; the file's name
 *   carries the first eight digits of its SHA-256).
 * timm: timm/models/resnet.py (names, origins); the files are those of its pages at Hugging Face, which state size and
 *   SHA-256 when one is downloaded (X-Linked-ETag).
 * NVIDIA: the README of DeepLearningExamples, PyTorch/Classification/ConvNets. No sums are published there.
 * TensorFlow: research/slim/README.md and research/object_detection/g3doc/tf1_detection_zoo.md of tensorflow/models. No
 *   sums are published there. */
#include "weights/published.h"

#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/error.h"
#include "base/file.h"
#include "models/models.h"

#define MIB(mib) ((int64_t)((mib)*1048576))

#define TORCHVISION(name_, arch_, trained_, file_, digits_, mib, top1_)                                                \
    {                                                                                                                  \
        .name = name_, .arch = arch_, .trained = trained_, .licence = "BSD-3-Clause",                                  \
        .page = "https://docs.pytorch.org/vision/stable/models.html",                                                  \
        .url = "https://download.pytorch.org/models/" file_ "-" digits_ ".pth", .file = name_ ".pth",                  \
        .sha256 = digits_, .bytes = MIB(mib), .top1 = top1_                                                            \
    }
#define TIMM(name_, arch_, trained_, licence_)                                                                         \
    {                                                                                                                  \
        .name = name_, .arch = arch_, .trained = trained_, .licence = licence_,                                        \
        .page = "https://huggingface.co/timm/" name_,                                                                  \
        .url = "https://huggingface.co/timm/" name_ "/resolve/main/model.safetensors", .file = name_ ".safetensors",   \
        .sha256 = ""                                                                                                   \
    }
#define NVIDIA(name_, arch_, model_, file_)                                                                            \
    {                                                                                                                  \
        .name = name_, .arch = arch_, .trained = "ImageNet-1k, by NVIDIA", .licence = "",                              \
        .page = "https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets",          \
        .url = "https://api.ngc.nvidia.com/v2/models/nvidia/" model_ "/versions/20.06.0/files/" file_,                 \
        .file = name_ ".pth.tar", .sha256 = ""                                                                         \
    }

static const char in1k[] = "ImageNet-1k", in1k_new[] = "ImageNet-1k, 600 epochs, torchvision's new recipe",
                  in1k_a1[] = "ImageNet-1k, 600 epochs (Wightman et al., A1)",
                  in1k_a1h[] = "ImageNet-1k (Wightman et al., A1 with more augmentation)",
                  in1k_gluon[] = "ImageNet-1k, by Gluon", in1k_ra2[] = "ImageNet-1k, RandAugment";

static const struct cvy_published_weights table[] = {
    TORCHVISION("resnet18.tv_in1k", "resnet18", in1k, "resnet18", "f37072fd", 44.661, 69.758),
    TIMM("resnet18.a1_in1k", "resnet18", in1k_a1, "Apache-2.0"),
    TORCHVISION("resnet34.tv_in1k", "resnet34", in1k, "resnet34", "b627a593", 83.275, 73.314),
    TIMM("resnet34.a1_in1k", "resnet34", in1k_a1, "Apache-2.0"),
    TORCHVISION("resnet50.tv_in1k", "resnet50", in1k, "resnet50", "0676ba61", 97.781, 76.130),
    TORCHVISION("resnet50.tv2_in1k", "resnet50", in1k_new, "resnet50", "11ad3fa6", 97.79, 80.858),
    TIMM("resnet50.a1_in1k", "resnet50", in1k_a1, "Apache-2.0"),
    NVIDIA("resnet50.nvidia_in1k", "resnet50", "resnet50_pyt_amp", "nvidia_resnet50_200821.pth.tar"),
    TORCHVISION("resnet101.tv_in1k", "resnet101", in1k, "resnet101", "63fe2227", 170.511, 77.374),
    TORCHVISION("resnet101.tv2_in1k", "resnet101", in1k_new, "resnet101", "cd907fc2", 170.53, 81.886),
    TIMM("resnet101.a1h_in1k", "resnet101", in1k_a1h, "Apache-2.0"),
    TORCHVISION("resnet152.tv_in1k", "resnet152", in1k, "resnet152", "394f9c45", 230.434, 78.312),
    TORCHVISION("resnet152.tv2_in1k", "resnet152", in1k_new, "resnet152", "f82ba261", 230.474, 82.284),
    TIMM("resnet152.a1h_in1k", "resnet152", in1k_a1h, "Apache-2.0"),
    TORCHVISION("resnext50_32x4d.tv2_in1k", "resnext50-32x4d", in1k_new, "resnext50_32x4d", "1a0047aa", 95.833, 81.198),
    TORCHVISION("resnext50_32x4d.tv_in1k", "resnext50-32x4d", in1k, "resnext50_32x4d", "7cdf4587", 95.789, 77.618),
    TIMM("resnext50_32x4d.a1h_in1k", "resnext50-32x4d", in1k_a1h, "Apache-2.0"),
    TIMM("resnext50_32x4d.gluon_in1k", "resnext50-32x4d", in1k_gluon, "Apache-2.0"),
    TIMM("resnext101_32x4d.gluon_in1k", "resnext101-32x4d", in1k_gluon, "Apache-2.0"),
    TIMM("resnext101_32x4d.fb_swsl_ig1b_ft_in1k", "resnext101-32x4d", "a billion of Instagram's images, ImageNet-1k",
         "CC-BY-NC-4.0"),
    NVIDIA("resnext101_32x4d.nvidia_in1k", "resnext101-32x4d", "resnext101_32x4d_pyt_amp",
           "nvidia_resnext101-32x4d_200821.pth.tar"),
    TORCHVISION("resnext101_32x8d.tv2_in1k", "resnext101-32x8d", in1k_new, "resnext101_32x8d", "110c445d", 339.673,
                82.834),
    TORCHVISION("resnext101_32x8d.tv_in1k", "resnext101-32x8d", in1k, "resnext101_32x8d", "8ba56ff5", 339.586, 79.312),
    TIMM("seresnet50.ra2_in1k", "se-resnet50", in1k_ra2, "Apache-2.0"),
    TIMM("seresnet50.a1_in1k", "se-resnet50", in1k_a1, "Apache-2.0"),
    TIMM("seresnext101_32x4d.gluon_in1k", "se-resnext101-32x4d", in1k_gluon, "Apache-2.0"),
    NVIDIA("seresnext101_32x4d.nvidia_in1k", "se-resnext101-32x4d", "seresnext101_32x4d_pyt_amp",
           "nvidia_se-resnext101-32x4d_200821.pth.tar"),
    {.name = "ssd_resnet50_fpn.tf_coco",
     .arch = "ssd320",
     .trained = "COCO 2014, at 640 x 640",
     .licence = "Apache-2.0",
     .page = "https://github.com/tensorflow/models/blob/master/research/object_detection/g3doc/tf1_detection_zoo.md",
     .url = "https://download.tensorflow.org/models/object_detection/"
            "ssd_resnet50_v1_fpn_shared_box_predictor_640x640_coco14_sync_2018_07_03.tar.gz",
     .file = "ssd_resnet50_fpn.tf_coco.tar.gz",
     .sha256 = ""},
    {.name = "resnet_v1_50.slim_in1k",
     .arch = "ssd320",
     .backbone = true,
     .trained = "ImageNet-1k: the backbone alone",
     .licence = "Apache-2.0",
     .page = "https://github.com/tensorflow/models/blob/master/research/slim/README.md",
     .url = "https://download.tensorflow.org/models/resnet_v1_50_2016_08_28.tar.gz",
     .file = "resnet_v1_50.slim_in1k.tar.gz",
     .sha256 = ""},
};
enum { COUNT = sizeof table / sizeof *table };

const struct cvy_published_weights *cvy_published_at(size_t index)
{
    return index < COUNT ? &table[index] : NULL;
}

const struct cvy_published_weights *cvy_published_find(const char *name)
{
    const struct cvy_architecture *architecture = name ? cvy_architecture_find(name) : NULL;

    for (size_t i = 0; name && i < COUNT; i++) {
        if (strcmp(table[i].name, name) == 0 || (architecture && strcmp(table[i].arch, architecture->name) == 0))
            return &table[i];
    }
    return NULL;
}

/* An archive holds a checkpoint of TensorFlow: one file, or one whose index is the one to name. */
static cvy_status path_of(const char *folder, const struct cvy_published_weights *weights, char *path, size_t size,
                          bool *pulled)
{
    static const char archive[] = ".tar.gz";
    static const char *const checkpoints[] = {".ckpt", ".ckpt.index"};
    const size_t length = strlen(weights->file), stem = length - (sizeof archive - 1);
    int written = -1;

    if (length < sizeof archive || strcmp(weights->file + stem, archive) != 0) {
        written = snprintf(path, size, "%s/weights/%s", folder, weights->file);
        *pulled = written >= 0 && (size_t)written < size && cvy_path_is_file(path);
    } else {
        *pulled = false;
        for (size_t i = 0; i < 2 && !*pulled; i++) {
            written = snprintf(path, size, "%s/weights/%.*s%s", folder, (int)stem, weights->file, checkpoints[i]);
            *pulled = written >= 0 && (size_t)written < size && cvy_path_is_file(path);
        }
    }
    return written >= 0 && (size_t)written < size ? CVY_OK : cvy_fail(CVY_USAGE, "the path of the cache is too long");
}

cvy_status cvy_published_path(const struct cvy_published_weights *weights, char *path, size_t size, bool *pulled)
{
    struct cvy_text folder = {0};
    bool there = false;
    cvy_status status;

    CVY_REQUIRE(weights && path && size > 0);
    if (!cvy_cache_folder(&folder))
        return cvy_fail(CVY_NO_INPUT, "there is no folder for the cache: neither CONVOY_CACHE_DIR nor HOME is set");
    status =
        folder.failed ? cvy_fail_memory(folder.capacity, "a path") : path_of(folder.text, weights, path, size, &there);
    cvy_text_release(&folder);
    if (pulled)
        *pulled = there;
    return status;
}

/* For a network: those of its weights that were pulled come before the recommended ones. A backbone alone is no such
 * weights: it is meant by its own name. */
static cvy_status find_pulled(const struct cvy_published_weights *first, const char *name, char *path, size_t size,
                              bool *pulled)
{
    *pulled = false;
    if (strcmp(first->name, name) == 0)
        return cvy_published_path(first, path, size, pulled);
    for (size_t i = 0; i < COUNT && !*pulled; i++) {
        if (strcmp(table[i].arch, first->arch) == 0 && !table[i].backbone)
            CVY_TRY(cvy_published_path(&table[i], path, size, pulled));
    }
    return CVY_OK;
}

cvy_status cvy_published_resolve(const char *name, char *path, size_t size, bool *found)
{
    const struct cvy_published_weights *weights = cvy_published_find(name);
    bool pulled;

    *found = weights != NULL;
    if (!weights)
        return CVY_OK;
    CVY_TRY(find_pulled(weights, name, path, size, &pulled));
    if (!pulled)
        return cvy_fail(CVY_NO_INPUT,
                        "%s is no file, but the name of published weights that are not here yet: \"convoy pull %s\" "
                        "downloads them",
                        cvy_quote(name), weights->name);
    return CVY_OK;
}
