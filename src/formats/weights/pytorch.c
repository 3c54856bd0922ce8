/* The file as a whole: what kind it is, its members, what its pickle may name. */
#include "formats/weights/pytorch.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/weights/pytorch_internal.h"

/* The tree of a pickle may take this much beside an eighth of the file's size; names, tables and copies of views beside
 * the file's size. With the mapped file and the directory, at most three quarters of it, that is less than three times
 * the size and 64 MiB. */
static const size_t FREE_BYTES = (size_t)16 << 20;
enum { LONGEST_ROOT = 255, LONGEST_PATH = 1023 }; /* of the folder of all members; of a member */

/* ---- kinds of files ---- */

/* A member, or one of the two ends of a file without members. */
static bool is_zip(const unsigned char *bytes, size_t size)
{
    static const char *const starts[] = {"PK\3\4", "PK\5\6", "PK\6\6"};

    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (size >= 4 && !memcmp(bytes, starts[i], 4))
            return true;
    return false;
}

/* The header of a safetensors file begins at byte 8, after its length, which may look like a pickle. */
static bool is_pickle(const unsigned char *bytes, size_t size)
{
    return size >= 3 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 && !(size > 8 && bytes[8] == '{');
}

static bool is_tar(const unsigned char *bytes, size_t size)
{
    return size >= 512 && memcmp(bytes + 257, "ustar", 5) == 0 && bytes[8] != '{';
}

bool cvy_pytorch_looks_like(const void *data, size_t size)
{
    return is_zip(data, size) || is_pickle(data, size) || is_tar(data, size);
}

static cvy_status refuse(const char *what, const unsigned char *bytes, size_t size)
{
    if (is_tar(bytes, size))
        return cvy_fail(CVY_BAD_DATA,
                        "%s has the format of PyTorch before 0.2, which is not read: save it again in Python with "
                        "torch.save(torch.load(FILE, map_location='cpu'), NEW)",
                        cvy_quote(what));
    return cvy_fail(CVY_BAD_DATA, "%s is no weights file: %s", cvy_quote(what),
                    is_pickle(bytes, size) ? "it is a bare Python pickle, and those are not read"
                                           : "neither safetensors nor PyTorch");
}

/* ---- what a pickle may name ---- */

/* What stands beside weights in checkpoints of torchvision's, timm's and NVIDIA's programs: harmless, and not examined.
 * Everything else that is not on the lists is refused by name. */
static const char *const known_globals[] = {
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch._tensor._rebuild_from_type_v2",
    "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer",
    "torch.Tensor",
    "torch.Size",
    "torch.device",
    "torch.storage.UntypedStorage",
    "torch.torch_version.TorchVersion",
    "argparse.Namespace",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "_codecs.encode",
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
};
/* Python's own types, under the module's names in Python 2 and 3. */
static const char *const builtin_types[] = {"object", "set",   "frozenset", "complex", "bytearray", "int",
                                            "float",  "str",   "bool",      "list",    "dict",      "tuple",
                                            "bytes",  "slice", "range",     "long",    "unicode"};
/* Names in module torch: element types, whether they can be loaded or not, alone or before "Storage". */
static const char *const element_types[] = {"float16",        "float32",     "float64",       "bfloat16",
                                            "int8",           "int16",       "int32",         "int64",
                                            "uint8",          "uint16",      "uint32",        "uint64",
                                            "bool",           "complex32",   "complex64",     "complex128",
                                            "float8_e4m3fn",  "float8_e5m2", "channels_last", "contiguous_format",
                                            "preserve_format"};
static const char *const storages[] = {"Float", "Double", "Half", "BFloat16", "Long",         "Int",
                                       "Short", "Char",   "Byte", "Bool",     "ComplexFloat", "ComplexDouble"};

static bool is_one_of(const char *text, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(text, list[i]))
            return true;
    return false;
}
#define ONE_OF(text, list) is_one_of(text, list, sizeof list / sizeof *list)

static bool is_storage(const char *name)
{
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++) {
        const size_t length = strlen(storages[i]);
        if (!strncmp(name, storages[i], length) && !strcmp(name + length, "Storage"))
            return true;
    }
    return false;
}

bool cvy_pytorch_is_known(const char *name)
{
    static const char *const builtin_modules[] = {"builtins.", "__builtin__."};

    for (size_t i = 0; i < sizeof builtin_modules / sizeof *builtin_modules; i++) {
        const size_t length = strlen(builtin_modules[i]);
        if (!strncmp(name, builtin_modules[i], length))
            return ONE_OF(name + length, builtin_types);
    }
    if (!strncmp(name, "torch.", 6) && (is_storage(name + 6) || ONE_OF(name + 6, element_types)))
        return true;
    return ONE_OF(name, known_globals);
}

/* ---- members ---- */

cvy_status cvy_pytorch_count_bytes(struct cvy_pytorch_reader *r, size_t bytes)
{
    if (bytes > r->budget)
        return cvy_fail(CVY_BAD_DATA, "%s: its names and tensors would take more memory than such a file needs",
                        cvy_quote(r->what));
    r->budget -= bytes;
    return CVY_OK;
}

/* A member of the root folder, NULL when there is none. */
static const struct cvy_zip_member *root_member(const struct cvy_pytorch_reader *r, const char *name)
{
    char path[LONGEST_PATH + 1];
    const int length = snprintf(path, sizeof path, "%s/%s", r->root, name);

    return length > 0 && length <= LONGEST_PATH ? cvy_zip_find(&r->zip, path, (size_t)length) : NULL;
}

static cvy_status find_member(const struct cvy_pytorch_reader *r, const char *tensor, const char *key,
                              struct cvy_pytorch_storage *storage)
{
    const char *name = cvy_arena_printf(&r->file->arena, "data/%s", key);
    const struct cvy_zip_member *member = name ? root_member(r, name) : NULL;

    if (!name)
        return cvy_fail_memory(strlen(key), "the name of a member");
    if (!member)
        return cvy_fail(CVY_BAD_DATA, "%s: tensor %s needs the member %s, which is missing", cvy_quote(r->what),
                        cvy_quote(tensor), cvy_quote(name));
    r->used[member - r->zip.members] = 1;
    *storage = (struct cvy_pytorch_storage){.data = member->data, .size = member->size};
    return CVY_OK;
}

static bool has_folder(const struct cvy_pytorch_reader *r, const char *name)
{
    const char *path = cvy_arena_printf(&r->file->arena, "%s/%s/", r->root, name);

    for (size_t i = 0; path && i < r->zip.count; i++)
        if (r->zip.members[i].name_length > strlen(path) && !memcmp(r->zip.members[i].name, path, strlen(path)))
            return true;
    return false;
}

/* The folder of all members: before "/data.pkl", which lies in no folder of its own. */
static cvy_status find_root(struct cvy_pytorch_reader *r)
{
    static const char suffix[] = "/data.pkl";
    const size_t length = sizeof suffix - 1;

    for (size_t i = 0; i < r->zip.count; i++) {
        const struct cvy_zip_member *member = &r->zip.members[i];
        const size_t front = member->name_length > length ? member->name_length - length : 0;

        if (front == 0 || memcmp(member->name + front, suffix, length) != 0 || memchr(member->name, '/', front))
            continue;
        if (r->root)
            return cvy_fail(CVY_BAD_DATA, "%s: two members are data.pkl", cvy_quote(r->what));
        if (front > LONGEST_ROOT)
            return cvy_fail(CVY_BAD_DATA, "%s: the folder of its members has a name of %zu bytes, which no file has",
                            cvy_quote(r->what), front);
        r->root = cvy_arena_printf(&r->file->arena, "%.*s", (int)front, member->name);
        if (!r->root)
            return cvy_fail_memory(front, "the name of a folder");
        if (strlen(r->root) != front)
            return cvy_fail(CVY_BAD_DATA, "%s: the name of a member has a zero byte", cvy_quote(r->what));
    }
    if (!r->root)
        return cvy_fail(CVY_BAD_DATA, "%s is a zip file, but torch.save has not written it: it has no data.pkl",
                        cvy_quote(r->what));
    return CVY_OK;
}

static cvy_status check_kind(const struct cvy_pytorch_reader *r)
{
    const struct cvy_zip_member *order = root_member(r, "byteorder");

    if (root_member(r, "constants.pkl") || has_folder(r, "code"))
        return cvy_fail(CVY_BAD_DATA,
                        "%s is a TorchScript archive, a program and not only weights: save its state dict in Python "
                        "with torch.save(torch.jit.load(FILE).state_dict(), NEW)",
                        cvy_quote(r->what));
    for (size_t i = 0; i < r->zip.count; i++)
        if (r->zip.members[i].compressed)
            return cvy_fail(CVY_BAD_DATA, "%s: member %s is compressed, which PyTorch never does with weights",
                            cvy_quote(r->what),
                            cvy_quote(cvy_arena_printf(&r->file->arena, "%.*s", (int)r->zip.members[i].name_length,
                                                       r->zip.members[i].name)));
    if (order && (order->size < 6 || memcmp(order->data, "little", 6) != 0))
        return cvy_fail(CVY_BAD_DATA, "%s was written on a machine of another byte order, which is not read",
                        cvy_quote(r->what));
    return CVY_OK;
}

/* Sums of the members that are used, several at a time. */
static cvy_status check_sums(const struct cvy_pytorch_reader *r)
{
    const int64_t count = (int64_t)r->zip.count;
    int64_t wrong = count; /* the first member whose sum is wrong */

#pragma omp parallel for schedule(dynamic) reduction(min : wrong)
    for (int64_t i = 0; i < count; i++)
        if (r->used[i] && i < wrong && !cvy_zip_check(&r->zip.members[i]))
            wrong = i;
    if (wrong == count)
        return CVY_OK;
    const struct cvy_zip_member *member = &r->zip.members[wrong];
    const char *name = cvy_arena_printf(&r->file->arena, "%.*s", (int)member->name_length, member->name);
    return cvy_fail(CVY_BAD_DATA, "%s: the content of member %s is damaged (wrong CRC)", cvy_quote(r->what),
                    cvy_quote(name));
}

/* ---- opening ---- */

size_t cvy_pytorch_tree_bytes(size_t size)
{
    return FREE_BYTES + size / 8;
}

static cvy_status read_state(struct cvy_pytorch_reader *r, size_t size)
{
    const struct cvy_zip_member *member = root_member(r, "data.pkl");
    const struct cvy_pickle_limits limits = {.known = cvy_pytorch_is_known, .memory = cvy_pytorch_tree_bytes(size)};
    const struct cvy_pickle_value *root = NULL;
    struct cvy_arena tree = {0};
    cvy_status status;

    if (!member) /* find_root() has seen it */
        return cvy_fail(CVY_BAD_DATA, "%s has no data.pkl", cvy_quote(r->what));
    r->used[member - r->zip.members] = 1;
    CVY_GOTO(cvy_pickle_read(r->what, member->data, member->size, &limits, &tree, &root));
    CVY_GOTO(cvy_pytorch_find_state(r, root));
fail:
    cvy_arena_release(&tree);
    return status;
}

static cvy_status read_zip(struct cvy_pytorch_reader *r, const void *data, size_t size)
{
    cvy_status status;

    r->find_storage = find_member;
    CVY_TRY(cvy_zip_open(&r->zip, r->what, data, size, &r->file->arena));
    CVY_TRY(find_root(r));
    CVY_TRY(check_kind(r));
    r->used = cvy_calloc(r->zip.count, 1);
    if (!r->used)
        return cvy_fail_memory(r->zip.count, "a list of members");
    CVY_GOTO(read_state(r, size));
    CVY_GOTO(check_sums(r));
fail:
    cvy_free(r->used);
    return status;
}

cvy_status cvy_pytorch_open_memory(struct cvy_tensor_file *file, const char *what, const void *data, size_t size)
{
    struct cvy_pytorch_reader r = {.what = what, .budget = size + FREE_BYTES, .file = file};
    cvy_status status;

    *file = (struct cvy_tensor_file){0};
    if (!is_zip(data, size) && !cvy_pytorch_is_old(data, size))
        return refuse(what, data, size);
    CVY_GOTO(is_zip(data, size) ? read_zip(&r, data, size) : cvy_pytorch_read_old(&r, data, size));
    CVY_GOTO(cvy_tensor_file_check_names(file, what));
    return CVY_OK;
fail:
    cvy_tensor_file_close(file);
    return status;
}
