/* Tar archives as data sets: names of every kind, samples in them, and what is wrong with others. */
#include <fcntl.h>

#include "base/file.h"
#include "data/set/record_set.h"
#include "data/set/tar_set.h"
#include "formats/container/tar.h"
#include "support_folder.h"
#include "support_images.h"
#include "support_tar.h"
#include "support_test.h"

static const char *write_tar(const char *name, struct cvy_text *tar)
{
    const char *path = test_path(support_folder, name);

    assert_false(tar->failed);
    test_file_write(path, tar->text ? tar->text : "", tar->length);
    cvy_text_release(tar);
    return path;
}

static void add(struct cvy_text *tar, const char *name, const char *text)
{
    support_tar_add(tar, '0', name, text, strlen(text), NULL);
}

/* ---- archives ---- */

static void assert_members(const char *path, const char *const *names, const char *const *contents, int count)
{
    struct cvy_tar tar;
    struct cvy_tar_member member;
    char text[64] = {0};
    bool found;
    const int file = open(path, O_RDONLY);

    assert_true(file >= 0);
    assert_int_equal(cvy_tar_open(&tar, path, file), CVY_OK);
    for (int i = 0; i < count; i++) {
        if (cvy_tar_next(&tar, &member, &found) != CVY_OK)
            fail_msg("%s", cvy_error());
        assert_true(found);
        assert_string_equal(member.name, names[i]);
        assert_int_equal(member.size, strlen(contents[i]));
        assert_int_equal(member.data, member.header + CVY_TAR_BLOCK);
        assert_int_equal(pread(file, text, member.size, (off_t)member.data), member.size);
        assert_memory_equal(text, contents[i], member.size);
    }
    assert_int_equal(cvy_tar_next(&tar, &member, &found), CVY_OK);
    assert_false(found);
    close(file);
}

static void names_and_sizes(void **state)
{
    struct cvy_text tar = {0}, attributes = {0};
    char gnu[161], pax[201], long_size[12] = {(char)0x80, [11] = 5};

    memset(gnu, 'g', sizeof gnu - 1);
    gnu[160] = 0;
    memset(pax, 'p', sizeof pax - 1);
    pax[200] = 0;
    support_tar_add(&tar, '5', "folder/", "", 0, NULL);
    add(&tar, "folder/one.txt", "first");
    support_tar_add(&tar, 'L', "././@LongLink", gnu, sizeof gnu, NULL);
    add(&tar, "gggg", "second");
    support_tar_add(&tar, 'g', "global", "11 path=no\n", 11, NULL);
    cvy_text_printf(&attributes, "%d path=%s\n", 3 + 1 + 5 + 200 + 1, pax);
    cvy_text_puts(&attributes, "14 mtime=12.5\n");
    support_tar_add(&tar, 'x', "PaxHeaders/p", attributes.text, attributes.length, NULL);
    cvy_text_release(&attributes);
    add(&tar, "pppp", "third");
    support_tar_add(&tar, '2', "link", "", 0, "00000000777");
    support_tar_add(&tar, 0, "old", "fourth", 6, NULL);
    support_tar_add(&tar, '0', "binary", "fifth", 5, long_size);
    support_tar_add(&tar, 'x', "sizes", "11 size=06\n", 11, NULL);
    support_tar_add(&tar, '0', "sized", "sixth!", 6, "00000000000");
    support_tar_end(&tar);
    add(&tar, "after the end", "nothing");
    assert_members(write_tar("all.tar", &tar),
                   (const char *const[]){"folder/one.txt", gnu, pax, "old", "binary", "sized"},
                   (const char *const[]){"first", "second", "third", "fourth", "fifth", "sixth!"}, 6);
}

static void expect_bad(struct cvy_text *tar, const char *sentence)
{
    struct cvy_tar_list list = {0};
    const char *path = write_tar("bad.tar", tar);
    const int file = open(path, O_RDONLY);
    const cvy_status status = cvy_tar_scan(path, file, &list);

    if (status != CVY_BAD_DATA || !strstr(cvy_error(), sentence) || !strstr(cvy_error(), "bad.tar"))
        fail_msg("status %d; \"%s\" is not in: %s", (int)status, sentence, cvy_error());
    cvy_free(list.places);
    close(file);
}

static void bad_archives(void **state)
{
    static const char *const attributes[] = {
        "5 path",     "99 path=x\n", "7 path=x\n",  "x path=x\n",
        "8 nopath\n", "7 path=\n",   "9 size=1x\n", "29 size=99999999999999999999\n",
        "0 a=b\n"};
    struct cvy_text tar = {0};

    add(&tar, "a.jpg", "image");
    tar.text[0] ^= 1;
    expect_bad(&tar, "this is no tar archive, or it is damaged at byte 0");
    add(&tar, "a.jpg", "image");
    add(&tar, "a.cls", "1");
    tar.text[1024 + 157] ^= 1;
    expect_bad(&tar, "a header is damaged at byte 1024");
    add(&tar, "a.jpg", "image");
    expect_bad(&tar, "the block that ends it is missing");
    add(&tar, "a.jpg", "image");
    tar.length -= 509; /* within the bytes */
    expect_bad(&tar, "the archive is truncated within the member at byte 0");
    add(&tar, "a.jpg", "image");
    add(&tar, "a.cls", "1");
    tar.length -= 700; /* within a header */
    expect_bad(&tar, "the archive is truncated at byte 1024");
    support_tar_add(&tar, '0', "a.jpg", "image", 5, "7777777777 ");
    support_tar_end(&tar);
    expect_bad(&tar, "truncated within the member");
    support_tar_add(&tar, '0', "a.jpg", "image", 5, "00000000x00");
    expect_bad(&tar, "a header is damaged");
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        support_tar_add(&tar, 'x', "pax", attributes[i], strlen(attributes[i]), NULL);
        add(&tar, "a.jpg", "image");
        support_tar_end(&tar);
        expect_bad(&tar, "a list of attributes is damaged");
    }
    char *name = cvy_calloc(5000, 1);
    memset(name, 'n', 4999);
    support_tar_add(&tar, 'L', "././@LongLink", name, 5000, NULL);
    expect_bad(&tar, "a name is too long");
    cvy_free(name);
    expect_bad(&tar, "the block that ends it is missing"); /* an empty file */
}

/* ---- samples ---- */

static void bad_samples(void **state)
{
    static const char *const labels[] = {"",    "cat",     "-1",
                                         "1 2", "1000000", "99999999999999999999",
                                         "0x1", "1\n\n.",  "                                 1"};
    static const struct {
        const char *members[4];
        const char *sentence;
    } cases[] = {
        {{"1.jpg", "2.jpg", "2.cls"}, "has an image \"1\" without a label"},
        {{"a/1.jpg", "a/1.cls", "a/2.jpg", "b/2.cls"}, "has an image \"a/2\" without a label"},
        {{"1.cls", "2.jpg"}, "has a label \"1\" without an image"},
        {{"1.jpg", "1.png", "1.cls"}, "has two images \"1\""},
        {{"1.jpg", "1.cls", "2.cls"}, "has a label \"2\" without an image"},
    };
    struct cvy_text tar = {0};

    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        add(&tar, "s.jpg", "x");
        add(&tar, "s.cls", labels[i]);
        support_tar_end(&tar);
        expect_bad(&tar, "\"s.cls\" in");
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int m = 0; m < 4 && cases[i].members[m]; m++)
            add(&tar, cases[i].members[m], "1");
        support_tar_end(&tar);
        expect_bad(&tar, cases[i].sentence);
    }
}

static void write_classes(const char *text)
{
    test_file_write(test_path(support_folder, "classes.txt"), text, strlen(text));
}

static void samples_are_found(void **state)
{
    static const char *const known[] = {"zero", "one", "two", "three"};
    struct bytes jpeg = support_any_jpeg(1, 20, 30);
    struct cvy_text tar = {0};
    struct cvy_dataset train, val;
    struct cvy_encoded encoded;

    add(&tar, "__notes__.json", "{}");
    add(&tar, "x/0001.json", "{}");
    support_tar_add(&tar, '0', "x/0001.jpg", jpeg.data, jpeg.size, NULL);
    add(&tar, "x/0001.cls", " 2\n");
    add(&tar, "x/0002.cls", "0");
    support_tar_add(&tar, '0', "x/0002.JPEG", jpeg.data, jpeg.size, NULL);
    support_tar_end(&tar);
    write_tar("train-000.tar", &tar);
    add(&tar, "x/0003.seg.png", "another file of the sample");
    support_tar_add(&tar, '0', "x/0003.jpg", jpeg.data, jpeg.size, NULL);
    add(&tar, "x/0003.cls", "2");
    add(&tar, "empty.png", "");
    add(&tar, "empty.cls", "3");
    support_tar_end(&tar);
    write_tar("train-001.tar", &tar);
    support_tar_add(&tar, '0', "v.jpg", jpeg.data, jpeg.size, NULL);
    add(&tar, "v.cls", "1");
    support_tar_end(&tar);
    write_tar("val-0.tar", &tar);

    assert_int_equal(cvy_dataset_open_pair(support_folder, NULL, 0, 0, &train, &val), CVY_OK);
    assert_int_equal(train.class_count, 4);
    assert_string_equal(train.classes[3], "3");
    assert_int_equal(train.sample_count, 4);
    assert_int_equal(val.sample_count, 1);
    assert_int_equal(val.samples[0].label, 1);
    static const int32_t labels[] = {0, 2, 2, 3};
    static const char *const names[] = {"x/0002.JPEG", "x/0001.jpg", "x/0003.jpg", "empty.png"};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(train.samples[i].label, labels[i]);
        assert_int_equal(cvy_sample_read(&train.samples[i], &encoded), CVY_OK);
        assert_string_equal(encoded.own, names[i]);
        assert_non_null(strstr(encoded.name, "/train-00"));
        assert_int_equal(encoded.size, i < 3 ? jpeg.size : 0);
        assert_memory_equal(encoded.data, jpeg.data, encoded.size);
        cvy_encoded_release(&encoded);
    }
    cvy_dataset_close(&train);
    cvy_dataset_close(&val);

    /* Names of the classes, and those that are known. */
    write_classes("zero\none\ntwo\nthree\nfour\n");
    assert_int_equal(cvy_dataset_open_records(&train, support_folder, false, NULL, 0), CVY_OK);
    assert_int_equal(train.class_count, 5);
    assert_string_equal(train.classes[1], "one");
    cvy_dataset_close(&train);
    assert_int_equal(cvy_dataset_open_records(&train, support_folder, false, known, 4), CVY_OK);
    assert_int_equal(train.class_count, 4);
    cvy_dataset_close(&train);
    assert_fails(cvy_dataset_open_records(&train, support_folder, false, known, 3), CVY_BAD_DATA,
                 "has images with the label 3, but there are 3 classes");
    write_classes("zero\none\n");
    assert_int_equal(cvy_dataset_open_records(&train, support_folder, false, NULL, 0), CVY_BAD_DATA);
    write_classes("zero\nuno\ntwo\nthree\n");
    assert_fails(cvy_dataset_open_records(&val, support_folder, true, known, 4), CVY_BAD_DATA, "\"uno\"");
    /* A name twice is refused with its lines, empty ones counted; other line ends than \n and \r\n are none. */
    write_classes("zero\r\none\r\n\r\ntwo\r\none\r\nzero\r\n");
    assert_fails(cvy_dataset_open_records(&train, support_folder, false, NULL, 0), CVY_BAD_DATA,
                 "/classes.txt\": lines 2 and 5 name the same class, \"one\"");
    write_classes("zero\rone\rtwo\rthree");
    assert_fails(cvy_dataset_open_records(&train, support_folder, false, NULL, 0), CVY_BAD_DATA, "names 1 class");
    write_classes("zero\none\ntwo\nZERO");
    assert_int_equal(cvy_dataset_open_records(&train, support_folder, false, NULL, 0), CVY_OK);
    assert_string_equal(train.classes[3], "ZERO");
    cvy_dataset_close(&train);
    free(jpeg.data);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(names_and_sizes), IN_FOLDER(bad_archives), IN_FOLDER(bad_samples),
          IN_FOLDER(samples_are_found))
