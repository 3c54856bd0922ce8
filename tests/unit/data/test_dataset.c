/* Folders of images: order, labels, splits, and the sentences for what cannot be a data set. */
#include "data/set/dataset.h"
#include "support_images.h"
#include "support_test.h"

static void add(const char *name)
{
    support_write(support_folder, name, "x", 1); /* listing never looks inside */
}

static void assert_sample(const struct cvy_dataset *set, uint32_t index, const char *name, int32_t label)
{
    assert_true(index < set->sample_count);
    assert_string_equal(set->samples[index].path, below(name));
    assert_int_equal(set->samples[index].label, label);
}

static void folders_become_labels(void **state)
{
    struct cvy_dataset set;
    add("b/2.jpg");
    add("b/10.JPEG");
    add("b/deep/er/1.png");
    add("b/.hidden.jpg");
    add("b/.git/x.jpg");
    add("b/notes.txt");
    add("b/jpg");
    add("Z/x.Png");
    add("a b/it's.jpg");
    add(".thumbs/x.jpg");
    add("stray.jpg");
    assert_int_equal(symlink("2.jpg", below("b/link.jpg")), 0);
    assert_int_equal(symlink("nowhere", below("b/dangling.jpg")), 0);
    assert_int_equal(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_OK);
    assert_int_equal(set.class_count, 3);
    assert_string_equal(set.classes[0], "Z"); /* bytewise: capitals first */
    assert_string_equal(set.classes[1], "a b");
    assert_string_equal(set.classes[2], "b");
    assert_int_equal(set.sample_count, 7);
    assert_sample(&set, 0, "Z/x.Png", 0);
    assert_sample(&set, 1, "a b/it's.jpg", 1);
    assert_sample(&set, 2, "b/10.JPEG", 2);
    assert_sample(&set, 3, "b/2.jpg", 2);
    assert_sample(&set, 4, "b/dangling.jpg", 2); /* reading it will fail and name it */
    assert_sample(&set, 5, "b/deep/er/1.png", 2);
    assert_sample(&set, 6, "b/link.jpg", 2);
    cvy_dataset_close(&set);
    cvy_dataset_close(&set); /* a closed one is fine */
}

/* Files that no decoder reads are counted, hidden ones are not. */
static void other_files_are_counted(void **state)
{
    struct cvy_dataset set;
    struct cvy_other_files many = {0};
    char text[1024], name[32];

    (void)state;
    add("a/1.jpg");
    add("a/2.cr2");
    add("b/deep/2.Cr2");
    add("b/1.png");
    add("b/.hidden.cr2");
    add("b/notes.txt");
    add("b/README");
    add("b/red.\x1b[31m"); /* which is not shown */
    add("b/windows.jfif");
    assert_int_equal(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_OK);
    assert_int_equal(set.others.count, 5);
    cvy_other_files_describe(&set.others, text, sizeof text);
    assert_non_null(strstr(
        text, "5 files in class folders are no images of a kind that is read and are left out: 2 without an ending, "
              "2 .cr2, 1 .txt (the first: "));
    assert_non_null(strstr(text, "a/2.cr2\"); convert images"));
    cvy_dataset_close(&set);

    add("c/only.psd");
    assert_fails(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_BAD_DATA, "\"c\"");
    assert_non_null(strstr(cvy_error(), "1 .psd"));

    for (int i = 0; i < 3 * CVY_OTHER_KINDS; i++) {
        snprintf(name, sizeof name, "x.k%d", i % (CVY_OTHER_KINDS + 1));
        cvy_other_files_add(&many, name);
    }
    cvy_other_files_describe(&many, text, sizeof text);
    assert_non_null(strstr(text, ", 2 other (the first: \"x.k0\")"));
    assert_null(strstr(text, "convert"));
    for (size_t size = 1; size < sizeof text; size += 7) { /* cut, never overrun */
        memset(text, 'x', sizeof text);
        cvy_other_files_describe(&many, text, size);
        assert_true(strlen(text) < size && text[size] == 'x');
    }
    many = (struct cvy_other_files){0};
    assert_string_equal(cvy_other_files_describe(&many, text, sizeof text), "");
}

/* JSON and weights could not hold such a name: a run could not be resumed. */
static void names_are_utf8(void **state)
{
    struct cvy_dataset set, train, val;

    (void)state;
    add("gr\xc3\xbcn/1.jpg");
    add("gr\xc3\xbcn/2.jpg");
    assert_int_equal(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_OK);
    assert_string_equal(set.classes[0], "gr\xc3\xbcn");
    cvy_dataset_close(&set);
    add("gr\xfcn/1.jpg");
    assert_fails(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_BAD_DATA, "\"gr\\xFCn\" is not UTF-8");
    assert_fails(cvy_dataset_open_pair(support_folder, NULL, 0.5, 1, &train, &val), CVY_BAD_DATA, "is not UTF-8");
}

static void given_classes_decide(void **state)
{
    static const char *const classes[] = {"dog", "cat", "cow"};
    struct cvy_dataset set;
    add("cat/1.jpg");
    add("dog/1.jpg");
    assert_int_equal(cvy_dataset_open(&set, support_folder, classes, 3), CVY_OK);
    assert_int_equal(set.class_count, 3);
    assert_sample(&set, 0, "dog/1.jpg", 0);
    assert_sample(&set, 1, "cat/1.jpg", 1);
    cvy_dataset_close(&set);
    assert_fails(cvy_dataset_open(&set, support_folder, classes, 1), CVY_BAD_DATA, "\"cat\"");
    cvy_dataset_close(&set);
}

static void assert_refused(cvy_status status, cvy_status expected, const char *words)
{
    assert_int_equal(status, expected);
    assert_error(words);
}

static void bad_folders_are_named(void **state)
{
    struct cvy_dataset set, val;
    assert_refused(cvy_dataset_open(&set, below("missing"), NULL, 0), CVY_NO_INPUT, "missing");
    assert_refused(cvy_dataset_open(&set, support_folder, NULL, 0), CVY_BAD_DATA, "no class folders");
    add("file");
    assert_refused(cvy_dataset_open(&set, below("file"), NULL, 0), CVY_BAD_DATA, "line 1"); /* a list, then */
    add("train/cat/1.jpg");
    add("train/dog/readme.txt");
    assert_refused(cvy_dataset_open(&set, below("train"), NULL, 0), CVY_BAD_DATA, "\"dog\"");
    add("train/dog/1.jpg");
    assert_refused(cvy_dataset_open_pair(below("nowhere"), NULL, 0, 0, &set, &val), CVY_NO_INPUT, "nowhere");
    assert_refused(cvy_dataset_open_pair(below("train"), NULL, 0, 0, &set, &val), CVY_NO_INPUT, "--val-split");
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 0, 0, &set, &val), CVY_NO_INPUT, "--val-split");
    add("val/cat/1.jpg");
    add("val/cow/1.jpg");
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 0, 0, &set, &val), CVY_BAD_DATA, "\"cow\"");
    assert_null(set.samples);
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 1.5, 0, &set, &val), CVY_USAGE, "--val-split");
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 0.5, 0, &set, &val), CVY_USAGE, "--val-split");
    assert_int_equal(rename(below("val"), below("old")), 0);
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 0.5, 0, &set, &val), CVY_BAD_DATA, "cannot be split");
    assert_int_equal(rename(below("old"), below("val")), 0);
    assert_int_equal(rename(below("val/cow"), below("val/dog")), 0);
    assert_int_equal(unlink(below("val/dog/1.jpg")), 0);
    assert_refused(cvy_dataset_open_pair(support_folder, NULL, 0, 0, &set, &val), CVY_BAD_DATA, "\"dog\"");
    assert_int_equal(symlink(".", below("train/cat/loop")), 0);
    assert_refused(cvy_dataset_open(&set, below("train"), NULL, 0), CVY_BAD_DATA, "nested");
}

static int count_label(const struct cvy_dataset *set, int32_t label)
{
    int count = 0;
    for (uint32_t i = 0; i < set->sample_count; i++)
        count += set->samples[i].label == label;
    return count;
}

static void splits_are_stratified(void **state)
{
    struct cvy_dataset train, val, again, other, all;
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/%02d.jpg", i);
        add(name);
        snprintf(name, sizeof name, "%s/%02d.jpg", i < 2 ? "two" : "some", i % 12);
        add(name);
    }
    assert_int_equal(cvy_dataset_open_pair(support_folder, NULL, 0.25, 7, &train, &val), CVY_OK);
    assert_int_equal(count_label(&train, 0), 30);
    assert_int_equal(count_label(&val, 0), 10);
    assert_int_equal(count_label(&train, 1), 9);
    assert_int_equal(count_label(&val, 1), 3);
    assert_int_equal(count_label(&train, 2), 1); /* at least one on either side */
    assert_int_equal(count_label(&val, 2), 1);
    assert_int_equal(val.class_count, 3);

    /* Every sample is on one side, and both are in the order of the whole. */
    assert_int_equal(cvy_dataset_open(&all, support_folder, NULL, 0), CVY_OK);
    assert_int_equal(train.sample_count + val.sample_count, all.sample_count);
    uint32_t t = 0, v = 0;
    for (uint32_t i = 0; i < all.sample_count; i++) {
        if (t < train.sample_count && strcmp(train.samples[t].path, all.samples[i].path) == 0)
            t++;
        else if (v < val.sample_count && strcmp(val.samples[v].path, all.samples[i].path) == 0)
            v++;
        else
            fail_msg("%s is on no side", all.samples[i].path);
    }
    cvy_dataset_close(&all);

    assert_int_equal(cvy_dataset_open_pair(support_folder, NULL, 0.25, 7, &all, &again), CVY_OK);
    for (uint32_t i = 0; i < val.sample_count; i++)
        assert_string_equal(val.samples[i].path, again.samples[i].path);
    cvy_dataset_close(&all);
    assert_int_equal(cvy_dataset_open_pair(support_folder, NULL, 0.25, 8, &all, &other), CVY_OK);
    bool same = true;
    for (uint32_t i = 0; i < val.sample_count; i++)
        same = same && strcmp(val.samples[i].path, other.samples[i].path) == 0;
    assert_false(same); /* another seed, another split */
    cvy_dataset_close(&all);
    cvy_dataset_close(&again);
    cvy_dataset_close(&other);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

static void train_and_val_share_labels(void **state)
{
    struct cvy_dataset train, val;
    add("train/a/1.jpg");
    add("train/b/1.jpg");
    add("train/c/1.jpg");
    add("val/c/1.jpg");
    assert_int_equal(cvy_dataset_open_pair(support_folder, NULL, 0, 0, &train, &val), CVY_OK);
    assert_int_equal(train.sample_count, 3);
    assert_int_equal(val.sample_count, 1);
    assert_int_equal(val.samples[0].label, 2);
    assert_int_equal(val.class_count, 3);
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);
}

static void lists_keep_what_was_given(void **state)
{
    struct cvy_arena arena = {0};
    const char **paths;
    size_t count;
    add("z/2.jpg");
    add("z/1.png");
    add("z/text.txt");
    add("odd name");
    char *inputs[] = {strdup(below("odd name")), strdup(below("z")), strdup(below("gone.jpg"))};
    assert_int_equal(cvy_list_images((const char *const *)inputs, 3, &arena, &paths, &count), CVY_OK);
    assert_int_equal(count, 4);
    assert_string_equal(paths[0], below("odd name"));
    assert_string_equal(paths[1], below("z/1.png"));
    assert_string_equal(paths[2], below("z/2.jpg"));
    assert_string_equal(paths[3], below("gone.jpg"));
    cvy_arena_release(&arena);
    for (int i = 0; i < 3; i++)
        free(inputs[i]);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(folders_become_labels), IN_FOLDER(other_files_are_counted), IN_FOLDER(names_are_utf8),
          IN_FOLDER(given_classes_decide), IN_FOLDER(bad_folders_are_named), IN_FOLDER(splits_are_stratified),
          IN_FOLDER(train_and_val_share_labels), IN_FOLDER(lists_keep_what_was_given))
