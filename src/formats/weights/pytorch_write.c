#include "formats/weights/pytorch_write.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define ROOT "archive" /* the folder of all members; PyTorch takes any */

static const char *const storages[CVY_DTYPE_COUNT] = {
    [CVY_F32] = "FloatStorage",     [CVY_F64] = "DoubleStorage", [CVY_F16] = "HalfStorage",
    [CVY_BF16] = "BFloat16Storage", [CVY_U8] = "ByteStorage",    [CVY_I8] = "CharStorage",
    [CVY_I32] = "IntStorage",       [CVY_I64] = "LongStorage",   [CVY_BOOL] = "BoolStorage",
};

/* Instructions of the pickle machine, protocol 2. */
enum {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    GLOBAL = 'c',
    REDUCE = 'R',
    PERSISTENT = 'Q',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    EMPTY_TUPLE = ')',
    TUPLE = 't',
    SET_ITEMS = 'u',
    APPENDS = 'e',
    TEXT = 'X',
    INT = 'J',
    INT_1 = 'K',
    INT_2 = 'M',
    LONG_1 = 0x8a,
    FLOAT = 'G',
    TRUE = 0x88,
    FALSE = 0x89,
};

/* ---- bytes ---- */

static void put(struct cvy_pytorch_writer *w, unsigned char code)
{
    cvy_text_append(&w->pickle, &code, 1);
}

static void put_number(struct cvy_pytorch_writer *w, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        put(w, (unsigned char)(value >> (8 * i)));
}

static void put_global(struct cvy_pytorch_writer *w, const char *module, const char *name)
{
    put(w, GLOBAL);
    cvy_text_printf(&w->pickle, "%s\n%s\n", module, name);
}

/* ---- values ---- */

void cvy_pytorch_begin_dict(struct cvy_pytorch_writer *w)
{
    put(w, EMPTY_DICT);
    put(w, MARK);
}

static void put_ordered_dict(struct cvy_pytorch_writer *w)
{
    put_global(w, "collections", "OrderedDict");
    put(w, EMPTY_TUPLE);
    put(w, REDUCE);
}

void cvy_pytorch_begin_ordered_dict(struct cvy_pytorch_writer *w)
{
    put_ordered_dict(w);
    put(w, MARK);
}

void cvy_pytorch_end_dict(struct cvy_pytorch_writer *w)
{
    put(w, SET_ITEMS);
}

void cvy_pytorch_begin_list(struct cvy_pytorch_writer *w)
{
    put(w, EMPTY_LIST);
    put(w, MARK);
}

void cvy_pytorch_end_list(struct cvy_pytorch_writer *w)
{
    put(w, APPENDS);
}

void cvy_pytorch_put_text(struct cvy_pytorch_writer *w, const char *text)
{
    put(w, TEXT);
    put_number(w, strlen(text), 4);
    cvy_text_puts(&w->pickle, text);
}

void cvy_pytorch_put_int(struct cvy_pytorch_writer *w, int64_t value)
{
    if (value >= 0 && value < 1 << 8) {
        put(w, INT_1);
        put_number(w, (uint64_t)value, 1);
    } else if (value >= 0 && value < 1 << 16) {
        put(w, INT_2);
        put_number(w, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put(w, INT);
        put_number(w, (uint64_t)value, 4);
    } else {
        put(w, LONG_1);
        put(w, 8);
        put_number(w, (uint64_t)value, 8);
    }
}

void cvy_pytorch_put_float(struct cvy_pytorch_writer *w, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    put(w, FLOAT);
    for (int i = 7; i >= 0; i--)
        put(w, (unsigned char)(bits >> (8 * i)));
}

void cvy_pytorch_put_bool(struct cvy_pytorch_writer *w, bool value)
{
    put(w, value ? TRUE : FALSE);
}

/* ---- tensors ---- */

static bool remember(struct cvy_pytorch_writer *w, const struct cvy_named_tensor *tensor)
{
    if (w->storage_count == w->storage_capacity) {
        const size_t budget = w->storage_capacity ? 2 * w->storage_capacity : 256;
        const struct cvy_named_tensor **larger = cvy_realloc(w->storages, budget, sizeof *larger);

        if (!larger)
            return false;
        w->storages = larger;
        w->storage_capacity = budget;
    }
    w->storages[w->storage_count++] = tensor;
    return true;
}

/* ("storage", class, key, device, elements) */
static void put_storage(struct cvy_pytorch_writer *w, enum cvy_dtype dtype, size_t key, int64_t elements)
{
    char text[24];

    snprintf(text, sizeof text, "%zu", key);
    put(w, MARK);
    cvy_pytorch_put_text(w, "storage");
    put_global(w, "torch", storages[dtype]);
    cvy_pytorch_put_text(w, text);
    cvy_pytorch_put_text(w, "cpu");
    cvy_pytorch_put_int(w, elements);
    put(w, TUPLE);
    put(w, PERSISTENT);
}

/* torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, backward_hooks) */
void cvy_pytorch_put_tensor(struct cvy_pytorch_writer *w, const struct cvy_named_tensor *tensor)
{
    const struct cvy_shape *shape = &tensor->shape;
    int64_t stride[CVY_MAX_RANK], elements = 1;

    if (!remember(w, tensor)) {
        w->failed = true;
        return;
    }
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        stride[i] = elements;
        elements *= shape->dim[i] > 0 ? shape->dim[i] : 1;
    }
    put_global(w, "torch._utils", "_rebuild_tensor_v2");
    put(w, MARK);
    put_storage(w, tensor->dtype, w->storage_count - 1, cvy_shape_elements(shape));
    cvy_pytorch_put_int(w, 0);
    put(w, MARK);
    for (int32_t i = 0; i < shape->rank; i++)
        cvy_pytorch_put_int(w, shape->dim[i]);
    put(w, TUPLE);
    put(w, MARK);
    for (int32_t i = 0; i < shape->rank; i++)
        cvy_pytorch_put_int(w, stride[i]);
    put(w, TUPLE);
    cvy_pytorch_put_bool(w, false);
    put_ordered_dict(w);
    put(w, TUPLE);
    put(w, REDUCE);
}

void cvy_pytorch_put_named(struct cvy_pytorch_writer *w, const struct cvy_named_tensor *tensor)
{
    cvy_pytorch_put_text(w, tensor->name);
    cvy_pytorch_put_tensor(w, tensor);
}

/* ---- the file ---- */

cvy_status cvy_pytorch_create(struct cvy_pytorch_writer *w, const char *path)
{
    CVY_TRY(cvy_zip_create(&w->zip, path));
    put(w, PROTO);
    put(w, 2);
    return CVY_OK;
}

static cvy_status add_storage(struct cvy_pytorch_writer *w, size_t key)
{
    const struct cvy_named_tensor *tensor = w->storages[key];
    const int64_t elements = cvy_shape_elements(&tensor->shape);
    size_t bytes;
    char name[48];

    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &bytes))
        return cvy_fail(CVY_FAILED, "tensor %s has an impossible size", cvy_quote(tensor->name));
    snprintf(name, sizeof name, ROOT "/data/%zu", key);
    return cvy_zip_add(&w->zip, name, tensor->data, bytes);
}

static cvy_status add_text(struct cvy_pytorch_writer *w, const struct cvy_tensor_meta *text)
{
    char name[128];

    if (snprintf(name, sizeof name, ROOT "/extra/%s", text->key) >= (int)sizeof name)
        return cvy_fail(CVY_FAILED, "the name %s is too long", cvy_quote(text->key));
    return cvy_zip_add(&w->zip, name, text->value, strlen(text->value));
}

/* The members, in PyTorch's order. */
static cvy_status add_members(struct cvy_pytorch_writer *w, const struct cvy_tensor_meta *texts, size_t text_count)
{
    put(w, STOP);
    if (w->failed || w->pickle.failed)
        return cvy_fail_memory(w->pickle.capacity, "a pickle");
    CVY_TRY(cvy_zip_add(&w->zip, ROOT "/data.pkl", w->pickle.text, w->pickle.length));
    CVY_TRY(cvy_zip_add(&w->zip, ROOT "/byteorder", "little", 6));
    for (size_t i = 0; i < w->storage_count; i++)
        CVY_TRY(add_storage(w, i));
    for (size_t i = 0; i < text_count; i++)
        CVY_TRY(add_text(w, &texts[i]));
    return cvy_zip_add(&w->zip, ROOT "/version", "3\n", 2);
}

static void close_writer(struct cvy_pytorch_writer *w)
{
    cvy_zip_abort(&w->zip);
    cvy_text_release(&w->pickle);
    cvy_free(w->storages);
    *w = (struct cvy_pytorch_writer){0};
}

cvy_status cvy_pytorch_commit(struct cvy_pytorch_writer *w, const struct cvy_tensor_meta *texts, size_t text_count)
{
    cvy_status status;

    status = add_members(w, texts, text_count);
    if (w->source)
        status = cvy_tensor_file_changed(w->source, w->source_name, status);
    CVY_GOTO(status);
    status = cvy_zip_commit(&w->zip);
fail:
    close_writer(w); /* what is committed stays */
    return status;
}
