/* What the options of a training hold: programs see them by name (convoy/train.h). */
#ifndef CVY_OPTIONS_TRAIN_OPTIONS_H
#define CVY_OPTIONS_TRAIN_OPTIONS_H

#include "convoy/train.h"

/* All options of a training run. Filled by cvy_train_options_init(), changed by cvy_train_options_set(). Field names
 * are the option names with underscores. */
struct cvy_train_options {
    char data[CVY_PATH_MAX];
    char arch[64], recipe[CVY_PATH_MAX], device[64], precision[16], data_backend[16], model_config[16];
    char lr_schedule[16], optimizer[16], interpolation[16], sampler[16], augmentation[16], padding[16],
        squeeze_width[16];
    char pretrained_weights[CVY_PATH_MAX], freeze[CVY_PATH_MAX], train_list[CVY_PATH_MAX], val_list[CVY_PATH_MAX];
    char data_idx_dir[CVY_PATH_MAX];
    char workspace[CVY_PATH_MAX], resume[CVY_PATH_MAX], raport_file[CVY_PATH_MAX], log_every_step[CVY_PATH_MAX];
    int64_t workers, prefetch, threads, epochs, run_epochs, batch_size, image_size, train_crop_size /* 0: image_size */,
        eval_resize, num_classes;
    int64_t warmup, print_freq, checkpoint_every, prof, topk;
    uint64_t seed;
    double bn_momentum; /* 0: the architecture's */
    double lr, head_lr /* 0: lr */, end_lr, label_smoothing, momentum, weight_decay, val_split, min_crop_area;
    bool nesterov, bn_weight_decay, training_only, no_checkpoints, last_bn_0_init, strict, exif_orientation, reset_head;
    bool amp, dynamic_loss_scale, quantize, symmetric, per_channel, use_qdq;
    int64_t quant_delay;
    char lr_unit[16], weight_decay_rule[16], best_of[16];
    int64_t optimizer_batch_size /* -1: one batch */, lr_decay_epochs;
    int64_t early_stopping /* -1: off */, gather_checkpoints /* -1: all */;
    double lr_per_256 /* 0: lr counts */, lr_decay /* 0: chosen */, rmsprop_alpha, rmsprop_eps, use_ema /* 0: off */;
    double early_stopping_min_delta;
    bool evaluate;
    bool ram_cache;
    int64_t steps /* 0: epochs count */, warmup_steps, eval_count /* 0: after every epoch */;
    double warmup_lr;
    double brightness, contrast, saturation, hue; /* detection only: how far colours are changed */
    char area_rule[16], backbone_strides[16], decode[16];
    bool coco_slots;
    bool rounded_scale;
    double static_loss_scale;
    char loss_scale_rule[16];
    double mixup;            /* alpha; 0: off */
    char val_split_rule[16]; /* "seed" or "path" */
    char ema_rule[16];       /* batch or step */
    char mixup_rule[16], val_loss[16], class_weights[CVY_PATH_MAX] /* none, balanced, NAME=W,... or a file */;
    bool sync_bn;
    char gradient_compression[8], running_statistics[8], deterministic[8];
    double lars_eta;
    int64_t precise_bn /* 0: running statistics are those of the steps */;
    int64_t rewinds /* 0: a training that diverges does not go back */;
    int64_t comm_timeout;          /* seconds */
    int64_t schedule_steps;        /* 0: steps */
    char checkpoint_filename[128]; /* "": none */
    bool eval_training_data;       /* with evaluate: of the training images */
    char quantize_rule[16];        /* "convoy" or "tensorflow" */
    int64_t freeze_bn_delay;       /* 0: never */
    char last_batch[16];           /* drop or partial */
    int64_t run_steps;             /* -1: as many as run_epochs has */
    unsigned char source[160];     /* enum cvy_option_source by index of the option table */
};

/* The reference program's defaults (doc/training.md), every source CVY_FROM_DEFAULT. */
void cvy_train_options_init(struct cvy_train_options *options);

#endif
