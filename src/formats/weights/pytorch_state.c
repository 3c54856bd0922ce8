/* Finds the weights in a saved object: a bare state dict, or one inside a training checkpoint. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/utf8.h"
#include "formats/weights/pytorch_internal.h"

typedef const struct cvy_pickle_value value;

/* Keys of training checkpoints: NVIDIA's and timm's programs; torchvision's; others. */
static const char *const model_keys[] = {"state_dict", "model", "model_state_dict"};
static const char *const average_keys[] = {"state_dict_ema", "model_ema", "ema_state_dict"};
static const char *const best_keys[] = {"best_prec1", "best_acc1", "metric"};
enum {
    MODEL_KEYS = sizeof model_keys / sizeof *model_keys,
    AVERAGE_KEYS = sizeof average_keys / sizeof *average_keys,
    BEST_KEYS = sizeof best_keys / sizeof *best_keys,
    MAX_EXTRAS = 64, /* texts stored next to the weights */
    MAX_STATES = 64, /* keys and values of one parameter's state in an optimizer */
};

/* A dictionary with at least one tensor. */
static bool is_state(value *v)
{
    for (uint32_t i = 1; cvy_pickle_is(v, CVY_PICKLE_DICT) && i < v->list.count; i += 2)
        if (cvy_pytorch_is_tensor(v->list.items[i]))
            return true;
    return false;
}

static value *find_key(value *root, const char *const *keys, int count)
{
    for (int i = 0; i < count; i++)
        if (is_state(cvy_pickle_get(root, keys[i])))
            return cvy_pickle_get(root, keys[i]);
    return NULL;
}

/* ---- names ---- */

/* What DistributedDataParallel, averages and torch.compile put before the name of every tensor. */
static const char *strip(const char *name)
{
    static const char *const wrappers[] = {"module.", "_orig_mod."};

    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (!strncmp(name, wrappers[i], strlen(wrappers[i]))) {
            name += strlen(wrappers[i]);
            i = (size_t)-1; /* from the first again */
        }
    return name;
}

/* Text that may be a name: UTF-8 without control characters. */
static bool is_name(value *key)
{
    const char *text = cvy_pickle_text(key);
    uint32_t code;

    for (size_t at = 0, bytes; text && at < key->text.length; at += bytes) {
        bytes = cvy_utf8_sequence(text + at, key->text.length - at, &code);
        if (bytes == 0 || code < ' ' || code == 0x7f)
            return false;
    }
    return text && strip(text)[0];
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool is_trainable(const char *name)
{
    return !ends_with(name, ".running_mean") && !ends_with(name, ".running_var") &&
           !ends_with(name, ".num_batches_tracked");
}

/* ---- tensors ---- */

/* Room for `count` more tensors in the table. */
static cvy_status reserve(struct cvy_pytorch_reader *r, size_t count)
{
    struct cvy_tensor_file *file = r->file;
    const size_t bytes = (file->tensor_count + count) * sizeof *file->tensors;
    struct cvy_named_tensor *table;

    CVY_TRY(cvy_pytorch_count_bytes(r, bytes));
    table = cvy_arena_alloc(&file->arena, bytes);
    if (!table)
        return cvy_fail_memory(bytes, "the tensor table");
    if (file->tensor_count > 0)
        memcpy(table, file->tensors, file->tensor_count * sizeof *table);
    file->tensors = table;
    return CVY_OK;
}

/* "<prefix><text>" in the file's arena. `whole`: the bytes of the text with what was stripped, so that the time for it
 * is counted too: many tensors may share one long key. */
static cvy_status make_name(struct cvy_pytorch_reader *r, const char *prefix, const char *text, size_t whole,
                            const char **name)
{
    enum { ROUNDED_UP = 32 };

    CVY_TRY(cvy_pytorch_count_bytes(r, strlen(prefix) + whole + ROUNDED_UP));
    *name = cvy_arena_printf(&r->file->arena, "%s%s", prefix, text);
    return *name ? CVY_OK : cvy_fail_memory(whole, "a tensor name");
}

/* Every tensor of a state dict, with `prefix` before its name. */
static cvy_status add_state(struct cvy_pytorch_reader *r, value *state, const char *prefix)
{
    struct cvy_tensor_file *file = r->file;

    CVY_TRY(reserve(r, state->list.count / 2));
    for (uint32_t i = 0; i + 1 < state->list.count; i += 2) {
        value *key = state->list.items[i];
        const char *name = NULL;

        if (!is_name(key))
            return cvy_fail(CVY_BAD_DATA, "%s: a key of its state dict is not a name%s%s", cvy_quote(r->what),
                            key->kind == CVY_PICKLE_TEXT ? ": " : "",
                            key->kind == CVY_PICKLE_TEXT ? cvy_quote(key->text.bytes) : "");
        if (strcmp(cvy_pickle_text(key), "n_averaged") == 0) /* PyTorch's AveragedModel counts its steps */
            continue;
        CVY_TRY(make_name(r, prefix, strip(cvy_pickle_text(key)), key->text.length, &name));
        if (!cvy_pytorch_is_tensor(state->list.items[i + 1]))
            return cvy_fail(CVY_BAD_DATA, "%s: entry %s of its state dict is not a tensor", cvy_quote(r->what),
                            cvy_quote(name));
        CVY_TRY(cvy_pytorch_tensor(r, name, state->list.items[i + 1], &file->tensors[file->tensor_count]));
        file->tensor_count++;
    }
    return CVY_OK;
}

/* ---- the optimizer ---- */

/* Parameters have numbers there. One group: in the order of the model; two: NVIDIA's programs put those with "bn" in
 * their names before it. */
static bool comes(const char *name, size_t pass, size_t groups)
{
    return is_trainable(name) && (groups == 1 || (strstr(name, "bn") != NULL) == (pass == 0));
}

/* list[n] is what the optimizer keeps under `key` for parameter n of `count`; NULL: nothing. Looked up in one go, for a
 * hostile optimizer may have as many states as the model has tensors, all of them one large dictionary. */
static void list_states(value *optimizer, const char *key, value **list, size_t count)
{
    value *state = cvy_pickle_get(optimizer, "state");

    for (uint32_t i = 0; cvy_pickle_is(state, CVY_PICKLE_DICT) && i + 1 < state->list.count; i += 2) {
        value *number = state->list.items[i], *entry = state->list.items[i + 1];

        if (number->kind == CVY_PICKLE_INT && number->integer >= 0 && (uint64_t)number->integer < count &&
            cvy_pickle_is(entry, CVY_PICKLE_DICT) && entry->list.count <= MAX_STATES)
            list[number->integer] = cvy_pickle_get(entry, key);
    }
}

/* Whether it keeps such a thing at all: what the first state lacks is not complete, and needs no room. */
static bool keeps_states(value *optimizer, const char *key)
{
    value *state = cvy_pickle_get(optimizer, "state");

    return cvy_pickle_is(state, CVY_PICKLE_DICT) && state->list.count >= 2 &&
           cvy_pickle_is(state->list.items[1], CVY_PICKLE_DICT) && state->list.items[1]->list.count <= MAX_STATES &&
           cvy_pickle_get(state->list.items[1], key) != NULL;
}

/* What is kept for the parameters of one group. *fits becomes false when one has nothing or another shape. */
static cvy_status add_group(struct cvy_pytorch_reader *r, value *const *states, const char *prefix, size_t *number,
                            size_t pass, size_t passes, size_t model_count, bool *fits)
{
    struct cvy_tensor_file *file = r->file;

    for (size_t i = 0; i < model_count && *fits; i++) {
        const struct cvy_named_tensor *parameter = &file->tensors[i];
        struct cvy_named_tensor *tensor = &file->tensors[file->tensor_count];
        const char *name = NULL;
        value *v;

        if (!comes(parameter->name, pass, passes))
            continue;
        v = states[(*number)++];
        *fits = cvy_pytorch_is_tensor(v);
        if (!*fits)
            continue;
        CVY_TRY(make_name(r, prefix, parameter->name, strlen(parameter->name), &name));
        CVY_TRY(cvy_pytorch_tensor(r, name, v, tensor));
        *fits = cvy_shape_equal(&tensor->shape, &parameter->shape);
        file->tensor_count++;
    }
    return CVY_OK;
}

/* What the optimizer keeps under `key` (momentum, RMSprop's averages of squares), under the names of the parameters,
 * when every one has it in the shape of its parameter; else none: it only matters to a training that continues. */
static cvy_status add_optimizer(struct cvy_pytorch_reader *r, value *optimizer, const char *key, const char *prefix,
                                size_t model_count)
{
    struct cvy_tensor_file *file = r->file;
    value *groups = cvy_pickle_get(optimizer, "param_groups"), **states;
    const size_t before = file->tensor_count, passes = cvy_pickle_is(groups, CVY_PICKLE_LIST) ? groups->list.count : 0;
    size_t number = 0;
    bool fits = true;
    cvy_status status;

    if (passes < 1 || passes > 2 || !keeps_states(optimizer, key))
        return CVY_OK;
    CVY_TRY(cvy_pytorch_count_bytes(r, model_count * sizeof *states));
    CVY_TRY(reserve(r, model_count));
    states = cvy_calloc(model_count, sizeof *states);
    if (!states)
        return cvy_fail_memory(model_count * sizeof *states, "the optimizer's list");
    list_states(optimizer, key, states, model_count);
    for (size_t pass = 0; pass < passes && fits; pass++)
        CVY_GOTO(add_group(r, states, prefix, &number, pass, passes, model_count, &fits));
    if (!fits)
        file->tensor_count = before;
    status = CVY_OK;
fail:
    cvy_free(states);
    return status;
}

/* ---- what stands beside ---- */

static cvy_status add_metadata(struct cvy_pytorch_reader *r, const char *key, const char *text)
{
    struct cvy_tensor_file *file = r->file;

    if (!text)
        return cvy_fail_memory(strlen(key), "metadata");
    file->metadata[file->metadata_count++] = (struct cvy_tensor_meta){key, text};
    return CVY_OK;
}

static cvy_status add_number(struct cvy_pytorch_reader *r, const char *key, value *v)
{
    char text[32];

    if (cvy_pickle_is(v, CVY_PICKLE_INT))
        return add_metadata(r, key, cvy_arena_printf(&r->file->arena, "%lld", (long long)v->integer));
    if (!cvy_pickle_is(v, CVY_PICKLE_FLOAT) || !isfinite(v->number))
        return CVY_OK;
    return add_metadata(r, key, cvy_arena_strdup(&r->file->arena, cvy_double_text(v->number, text)));
}

/* A name, or NVIDIA's pair of a name and a configuration. */
static cvy_status add_arch(struct cvy_pytorch_reader *r, value *v)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    cvy_status status = CVY_OK;

    if (cvy_pickle_is(v, CVY_PICKLE_TUPLE))
        v = cvy_pickle_item(v, 0);
    if (!cvy_pickle_text(v))
        return CVY_OK;
    cvy_json_string(&json, cvy_pickle_text(v));
    if (!text.failed)
        status = add_metadata(r, "pytorch.arch", cvy_arena_strdup(&r->file->arena, text.text));
    else
        status = cvy_fail_memory(text.capacity, "metadata");
    cvy_text_release(&text);
    return status;
}

static value *find_best(value *root)
{
    for (int i = 0; i < BEST_KEYS; i++)
        if (cvy_pickle_get(root, best_keys[i]))
            return cvy_pickle_get(root, best_keys[i]);
    return NULL;
}

/* What Convoy has not already said in its own words. */
static cvy_status add_scalars(struct cvy_pytorch_reader *r, value *root)
{
    const struct cvy_tensor_file *file = r->file;
    value *groups = cvy_pickle_get(cvy_pickle_get(root, "optimizer"), "param_groups");
    value *group = cvy_pickle_is(groups, CVY_PICKLE_LIST) && groups->list.count > 0
                       ? groups->list.items[groups->list.count - 1]
                       : NULL;

    if (!cvy_tensor_metadata(file, "convoy.arch"))
        CVY_TRY(add_arch(r, cvy_pickle_get(root, "arch")));
    if (!cvy_tensor_metadata(file, "convoy.state")) {
        CVY_TRY(add_number(r, "pytorch.epoch", cvy_pickle_get(root, "epoch")));
        CVY_TRY(add_number(r, "pytorch.best_prec1", find_best(root)));
    }
    if (cvy_tensor_metadata(file, "convoy.options"))
        return CVY_OK;
    CVY_TRY(add_number(r, "pytorch.lr", cvy_pickle_get(group, "lr")));
    CVY_TRY(add_number(r, "pytorch.momentum", cvy_pickle_get(group, "momentum")));
    CVY_TRY(add_number(r, "pytorch.alpha", cvy_pickle_get(group, "alpha")));
    CVY_TRY(add_number(r, "pytorch.eps", cvy_pickle_get(group, "eps")));
    return add_number(r, "pytorch.weight_decay", cvy_pickle_get(group, "weight_decay"));
}

static cvy_status add_extra(struct cvy_pytorch_reader *r, const struct cvy_zip_member *member, size_t folder)
{
    struct cvy_arena *arena = &r->file->arena;
    const char *key;

    CVY_TRY(cvy_pytorch_count_bytes(r, member->name_length + member->size));
    key = cvy_arena_printf(arena, "%.*s", (int)(member->name_length - folder), member->name + folder);
    if (!key)
        return cvy_fail_memory(member->name_length, "the name of a text");
    if (member->size > INT32_MAX || memchr(member->data, 0, member->size))
        return cvy_fail(CVY_BAD_DATA, "%s: the text %s beside the weights has a zero byte", cvy_quote(r->what),
                        cvy_quote(key));
    r->used[member - r->zip.members] = 1;
    return add_metadata(r, key, cvy_arena_printf(arena, "%.*s", (int)member->size, (const char *)member->data));
}

/* Texts in the folder "extra" whose names begin with "convoy.", in the order of the file: see pytorch_write.h. */
static cvy_status add_extras(struct cvy_pytorch_reader *r)
{
    const char *folder = cvy_arena_printf(&r->file->arena, "%s/extra/convoy.", r->root);
    const struct cvy_zip_member *found[MAX_EXTRAS];
    size_t count = 0;

    if (!folder)
        return cvy_fail_memory(strlen(r->root), "the name of a folder");
    for (size_t i = 0; i < r->zip.count && count < MAX_EXTRAS; i++) {
        const struct cvy_zip_member *member = &r->zip.members[i];
        size_t at;

        if (member->name_length <= strlen(folder) || memcmp(member->name, folder, strlen(folder)) != 0)
            continue;
        for (at = count++; at > 0 && found[at - 1]->begin > member->begin; at--)
            found[at] = found[at - 1];
        found[at] = member;
    }
    for (size_t i = 0; i < count; i++)
        CVY_TRY(add_extra(r, found[i], strlen(folder) - strlen("convoy.")));
    return CVY_OK;
}

/* ---- all of it ---- */

static cvy_status no_state(const struct cvy_pytorch_reader *r, value *root)
{
    if (cvy_pytorch_is_tensor(root))
        return cvy_fail(CVY_BAD_DATA, "%s holds a single tensor, not a state dict", cvy_quote(r->what));
    return cvy_fail(CVY_BAD_DATA,
                    "%s holds no state dict: there are no tensors at its top, nor under \"state_dict\" or "
                    "\"model\"",
                    cvy_quote(r->what));
}

cvy_status cvy_pytorch_find_state(struct cvy_pytorch_reader *r, value *root)
{
    enum { SCALARS = 8 };
    value *model = find_key(root, model_keys, MODEL_KEYS), *average = find_key(root, average_keys, AVERAGE_KEYS);
    size_t model_count;

    r->file->metadata = cvy_arena_alloc(&r->file->arena, (SCALARS + MAX_EXTRAS) * sizeof *r->file->metadata);
    if (!r->file->metadata)
        return cvy_fail_memory((SCALARS + MAX_EXTRAS) * sizeof *r->file->metadata, "metadata");
    CVY_TRY(add_extras(r));
    if (!model && is_state(root))
        return add_state(r, root, "");
    if (!model && average) { /* the average alone is as good as any */
        model = average;
        average = NULL;
    }
    if (!model)
        return no_state(r, root);
    CVY_TRY(add_state(r, model, ""));
    model_count = r->file->tensor_count;
    if (average)
        CVY_TRY(add_state(r, average, CVY_EMA_PREFIX));
    CVY_TRY(add_optimizer(r, cvy_pickle_get(root, "optimizer"), "momentum_buffer", CVY_MOMENTUM_PREFIX, model_count));
    CVY_TRY(add_optimizer(r, cvy_pickle_get(root, "optimizer"), "square_avg", CVY_SQUARE_PREFIX, model_count));
    return add_scalars(r, root);
}
