/* Tensors from their description in the pickle: a storage, an offset, sizes and strides. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/pytorch_internal.h"

/* Python's names of the types: of a storage's class, and of a tensor without one. */
static const struct {
    const char *storage, *name;
    enum cvy_dtype dtype;
} types[] = {
    {"torch.FloatStorage", "torch.float32", CVY_F32}, {"torch.DoubleStorage", "torch.float64", CVY_F64},
    {"torch.HalfStorage", "torch.float16", CVY_F16},  {"torch.BFloat16Storage", "torch.bfloat16", CVY_BF16},
    {"torch.ByteStorage", "torch.uint8", CVY_U8},     {"torch.CharStorage", "torch.int8", CVY_I8},
    {"torch.IntStorage", "torch.int32", CVY_I32},     {"torch.LongStorage", "torch.int64", CVY_I64},
    {"torch.BoolStorage", "torch.bool", CVY_BOOL},
};
enum { MAX_WRAPPERS = 4, LONGEST_KEY = 255 };

typedef const struct cvy_pickle_value value;

/* What a tensor is a view of, in elements. */
struct view {
    struct cvy_pytorch_storage storage;
    int64_t offset, stride[CVY_MAX_RANK];
    int64_t elements; /* of the storage */
};

static cvy_status bad(const struct cvy_pytorch_reader *r, const char *name, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s: tensor %s %s", cvy_quote(r->what), cvy_quote(name), why);
}

/* ---- wrappers ---- */

/* A call that makes a tensor out of another: a parameter, or a tensor with attributes. The last gives function and
 * arguments of the call inside. */
static bool is_typed(value *v)
{
    return cvy_pickle_calls(v, "torch._tensor._rebuild_from_type_v2");
}

static bool is_parameter(value *v)
{
    return cvy_pickle_calls(v, "torch._utils._rebuild_parameter") ||
           cvy_pickle_calls(v, "torch._utils._rebuild_parameter_with_state") ||
           cvy_pickle_calls(v, "torch.nn.parameter.Parameter");
}

static bool rebuilds(const char *function)
{
    return strcmp(function, "torch._utils._rebuild_tensor") == 0 ||
           strcmp(function, "torch._utils._rebuild_tensor_v2") == 0 ||
           strcmp(function, "torch._utils._rebuild_tensor_v3") == 0;
}

/* The innermost call and its arguments; false when it is none that makes a tensor. */
static bool unwrap(value *v, const char **function, value **arguments)
{
    for (int i = 0; i < MAX_WRAPPERS && is_parameter(v); i++)
        v = cvy_pickle_item(v->call.arguments, 0);
    if (is_typed(v)) {
        value *inner = cvy_pickle_item(v->call.arguments, 0);
        if (!cvy_pickle_is(inner, CVY_PICKLE_GLOBAL))
            return false;
        *function = inner->name;
        *arguments = cvy_pickle_item(v->call.arguments, 2);
    } else {
        if (!cvy_pickle_is(v, CVY_PICKLE_CALL))
            return false;
        *function = v->call.callable->name;
        *arguments = v->call.arguments;
    }
    return rebuilds(*function) && cvy_pickle_is(*arguments, CVY_PICKLE_TUPLE);
}

bool cvy_pytorch_is_tensor(value *v)
{
    const char *function;
    value *arguments;

    return unwrap(v, &function, &arguments);
}

/* ---- parts ---- */

static cvy_status find_type(const struct cvy_pytorch_reader *r, const char *name, const char *type,
                            enum cvy_dtype *dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].storage) == 0 || strcmp(type, types[i].name) == 0) {
            *dtype = types[i].dtype;
            return CVY_OK;
        }
    return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has the type %s, which is not supported", cvy_quote(r->what),
                    cvy_quote(name), cvy_quote(type));
}

bool cvy_pytorch_storage_id(value *storage, struct cvy_pytorch_storage_id *id)
{
    value *tuple = cvy_pickle_is(storage, CVY_PICKLE_PERSISTENT) ? storage->persistent.id : NULL;
    const char *kind = cvy_pickle_text(cvy_pickle_item(tuple, 0)), *key = cvy_pickle_text(cvy_pickle_item(tuple, 2));
    value *class = cvy_pickle_item(tuple, 1), *count = cvy_pickle_item(tuple, 4), *view = cvy_pickle_item(tuple, 5);

    if (!kind || strcmp(kind, "storage") != 0 || !key || !cvy_pickle_is(class, CVY_PICKLE_GLOBAL) ||
        !cvy_pickle_is(count, CVY_PICKLE_INT) || count->integer < 0 || (view && view->kind != CVY_PICKLE_NONE))
        return false;
    *id = (struct cvy_pytorch_storage_id){.class = class->name, .key = key, .count = count->integer};
    return true;
}

size_t cvy_pytorch_element_size(const char *class)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(class, types[i].storage) == 0)
            return cvy_dtype_size(types[i].dtype);
    return 0;
}

static cvy_status find_storage(struct cvy_pytorch_reader *r, const char *name, value *storage, value *type,
                               struct cvy_named_tensor *tensor, struct view *view)
{
    struct cvy_pytorch_storage_id id;
    size_t bytes;

    if (!cvy_pytorch_storage_id(storage, &id))
        return bad(r, name, "has no storage");
    const bool untyped = strcmp(id.class, "torch.storage.UntypedStorage") == 0;
    if (untyped && !cvy_pickle_is(type, CVY_PICKLE_GLOBAL))
        return bad(r, name, "has no type");
    CVY_TRY(find_type(r, name, untyped ? type->name : id.class, &tensor->dtype));
    if (strlen(id.key) > LONGEST_KEY)
        return bad(r, name, "has a storage with an impossible name");
    CVY_TRY(r->find_storage(r, name, id.key, &view->storage));
    const size_t unit = cvy_dtype_size(tensor->dtype);
    if (!cvy_size_mul((size_t)id.count, untyped ? 1 : unit, &bytes) || bytes != view->storage.size)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s needs %lld %s, but its storage %s has %zu bytes",
                        cvy_quote(r->what), cvy_quote(name), (long long)id.count,
                        untyped ? "bytes" : "elements of its type", cvy_quote(id.key), view->storage.size);
    view->elements = (int64_t)(bytes / unit);
    return CVY_OK;
}

/* A tuple of whole numbers that are not negative, perhaps inside a torch.Size. */
static bool read_numbers(value *v, int64_t numbers[CVY_MAX_RANK], uint32_t *count)
{
    if (cvy_pickle_calls(v, "torch.Size"))
        v = cvy_pickle_item(v->call.arguments, 0);
    if (!cvy_pickle_is(v, CVY_PICKLE_TUPLE))
        return false;
    *count = v->list.count;
    for (uint32_t i = 0; i < v->list.count && i < CVY_MAX_RANK; i++) {
        value *item = v->list.items[i];
        if (item->kind != CVY_PICKLE_INT || item->integer < 0)
            return false;
        numbers[i] = item->integer;
    }
    return true;
}

/* Sizes and strides; the last element must lie in the storage. */
static cvy_status read_shape(const struct cvy_pytorch_reader *r, const char *name, value *sizes, value *strides,
                             struct cvy_named_tensor *tensor, struct view *view)
{
    uint32_t rank = 0, stride_count = 0;
    int64_t last = view->offset, reach;

    tensor->shape = (struct cvy_shape){0};
    if (!read_numbers(sizes, tensor->shape.dim, &rank) || !read_numbers(strides, view->stride, &stride_count) ||
        rank != stride_count)
        return bad(r, name, "has no proper shape");
    if (rank > CVY_MAX_RANK)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s has %u dimensions; at most %d are supported", cvy_quote(r->what),
                        cvy_quote(name), (unsigned)rank, CVY_MAX_RANK);
    tensor->shape.rank = (int32_t)rank;
    const int64_t elements = cvy_shape_elements(&tensor->shape);
    if (elements < 0 || !cvy_size_mul((size_t)elements, cvy_dtype_size(tensor->dtype), &tensor->bytes))
        return bad(r, name, "has an impossible size");
    for (uint32_t i = 0; elements > 0 && i < rank; i++) {
        if (tensor->shape.dim[i] == 1)
            view->stride[i] = 0; /* any number may stand there: nothing is as far away as it says */
        if (__builtin_mul_overflow(tensor->shape.dim[i] - 1, view->stride[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return bad(r, name, "has an impossible size");
    }
    if (elements > 0 && last >= view->elements)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s reaches to element %lld of a storage of %lld", cvy_quote(r->what),
                        cvy_quote(name), (long long)last, (long long)view->elements);
    return CVY_OK;
}

/* ---- views ---- */

static bool in_one_piece(const struct cvy_shape *shape, const int64_t *stride)
{
    int64_t expected = 1;

    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        if (shape->dim[i] != 1 && stride[i] != expected)
            return false;
        expected *= shape->dim[i];
    }
    return true;
}

/* Row-major, element by element; `index` counts like the digits of a number. */
static void copy_view(const struct cvy_named_tensor *tensor, const struct view *view, unsigned char *to)
{
    const size_t unit = cvy_dtype_size(tensor->dtype);
    const struct cvy_shape *shape = &tensor->shape;
    int64_t index[CVY_MAX_RANK] = {0}, at = view->offset;

    for (size_t done = 0; done < tensor->bytes; done += unit) {
        memcpy(to + done, view->storage.data + (size_t)at * unit, unit);
        for (int32_t i = shape->rank - 1; i >= 0; i--) {
            at += view->stride[i];
            if (++index[i] < shape->dim[i])
                break;
            at -= index[i] * view->stride[i];
            index[i] = 0;
        }
    }
}

static cvy_status place(struct cvy_pytorch_reader *r, struct cvy_named_tensor *tensor, const struct view *view)
{
    unsigned char *copy;

    if (tensor->bytes == 0 || in_one_piece(&tensor->shape, view->stride)) {
        tensor->data = view->storage.data + (tensor->bytes ? (size_t)view->offset * cvy_dtype_size(tensor->dtype) : 0);
        return CVY_OK;
    }
    if (tensor->bytes > r->budget)
        return bad(r, tensor->name, "is a view that is larger than its file");
    r->budget -= tensor->bytes;
    copy = cvy_arena_alloc(&r->file->arena, tensor->bytes);
    if (!copy)
        return cvy_fail_memory(tensor->bytes, cvy_quote(tensor->name));
    copy_view(tensor, view, copy);
    tensor->data = copy;
    return CVY_OK;
}

cvy_status cvy_pytorch_tensor(struct cvy_pytorch_reader *r, const char *name, value *v, struct cvy_named_tensor *tensor)
{
    const char *function = NULL;
    value *arguments = NULL, *offset;
    struct view view = {0};

    *tensor = (struct cvy_named_tensor){.name = name};
    if (!unwrap(v, &function, &arguments))
        return bad(r, name, "is none");
    const bool v3 = strcmp(function, "torch._utils._rebuild_tensor_v3") == 0;
    CVY_TRY(
        find_storage(r, name, cvy_pickle_item(arguments, 0), v3 ? cvy_pickle_item(arguments, 6) : NULL, tensor, &view));
    offset = cvy_pickle_item(arguments, 1);
    if (!cvy_pickle_is(offset, CVY_PICKLE_INT) || offset->integer < 0)
        return bad(r, name, "has no proper place in its storage");
    view.offset = offset->integer;
    CVY_TRY(read_shape(r, name, cvy_pickle_item(arguments, 2), cvy_pickle_item(arguments, 3), tensor, &view));
    return place(r, tensor, &view);
}
