/* Weights files of PyTorch: what their pickles may say and what tensors come out; every other pickle is refused with a
 * sentence that names the file and the reason; nothing is executed. */
#include "formats/weights/pytorch.h"
#include "support_folder.h"
#include "support_pickle.h"
#include "support_test.h"

/* ---- good files ---- */

static unsigned char *content; /* of the open file */

static void open_pickle(struct cvy_tensor_file *file, const void *pickle, size_t size)
{
    size_t bytes;

    content = test_pth(pickle, size, &bytes);
    if (cvy_pytorch_open_memory(file, "x.pth", content, bytes) != CVY_OK)
        fail_msg("%s", cvy_error());
}
#define OPEN(file, object) open_pickle(file, PICKLE(object), sizeof PICKLE(object) - 1)

static void close_file(struct cvy_tensor_file *file)
{
    cvy_tensor_file_close(file);
    free(content);
}

static void check_bytes(const struct cvy_named_tensor *tensor, const char *name, enum cvy_dtype dtype,
                        const struct cvy_shape *shape, const void *data, size_t size)
{
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->dtype, dtype);
    assert_true(cvy_shape_equal(&tensor->shape, shape));
    assert_int_equal(tensor->bytes, size);
    assert_memory_equal(tensor->data, data, size);
}

static void test_bare_state(void **state)
{
    static const float values[2] = {1, 2};
    const struct cvy_shape two = cvy_shape1(2);
    struct cvy_tensor_file file;

    OPEN(&file, STATE(TEXT("\1", "a") VECTOR TEXT("\10", "module.b") VECTOR TEXT("\13", "_orig_mod.c") VECTOR
                          /* a parameter, and a plain dictionary's attributes */
                          TEXT("\1", "d") GLOBAL("torch._utils", "_rebuild_parameter") VECTOR
                      "\210" ORDERED_DICT "\207R") "}(" TEXT("\11", "_metadata") ORDERED_DICT "ub");
    assert_int_equal(file.tensor_count, 4);
    for (size_t i = 0; i < 4; i++)
        check_bytes(&file.tensors[i], (const char *[]){"a", "b", "c", "d"}[i], CVY_F32, &two, values, sizeof values);
    assert_int_equal(file.metadata_count, 0);
    close_file(&file);
}

/* The storage "1" is the bytes 0, 1, 2, ...: as bytes, an element tells where it lay. */
#define NUMBERS STORAGE("ByteStorage", "1", BYTE("\100"))

static void test_views(void **state)
{
    struct cvy_tensor_file file;

    OPEN(&file,
         STATE(TEXT("\1", "a") VIEW(NUMBERS, BYTE("\5"), BYTE("\3") BYTE("\2") "\206", BYTE("\2") BYTE("\1") "\206")
               /* transposed */
               TEXT("\1", "b") VIEW(NUMBERS, BYTE("\1"), BYTE("\2") BYTE("\3") "\206", BYTE("\1") BYTE("\2") "\206")
               /* (1, 2, 2, 2) with channels last */
               TEXT("\1", "c") VIEW(NUMBERS, BYTE("\0"), "(" BYTE("\1") BYTE("\2") BYTE("\2") BYTE("\2") "t",
                                    "(" BYTE("\10") BYTE("\1") BYTE("\4") BYTE("\2") "t")
               /* expanded, empty, a scalar, a stride that does not matter, the last byte */
               TEXT("\1", "d") VIEW(NUMBERS, BYTE("\7"), BYTE("\3") "\205", BYTE("\0") "\205") TEXT("\1", "e")
                   VIEW(NUMBERS, BYTE("\0"), BYTE("\0") BYTE("\3") "\206", BYTE("\3") BYTE("\1") "\206") TEXT("\1", "f")
                       VIEW(NUMBERS, BYTE("\11"), ")", ")") TEXT("\1", "g")
                           VIEW(NUMBERS, BYTE("\76"), BYTE("\1") BYTE("\2") "\206", BYTE("\143") BYTE("\1") "\206")));
    static const unsigned char a[] = {5, 6, 7, 8, 9, 10}, b[] = {1, 3, 5, 2, 4, 6}, c[] = {0, 2, 4, 6, 1, 3, 5, 7},
                               d[] = {7, 7, 7}, f[] = {9}, g[] = {62, 63};
    const struct cvy_shape shapes[] = {cvy_shape2(3, 2), cvy_shape2(2, 3), cvy_shape4(1, 2, 2, 2), cvy_shape1(3),
                                       cvy_shape2(0, 3), cvy_shape0(),     cvy_shape2(1, 2)};
    assert_int_equal(file.tensor_count, 7);
    check_bytes(&file.tensors[0], "a", CVY_U8, &shapes[0], a, sizeof a);
    check_bytes(&file.tensors[1], "b", CVY_U8, &shapes[1], b, sizeof b);
    check_bytes(&file.tensors[2], "c", CVY_U8, &shapes[2], c, sizeof c);
    check_bytes(&file.tensors[3], "d", CVY_U8, &shapes[3], d, sizeof d);
    check_bytes(&file.tensors[4], "e", CVY_U8, &shapes[4], "", 0);
    check_bytes(&file.tensors[5], "f", CVY_U8, &shapes[5], f, sizeof f);
    check_bytes(&file.tensors[6], "g", CVY_U8, &shapes[6], g, sizeof g);
    close_file(&file);
}

#define ALL(type, elements, offset)                                                                                    \
    VIEW(STORAGE(type, "1", BYTE(elements)), BYTE(offset), BYTE("\1") "\205", BYTE("\1") "\205")

static void test_types(void **state)
{
    static const struct {
        enum cvy_dtype dtype;
        unsigned char first; /* byte of element 1 */
    } expected[] = {{CVY_F32, 4}, {CVY_F64, 8}, {CVY_F16, 2}, {CVY_BF16, 2}, {CVY_U8, 1},
                    {CVY_I8, 1},  {CVY_I32, 4}, {CVY_I64, 8}, {CVY_BOOL, 1}, {CVY_F16, 2}};
    struct cvy_tensor_file file;

    OPEN(&file,
         STATE(TEXT("\1", "0") ALL("FloatStorage", "\20", "\1") TEXT("\1", "1") ALL("DoubleStorage", "\10", "\1")
                   TEXT("\1", "2") ALL("HalfStorage", "\40", "\1") TEXT("\1", "3") ALL("BFloat16Storage", "\40", "\1")
                       TEXT("\1", "4") ALL("ByteStorage", "\100", "\1") TEXT("\1", "5") ALL("CharStorage", "\100", "\1")
                           TEXT("\1", "6") ALL("IntStorage", "\20", "\1") TEXT("\1", "7")
                               ALL("LongStorage", "\10", "\1") TEXT("\1", "8") ALL("BoolStorage", "\100", "\1")
               /* the third form names the type apart from the storage, whose numbers are bytes */
               TEXT("\1", "9") GLOBAL("torch._utils", "_rebuild_tensor_v3") "((" TEXT("\7", "storage") GLOBAL(
                   "torch.storage", "UntypedStorage") TEXT("\1", "1") TEXT("\3", "cpu") BYTE("\100") "tQ" BYTE("\1")
                   BYTE("\1") "\205" BYTE("\1") "\205\211" ORDERED_DICT GLOBAL("torch", "float16") "tR"));
    assert_int_equal(file.tensor_count, 10);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(file.tensors[i].dtype, expected[i].dtype);
        assert_int_equal(file.tensors[i].bytes, cvy_dtype_size(expected[i].dtype));
        assert_int_equal(*(const unsigned char *)file.tensors[i].data, expected[i].first);
    }
    close_file(&file);
}

/* NVIDIA's layout: momentum by number, parameters with "bn" first; timm's namespace of arguments; a dictionary that
 * holds itself. */
static void test_checkpoint(void **state)
{
    struct cvy_tensor_file file;

    OPEN(&file, "}q\0(" TEXT("\5", "epoch") BYTE("\132") TEXT("\4", "arch") TEXT("\10", "resnet50")
                    TEXT("\5", "fanin") "\206" TEXT("\12", "best_prec1") "G\100\123\40\0\0\0\0\0" /* 76.5 */
         TEXT("\4", "self") "h\0" TEXT("\4", "args")
             GLOBAL("argparse", "Namespace") ")\201}(" TEXT("\1", "x") "Nub" TEXT("\12", "state_dict") STATE(
                 TEXT("\10", "module.w") VECTOR TEXT("\13", "bn.weight__") VECTOR) TEXT("\16", "state_dict_ema")
                 STATE(TEXT("\17", "module.module.w") VECTOR TEXT("\12", "n_averaged") VECTOR) TEXT("\11", "optimizer")
                     DICT(TEXT("\5", "state") DICT(BYTE("\0") DICT(
                         TEXT("\17", "momentum_buffer") VIEW(TWO, BYTE("\0"), BYTE("\2") "\205", BYTE("\0") "\205"))
                                                       BYTE("\1") DICT(TEXT("\17", "momentum_buffer") VECTOR))
                              TEXT("\14", "param_groups") "](" DICT(TEXT("\2", "lr") BYTE("\1")) DICT(
                                  TEXT("\2", "lr") "G\77\340\0\0\0\0\0\0" TEXT("\10", "momentum") BYTE("\0")) "e") "u");
    static const float ones[2] = {1, 1}, values[2] = {1, 2};
    const struct cvy_shape two = cvy_shape1(2);
    assert_int_equal(file.tensor_count, 5);
    check_bytes(&file.tensors[0], "w", CVY_F32, &two, values, sizeof values);
    check_bytes(&file.tensors[1], "bn.weight__", CVY_F32, &two, values, sizeof values);
    check_bytes(&file.tensors[2], "ema.w", CVY_F32, &two, values, sizeof values);
    check_bytes(&file.tensors[3], "optimizer.momentum_buffer.bn.weight__", CVY_F32, &two, ones, sizeof ones);
    check_bytes(&file.tensors[4], "optimizer.momentum_buffer.w", CVY_F32, &two, values, sizeof values);
    assert_string_equal(cvy_tensor_metadata(&file, "pytorch.epoch"), "90");
    assert_string_equal(cvy_tensor_metadata(&file, "pytorch.arch"), "\"resnet50\"");
    assert_string_equal(cvy_tensor_metadata(&file, "pytorch.best_prec1"), "76.5");
    assert_string_equal(cvy_tensor_metadata(&file, "pytorch.lr"), "0.5");
    assert_string_equal(cvy_tensor_metadata(&file, "pytorch.momentum"), "0");
    close_file(&file);

    /* torchvision's and others' keys; numbers as NumPy pickles them, which are skipped */
    OPEN(&file, DICT(TEXT("\5", "model") STATE(TEXT("\1", "a") VECTOR) TEXT("\6", "metric")
                         GLOBAL("numpy.core.multiarray", "scalar") GLOBAL("numpy", "dtype")
                             TEXT("\2", "f8") "\211\210"
                                              "\207R" GLOBAL("_codecs", "encode") TEXT("\1", "x")
                                                  TEXT("\6", "latin1") "\206R\206R"));
    assert_int_equal(file.tensor_count, 1);
    assert_int_equal(file.metadata_count, 0);
    close_file(&file);
}

/* The state dict of torch.optim.swa_utils.AveragedModel, bare and as the only weights of a checkpoint. */
static void test_average_alone(void **state)
{
    struct cvy_tensor_file file;

    OPEN(&file, STATE(TEXT("\12", "n_averaged") VECTOR TEXT("\10", "module.w") VECTOR));
    assert_int_equal(file.tensor_count, 1);
    assert_string_equal(file.tensors[0].name, "w");
    close_file(&file);
    OPEN(&file, DICT(TEXT("\11", "model_ema") STATE(TEXT("\12", "n_averaged") VECTOR TEXT("\10", "module.w") VECTOR)));
    assert_int_equal(file.tensor_count, 1);
    assert_string_equal(file.tensors[0].name, "w");
    close_file(&file);
}

/* An optimizer whose numbers do not fit the parameters is left out; the weights are read. */
static void test_other_optimizer(void **state)
{
    struct cvy_tensor_file file;

    OPEN(&file, DICT(TEXT("\12", "state_dict") STATE(TEXT("\1", "w") VECTOR) TEXT("\11", "optimizer")
                         DICT(TEXT("\5", "state") DICT(BYTE("\0") DICT(TEXT("\17", "momentum_buffer") VIEW(
                             TWO, BYTE("\0"), BYTE("\1") "\205", BYTE("\1") "\205")))
                                  TEXT("\14", "param_groups") "](" DICT(TEXT("\2", "lr") BYTE("\1")) "e")));
    assert_int_equal(file.tensor_count, 1);
    close_file(&file);
}

/* ---- refused pickles ---- */

#define REFUSE(object, reason)     test_pth_refuse(PICKLE(object), sizeof PICKLE(object) - 1, reason)
#define REFUSE_RAW(pickle, reason) test_pth_refuse(pickle, sizeof pickle - 1, reason)

static void test_foreign_globals(void **state)
{
    REFUSE(GLOBAL("posix", "system") TEXT("\4", "true") "\205R", "names \"posix.system\", which is not read");
    REFUSE(STATE(TEXT("\1", "a") VECTOR TEXT("\1", "b") GLOBAL("builtins", "eval") TEXT("\1", "1") "\205R"),
           "\"builtins.eval\"");
    REFUSE(GLOBAL("builtins", "getattr") ")R", "\"builtins.getattr\"");
    REFUSE(GLOBAL("torchvision.models.resnet", "ResNet") ")\201", "save the state_dict() of the model alone");
    REFUSE(GLOBAL("torch", "_utils") ")R", "\"torch._utils\"");
    REFUSE(GLOBAL("torch", "load") ")R", "\"torch.load\"");
    REFUSE(GLOBAL("torch", "FloatStorageX") ")R", "\"torch.FloatStorageX\"");
    REFUSE(GLOBAL("os\t", "system"), "characters that no name has");
    REFUSE(GLOBAL("", "system"), "without a name");
    REFUSE_RAW("\200\2cposix", "without a name");
}

static void test_broken_machines(void **state)
{
    REFUSE_RAW("", "ends too early");
    REFUSE_RAW("\200", "ends too early");
    REFUSE_RAW("\200\2}", "ends too early");
    REFUSE_RAW("\200\2X\377\377\377\377a", "ends too early");
    REFUSE_RAW("\200\2X\1", "ends too early");
    REFUSE_RAW("\200\2\212\377a", "ends too early");
    REFUSE_RAW("\200\2.", "does not end with one object");
    REFUSE_RAW("\200\2}}.", "does not end with one object");
    REFUSE_RAW("\200\2}(.", "does not end with one object");
    REFUSE_RAW("\200\2}.}", "continues after its end");
    REFUSE_RAW("\200\1}.", "protocol 1");
    REFUSE_RAW("\200\4\225\0\0\0\0\0\0\0\0}.", "protocol 4");
    REFUSE("i__main__\nx\n", "instruction 0x69");
    REFUSE("I1\n", "instruction 0x49");
    REFUSE("\222", "instruction 0x92");
    REFUSE("a", "values that are not there");
    REFUSE("}s", "values that are not there");
    REFUSE("(}\205", "does not end with one object");
    REFUSE("R", "values that are not there");
    REFUSE("Nb", "values that are not there");
    REFUSE("Q", "values that are not there");
    REFUSE("q\0", "values that are not there");
    REFUSE("}(N", "does not end with one object");
    REFUSE("t", "closes a bracket that is not open");
    REFUSE("u", "closes a bracket that is not open");
    REFUSE("h\0", "recalls what it has not remembered");
    REFUSE("j\377\377\377\377", "recalls what it has not remembered");
    REFUSE("}q\1", "remembers out of order");
    REFUSE("}r\377\377\377\177", "remembers out of order");
    REFUSE("}(Nu", "a key has no value");
    REFUSE("](NNu", "without keys");
    REFUSE("}Na", "is no list");
    REFUSE("N)R", "calls something that is no global");
    REFUSE(GLOBAL("collections", "OrderedDict") "NR", "calls something that is no global");
    REFUSE("](N)Re", "calls something that is no global");
    /* a list in itself, and a tuple of a tuple of ...: read, but no weights */
    REFUSE("]q\0h\0a", "holds no state dict");
    REFUSE(DICT(TEXT("\5", "model") "]q\0h\0a"), "holds no state dict");
}

static void test_no_state(void **state)
{
    REFUSE("N", "holds no state dict");
    REFUSE(DICT(TEXT("\1", "a") BYTE("\1")), "holds no state dict");
    REFUSE(VECTOR, "a single tensor");
    REFUSE(GLOBAL("argparse", "Namespace") ")\201", "holds no state dict");
    REFUSE(STATE(TEXT("\1", "a") VECTOR TEXT("\1", "b") BYTE("\1")), "entry \"b\" of its state dict is not a tensor");
    REFUSE(STATE(TEXT("\1", "a") VECTOR TEXT("\1", "b") GLOBAL("argparse", "Namespace") ")\201"), "is not a tensor");
    REFUSE(STATE(TEXT("\1", "a") VECTOR TEXT("\1", "a") VECTOR), "two of its tensors are \"a\"");
    REFUSE(STATE(TEXT("\1", "a") VECTOR TEXT("\10", "module.a") VECTOR), "two of its tensors are \"a\"");
}

static void test_names(void **state)
{
    REFUSE(STATE(TEXT("\3", "a\nb") VECTOR), "not a name: \"a\\nb\"");
    REFUSE(STATE(TEXT("\3", "a\0b") VECTOR), "not a name");
    REFUSE(STATE(TEXT("\1", "\33") VECTOR), "not a name");
    REFUSE(STATE(TEXT("\1", "\377") VECTOR), "not a name");
    REFUSE(STATE(TEXT("\0", "") VECTOR), "not a name");
    REFUSE(STATE(BYTE("\1") VECTOR), "not a name");
    REFUSE(STATE(TEXT("\7", "module.") VECTOR), "not a name");
}

/* ---- refused tensors ---- */

#define ONE(tensor) STATE(TEXT("\1", "a") tensor)

static void test_storages(void **state)
{
    REFUSE(ONE(VIEW(STORAGE("ShortStorage", "0", BYTE("\4")), BYTE("\0"), ")", ")")),
           "the type \"torch.ShortStorage\", which is not supported");
    REFUSE(ONE(VIEW(STORAGE("ComplexFloatStorage", "0", BYTE("\1")), BYTE("\0"), ")", ")")), "not supported");
    REFUSE(ONE(VIEW(STORAGE("Size", "0", BYTE("\1")), BYTE("\0"), ")", ")")), "not supported");
    REFUSE(ONE(VIEW(STORAGE("FloatStorage", "7", BYTE("\2")), BYTE("\0"), ")", ")")), "\"data/7\", which is missing");
    REFUSE(ONE(VIEW(STORAGE("FloatStorage", "0", BYTE("\3")), BYTE("\0"), ")", ")")), "has 8 bytes");
    REFUSE(ONE(VIEW(STORAGE("FloatStorage", "0", "J\377\377\377\377"), BYTE("\0"), ")", ")")), "no storage");
    REFUSE(ONE(VIEW(STORAGE("FloatStorage", "0", "\212\11\0\0\0\0\0\0\0\0\1"), BYTE("\0"), ")", ")")), "no storage");
    REFUSE(ONE(VIEW(STORAGE("FloatStorage", "0", "\212\10\2\0\0\0\0\0\0\100"), BYTE("\0"), ")", ")")), "has 8 bytes");
    REFUSE(ONE(VIEW("N", BYTE("\0"), ")", ")")), "no storage");
    REFUSE(ONE(VIEW(")Q", BYTE("\0"), ")", ")")), "no storage");
    REFUSE(ONE(VIEW("NQ", BYTE("\0"), ")", ")")), "no storage");
    REFUSE(ONE(GLOBAL("torch._utils", "_rebuild_tensor_v2") ")R"), "no storage");
    REFUSE(ONE(GLOBAL("torch._utils", "_rebuild_tensor_v3") "((" TEXT("\7", "storage") GLOBAL(
               "torch.storage", "UntypedStorage") TEXT("\1", "0") TEXT("\3", "cpu") BYTE("\10") "tQ" BYTE("\0") "))\211"
                                                                                                                "NNtR"),
           "no type");
}

/* The stride of a dimension of one element may be any number: nobody goes there, not even for a moment. */
static void test_wild_stride(void **state)
{
    static const unsigned char bytes[] = {1, 3};
    const struct cvy_shape shape = cvy_shape2(2, 1);
    struct cvy_tensor_file file;

    OPEN(&file, ONE(VIEW(NUMBERS, BYTE("\1"), BYTE("\2") BYTE("\1") "\206",
                         BYTE("\2") "\212\10\377\377\377\377\377\377\377\177\206")));
    assert_int_equal(file.tensor_count, 1);
    check_bytes(&file.tensors[0], "a", CVY_U8, &shape, bytes, sizeof bytes);
    close_file(&file);
}

static void test_drawn_objects(void **state)
{
    REFUSE(ONE(VIEW(TWO, "N", ")", ")")), "no proper place");
    REFUSE(ONE(VIEW(TWO, "J\377\377\377\377", ")", ")")), "no proper place");
    REFUSE(ONE(VIEW(TWO, BYTE("\2"), ")", ")")), "element 2 of a storage of 2");
    REFUSE(ONE(VIEW(TWO, BYTE("\1"), BYTE("\2") "\205", BYTE("\1") "\205")), "element 2 of a storage of 2");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), BYTE("\2") "\205", BYTE("\2") "\205")), "element 2 of a storage of 2");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "J\376\377\377\377\205", BYTE("\1") "\205")), "no proper shape");
    REFUSE(ONE(VIEW(TWO, BYTE("\1"), BYTE("\2") "\205", "J\377\377\377\377\205")), "no proper shape");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), BYTE("\2") "\205", ")")), "no proper shape");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "N", ")")), "no proper shape");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "(" BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") "t",
                    "(" BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") BYTE("\1") "t")),
           "6 dimensions");
    /* 2^32 * 2^32 elements; 2^62 floats; a reach of more than 2^63 */
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "\212\5\0\0\0\0\1\212\5\0\0\0\0\1\206", BYTE("\0") BYTE("\0") "\206")),
           "impossible size");
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "\212\10\0\0\0\0\0\0\0\100\205", BYTE("\0") "\205")), "impossible size");
    REFUSE(ONE(VIEW(TWO, BYTE("\1"), BYTE("\3") "\205", "\212\10\377\377\377\377\377\377\377\177\205")),
           "impossible size");
    /* two floats that claim to be 2^30: a bomb */
    REFUSE(ONE(VIEW(TWO, BYTE("\0"), "J\0\0\0\100\205", BYTE("\0") "\205")), "larger than its file");
}

/* ---- refused files ---- */

static void refuse_members(const char *folder, const struct test_member *members, const char *reason)
{
    const char *path = test_path(folder, "x.pth");
    struct cvy_tensor_file file;

    test_zip_write(path, members, 0);
    assert_int_equal(cvy_tensor_file_open(&file, path), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason))
        fail_msg("expected %s, but: %s", reason, cvy_error());
    assert_null(file.mapping.data);
}

#define BARE PICKLE(ONE(VECTOR))
#define DATA_PKL                                                                                                       \
    {                                                                                                                  \
        "m/data.pkl", BARE, sizeof BARE - 1                                                                            \
    }
#define MEMBER(name, text)                                                                                             \
    {                                                                                                                  \
        name, text, sizeof text - 1                                                                                    \
    }

/* A folder of a long name precedes the path of every member that a tensor asks for. */
static void test_long_root(void **state)
{
    char name[1000];
    const struct test_member members[] = {{name, BARE, sizeof BARE - 1}, {0}};

    snprintf(name, sizeof name, "%0*d/data.pkl", 900, 0);
    refuse_members(*state, members, "a name of 900 bytes");
}

static void test_kinds(void **state)
{
    refuse_members(*state, (struct test_member[]){{0}}, "no data.pkl");
    refuse_members(*state, (struct test_member[]){MEMBER("word/document.xml", "<x/>"), {0}}, "no data.pkl");
    refuse_members(*state, (struct test_member[]){MEMBER("a/b/data.pkl", ""), {0}}, "no data.pkl");
    refuse_members(*state, (struct test_member[]){DATA_PKL, MEMBER("n/data.pkl", ""), {0}}, "two members are data.pkl");
    refuse_members(*state, (struct test_member[]){DATA_PKL, MEMBER("m/constants.pkl", ""), {0}}, "TorchScript");
    refuse_members(*state, (struct test_member[]){DATA_PKL, MEMBER("m/code/__torch__.py", ""), {0}}, "TorchScript");
    refuse_members(*state, (struct test_member[]){DATA_PKL, MEMBER("m/byteorder", "big"), {0}}, "another byte order");
    refuse_members(*state, (struct test_member[]){DATA_PKL, {0}}, "\"data/0\", which is missing");
    refuse_members(*state, (struct test_member[]){DATA_PKL, MEMBER("m/data/0", "1234567"), {0}}, "has 7 bytes");
    refuse_members(
        *state, (struct test_member[]){DATA_PKL, MEMBER("m/data/0", "12345678"), MEMBER("m/extra/convoy.a", "\0"), {0}},
        "zero byte");
    refuse_members(*state,
                   (struct test_member[]){DATA_PKL, MEMBER("m/data/0", "12345678"), MEMBER("m/data/0", "1"), {0}},
                   "stands twice");
}

static void refuse_file(const char *folder, const void *data, size_t size, const char *reason)
{
    const char *path = test_path(folder, "y.pth");
    struct cvy_tensor_file file;

    test_file_write(path, data, size);
    assert_int_equal(cvy_tensor_file_open(&file, path), CVY_BAD_DATA);
    if (!strstr(cvy_error(), reason))
        fail_msg("expected %s, but: %s", reason, cvy_error());
}

static void test_old_formats(void **state)
{
    char tar[1024] = "storages";

    memcpy(tar + 257, "ustar", 5);
    refuse_file(*state, tar, sizeof tar, "before 0.2");
    refuse_file(*state, "\200\2}q\0.", 6, "bare Python pickle");
    refuse_file(*state, "\200\4\225\2\0\0\0\0\0\0\0}.", 13, "bare Python pickle");
    refuse_file(*state, "PK\5\6", 4, "truncated?");
    refuse_file(*state, "PK\3\4", 4, "truncated?");
}

/* A compressed member, said in its header and in the directory: refused by name, before any byte of it is unpacked. */
static void test_compressed(void **state)
{
    const char *path = test_path(*state, "x.pth");
    const struct test_member members[] = {DATA_PKL, MEMBER("m/data/0", "12345678"), {0}};
    unsigned char *bytes = NULL;
    void *data = NULL;
    size_t size;

    test_zip_write(path, members, 0);
    assert_int_equal(cvy_file_read(path, 100000, &data, &size), CVY_OK);
    bytes = data;
    for (size_t i = 0; i + 50 < size; i++)
        if (!memcmp(bytes + i, "PK\3\4", 4) && !memcmp(bytes + i + 30, "m/data/0", 8))
            bytes[i + 8] = 8;
        else if (!memcmp(bytes + i, "PK\1\2", 4) && !memcmp(bytes + i + 46, "m/data/0", 8))
            bytes[i + 10] = 8;
    refuse_file(*state, data, size, "member \"m/data/0\" is compressed");
    cvy_free(data);
}

/* Any name of the folder, 64-bit sizes; texts of Convoy's come back, others stay. */
static void test_members(void **state)
{
    const char *path = test_path(*state, "x.pth");
    const struct test_member members[] = {MEMBER("any name at all/version", "3\n"),
                                          {"any name at all/data.pkl", BARE, sizeof BARE - 1},
                                          MEMBER("any name at all/.format_version", "1"),
                                          MEMBER("any name at all/.data/serialization_id", "12"),
                                          MEMBER("any name at all/extra/other", "\0"),
                                          MEMBER("any name at all/extra/convoy.b", "\"x\""),
                                          MEMBER("any name at all/extra/convoy.a", "1"),
                                          MEMBER("any name at all/data/0", "\0\0\200\77\0\0\0\100"),
                                          {0}};
    static const float values[2] = {1, 2};
    const struct cvy_shape two = cvy_shape1(2);

    for (int wide = 0; wide < 2; wide++) {
        struct cvy_tensor_file file;
        test_zip_write(path, members, wide);
        if (cvy_tensor_file_open(&file, path) != CVY_OK)
            fail_msg("%s", cvy_error());
        assert_int_equal(file.tensor_count, 1);
        check_bytes(&file.tensors[0], "a", CVY_F32, &two, values, sizeof values);
        assert_int_equal(file.metadata_count, 2);
        assert_string_equal(file.metadata[0].key, "convoy.b"); /* in the order of the file */
        assert_string_equal(file.metadata[0].value, "\"x\"");
        assert_string_equal(cvy_tensor_metadata(&file, "convoy.a"), "1");
        cvy_tensor_file_close(&file);
    }
}

/* A safetensors header whose length looks like the start of a pickle. */
static void test_not_a_pickle(void **state)
{
    enum { LENGTH = 0x10280 }; /* bytes 80 02 01 00 ... */
    char *content_of = malloc(8 + LENGTH);
    struct cvy_tensor_file file;

    assert_non_null(content_of);
    memcpy(content_of, "\200\2\1\0\0\0\0\0{}", 10);
    memset(content_of + 10, ' ', LENGTH - 2);
    test_file_write(test_path(*state, "z"), content_of, 8 + LENGTH);
    assert_int_equal(cvy_tensor_file_open(&file, test_path(*state, "z")), CVY_OK);
    cvy_tensor_file_close(&file);
    free(content_of);
}

static void test_failing_memory(void **state)
{
    size_t bytes;
    unsigned char *data = test_pth(BARE, sizeof BARE - 1, &bytes);
    struct cvy_tensor_file file;
    int64_t n = 1;

    for (;; n++) {
        cvy_status status = WITH_FAILURE(n, false, cvy_pytorch_open_memory(&file, "x.pth", data, bytes));
        if (status == CVY_OK)
            break;
        assert_int_equal(status, CVY_NO_MEMORY);
        assert_null(file.tensors);
    }
    cvy_tensor_file_close(&file);
    assert_true(n > 4);
    free(data);
}

RUN_TESTS(NULL, NULL, TEST(test_bare_state), TEST(test_views), TEST(test_types), TEST(test_checkpoint),
          TEST(test_average_alone), TEST(test_other_optimizer), TEST(test_foreign_globals), TEST(test_broken_machines),
          TEST(test_no_state), TEST(test_names), TEST(test_storages), TEST(test_drawn_objects), TEST(test_wild_stride),
          IN_FOLDER(test_long_root), IN_FOLDER(test_kinds), IN_FOLDER(test_old_formats), IN_FOLDER(test_compressed),
          IN_FOLDER(test_members), IN_FOLDER(test_not_a_pickle), TEST(test_failing_memory))
