/* Weights files of PyTorch before 1.6, and of torch.save(..., _use_new_zipfile_serialization=False): five pickles one
 * after the other (a number, the version of the format, the machine, the object, the keys of its storages), and then
 * the storages in the order of those keys, each a count of elements in eight bytes and the elements. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/pytorch_internal.h"

typedef const struct cvy_pickle_value value;

/* A pickled integer of ten bytes, 0x1950a86a20f9469cfc6c, after the pickle's protocol. */
static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
enum { PROTOCOL = 2, VERSION = 1001, SMALL_TREE = 64 << 10 };

/* Where the next part begins. */
struct position {
    const unsigned char *bytes;
    size_t left;
};

bool cvy_pytorch_is_old(const void *data, size_t size)
{
    return size >= PROTOCOL + sizeof magic && memcmp((const unsigned char *)data + PROTOCOL, magic, sizeof magic) == 0;
}

static cvy_status next_pickle(const struct cvy_pytorch_reader *r, struct position *at, size_t memory,
                              struct cvy_arena *tree, struct cvy_pickle *pickle)
{
    const struct cvy_pickle_limits limits = {.known = cvy_pytorch_is_known, .memory = memory};

    CVY_TRY(cvy_pickle_read_first(r->what, at->bytes, at->left, &limits, tree, pickle));
    at->bytes += pickle->size;
    at->left -= pickle->size;
    return CVY_OK;
}

static cvy_status read_machine(const struct cvy_pytorch_reader *r, struct position *at, struct cvy_arena *tree)
{
    struct cvy_pickle pickle;
    value *little;

    CVY_TRY(next_pickle(r, at, SMALL_TREE, tree, &pickle));
    CVY_TRY(next_pickle(r, at, SMALL_TREE, tree, &pickle));
    if (!cvy_pickle_is(pickle.root, CVY_PICKLE_INT) || pickle.root->integer != VERSION)
        return cvy_fail(CVY_BAD_DATA, "%s has a version of PyTorch's old format that is not read: %lld is",
                        cvy_quote(r->what), (long long)VERSION);
    CVY_TRY(next_pickle(r, at, SMALL_TREE, tree, &pickle));
    little = cvy_pickle_get(pickle.root, "little_endian");
    if (!cvy_pickle_is(little, CVY_PICKLE_BOOL) || !little->integer)
        return cvy_fail(CVY_BAD_DATA, "%s was written on a machine of another byte order, which is not read",
                        cvy_quote(r->what));
    return CVY_OK;
}

/* ---- storages ---- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct cvy_pytorch_storage *)a)->key, ((const struct cvy_pytorch_storage *)b)->key);
}

static struct cvy_pytorch_storage *find(const struct cvy_pytorch_reader *r, const char *key)
{
    const struct cvy_pytorch_storage wanted = {.key = key};

    return r->storage_count > 0 ? bsearch(&wanted, r->storages, r->storage_count, sizeof wanted, by_key) : NULL;
}

static cvy_status find_storage(const struct cvy_pytorch_reader *r, const char *tensor, const char *key,
                               struct cvy_pytorch_storage *storage)
{
    const struct cvy_pytorch_storage *found = find(r, key);

    if (!found || !found->data)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s needs the storage %s, which is missing", cvy_quote(r->what),
                        cvy_quote(tensor), cvy_quote(key));
    *storage = *found;
    return CVY_OK;
}

/* All that the object names, in a table by key, each once, with the bytes that it takes. */
static cvy_status list_storages(struct cvy_pytorch_reader *r, const struct cvy_pickle *object)
{
    size_t count = 0, kept = 0;

    for (value *v = object->last_persistent; v; v = v->persistent.previous)
        count++;
    CVY_TRY(cvy_pytorch_count_bytes(r, count * sizeof *r->storages));
    r->storages = cvy_calloc(count ? count : 1, sizeof *r->storages);
    if (!r->storages)
        return cvy_fail_memory(count * sizeof *r->storages, "a list of storages");
    for (value *v = object->last_persistent; v; v = v->persistent.previous) {
        struct cvy_pytorch_storage_id id;
        struct cvy_pytorch_storage *storage = &r->storages[r->storage_count];
        size_t unit;

        if (!cvy_pytorch_storage_id(v, &id))
            return cvy_fail(CVY_BAD_DATA,
                            "%s: it names something outside that is no storage, or only a part of one: save the "
                            "state_dict() of the model alone",
                            cvy_quote(r->what));
        unit = cvy_pytorch_element_size(id.class);
        if (unit == 0)
            return cvy_fail(CVY_BAD_DATA, "%s: the storage %s has the type %s, which is not supported",
                            cvy_quote(r->what), cvy_quote(id.key), cvy_quote(id.class));
        if (!cvy_size_mul((size_t)id.count, unit, &storage->size))
            return cvy_fail(CVY_BAD_DATA, "%s: the storage %s has an impossible size", cvy_quote(r->what),
                            cvy_quote(id.key));
        storage->key = id.key;
        storage->unit = unit;
        r->storage_count++;
    }
    if (count > 0)
        qsort(r->storages, count, sizeof *r->storages, by_key);
    for (size_t i = 0; i < count; i++) {
        const struct cvy_pytorch_storage *last = kept > 0 ? &r->storages[kept - 1] : NULL;

        if (!last || strcmp(last->key, r->storages[i].key) != 0)
            r->storages[kept++] = r->storages[i];
        else if (last->size != r->storages[i].size || last->unit != r->storages[i].unit)
            return cvy_fail(CVY_BAD_DATA, "%s: the storage %s has two sizes", cvy_quote(r->what), cvy_quote(last->key));
    }
    r->storage_count = kept;
    return CVY_OK;
}

/* The count that stands before it must be the one that the object has named. */
static cvy_status locate(const struct cvy_pytorch_reader *r, const char *key, struct position *at)
{
    struct cvy_pytorch_storage *storage = find(r, key);
    uint64_t elements = 0;

    if (!storage)
        return cvy_fail(CVY_BAD_DATA, "%s holds a storage %s that nothing names", cvy_quote(r->what), cvy_quote(key));
    if (storage->data)
        return cvy_fail(CVY_BAD_DATA, "%s holds the storage %s twice", cvy_quote(r->what), cvy_quote(key));
    if (at->left < sizeof elements || at->left - sizeof elements < storage->size)
        return cvy_fail(CVY_BAD_DATA, "%s ends too early: the storage %s has %zu bytes, and %zu are left",
                        cvy_quote(r->what), cvy_quote(key), storage->size, at->left);
    for (int i = 7; i >= 0; i--)
        elements = elements << 8 | at->bytes[i];
    if (elements != storage->size / storage->unit)
        return cvy_fail(CVY_BAD_DATA, "%s: the storage %s should have %zu elements and says %llu", cvy_quote(r->what),
                        cvy_quote(key), storage->size / storage->unit, (unsigned long long)elements);
    storage->data = at->bytes + sizeof elements;
    at->bytes += sizeof elements + storage->size;
    at->left -= sizeof elements + storage->size;
    return CVY_OK;
}

static cvy_status locate_all(const struct cvy_pytorch_reader *r, value *keys, struct position *at)
{
    if (!cvy_pickle_is(keys, CVY_PICKLE_LIST))
        return cvy_fail(CVY_BAD_DATA, "%s has no list of its storages", cvy_quote(r->what));
    for (uint32_t i = 0; i < keys->list.count; i++) {
        const char *key = cvy_pickle_text(keys->list.items[i]);

        if (!key)
            return cvy_fail(CVY_BAD_DATA, "%s: a storage has no proper name", cvy_quote(r->what));
        CVY_TRY(locate(r, key, at));
    }
    if (at->left > 0)
        return cvy_fail(CVY_BAD_DATA, "%s continues after its last storage, by %s", cvy_quote(r->what),
                        cvy_counted((int64_t)at->left, "byte"));
    return CVY_OK;
}

cvy_status cvy_pytorch_read_old(struct cvy_pytorch_reader *r, const void *data, size_t size)
{
    struct position at = {.bytes = data, .left = size};
    struct cvy_pickle object, keys;
    struct cvy_arena tree = {0};
    cvy_status status;

    r->root = "";
    r->find_storage = find_storage;
    CVY_GOTO(read_machine(r, &at, &tree));
    CVY_GOTO(next_pickle(r, &at, cvy_pytorch_tree_bytes(size) / 2, &tree, &object));
    CVY_GOTO(list_storages(r, &object));
    CVY_GOTO(next_pickle(r, &at, cvy_pytorch_tree_bytes(size) / 2, &tree, &keys));
    CVY_GOTO(locate_all(r, keys.root, &at));
    CVY_GOTO(cvy_pytorch_find_state(r, object.root));
fail:
    cvy_free(r->storages);
    cvy_arena_release(&tree);
    return status;
}
