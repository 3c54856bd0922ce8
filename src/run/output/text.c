/* The plan of a run in words, shown before it starts. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "ops/ops.h"
#include "options/options.h"
#include "options/recipe_auto.h"
#include "run/output/output.h"
#include "weights/published.h"

static double mebibytes(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* "arch resnet18, epochs 15" of all options with one source; nothing when there are none. */
static void add_source(const struct cvy_run_config *config, enum cvy_option_source source, const char *label,
                       const char *note, struct cvy_text *text)
{
    const struct cvy_option_info *info;
    char value[CVY_PATH_MAX];
    bool first = true;

    for (size_t i = 0; (info = cvy_train_option_at(i)) != NULL; i++) {
        if (config->options.source[i] != source || strcmp(info->name, "recipe") == 0 ||
            strcmp(info->name, "resume") == 0)
            continue;
        if (first)
            cvy_text_printf(text, "%-11s  ", label);
        (void)cvy_train_option_text(&config->options, i, value, sizeof value);
        cvy_text_printf(text, "%s%s %s", first ? "" : ", ", info->name, value[0] ? value : "none");
        first = false;
    }
    if (!first)
        cvy_text_printf(text, "%s\n", note);
}

static void add_data(const struct cvy_run *run, struct cvy_text *text)
{
    const struct cvy_train_options *o = &run->config->options;

    cvy_text_printf(text, "%-11s  ", "data");
    if (run->data.train.sample_count == 0)
        cvy_text_printf(text, "synthetic images, %s\n", cvy_counted(o->num_classes, "class"));
    else
        cvy_text_printf(text, "%s: %u training and %s, %s%s\n", o->data, run->data.train.sample_count,
                        cvy_counted(run->data.val.sample_count, "validation image"),
                        cvy_counted(run->data.train.class_count, "class"),
                        strcmp(o->sampler, "balanced") == 0 ? ", each equally often" : "");
    if (o->val_split > 0 && strcmp(o->val_split_rule, "path") == 0 && run->data.val.sample_count > 0)
        cvy_text_printf(text, "%-11s  %s: %.3g %% of the images are set aside, by a hash of their paths\n",
                        "validation",
                        cvy_option_source_of(o, "val-split") == CVY_FROM_FLAG ? "as asked for" : "no folder val",
                        100 * o->val_split);
    cvy_text_printf(text, "%-11s  %d x %d pixels", "input", (int)cvy_run_train_size(o), (int)cvy_run_train_size(o));
    if (cvy_run_is_detection(o))
        cvy_text_puts(text, ": images of any shape, whole in validation");
    else if (!o->training_only)
        cvy_text_printf(text, "; validation: shorter side %lld, centre crop", (long long)o->eval_resize);
    if (!o->training_only && cvy_run_train_size(o) != o->image_size)
        cvy_text_printf(text, " of %lld", (long long)o->image_size);
    cvy_text_puts(text, "\n");
}

static void add_memory(const struct cvy_run_config *config, struct cvy_text *text)
{
    const struct cvy_memory_estimate *memory = &config->memory;
    const bool training = !config->options.evaluate;

    cvy_text_printf(text, "%-11s  about %.0f MiB: %s %.1f, %s %.1f", "memory", mebibytes(memory->total),
                    training ? "weights, gradients, optimizer" : "weights", mebibytes(memory->parameters),
                    training ? "training" : "validation", mebibytes(memory->plan));
    if (memory->evaluation)
        cvy_text_printf(text, " or validation %.1f", mebibytes(memory->evaluation));
    cvy_text_printf(text, ", data %.1f, program %.1f\n", mebibytes(memory->data), mebibytes(memory->program));
}

/* What the run starts from, and what of it stays. */
static void add_start(const struct cvy_run *run, struct cvy_text *text)
{
    const struct cvy_train_options *o = &run->config->options;
    const struct cvy_pretrained *start = &run->pretrained;
    char head[32], rest[32];

    if (start->continues)
        cvy_text_printf(text, "%-11s  a checkpoint of PyTorch's program at epoch %lld\n", "resume",
                        (long long)start->epoch);
    else if (start->backbone)
        cvy_text_printf(text, "%-11s  the backbone from %s%s, strides and padding as %s has them\n", "start",
                        start->classifier ? "the classifier " : "", o->pretrained_weights,
                        strcmp(o->backbone_strides, "slim") == 0 ? "TF-slim" : "torchvision");
    else if (start->used && o->reset_head)
        cvy_text_printf(text, "%-11s  %s; a new classifier for %s\n", "start", o->pretrained_weights,
                        cvy_counted(o->num_classes, "class"));
    else if (start->used)
        cvy_text_printf(text, "%-11s  %s, its classifier too%s%s\n", "start", o->pretrained_weights,
                        start->other_name[0] ? ", though " : "", start->other_name);
    if (o->freeze[0])
        cvy_text_printf(text, "%-11s  %s: %lld of %lld parameters stay as they are\n", "frozen", o->freeze,
                        (long long)cvy_network_frozen(&run->state.network),
                        (long long)cvy_network_parameters(&run->state.network));
    if (o->head_lr > 0)
        cvy_text_printf(text, "%-11s  learning rate %s for the classifier, %s for the rest\n", "rates",
                        cvy_double_text(o->head_lr, head), cvy_double_text(o->lr, rest));
}

/* A network from random weights on few images: what would be better. */
static void add_hint(const struct cvy_run *run, struct cvy_text *text)
{
    const struct cvy_train_options *o = &run->config->options;
    const int64_t images = run->data.train.sample_count;

    if (!run->config->automatic || run->resume.requested || run->pretrained.used || o->evaluate ||
        cvy_run_is_detection(o) || images == 0 || images >= CVY_FEW_IMAGES || !cvy_published_find(o->arch))
        return;
    cvy_text_printf(
        text,
        "%-11s  %lld images are few for random weights; a network that has seen many learns them better and in fewer "
        "epochs: convoy pull %s, then --pretrained-weights %s --reset-head\n",
        "advice", (long long)images, o->arch, o->arch);
}

/* What was chosen because of the weights that the run starts from. */
static void add_fine_tuning(const struct cvy_run *run, struct cvy_text *text)
{
    const int64_t images = run->data.train.sample_count;

    if (run->config->automatic && run->pretrained.used && !cvy_run_is_detection(&run->config->options) &&
        images < CVY_FEW_IMAGES)
        cvy_text_printf(text, "%-11s  recipe finetune: trained weights, and %s\n", "automatic",
                        cvy_counted(images, "image"));
}

/* How many steps with how many images. */
static void add_length(const struct cvy_run *run, long long images, struct cvy_text *text)
{
    const struct cvy_train_options *o = &run->config->options;

    cvy_text_printf(text, "%-11s  ", "length");
    if (o->steps > 0) {
        cvy_text_count(text, o->steps, "step");
        cvy_text_puts(text, " with ");
        cvy_text_count(text, images, "image");
        cvy_text_puts(text, ": ");
    }
    cvy_text_count(text, o->epochs, "epoch");
    cvy_text_puts(text, " of ");
    cvy_text_count(text, run->config->steps_per_epoch, "step");
    if (o->steps > 0) {
        cvy_text_printf(text, ", the last one of %lld\n",
                        (long long)(o->steps - (o->epochs - 1) * run->config->steps_per_epoch));
        return;
    }
    cvy_text_puts(text, " with ");
    cvy_text_count(text, images, "image");
    cvy_text_puts(text, "\n");
}

void cvy_run_text(const struct cvy_run *run, struct cvy_text *text)
{
    const struct cvy_train_options *o = &run->config->options;
    const int world = run->ranks.comm.world;
    const long long images = (long long)(o->batch_size * run->config->accumulate * world);
    char recipe[CVY_PATH_MAX + 32], rate[32], each[32];

    add_hint(run, text);
    cvy_text_printf(text, "%-11s  %s, %lld parameters, %.3f GMAC for an image\n", "network", o->arch,
                    (long long)cvy_network_parameters(&run->state.network),
                    cvy_graph_macs(&run->state.network.table) / 1e9);
    add_data(run, text);
    add_start(run, text);
    if (run->resume.requested)
        cvy_text_printf(text, "%-11s  %s after %s and %s\n", "resume", run->resume.file,
                        cvy_counted(run->state.progress.epoch, "epoch"),
                        cvy_counted(run->state.progress.position, "step"));
    add_fine_tuning(run, text);
    add_source(run->config, CVY_FROM_AUTO, "automatic", " (chosen for these data; flags override)", text);
    snprintf(recipe, sizeof recipe, " (recipe %s)", o->recipe);
    add_source(run->config, CVY_FROM_RECIPE, "recipe", recipe, text);
    add_source(run->config, CVY_FROM_WEIGHTS, "weights", " (of the file it starts from)", text);
    if (run->resume.found) /* as they were: what is said now is in the flags */
        cvy_text_printf(text, "%-11s  its options, unless a flag says otherwise (--dry-run lists them)\n",
                        "checkpoint");
    add_source(run->config, CVY_FROM_FLAG, "flags", "", text);
    if (run->config->batch_chosen)
        cvy_text_printf(text, "%-11s  %s: --batch-size auto, the largest up to %lld for the memory\n", "batch",
                        cvy_counted(o->batch_size, "image"),
                        (long long)(cvy_run_is_synthetic(run->config)
                                        ? CVY_AUTO_TRAINING_MAX
                                        : cvy_auto_batch_max(run->data.train.sample_count / world)));
    if (!o->evaluate)
        add_length(run, images, text);
    if (o->lr_per_256 > 0 && !o->evaluate)
        cvy_text_printf(text, "%-11s  learning rate %s: %s for each 256 images of a step\n", "rates",
                        cvy_double_text(o->lr, rate), cvy_double_text(o->lr_per_256, each));
    if (world > 1)
        cvy_text_printf(text, "%-11s  this is rank %d of %d on %d host%s, over %s; each takes %s of a pass%s%s\n",
                        "ranks", run->ranks.comm.rank, world, run->ranks.comm.hosts,
                        run->ranks.comm.hosts > 1 ? "s" : "", run->ranks.comm.transport,
                        cvy_counted(o->batch_size, "image"), run->state.device->joined ? "; gradients by " : "",
                        run->state.device->joined ? run->state.device->backend->collective->name : "");
    cvy_text_puts(text, run->ranks.table ? run->ranks.table : "");
    add_memory(run->config, text);
    cvy_text_printf(text, "%-11s  %s (%s), %s, %s; %s\n", "device", run->state.device->backend->name,
                    run->state.device->description, cvy_precision_name(run->state.network.dtype, run->state.device),
                    cvy_counted(run->state.device->threads, "thread"), cvy_counted(o->workers, "decoding thread"));
    if (run->config->paths.folder[0])
        cvy_text_printf(text, "%-11s  %s", "directory", run->config->paths.folder);
}

void cvy_run_describe_caches(const struct cvy_run_data *data)
{
    int64_t train = 0, val = 0;
    size_t train_bytes = 0, val_bytes = 0;

    if (!data->train_cache && !data->val_cache)
        return;
    if (data->train_cache)
        cvy_sample_cache_count(data->train_cache, &train, &train_bytes);
    if (data->val_cache)
        cvy_sample_cache_count(data->val_cache, &val, &val_bytes);
    cvy_log(CVY_LOG_INFO, "--ram-cache: %lld of %lld images are in memory now, %.2f GiB", (long long)(train + val),
            (long long)data->train.sample_count + data->val.sample_count,
            (double)(train_bytes + val_bytes) / (double)(1 << 30));
}
