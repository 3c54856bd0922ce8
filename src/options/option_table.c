/* Every option of a training run with its type, limits, help and default. */
#include "options/option_table.h"

#include "data/loader/loader.h"

static const char *const quantize_rules[] = {"convoy", "tensorflow", NULL};
static const char *const loss_scale_rules[] = {"auto", "torch",      "torch-fixed", "tensorflow",
                                               "apex", "fp16-utils", "static",      NULL};
static const char *const precisions[] = {"auto", "fp32", "tf32", "fp16", "bf16", "fp64", NULL};
static const char *const data_backends[] = {"pytorch",         "tensorflow", "dali-cpu", "dali-gpu",
                                            "tensorflow-dali", "synthetic",  NULL};
static const char *const decoders[] = {"exact", "fast", "gpu", NULL};
static const char *const model_configs[] = {"classic",  "fanin",     "grp-fanin", "grp-fanout",
                                            "tf-fanin", "tf-fanout", NULL};
static const char *const paddings[] = {"torch", "same", NULL};
static const char *const schedules[] = {"step", "linear", "cosine", "exponential", NULL};
static const char *const schedule_units[] = {"epoch", "step", NULL};
static const char *const optimizers[] = {"sgd", "rmsprop", "lars", NULL};
static const char *const decay_rules[] = {"name", "exact", "weights", "all", NULL};
static const char *const split_rules[] = {"seed", "path", NULL};
static const char *const judges[] = {"val", "ema", NULL};
static const char *const samplers[] = {"uniform", "balanced", "pytorch", NULL};
static const char *const augmentations[] = {"none", "autoaugment", "off", NULL};
static const char *const ema_rules[] = {"batch", "step", NULL};
static const char *const last_batches[] = {"drop", "partial", NULL};
static const char *const mixup_rules[] = {"torch", "tensorflow", NULL};
static const char *const val_losses[] = {"plain", "reference", NULL};
static const char *const backbone_strides[] = {"slim", "torchvision", NULL};
static const char *const area_rules[] = {"annotation", "box", NULL};
static const char *const compressions[] = {"none", "bf16", "fp16", NULL};
static const char *const orders[] = {"yes", "sums", "no", NULL};
static const char *const statistics_rules[] = {"rank0", "own", NULL};
static const char *const interpolations[] = {"bilinear", "bicubic", "triangular", NULL};

#define FIELD(name) offsetof(struct cvy_train_options, name), sizeof(((struct cvy_train_options *)0)->name)
#define TEXT(long_name, alias, letter, argument, field, choices_, group_, help)                                        \
    {                                                                                                                  \
        {long_name, alias, letter, CVY_OPTION_TEXT, argument, help}, FIELD(field), .choices = choices_,                \
                                                                                   .group = group_                     \
    }
#define INT(long_name, alias, letter, field, low_, high_, group_, help)                                                \
    {                                                                                                                  \
        {long_name, alias, letter, CVY_OPTION_INT, "N", help}, FIELD(field), .low = low_, .high = high_,               \
                                                                             .group = group_                           \
    }
#define INT_OR(long_name, letter, field, low_, high_, special_, group_, help)                                          \
    {                                                                                                                  \
        {long_name, NULL, letter, CVY_OPTION_INT, "N", help}, FIELD(field),                                            \
            .low = low_, .high = high_, .has_special = true, .special = special_, .group = group_                      \
    }
#define REAL(long_name, alias, field, low_, high_, help, ...)                                                          \
    {                                                                                                                  \
        {long_name, alias, 0, CVY_OPTION_REAL, "X", help}, FIELD(field), .low = low_, .high = high_, __VA_ARGS__       \
    }
#define FLAG(long_name, field, group_, help)                                                                           \
    {                                                                                                                  \
        {long_name, NULL, 0, CVY_OPTION_FLAG, NULL, help}, FIELD(field), .group = group_                               \
    }

static const struct cvy_option_row rows[] = {
    TEXT("arch", NULL, 'a', "NAME", arch, NULL, CVY_OPTION_RESULT, "network: resnet18, resnet34, resnet50, ..."),
    TEXT("recipe", NULL, 0, "NAME|FILE", recipe, NULL, CVY_OPTION_RUN, "base values: a built-in recipe or a file"),
    INT("epochs", NULL, 0, epochs, 1, CVY_MAX_EPOCHS, CVY_OPTION_RESULT, "length of the training and of the schedule"),
    {{"batch-size", NULL, 'b', CVY_OPTION_INT, "N|auto", "images in one step; auto: the largest batch for the memory"},
     FIELD(batch_size),
     .low = 1,
     .high = 65536,
     .word = "auto",
     .special = CVY_BATCH_AUTO,
     .group = CVY_OPTION_RESULT},
    REAL("lr", "learning-rate", lr, 0, 1e6, "base learning rate", .group = CVY_OPTION_RESULT),
    REAL("head-lr", NULL, head_lr, 0, 1e6, "base learning rate of the classifier fc (default: that of --lr)",
         .above_low = true, .group = CVY_OPTION_RESULT),
    REAL("lr-per-256", NULL, lr_per_256, 0, 1e6, "base learning rate for each 256 images of a step, instead of --lr",
         .group = CVY_OPTION_RESULT),
    TEXT("lr-schedule", NULL, 0, "NAME", lr_schedule, schedules, CVY_OPTION_RESULT,
         "step, linear, cosine or exponential"),
    TEXT("lr-unit", NULL, 0, "NAME", lr_unit, schedule_units, CVY_OPTION_RESULT,
         "the rate changes with each epoch (as in PyTorch's program) or step (as in TensorFlow's)"),
    REAL("lr-decay", NULL, lr_decay, 0, 1, "factor of the exponential schedule (0: a thousandth is left in the end)",
         .group = CVY_OPTION_RESULT),
    INT("lr-decay-epochs", NULL, 0, lr_decay_epochs, 1, 1e6, CVY_OPTION_RESULT,
        "epochs between two falls of the exponential schedule"),
    REAL("end-lr", NULL, end_lr, 0, 1e6, "where the cosine schedule ends", .group = CVY_OPTION_RESULT),
    INT("warmup", NULL, 0, warmup, 0, 1e6, CVY_OPTION_RESULT, "epochs of rising learning rate"),
    INT_OR("steps", 0, steps, 1, 1e12, 0, CVY_OPTION_RESULT,
           "length of the training and of the schedule in optimizer steps, instead of --epochs (0: epochs)"),
    INT("warmup-steps", NULL, 0, warmup_steps, 0, 1e12, CVY_OPTION_RESULT, "with --steps: steps of rising rate"),
    INT("schedule-steps", NULL, 0, schedule_steps, 0, 1e12, CVY_OPTION_RESULT,
        "with --steps: length of the schedule where it is another (0: that of the training)"),
    REAL("warmup-lr", NULL, warmup_lr, 0, 1e6, "with --steps: where the rising rate begins",
         .group = CVY_OPTION_RESULT),
    REAL("label-smoothing", NULL, label_smoothing, 0, 1, "share of the target spread over all classes",
         .below_high = true),
    REAL("mixup", NULL, mixup, 0, 1e3, "mix samples in pairs, by shares drawn from Beta(X, X) (0: off)",
         .group = CVY_OPTION_RESULT),
    TEXT("mixup-rule", NULL, 0, "NAME", mixup_rule, mixup_rules, CVY_OPTION_RESULT,
         "torch (one share a batch, random partners) or tensorflow (one a sample, the batch reversed)"),
    TEXT("class-weights", NULL, 0, "W", class_weights, NULL, CVY_OPTION_RESULT,
         "of the training loss: none, balanced (by counts), NAME=W,... or a file of such lines"),
    TEXT("val-loss", NULL, 0, "NAME", val_loss, val_losses, CVY_OPTION_RESULT,
         "plain, or reference: smoothed like the training's where that is smoothed and not mixed"),
    INT("precise-bn", NULL, 0, precise_bn, 0, 1000000, CVY_OPTION_RESULT,
        "batches over which running statistics are computed anew before each validation (0: those of the steps stay)"),
    INT("rewinds", NULL, 0, rewinds, 0, 1000, CVY_OPTION_RESULT,
        "times that a training that diverges goes back to its last good state and halves its learning rate (0: never)"),
    TEXT("optimizer", NULL, 0, "NAME", optimizer, optimizers, CVY_OPTION_RESULT, "sgd, rmsprop or lars"),
    INT_OR("optimizer-batch-size", 0, optimizer_batch_size, 1, 1 << 30, -1, CVY_OPTION_RESULT,
           "images in one optimizer step: gradients of several batches are averaged (-1: one batch)"),
    TEXT("last-batch", NULL, 0, "NAME", last_batch, last_batches, CVY_OPTION_RESULT,
         "images of an epoch that do not fill a batch: drop, or partial: a step of them alone, as DALI's iterator has "
         "it"),
    REAL("momentum", NULL, momentum, 0, 1, "of SGD and RMSprop", .below_high = true),
    REAL("lars-eta", NULL, lars_eta, 0, 1, "LARS: a layer's step as a share of the size of its weights",
         .above_low = true, .group = CVY_OPTION_RESULT),
    REAL("rmsprop-alpha", NULL, rmsprop_alpha, 0, 1, "RMSprop: how long squares of gradients are remembered",
         .below_high = true),
    REAL("rmsprop-eps", NULL, rmsprop_eps, 0, 1e3, "RMSprop: added to the root of the squares' average",
         .above_low = true, .group = CVY_OPTION_RESULT),
    REAL("weight-decay", "wd", weight_decay, 0, 1e3, "L2 penalty on what --weight-decay-rule says",
         .below_high = false),
    TEXT("weight-decay-rule", NULL, 0, "NAME", weight_decay_rule, decay_rules, CVY_OPTION_RESULT,
         "without decay: name (parameters named bn), exact (all batch norms), weights (biases too), all (none)"),
    FLAG("bn-weight-decay", bn_weight_decay, CVY_OPTION_RESULT, "weight decay on batch norm too: rule all"),
    TEXT("ema-rule", NULL, 0, "NAME", ema_rule, ema_rules, CVY_OPTION_RESULT,
         "how the average moves: after each batch by 1 - D (batch, as in PyTorch's program), or after each step by (1 "
         "- D) * images of a step / epochs (step, as in torchvision's)"),
    REAL("use-ema", NULL, use_ema, 0, 1, "keep a moving average of the weights with this decay (0: none)",
         .below_high = true),
    TEXT("best-of", NULL, 0, "NAME", best_of, judges, CVY_OPTION_RESULT,
         "whose top-1 (AP of detectors) makes an epoch the best: val (the weights) or ema (their average)"),
    FLAG("nesterov", nesterov, CVY_OPTION_RESULT, "Nesterov momentum"),
    INT("image-size", NULL, 0, image_size, CVY_MIN_IMAGE_SIZE, CVY_MAX_IMAGE_SIZE, CVY_OPTION_RESULT,
        "side of the square network input"),
    INT_OR("train-crop-size", 0, train_crop_size, CVY_MIN_IMAGE_SIZE, CVY_MAX_IMAGE_SIZE, 0, CVY_OPTION_RESULT,
           "side of the training images where it is not the image size (0: it is)"),
    INT("eval-resize", NULL, 0, eval_resize, 32, 16384, CVY_OPTION_RESULT,
        "shorter side before the centre crop of validation"),
    REAL("min-crop-area", NULL, min_crop_area, 0, 1, "smallest share of the image a training crop takes",
         .above_low = true, .group = CVY_OPTION_RESULT),
    INT("num-classes", NULL, 0, num_classes, 1, 1000000, CVY_OPTION_RESULT, "outputs (default: counted)"),
    REAL("val-split", NULL, val_split, 0, 1, "share of the training images kept for validation", .above_low = true,
         .below_high = true),
    TEXT("val-split-rule", NULL, 0, "NAME", val_split_rule, split_rules, CVY_OPTION_RESULT,
         "which images these are: seed (drawn), path (by a hash of each path: files that are added move none)"),
    TEXT("train-list", NULL, 0, "FILE", train_list, NULL, CVY_OPTION_RUN,
         "training images from a list of path<TAB>label lines, in place of DIR"),
    TEXT("val-list", NULL, 0, "FILE", val_list, NULL, CVY_OPTION_RUN, "validation images from such a list"),
    TEXT("data-idx-dir", NULL, 0, "DIR", data_idx_dir, NULL, CVY_OPTION_RUN,
         "index files of the TFRecords in DIR (default: the records are walked)"),
    {{"seed", NULL, 0, CVY_OPTION_UINT, "N", "of every random number"}, FIELD(seed), .group = CVY_OPTION_RESULT},
    TEXT("model-config", NULL, 'c', "NAME", model_config, model_configs, CVY_OPTION_RESULT,
         "initialisation: fanin, classic, grp-fanin, grp-fanout, tf-fanin, tf-fanout"),
    FLAG("last-bn-0-init", last_bn_0_init, CVY_OPTION_RESULT, "residual branches start at zero"),
    REAL("bn-momentum", NULL, bn_momentum, 0, 1,
         "share of a batch in the running statistics (0: the network's own, 0.1, of ssd320 0.003)",
         .group = CVY_OPTION_RESULT),
    TEXT("padding", NULL, 0, "NAME", padding, paddings, CVY_OPTION_RESULT,
         "torch (the same on every side) or same (TensorFlow's, by what the extent needs)"),
    TEXT("squeeze-width", NULL, 0, "N|c/N", squeeze_width, NULL, CVY_OPTION_RESULT,
         "hidden units of squeeze-and-excitation, or c/N of C channels (default: 16)"),
    FLAG("quantize", quantize, CVY_OPTION_RESULT,
         "learn to be a network of 8-bit integers: quantisation-aware training"),
    FLAG("symmetric", symmetric, CVY_OPTION_RESULT, "with --quantize: levels on both sides of zero, no zero points"),
    FLAG(
        "per-channel", per_channel, CVY_OPTION_RESULT,
        "with --quantize: symmetric, with a scale for each output channel of the weights, as convoy quantize makes it"),
    FLAG("use-qdq", use_qdq, CVY_OPTION_RUN,
         "with --quantize --symmetric: scales only, which is what they do anyway; with --quantize-rule tensorflow no "
         "gradient is cut"),
    TEXT("quantize-rule", NULL, 0, "NAME", quantize_rule, quantize_rules, CVY_OPTION_RESULT,
         "with --quantize: weights are rounded as they are (convoy), or with the batch norms folded into them, and "
         "gradients are cut at the ends of ranges (tensorflow, what that program does)"),
    INT("freeze-bn-delay", NULL, 0, freeze_bn_delay, 0, 1e12, CVY_OPTION_RESULT,
        "with --quantize-rule tensorflow: steps after which batch norms keep their running statistics (0: never)"),
    INT("quant-delay", NULL, 0, quant_delay, 0, 1e6, CVY_OPTION_RESULT,
        "with --quantize: steps before values are rounded; ranges are observed from the first"),
    TEXT("interpolation", NULL, 0, "NAME", interpolation, interpolations, CVY_OPTION_RESULT,
         "of torchvision's and DALI's transforms: bilinear or bicubic (triangular: of DALI's, bilinear)"),
    TEXT("data-backend", NULL, 0, "NAME", data_backend, data_backends, CVY_OPTION_RESULT,
         "pytorch (torchvision's transforms), dali-cpu or dali-gpu (DALI's), tensorflow (those of its program), "
         "tensorflow-dali (DALI's as that program takes them), synthetic (no data)"),
    FLAG("rounded-scale", rounded_scale, CVY_OPTION_RESULT,
         "with DALI's transforms: evaluation stretches the longer side to whole pixels (subpixel_scale=False)"),
    TEXT("decode", NULL, 0, "NAME", decode, decoders, CVY_OPTION_RESULT,
         "exact, fast (training crops from large JPEGs at a lower resolution, by less than a grey level), or gpu: "
         "JPEGs by nvJPEG on the run's GPU"),
    TEXT("sampler", NULL, 0, "NAME", sampler, samplers, CVY_OPTION_RESULT,
         "uniform (each image once an epoch), balanced (each class equally often), pytorch (once, in its order)"),
    TEXT("augmentation", NULL, 0, "NAME", augmentation, augmentations, CVY_OPTION_RESULT,
         "none beyond crop and mirror, autoaugment (the policy for ImageNet), or off: images as in validation"),
    REAL("brightness", NULL, brightness, 0, 1, "training: colours times 1 - X to 1 + X", .group = CVY_OPTION_RESULT),
    REAL("contrast", NULL, contrast, 0, 1, "training: the same for the distance to grey", .group = CVY_OPTION_RESULT),
    REAL("saturation", NULL, saturation, 0, 1, "training: the same for the colours' strength",
         .group = CVY_OPTION_RESULT),
    REAL("hue", NULL, hue, 0, 0.5, "training: colours turned by up to this share of their circle",
         .group = CVY_OPTION_RESULT),
    TEXT("backbone-strides", NULL, 0, "NAME", backbone_strides, backbone_strides, CVY_OPTION_RESULT,
         "detection: where a ResNet halves its maps: slim (TensorFlow's program) or torchvision (v1.5)"),
    FLAG("coco-slots", coco_slots, CVY_OPTION_RESULT,
         "detection: COCO's 90 category ids are the classes, those it leaves out too (default: the classes there are)"),
    TEXT("area-rule", NULL, 0, "NAME", area_rule, area_rules, CVY_OPTION_RESULT,
         "detection: small, medium or large by the annotation or by the box"),
    FLAG("exif-orientation", exif_orientation, CVY_OPTION_RESULT, "turn images as their EXIF data says"),
    FLAG("strict", strict, CVY_OPTION_RESULT, "stop at the first unreadable training image"),
    INT("eval-count", NULL, 0, eval_count, 0, 1000000, CVY_OPTION_RESULT,
        "so many validations, evenly spread over the epochs, the last one after the last (0: after each epoch)"),
    FLAG("training-only", training_only, CVY_OPTION_RESULT, "no validation"),
    FLAG("evaluate", evaluate, CVY_OPTION_RUN, "no training: one validation pass of the model that is started from"),
    FLAG("eval-training-data", eval_training_data, CVY_OPTION_RUN,
         "with --evaluate: the training images, as validation sees them"),
    {{"early-stopping", "early-stopping-patience", 0, CVY_OPTION_INT, "N",
      "stop after N epochs in a row without a better top-1 or AP (-1: never)"},
     FIELD(early_stopping),
     .low = 1,
     .high = 1e6,
     .has_special = true,
     .special = -1,
     .group = CVY_OPTION_RESULT},
    REAL("early-stopping-min-delta", NULL, early_stopping_min_delta, 0, 100, "percent that count as better",
         .group = CVY_OPTION_RESULT),
    INT_OR("prof", 0, prof, 1, 1e9, -1, CVY_OPTION_RESULT, "steps after which each epoch is cut (-1: all)"),
    INT("topk", NULL, 0, topk, 1, 1000, CVY_OPTION_RESULT, "second accuracy"),
    TEXT("precision", NULL, 0, "P", precision, precisions, CVY_OPTION_RESULT,
         "auto, fp32, bf16 (mixed), tf32 or fp16 (mixed; GPUs), fp64 (device ref)"),
    FLAG("amp", amp, CVY_OPTION_RESULT, "mixed precision: fp16 on a GPU, bf16 on a CPU"),
    REAL("static-loss-scale", NULL, static_loss_scale, 0, 1.7e38, "fp16: the first loss scale", .above_low = true,
         .group = CVY_OPTION_RESULT),
    FLAG("dynamic-loss-scale", dynamic_loss_scale, CVY_OPTION_RESULT,
         "fp16: the loss scale grows, too: --loss-scale-rule torch"),
    TEXT("loss-scale-rule", NULL, 0, "NAME", loss_scale_rule, loss_scale_rules, CVY_OPTION_RESULT,
         "how the loss scale moves: torch, torch-fixed, tensorflow, apex, fp16-utils, static (default: torch with "
         "fp16)"),
    TEXT("device", NULL, 0, "D", device, NULL, CVY_OPTION_RESULT, "auto, cpu, cuda, cuda:1, ref, check:cpu"),
    TEXT("deterministic", NULL, 0, "WORD", deterministic, orders, CVY_OPTION_RESULT,
         "of a GPU: whether results may differ from run to run: yes: none may; sums: those of batch norms; no: any "
         "(default: yes)"),
    INT_OR("threads", 0, threads, 1, 4096, 0, CVY_OPTION_RESULT, "compute threads (0: all cores)"),
    INT_OR("workers", 'j', workers, 1, 1024, -1, CVY_OPTION_RUN, "decoding threads (-1: one for each core)"),
    FLAG("ram-cache", ram_cache, CVY_OPTION_RUN, "keep the images' files in memory as they are first read"),
    INT("prefetch", NULL, 0, prefetch, 1, 1024, CVY_OPTION_RUN, "batches made ahead"),
    FLAG("sync-bn", sync_bn, CVY_OPTION_RESULT,
         "of several processes: their batches count as one, for batch norm and a detector's losses"),
    TEXT("gradient-compression", NULL, 0, "TYPE", gradient_compression, compressions, CVY_OPTION_RESULT,
         "of several processes: how gradients go from one to the next: none (fp32), bf16 or fp16"),
    TEXT("running-statistics", NULL, 0, "RULE", running_statistics, statistics_rules, CVY_OPTION_RESULT,
         "of several processes: each validates with those of rank0 or with its own; rank 0's are saved"),
    INT("comm-timeout", NULL, 0, comm_timeout, 1, 86400, CVY_OPTION_RUN,
        "of several processes: seconds that one waits for the others before all end with an error"),
    INT_OR("run-epochs", 0, run_epochs, 1, 1e6, -1, CVY_OPTION_RUN, "epochs of this run (-1: until the end)"),
    INT_OR("run-steps", 0, run_steps, 1, 1e12, -1, CVY_OPTION_RUN, "optimizer steps of this run (-1: until the end)"),
    INT("print-freq", NULL, 'p', print_freq, 1, 1e9, CVY_OPTION_RUN, "steps between records of the report"),
    INT_OR("checkpoint-every", 0, checkpoint_every, 1, 1e9, 0, CVY_OPTION_RUN, "steps between checkpoints (0: epochs)"),
    INT_OR("gather-checkpoints", 0, gather_checkpoints, 0, 1e6, -1, CVY_OPTION_RUN,
           "keep checkpoint_<epoch>.safetensors of the last N epochs (0: none, -1: all)"),
    TEXT("checkpoint-filename", "checkpoint", 0, "NAME", checkpoint_filename, NULL, CVY_OPTION_RUN,
         "the checkpoint under this name too, in the run directory"),
    FLAG("no-checkpoints", no_checkpoints, CVY_OPTION_RUN, "write no weights"),
    TEXT("pretrained-weights", NULL, 0, "FILE", pretrained_weights, NULL, CVY_OPTION_RUN,
         "start from the weights of a file instead of random ones"),
    FLAG("reset-head", reset_head, CVY_OPTION_RUN, "start a new classifier fc, whatever the file has"),
    TEXT("freeze", NULL, 0, "PREFIX,...", freeze, NULL, CVY_OPTION_RESULT,
         "parameters under these prefixes keep their values: conv1,bn1,layer1"),
    TEXT("workspace", NULL, 0, "DIR", workspace, NULL, CVY_OPTION_RUN,
         "the run directory (default: a new one in runs)"),
    TEXT("resume", NULL, 0, "FILE|RUNDIR", resume, NULL, CVY_OPTION_RUN, "continue from a checkpoint"),
    TEXT("raport-file", NULL, 0, "FILE", raport_file, NULL, CVY_OPTION_RUN, "JSON report inside the run directory"),
    TEXT("log-every-step", NULL, 0, "FILE", log_every_step, NULL, CVY_OPTION_RUN, "CSV of epoch,step,loss,lr"),
};
enum { ROW_COUNT = sizeof rows / sizeof rows[0] };
_Static_assert(ROW_COUNT <= sizeof(((struct cvy_train_options *)0)->source), "one source for each option");

const struct cvy_option_row *cvy_option_row_at(size_t index)
{
    return index < ROW_COUNT ? &rows[index] : NULL;
}

void cvy_train_options_init(struct cvy_train_options *options)
{
    if (!options)
        return;
    *options = (struct cvy_train_options){
        .arch = "resnet50",
        .device = "auto",
        .precision = "auto",
        .data_backend = "pytorch",
        .model_config = "fanin",
        .lr_schedule = "step",
        .lr_unit = "epoch",
        .optimizer = "sgd",
        .weight_decay_rule = "name",
        .best_of = "val",
        .decode = "exact",
        .gradient_compression = "none",
        .running_statistics = "rank0",
        .interpolation = "bilinear",
        .sampler = "uniform",
        .augmentation = "none",
        .loss_scale_rule = "auto",
        .quantize_rule = "convoy",
        .static_loss_scale = 1,
        .padding = "torch",
        .val_split_rule = "seed",
        .ema_rule = "batch",
        .mixup_rule = "torch",
        .last_batch = "drop",
        .class_weights = "none",
        .val_loss = "plain",
        .area_rule = "annotation",
        .backbone_strides = "slim",
        .raport_file = "experiment_raport.json",
        .workers = -1,
        .prefetch = CVY_PREFETCH,
        .comm_timeout = 300,
        .epochs = 90,
        .optimizer_batch_size = -1,
        .early_stopping = -1,
        .lr_decay_epochs = 1,
        .rmsprop_alpha = 0.9,
        .lars_eta = 1e-3,
        .rmsprop_eps = 1e-3,
        .run_epochs = -1,
        .run_steps = -1,
        .batch_size = 256,
        .print_freq = 10,
        .prof = -1,
        .topk = 5,
        .lr = 0.1,
        .momentum = 0.9,
        .weight_decay = 1e-4,
        .min_crop_area = 0.08,
    };
}
