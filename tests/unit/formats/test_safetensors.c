/* safetensors: what is written is read back, the bytes are those of the format, every damage is refused with a sentence
 * that names the file, a full disk keeps the old file. */
#include "formats/weights/safetensors.h"
#include "support_folder.h"
#include "support_test.h"
#include "support_writing.h"

static const float weights[6] = {1, -2, 3.5f, 0, 1e-30f, 1e30f};
static const int64_t counter = INT64_C(0x0123456789ABCDEF);
static const uint8_t bytes[3] = {1, 2, 255};
static const uint16_t halves[2] = {0x3C00, 0xC000};

static const struct cvy_named_tensor tensors[] = {
    {"u8", CVY_U8, {1, {3}}, bytes, 0},       {"layer1.0.conv \"q\" \xc3\xa9", CVY_F32, {4, {2, 3, 1, 1}}, weights, 0},
    {"bf16", CVY_BF16, {1, {2}}, halves, 0},  {"bn1.num_batches_tracked", CVY_I64, {0, {0}}, &counter, 0},
    {"empty", CVY_F32, {2, {0, 7}}, NULL, 0},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const struct cvy_tensor_meta metadata[] = {
    {"convoy.arch", "resnet18"},
    {"convoy.classes", "[\"a\\n\", \"b\"]"},
};

static cvy_status write_example(const char *path, void *context)
{
    return cvy_st_write(path, tensors, TENSORS, metadata, 2);
}

static void test_round_trip(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    assert_int_equal(write_example(path, NULL), CVY_OK);
    struct cvy_tensor_file file;
    assert_int_equal(cvy_st_open(&file, path), CVY_OK);
    assert_int_equal(file.tensor_count, TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const struct cvy_named_tensor *tensor = cvy_tensor_find(&file, tensors[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, tensors[i].dtype);
        assert_true(cvy_shape_equal(&tensor->shape, &tensors[i].shape));
        assert_int_equal(tensor->bytes,
                         (size_t)cvy_shape_elements(&tensors[i].shape) * cvy_dtype_size(tensors[i].dtype));
        if (tensor->bytes > 0)
            assert_memory_equal(tensor->data, tensors[i].data, tensor->bytes);
    }
    /* By alignment, largest first, then as given. */
    assert_string_equal(file.tensors[0].name, "bn1.num_batches_tracked");
    assert_string_equal(file.tensors[1].name, tensors[1].name);
    assert_string_equal(file.tensors[4].name, "u8");
    assert_null(cvy_tensor_find(&file, "U8"));
    assert_int_equal(file.metadata_count, 2);
    assert_string_equal(cvy_tensor_metadata(&file, "convoy.classes"), "[\"a\\n\", \"b\"]");
    assert_null(cvy_tensor_metadata(&file, "none"));
    cvy_tensor_file_close(&file);
    cvy_tensor_file_close(&file);
}

/* The layout as the format says: little-endian length, the JSON from byte 8, padded with spaces to 8 bytes. */
static void test_bytes_on_disk(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    const struct cvy_named_tensor one = {"x", CVY_U8, {1, {2}}, bytes, 0};
    assert_int_equal(cvy_st_write(path, &one, 1, NULL, 0), CVY_OK);
    void *data;
    size_t size;
    assert_int_equal(cvy_file_read(path, 1000, &data, &size), CVY_OK);
    static const char expected[] = "\x40\0\0\0\0\0\0\0"
                                   "{\"x\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]}}    \x01\x02";
    assert_int_equal(size, sizeof expected - 1);
    assert_memory_equal(data, expected, size);
    cvy_free(data);
}

static void test_empty_file(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    struct cvy_tensor_file file;
    assert_int_equal(cvy_st_write(path, NULL, 0, NULL, 0), CVY_OK);
    assert_int_equal(cvy_st_open(&file, path), CVY_OK);
    assert_int_equal(file.tensor_count, 0);
    cvy_tensor_file_close(&file);
    assert_fails(cvy_st_open(&file, test_path(*state, "none")), CVY_NO_INPUT, "none\": No such file");
    assert_int_equal(cvy_st_open(&file, *state), CVY_BAD_DATA);
    test_file_write(path, "", 0);
    assert_fails(cvy_st_open(&file, path), CVY_BAD_DATA, "a.safetensors\"");
}

/* A file of this header and this many bytes of data must be refused for `reason`; NULL: must be read. */
static void check_header(const char *header, size_t data_bytes, const char *reason)
{
    size_t length = strlen(header), size = 8 + length + data_bytes;
    unsigned char *content = calloc(1, size);
    assert_non_null(content);
    for (int i = 0; i < 8; i++)
        content[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(content + 8, header, length);
    struct cvy_tensor_file file;
    cvy_status status = cvy_st_open_memory(&file, "test.safetensors", content, size);
    if (status != (reason ? CVY_BAD_DATA : CVY_OK) || (reason && !strstr(cvy_error(), reason)))
        print_error("%s\n -> %d, %s; expected: %s\n", header, (int)status, cvy_error(), reason ? reason : "success");
    assert_int_equal(status, reason ? CVY_BAD_DATA : CVY_OK);
    if (reason) {
        assert_error(reason);
        assert_error("\"test.safetensors\"");
        assert_null(file.tensors);
    }
    cvy_tensor_file_close(&file);
    free(content);
}

#define ENTRY(name, type, shape, begin, end)                                                                           \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_damaged_headers(void **state)
{
    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "}", 8, NULL);
    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "}   ", 8, NULL);
    check_header("{" ENTRY("b", "U8", "[4]", "4", "8") "," ENTRY("a", "F32", "[1]", "0", "4") "}", 8, NULL);
    check_header("{" ENTRY("z", "F32", "[0]", "4", "4") "," ENTRY("a", "F32", "[1]", "0", "4") "}", 4, NULL);
    check_header("{\"__metadata__\":{}}", 0, NULL);

    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "}", 7, "truncated");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "}", 9, "1 bytes at the end");
    check_header("{}", 1, "1 bytes at the end");
    check_header("{" ENTRY("a", "F32", "[2]", "4", "12") "}", 12, "leaves a hole");
    check_header("{" ENTRY("a", "F32", "[1]", "0", "4") "," ENTRY("b", "F32", "[1]", "8", "12") "}", 12,
                 "leaves a hole");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[2]", "4", "12") "}", 12, "overlaps");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "8") "," ENTRY("b", "F32", "[2]", "0", "8") "}", 8, "overlaps");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "4") "}", 4, "need 8");
    check_header("{" ENTRY("a", "F32", "[2]", "8", "0") "}", 8, "impossible \"data_offsets\"");
}

static void test_damaged_entries(void **state)
{
    check_header("{" ENTRY("a", "F32", "[2]", "-8", "0") "}", 8, "impossible \"data_offsets\"");
    check_header("{" ENTRY("a", "F32", "[2]", "0.0", "8") "}", 8, "impossible \"data_offsets\"");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "18446744073709551616") "}", 8, "impossible \"data_offsets\"");
    check_header("{" ENTRY("a", "F32", "[2]", "0", "9223372036854775807") "}", 8, "truncated");
    check_header("{" ENTRY("a", "F8_E4M3", "[2]", "0", "2") "}", 2, "type \"F8_E4M3\", which is not supported");
    check_header("{" ENTRY("a", "f32", "[2]", "0", "8") "}", 8, "not supported");
    check_header("{" ENTRY("a", "F32", "[-2]", "0", "8") "}", 8, "dimension that is not a whole number");
    check_header("{" ENTRY("a", "F32", "[2.0]", "0", "8") "}", 8, "dimension that is not a whole number");
    check_header("{" ENTRY("a", "F32", "[\"2\"]", "0", "8") "}", 8, "dimension that is not a whole number");
    check_header("{" ENTRY("a", "F32", "[1,1,1,1,1,2]", "0", "8") "}", 8, "6 dimensions");
    check_header("{" ENTRY("a", "F32", "{}", "0", "8") "}", 8, "no \"shape\"");
    check_header("{" ENTRY("", "F32", "[2]", "0", "8") "}", 8, "a tensor has no name");
    check_header("{" ENTRY("a", "F64", "[4611686018427387904,2]", "0", "0") "}", 0, "impossible size");
    check_header("{" ENTRY("a", "F64", "[2305843009213693952]", "0", "0") "}", 0, "impossible size");
    check_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "no \"data_offsets\"");
    check_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", 8, "no \"data_offsets\"");
    check_header("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no \"dtype\"");
    check_header("{\"a\":[]}", 0, "not described by an object");
    check_header("{\"__metadata__\":[]}", 0, "\"__metadata__\" is not an object");
    check_header("{\"__metadata__\":{\"k\":1}}", 0, "entry \"k\" is not a string");
    check_header("{" ENTRY("a", "U8", "[1]", "0", "1") "," ENTRY("a", "U8", "[1]", "1", "2") "}", 2, "stands twice");
    check_header("{\"a\\u0000\":{}}", 0, "zero byte");
    check_header("[]", 0, "no header");
    check_header(" {}", 0, "no header");
    check_header("{]", 0, "bad JSON");
}

/* A header of 9 MB whose values would take 192 MiB: three bytes of text make one of 64. */
static void test_many_values(void **state)
{
    enum { VALUES = 3000000 };
    struct cvy_text header = {0};

    cvy_text_puts(&header, "{\"a\":[[]");
    for (int i = 1; i < VALUES; i++)
        cvy_text_puts(&header, ",[]");
    cvy_text_puts(&header, "]}");
    assert_false(header.failed);
    check_header(header.text, 0, "too many values");
    cvy_text_release(&header);
}

static void test_header_length(void **state)
{
    struct cvy_tensor_file file;
    assert_int_equal(cvy_st_open_memory(&file, "x", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), CVY_BAD_DATA);
    assert_error("over the limit");
    assert_int_equal(cvy_st_open_memory(&file, "x", "\x01\xe1\xf5\x05\0\0\0\0{}", 10), CVY_BAD_DATA); /* limit + 1 */
    assert_error("over the limit");
    assert_int_equal(cvy_st_open_memory(&file, "x", "\0\xe1\xf5\x05\0\0\0\0{}", 10), CVY_BAD_DATA); /* the limit */
    assert_error("truncated inside the header");
    assert_int_equal(cvy_st_open_memory(&file, "x", "\x03\0\0\0\0\0\0\0{}", 10), CVY_BAD_DATA);
    assert_int_equal(cvy_st_open_memory(&file, "x", "\0\0\0\0\0\0\0\0", 8), CVY_BAD_DATA);
}

/* Cut at every byte; each copy ends where its allocation ends, so that a sanitizer sees any read past it. */
static void test_truncated(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    assert_int_equal(write_example(path, NULL), CVY_OK);
    void *data;
    size_t size;
    assert_int_equal(cvy_file_read(path, 10000, &data, &size), CVY_OK);
    for (size_t length = 0; length < size; length++) {
        char *copy = malloc(length > 0 ? length : 1);
        assert_non_null(copy);
        memcpy(copy, data, length);
        struct cvy_tensor_file file;
        assert_int_equal(cvy_st_open_memory(&file, "x", copy, length), CVY_BAD_DATA);
        assert_true(strlen(cvy_error()) > 0);
        free(copy);
    }
    cvy_free(data);
}

static void test_failing_memory(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    int64_t n;

    assert_true(test_writing_without_memory(*state, "a.safetensors", write_example, NULL) > 4);
    for (n = 1;; n++) {
        struct cvy_tensor_file file;
        cvy_status status = WITH_FAILURE(n, false, cvy_st_open(&file, path));
        if (status == CVY_OK) {
            cvy_tensor_file_close(&file);
            break;
        }
        assert_int_equal(status, CVY_NO_MEMORY);
        assert_null(file.tensors);
        assert_null(file.mapping.data);
    }
    assert_true(n > 3);
}

static void test_full_disk(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    struct cvy_tensor_file file;

    assert_true(test_full_disk_keeps_old(*state, "a.safetensors", write_example, NULL) > 20);
    assert_int_equal(cvy_st_open(&file, path), CVY_OK);
    cvy_tensor_file_close(&file);
}

static void test_refuses_to_write(void **state)
{
    const char *path = test_path(*state, "a.safetensors");
    const struct cvy_named_tensor huge = {"x", CVY_F64, {2, {INT64_C(1) << 40, INT64_C(1) << 40}}, bytes, 0};
    assert_int_equal(cvy_st_write(path, &huge, 1, NULL, 0), CVY_FAILED);
    assert_int_equal(test_folder_entries(*state), 0);
    assert_int_equal(write_example(test_path(*state, "no/such"), NULL), CVY_CANNOT_CREATE);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(test_round_trip), IN_FOLDER(test_bytes_on_disk), IN_FOLDER(test_empty_file),
          TEST(test_damaged_headers), TEST(test_damaged_entries), TEST(test_header_length), TEST(test_many_values),
          IN_FOLDER(test_truncated), IN_FOLDER(test_failing_memory), IN_FOLDER(test_full_disk),
          IN_FOLDER(test_refuses_to_write))
