/* Lists of images: classes, labels, paths, and what is said of lines that are wrong. */

#include "data/set/dataset.h"
#include "data/set/list.h"
#include "support_folder.h"
#include "support_test.h"

static struct cvy_dataset set;

/* Write a list into the test's folder. */
static const char *write_list(void **state, const char *name, const char *text)
{
    const char *path = test_path(*state, name);
    test_file_write(path, text, strlen(text));
    return path;
}

static void assert_sample(void **state, uint32_t index, const char *path, int32_t label)
{
    assert_true(index < set.sample_count);
    assert_string_equal(set.samples[index].path, path[0] == '/' ? path : test_path(*state, path));
    assert_int_equal(set.samples[index].label, label);
}

static void assert_refused(cvy_status status, const char *words)
{
    assert_int_equal(status, CVY_BAD_DATA);
    assert_error(words);
    assert_null(set.samples);
}

/* Names in bytewise order; Windows' ends of lines, an empty line, no end of the last one, absolute paths, spaces. */
static void labels_are_names(void **state)
{
    const char *list = write_list(state, "train.tsv",
                                  "\xEF\xBB\xBF"
                                  "b/2.jpg\tdog\r\n"
                                  "\n"
                                  "/far/away.jpg\tcat\n"
                                  "a b.jpg\tdog\n"
                                  "a.jpg\tZebra 7\n"
                                  "../x.jpg\t12");
    assert_int_equal(cvy_dataset_open(&set, list, NULL, 0), CVY_OK);
    assert_int_equal(set.class_count, 4);
    assert_string_equal(set.classes[0], "12");
    assert_string_equal(set.classes[1], "Zebra 7");
    assert_string_equal(set.classes[2], "cat");
    assert_string_equal(set.classes[3], "dog");
    assert_int_equal(set.sample_count, 5);
    assert_sample(state, 0, "../x.jpg", 0);
    assert_sample(state, 1, "a.jpg", 1);
    assert_sample(state, 2, "/far/away.jpg", 2);
    assert_sample(state, 3, "a b.jpg", 3);
    assert_sample(state, 4, "b/2.jpg", 3);
    cvy_dataset_close(&set);
}

/* Numbers are indices: ordered as numbers, with places for classes that the list does not name. */
static void labels_are_indices(void **state)
{
    const char *list = write_list(state, "train.tsv", "a.jpg\t10\nb.jpg\t2\nc.jpg\t0\n");
    assert_int_equal(cvy_dataset_open(&set, list, NULL, 0), CVY_OK);
    assert_int_equal(set.class_count, 11);
    assert_string_equal(set.classes[10], "10");
    assert_sample(state, 0, "c.jpg", 0);
    assert_sample(state, 1, "b.jpg", 2);
    assert_sample(state, 2, "a.jpg", 10);
    cvy_dataset_close(&set);
}

static void given_classes_decide(void **state)
{
    static const char *const animals[] = {"dog", "cat", "1"}, *const folders[] = {"0", "1", "10", "2"};
    const char *names = write_list(state, "names.tsv", "a.jpg\tcat\nb.jpg\tdog\nc.jpg\t1\n");
    const char *numbers = write_list(state, "numbers.tsv", "a.jpg\t0\nb.jpg\t2\nc.jpg\t1\n");
    const char *mixed = write_list(state, "mixed.tsv", "a.jpg\tcat\nb.jpg\t0\n");
    const char *other = write_list(state, "other.tsv", "a.jpg\tcat\n\nb.jpg\tcow\n");
    const char *far = write_list(state, "far.tsv", "a.jpg\t0\nb.jpg\t1\nc.jpg\t3\n");

    assert_int_equal(cvy_dataset_open_list(&set, names, animals, 3), CVY_OK);
    assert_sample(state, 0, "b.jpg", 0);
    assert_sample(state, 1, "a.jpg", 1);
    assert_sample(state, 2, "c.jpg", 2); /* the class called 1 */
    cvy_dataset_close(&set);
    assert_int_equal(cvy_dataset_open_list(&set, numbers, animals, 3), CVY_OK);
    assert_sample(state, 1, "c.jpg", 1); /* not all are names: all are indices */
    cvy_dataset_close(&set);
    assert_int_equal(cvy_dataset_open_list(&set, numbers, folders, 4), CVY_OK);
    assert_sample(state, 2, "b.jpg", 3); /* all are names */
    cvy_dataset_close(&set);
    assert_refused(cvy_dataset_open_list(&set, mixed, animals, 2), "line 2");
    assert_refused(cvy_dataset_open_list(&set, other, animals, 2), "line 3");
    assert_refused(cvy_dataset_open_list(&set, other, animals, 2), "\"cow\" is not among the classes");
    assert_refused(cvy_dataset_open_list(&set, far, animals, 3), "line 3");
    assert_refused(cvy_dataset_open_list(&set, far, animals, 3), "there are 3 classes");
}

static void bad_lines_are_named(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "names no images"},
        {"\n\r\n\n", "names no images"},
        {"a.jpg\tcat\nb.jpg,cat\n", "line 2 of"},
        {"a.jpg\tcat\nb.jpg,cat\n", "has no tab"},
        {"a.jpg\tcat\tdog\n", "more than one tab"},
        {"\n\n\tcat\n", "line 3 of"},
        {"\tcat\n", "no path"},
        {"a.jpg\t\r\n", "no label"},
        {"a.jpg\t3\nb.jpg\t1000000\n", "line 2 of"},
        {"a.jpg\t99999999999999999999999999\n", "above 999999"},
    };
    char *large = malloc(6000);
    const char *list;

    assert_non_null(large);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        list = write_list(state, "bad.tsv", cases[i].text);
        assert_refused(cvy_dataset_open_list(&set, list, NULL, 0), cases[i].words);
    }
    memset(large, 'x', 6000);
    memcpy(large, "a.jpg\t", 6);
    large[5999] = '\0';
    assert_refused(cvy_dataset_open_list(&set, write_list(state, "bad.tsv", large), NULL, 0), "more than 255 bytes");
    large[5] = 'x';
    large[5990] = '\t';
    assert_refused(cvy_dataset_open_list(&set, write_list(state, "bad.tsv", large), NULL, 0), "more than 4095 bytes");
    free(large);
    list = test_path(*state, "binary");
    test_file_write(list, "a.jpg\t1\0\n", 9);
    assert_refused(cvy_dataset_open_list(&set, list, NULL, 0), "it is no text");
    assert_int_equal(cvy_dataset_open_list(&set, test_path(*state, "missing"), NULL, 0), CVY_NO_INPUT);
}

static uint32_t count_label(const struct cvy_dataset *of, int32_t label)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < of->sample_count; i++)
        count += of->samples[i].label == label;
    return count;
}

/* A list stands where a folder may stand: with a list for validation, or split by class. */
static void lists_make_pairs(void **state)
{
    struct cvy_dataset val;
    char text[2048] = "";
    const char *train, *other;

    for (int i = 0; i < 40; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%02d.jpg\t%s\n", i, i < 30 ? "many" : "few");
    train = write_list(state, "train.tsv", text);
    other = write_list(state, "val.tsv", "x.jpg\tmany\n");
    assert_int_equal(cvy_dataset_open_pair(train, NULL, 0.2, 7, &set, &val), CVY_OK);
    assert_int_equal(count_label(&set, 0), 8);
    assert_int_equal(count_label(&set, 1), 24);
    assert_int_equal(count_label(&val, 0), 2);
    assert_int_equal(count_label(&val, 1), 6);
    cvy_dataset_close(&set);
    cvy_dataset_close(&val);
    assert_int_equal(cvy_dataset_open_pair(train, other, 0, 7, &set, &val), CVY_OK);
    assert_int_equal(set.sample_count, 40);
    assert_int_equal(val.sample_count, 1);
    assert_int_equal(val.samples[0].label, 1);
    assert_int_equal(val.class_count, 2);
    cvy_dataset_close(&set);
    cvy_dataset_close(&val);
    assert_int_equal(cvy_dataset_open_training(&set, train), CVY_OK);
    assert_int_equal(set.sample_count, 40);
    cvy_dataset_close(&set);
    assert_fails(cvy_dataset_open_pair(train, NULL, 0, 7, &set, &val), CVY_NO_INPUT, "--val-list");
    assert_int_equal(cvy_dataset_open_pair(train, other, 0.5, 7, &set, &val), CVY_USAGE);
    assert_null(set.samples);
}

/* No allocation that fails is skipped. */
static void memory_may_run_out(void **state)
{
    static const char *const classes[] = {"b", "a"};
    const char *list = write_list(state, "train.tsv", "a.jpg\ta\nb.jpg\tb\n");
    cvy_status status = CVY_NO_MEMORY;

    for (int given = 0; given < 2; given++, status = CVY_NO_MEMORY) {
        for (int64_t n = 1; status != CVY_OK; n++) {
            assert_true(n < 50);
            status = WITH_FAILURE(n, true, cvy_dataset_open_list(&set, list, given ? classes : NULL, 2));
            if (status != CVY_OK)
                assert_int_equal(status, CVY_NO_MEMORY);
        }
        assert_int_equal(set.sample_count, 2);
        cvy_dataset_close(&set);
    }
}

RUN_TESTS(NULL, NULL, IN_FOLDER(labels_are_names), IN_FOLDER(labels_are_indices), IN_FOLDER(given_classes_decide),
          IN_FOLDER(bad_lines_are_named), IN_FOLDER(lists_make_pairs), IN_FOLDER(memory_may_run_out))
