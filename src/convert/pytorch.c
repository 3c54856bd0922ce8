/* .pth and .pt: a bare state dict. .pth.tar: the checkpoint of NVIDIA's training programs. */
#include <string.h>

#include "base/error.h"
#include "convert/convert.h"
#include "formats/weights/pytorch_write.h"

/* ---- numbers of the training: Convoy's own, else those of a PyTorch checkpoint ---- */

static double option(const struct cvy_conversion *c, const char *name, const char *key, double otherwise)
{
    double value = otherwise;

    if (c->info.options && cvy_json_get(c->info.options, name))
        return cvy_json_get_number(c->info.options, name, otherwise);
    return cvy_convert_number(c, key, &value) ? value : otherwise;
}

static void put_progress(struct cvy_conversion *c, struct cvy_pytorch_writer *w)
{
    double epoch = (double)c->info.state.epoch, best = c->info.state.best_score;

    if (c->info.has_state || cvy_convert_number(c, "pytorch.epoch", &epoch)) {
        cvy_pytorch_put_text(w, "epoch"); /* the next one */
        cvy_pytorch_put_int(w, epoch > -1e9 && epoch < 1e9 ? (int64_t)epoch : 0);
    }
    if (c->info.has_state || cvy_convert_number(c, "pytorch.best_prec1", &best)) {
        cvy_pytorch_put_text(w, "best_prec1");
        cvy_pytorch_put_float(w, best);
    }
}

/* ---- the optimizer ---- */

static void put_real(struct cvy_pytorch_writer *w, const char *key, double value)
{
    cvy_pytorch_put_text(w, key);
    cvy_pytorch_put_float(w, value);
}

/* A parameter group of `count` parameters from number `first` on. */
static void put_group(struct cvy_conversion *c, struct cvy_pytorch_writer *w, int64_t first, int64_t count,
                      double weight_decay)
{
    cvy_pytorch_begin_dict(w);
    put_real(w, "lr", option(c, "lr", "pytorch.lr", 0.1));
    put_real(w, "momentum", option(c, "momentum", "pytorch.momentum", 0.9));
    put_real(w, "weight_decay", weight_decay);
    if (c->squares.count > 0) { /* RMSprop's */
        put_real(w, "alpha", option(c, "rmsprop-alpha", "pytorch.alpha", 0.9));
        put_real(w, "eps", option(c, "rmsprop-eps", "pytorch.eps", 1e-3));
        cvy_pytorch_put_text(w, "centered");
        cvy_pytorch_put_bool(w, false);
    } else {
        put_real(w, "dampening", 0);
        cvy_pytorch_put_text(w, "nesterov");
        cvy_pytorch_put_bool(w, c->info.options && cvy_json_get_bool(c->info.options, "nesterov", false));
    }
    cvy_pytorch_put_text(w, "params");
    cvy_pytorch_begin_list(w);
    for (int64_t i = 0; i < count; i++)
        cvy_pytorch_put_int(w, first + i);
    cvy_pytorch_end_list(w);
    cvy_pytorch_end_dict(w);
}

/* What the optimizer keeps for one parameter. */
static void put_state_of(struct cvy_conversion *c, struct cvy_pytorch_writer *w, int64_t number, size_t tensor)
{
    cvy_pytorch_put_int(w, number);
    cvy_pytorch_begin_dict(w);
    if (c->squares.count > 0) {
        cvy_pytorch_put_text(w, "step");
        cvy_pytorch_put_int(w, c->info.state.step);
        cvy_pytorch_put_text(w, "square_avg");
        cvy_pytorch_put_tensor(w, &c->squares.tensors[tensor]);
    }
    cvy_pytorch_put_text(w, "momentum_buffer");
    cvy_pytorch_put_tensor(w, &c->momentum.tensors[tensor]);
    cvy_pytorch_end_dict(w);
}

/* One group of all parameters: they all decay. */
static bool decays_all(const struct cvy_conversion *c)
{
    const struct cvy_json_value *options = c->info.options;

    return options && (cvy_json_get_bool(options, "bn-weight-decay", false) ||
                       strcmp(cvy_json_get_string(options, "weight-decay-rule", ""), "all") == 0);
}

/* The optimizer's state_dict() in the order of NVIDIA's programs: parameters with "bn" in their names are the first
 * group, which is not decayed, unless all are. The reader takes this order apart again. */
static void put_optimizer(struct cvy_conversion *c, struct cvy_pytorch_writer *w)
{
    const bool one_group = decays_all(c);
    const double weight_decay = option(c, "weight-decay", "pytorch.weight_decay", 0);
    int64_t number = 0, first_group = 0;

    cvy_pytorch_put_text(w, "optimizer");
    cvy_pytorch_begin_dict(w);
    cvy_pytorch_put_text(w, "state");
    cvy_pytorch_begin_dict(w);
    for (int pass = one_group; pass < 2; pass++) {
        for (size_t i = 0; i < c->momentum.count; i++) {
            const struct cvy_named_tensor *tensor = &c->momentum.tensors[i];

            if (!one_group && (strstr(tensor->name, "bn") != NULL) != (pass == 0))
                continue;
            put_state_of(c, w, number++, i);
        }
        if (pass == 0)
            first_group = number;
    }
    cvy_pytorch_end_dict(w);
    cvy_pytorch_put_text(w, "param_groups");
    cvy_pytorch_begin_list(w);
    if (!one_group)
        put_group(c, w, 0, first_group, 0);
    put_group(c, w, first_group, number - first_group, weight_decay);
    cvy_pytorch_end_list(w);
    cvy_pytorch_end_dict(w);
}

/* ---- files ---- */

static void put_state(struct cvy_pytorch_writer *w, const struct cvy_tensor_list *list)
{
    cvy_pytorch_begin_ordered_dict(w);
    for (size_t i = 0; i < list->count; i++)
        cvy_pytorch_put_named(w, &list->tensors[i]);
    cvy_pytorch_end_dict(w);
}

static cvy_status write_file(struct cvy_conversion *c, bool training)
{
    struct cvy_pytorch_writer w = {0};
    struct cvy_tensor_meta *metadata = NULL;
    size_t count = 0;

    CVY_TRY(cvy_convert_metadata(c, training, "convoy.", &metadata, &count));
    CVY_TRY(cvy_convert_names(c, &c->weights, ""));
    CVY_TRY(cvy_convert_names(c, &c->average, ""));
    CVY_TRY(cvy_convert_names(c, &c->momentum, "")); /* for the shapes */
    CVY_TRY(cvy_convert_names(c, &c->squares, ""));
    CVY_TRY(cvy_pytorch_create(&w, c->options->output));
    w.source = &c->file;
    w.source_name = c->options->input;
    if (training) {
        cvy_pytorch_begin_dict(&w);
        put_progress(c, &w);
        cvy_pytorch_put_text(&w, "arch");
        cvy_pytorch_put_text(&w, c->architecture->name);
        cvy_pytorch_put_text(&w, "state_dict");
    }
    put_state(&w, &c->weights);
    if (training && c->average.count > 0) {
        cvy_pytorch_put_text(&w, "state_dict_ema");
        put_state(&w, &c->average);
    }
    if (training && c->momentum.count > 0)
        put_optimizer(c, &w);
    if (training)
        cvy_pytorch_end_dict(&w);
    return cvy_pytorch_commit(&w, metadata, count);
}

cvy_status cvy_convert_pth(struct cvy_conversion *c)
{
    c->average.count = c->momentum.count = c->squares.count = 0;
    return write_file(c, false);
}

cvy_status cvy_convert_pth_tar(struct cvy_conversion *c)
{
    return write_file(c, !c->options->ema && !c->options->weights_only);
}
