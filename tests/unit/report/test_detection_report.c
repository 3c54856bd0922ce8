/* A detector's validation: what is kept of it, and its page. */
#include "base/file.h"
#include "eval/detection.h"
#include "report/page/page.h"
#include "support_folder.h"
#include "support_test.h"

enum { IMAGES = 30, SIZE = 16, CLASSES = 3 };

/* Images with one object each, of two classes; the third has none, and no name. */
static struct cvy_coco_image images[IMAGES];
static struct cvy_coco_object objects[IMAGES];
static struct cvy_sample samples[IMAGES];
static const char *classes[CLASSES] = {"cat & <dog>", "otter", NULL};
static const struct cvy_dataset dataset = {
    .classes = classes,
    .class_count = CLASSES,
    .samples = samples,
    .sample_count = IMAGES,
    .detection = true,
    .images = images,
    .objects = objects,
};

static void fill_dataset(void)
{
    for (uint32_t i = 0; i < IMAGES; i++) {
        images[i] = (struct cvy_coco_image){i + 1, 200, 100, i, 1, 0};
        objects[i] = (struct cvy_coco_object){{20, 10, 100, 50}, 5000, (int32_t)(i % 2) + 1, i == 4, 0};
        samples[i].path = i == 7 ? "folder/\"odd\" <name>.jpg" : "folder/picture.jpg";
    }
}

/* Every other object is found; one detection in five is of the class without objects. Pictures come in any order. */
static void make(struct cvy_detection_validation *v)
{
    struct cvy_coco_evaluation evaluation;
    struct cvy_picture_collector pictures;
    struct cvy_coco_result result;
    float pixels[SIZE * SIZE * 3];

    fill_dataset();
    for (int i = 0; i < SIZE * SIZE * 3; i++)
        pixels[i] = (float)(i % 256) + 0.25F;
    assert_int_equal(cvy_coco_open(&evaluation, CLASSES), CVY_OK);
    cvy_pictures_open(&pictures, IMAGES);
    for (uint32_t k = 0; k < IMAGES; k++) {
        const uint32_t i = (k + 11) % IMAGES;
        const struct cvy_detection found[] = {
            {{0.1F, 0.1F, i % 4 < 2 ? 0.6F : 0.2F, 0.6F}, 0.9F, (int32_t)(i % 2)},
            {{0, 0, 1, 1}, 0.5F, i % 5 == 0 ? 2 : 0},
            {{0, 0, 1, 1}, 0.1F, 0},
        };
        assert_int_equal(cvy_detections_evaluate(&evaluation, &dataset, i, found, 3, CVY_AREA_ANNOTATION), CVY_OK);
        assert_int_equal(cvy_detections_picture(&pictures, &dataset, i, pixels, SIZE, found, 3), CVY_OK);
    }
    assert_int_equal(cvy_coco_finish(&evaluation, 2, &result), CVY_OK);
    assert_int_equal(cvy_detections_validation(&result, &dataset, &pictures, v), CVY_OK);
    v->epoch = 4;
    v->skipped = 2;
    cvy_coco_result_release(&result);
    cvy_coco_close(&evaluation);
    cvy_pictures_close(&pictures);
}

static void collected(void **state)
{
    struct cvy_detection_validation v;

    make(&v);
    assert_int_equal(v.images, IMAGES);
    assert_int_equal(v.picture_count, CVY_SHOWN_PICTURES);
    assert_true(v.stats[0] > 0 && v.stats[0] < 1);
    assert_true(v.precisions[0].ap50 > 0 && v.precisions[0].truths == 14); /* and a crowd */
    assert_true(v.precisions[2].ap == -1 && v.precisions[2].curve.precision[0] == -1);
    /* The mean curve is the mean of the two that there are. */
    for (int r = 0; r < CVY_CURVE_POINTS; r++)
        assert_true(fabsf(2 * v.curves[CVY_CURVE_50].precision[r] - v.precisions[0].curve.precision[r] -
                          v.precisions[1].curve.precision[r]) < 1e-6F);
    for (size_t i = 0; i < v.picture_count; i++) {
        assert_int_equal(v.pictures[i].truth_count, 1);
        assert_int_equal(v.pictures[i].found_count, 2); /* a score of 0.1 is not shown */
        assert_true(v.pictures[i].truths[0].box[1] == 0.1F && v.pictures[i].truths[0].box[2] == 0.6F);
        assert_true(v.pictures[i].width == 200 && v.pictures[i].height == 100);
        assert_true(strncmp(v.pictures[i].jpeg, "/9j/", 4) == 0);
    }
    cvy_detection_validation_release(&v);
}

static void written_and_read(void **state)
{
    const char *first = test_path(*state, "first.json"), *second = test_path(*state, "second.json");
    struct cvy_detection_validation v, back;
    bool found = false;

    make(&v);
    assert_int_equal(cvy_detection_validation_write(&v, first), CVY_OK);
    assert_int_equal(cvy_detection_validation_read(&back, first, &found), CVY_OK);
    assert_true(found && back.epoch == 4 && back.skipped == 2 && back.class_count == CLASSES);
    assert_true(back.stats[0] == v.stats[0] && back.precisions[1].ap == v.precisions[1].ap);
    assert_string_equal(back.classes[0], classes[0]);
    assert_null(back.classes[2]);
    assert_int_equal(cvy_detection_validation_write(&back, second), CVY_OK);
    char *one = read_text(first, NULL), *two = read_text(second, NULL);
    assert_string_equal(one, two);
    cvy_free(one);
    cvy_free(two);
    cvy_detection_validation_release(&v);
    cvy_detection_validation_release(&back);
}

/* Another kind of validation is said to be one; damage is refused; nothing of the text gets into a page as markup. */
static void damage(void **state)
{
    const char *path = test_path(*state, "validation.json"), *broken = test_path(*state, "broken.json");
    static const char *const changes[][2] = {
        {"\"format\": 1", "\"format\": 2"},
        {"\"stats\": [", "\"stats\": [0.5, "},
        {"\"classes\": [{", "\"classes\": [3, {"},
        {"\"objects\": [[0", "\"objects\": [[3"},
        {"\"objects\": [[1", "\"objects\": [[-1"},
        {"\"jpeg\": \"/9j/", "\"jpeg\": \"\\\"><script>"},
        {"\"width\": 200", "\"width\": 0"},
        {"\"ap\": ", "\"ap\": 7"},
        {"\"precision75\": [", "\"precision75\": [\"x\", "},
    };
    struct cvy_detection_validation v;
    bool found;

    make(&v);
    assert_int_equal(cvy_detection_validation_write(&v, path), CVY_OK);
    cvy_detection_validation_release(&v);
    char *text = read_text(path, NULL);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct cvy_text changed = {0};
        size_t at = 0;
        while (text[at] && strncmp(text + at, changes[i][0], strlen(changes[i][0])) != 0)
            at++;
        assert_true(text[at] != 0);
        cvy_text_append(&changed, text, at);
        cvy_text_puts(&changed, changes[i][1]);
        cvy_text_puts(&changed, text + at + strlen(changes[i][0]));
        test_file_write(broken, changed.text, changed.length);
        assert_int_equal(cvy_detection_validation_read(&v, broken, &found), CVY_BAD_DATA);
        assert_null(v.arena.head);
        cvy_text_release(&changed);
    }
    for (size_t length = 0; length < strlen(text); length += 997) {
        test_file_write(broken, text, length);
        assert_int_equal(cvy_detection_validation_read(&v, broken, &found), CVY_BAD_DATA);
    }
    test_file_write(broken, "{\"format\": 1, \"epoch\": 0}", 25);
    assert_int_equal(cvy_detection_validation_read(&v, broken, &found), CVY_OK);
    assert_false(found);
    assert_int_equal(cvy_detection_validation_read(&v, test_path(*state, "none"), &found), CVY_NO_INPUT);
    cvy_free(text);
}

static void page_alone(void **state)
{
    const char *path = test_path(*state, "page.html");
    struct cvy_detection_validation v;

    make(&v);
    assert_int_equal(cvy_page_of_detection(path, "ssd320", &v), CVY_OK);
    char *text = read_text(path, NULL);
    assert_int_equal(count_of(text, "<image "), CVY_SHOWN_PICTURES);
    assert_int_equal(count_of(text, "class=\"truth"), CVY_SHOWN_PICTURES);
    assert_int_equal(count_of(text, "class=\"found\""), 2 * CVY_SHOWN_PICTURES);
    assert_non_null(strstr(text, "cat &#38; &#60;dog&#62;"));
    assert_null(strstr(text, "<dog>"));
    assert_non_null(strstr(text, "All 2 classes with objects"));
    assert_non_null(strstr(text, ">class 3 50</text>"));
    cvy_free(text);
    cvy_detection_validation_release(&v);
}

static void page_of_a_run(void **state)
{
    static const char options[] =
        "{\"data\": \"coco\", \"run\": {}, \"result\": {\"arch\": \"ssd320\", \"epochs\": 2}}";
    static const char metrics[] =
        "epoch,train.loss,train.localization_loss,train.classification_loss,train.regularization_loss,"
        "val.ap,val.ap50,val.ap75,val.ap_small,val.ap_medium,val.ap_large,train.lr\n"
        "0,3,1,1.5,0.5,10,20,8,,10,12,0.1\n1,2,0.5,1,0.5,25,40.5,30,,20,32,0.05\n";
    struct cvy_detection_validation v;

    make(&v);
    test_file_write(test_path(*state, "options.json"), options, strlen(options));
    test_file_write(test_path(*state, "metrics.csv"), metrics, strlen(metrics));
    assert_int_equal(cvy_detection_validation_write(&v, test_path(*state, "validation.json")), CVY_OK);
    assert_int_equal(cvy_report(*state, NULL), CVY_OK);
    char *text = read_text(test_path(*state, "report.html"), NULL);
    assert_non_null(strstr(text, "<b>25.0 %</b><span>best AP, epoch 2</span>"));
    assert_non_null(strstr(text, "Parts of the training loss"));
    assert_non_null(strstr(text, "Average precision by size, %"));
    assert_non_null(strstr(text, "small: not measured"));
    assert_non_null(strstr(text, "those of the last validation, not of the best weights: epoch 5, 30 images, AP "));
    assert_int_equal(count_of(text, "<image "), CVY_SHOWN_PICTURES);
    assert_null(strstr(text, "top-1"));
    cvy_free(text);
    cvy_detection_validation_release(&v);
}

static void no_memory(void **state)
{
    const char *path = test_path(*state, "validation.json");
    struct cvy_detection_validation v;
    bool found;

    make(&v);
    assert_int_equal(cvy_detection_validation_write(&v, path), CVY_OK);
    cvy_detection_validation_release(&v);
    for (int64_t n = 1;; n++) {
        const cvy_status status = WITH_FAILURE(n, true, cvy_detection_validation_read(&v, path, &found));
        assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
        cvy_detection_validation_release(&v);
        if (status == CVY_OK)
            break;
    }
}

RUN_TESTS(NULL, NULL, TEST(collected), IN_FOLDER(written_and_read), IN_FOLDER(damage), IN_FOLDER(page_alone),
          IN_FOLDER(page_of_a_run), IN_FOLDER(no_memory))
