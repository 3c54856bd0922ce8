/* What a run leaves for people: its records, a validation in detail, the page. */
#include "base/file.h"
#include "report/drawing/html.h"
#include "report/page/page.h"
#include "report/records/dllogger.h"
#include "run/records/summary.h"
#include "support_folder.h"
#include "support_test.h"

/* ---- pieces ---- */

static void base64(void **state)
{
    /* RFC 4648, section 10. */
    static const char *const cases[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cvy_text text = {0};
        cvy_base64(&text, cases[i][0], strlen(cases[i][0]));
        assert_string_equal(text.text ? text.text : "", cases[i][1]);
        cvy_text_release(&text);
    }
}

static void summary_rules(void **state)
{
    static const struct {
        const char *name;
        double values[3], result;
    } cases[] = {
        {"train.loss", {3, 1, 2}, 1},
        {"val.loss", {3, 2.5, 4}, 2.5},
        {"val.top1", {10, 30, 20}, 30},
        {"val_ema.top5", {10, 30, 20}, 30},
        {"train.total_ips", {10, 20, 60}, 30},
        {"val.data_time", {0, 0, 3}, 1},
        {"train.lr", {3, 2, 1}, 1},
        {"train.grad_scale", {128, 128, 32}, 96},
        {"val.compute_latency", {1, 2, 3}, 2},
        {"val.compute_latency_at99", {1, 3, 2}, 3},
        {"train.bad_images", {0, 1, 1}, 1},
        {"train_throughput", {10, 20, 60}, 30},
        {"eval_latency_p99", {1, 3, 2}, 2},
    };
    struct cvy_run_summary summary = {.count = 0};
    const size_t count = sizeof cases / sizeof *cases;

    for (int epoch = 0; epoch < 3; epoch++)
        for (size_t i = 0; i < count; i++)
            cvy_run_summary_add(&summary, cases[i].name, cases[i].values[epoch]);
    assert_int_equal(summary.count, count);
    for (size_t i = 0; i < count; i++)
        if (fabs(summary.entries[i].value - cases[i].result) > 1e-12)
            fail_msg("%s: %g", cases[i].name, summary.entries[i].value);
}

static cvy_status count_records(void *context, const struct cvy_log_record *record)
{
    int *counts = context;

    counts[record->step_count + 1]++;
    return record->step_count == 3 ? cvy_fail(CVY_BAD_DATA, "enough") : CVY_OK;
}

/* What is no whole record is skipped; a handler ends the reading. */
static void records_are_read(void **state)
{
    const char *path = test_path(*state, "log");
    static const char log[] = "DLLL {\"step\": \"PARAMETER\", \"data\": {}}\n"
                              "other text\n"
                              "DLLL {\"type\": \"METADATA\", \"metric\": \"x\", \"metadata\": {}}\n"
                              "DLLL {\"step\": [0], \"data\": {\"a\": 1}}\n"
                              "DLLL {\"step\": [0, 1, 2, 3], \"data\": {}}\n"
                              "DLLL {\"step\": [1.5], \"data\": {}}\n"
                              "DLLL {\"step\": [1], \"data\": []}\n"
                              "DLLL {\"step\": \"OTHER\", \"data\": {}}\n"
                              "DLLL {\"step\": [0, 1], \"da\n"
                              "DLLL {\"step\": [], \"data\": {}}\n"
                              "DLLL {\"step\": [7], \"data\": {}}"; /* half a line */
    int counts[5] = {0};

    test_file_write(path, log, sizeof log - 1);
    assert_int_equal(cvy_dllogger_read(path, count_records, counts), CVY_OK);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 1);
    assert_int_equal(counts[3] + counts[4], 0);
    static const char two[] = "DLLL {\"step\": [0, 1, 2], \"data\": {}}\nDLLL {\"step\": [0], \"data\": {}}\n";
    test_file_write(path, two, sizeof two - 1);
    assert_int_equal(cvy_dllogger_read(path, count_records, counts), CVY_BAD_DATA);
    assert_int_equal(counts[2], 1);
    assert_int_equal(cvy_dllogger_read(test_path(*state, "none"), count_records, counts), CVY_NO_INPUT);
    assert_int_equal(cvy_dllogger_read("/dev/null", count_records, counts), CVY_OK);
}

/* ---- a validation ---- */

enum { SIDE = 160 };

static void add_image(struct cvy_collector *collector, int32_t label, int32_t predicted, double loss, const char *file)
{
    static uint8_t pixels[SIDE * SIDE * 3];
    const struct cvy_validation_image image = {
        .label = label,
        .predicted = predicted,
        .in_topk = loss < 3,
        .loss = loss,
        .probability = 0.75,
        .label_probability = exp(-loss),
        .file = file,
        .offset = label == 3 ? 4711 : -1,
        .image = pixels,
        .size = SIDE,
    };

    memset(pixels, 40 * label, sizeof pixels);
    assert_int_equal(cvy_collector_add(collector, &image), CVY_OK);
}

/* Class 0: 30 images, all right; 1: 20, of which 5 are taken for 2; 2: 40, of which 39 are taken for 0; 3: none but
 * one from a record; 4: none. */
static void fill(struct cvy_collector *collector)
{
    char file[32];

    for (int i = 0; i < 30; i++)
        add_image(collector, 0, 0, 0.1, "right.jpg");
    for (int i = 0; i < 20; i++)
        add_image(collector, 1, i < 5 ? 2 : 1, i < 5 ? 2 : 0.2, "a/one<1>.jpg");
    for (int i = 0; i < 40; i++) {
        snprintf(file, sizeof file, "b/%02d.jpg", i);
        add_image(collector, 2, i < 39 ? 0 : 2, 3 + (i * 7 % 39) / 10.0, file);
    }
    add_image(collector, 3, 1, NAN, "shard");
    add_image(collector, 3, 1, 9, "shard");
}

static void check_validation(const struct cvy_validation *v)
{
    char buffer[32];

    assert_int_equal(v->class_count, 5);
    assert_int_equal(v->cell_count, 6);
    assert_true(v->cells[0].label == 2 && v->cells[0].predicted == 0 && v->cells[0].count == 39);
    assert_true(v->cells[1].label == 0 && v->cells[1].predicted == 0 && v->cells[1].count == 30);
    assert_true(v->cells[4].label == 3 && v->cells[4].predicted == 1 && v->cells[4].count == 2);
    assert_int_equal(v->class_images[2], 40);
    assert_int_equal(v->class_hits[2], 1);
    assert_int_equal(v->class_topk_hits[2], 0);
    assert_int_equal(v->class_topk_hits[1], 20);
    assert_int_equal(v->class_predicted[0], 69);
    assert_int_equal(v->class_images[4], 0);
    assert_string_equal(cvy_validation_class(v, 1, buffer), "<b>one & only</b>");
    assert_string_equal(cvy_validation_class(v, 4, buffer), "class 4"); /* four names for five classes */
    /* The largest loss first; what is no number is in no list of the worst. */
    assert_int_equal(v->worst_count, CVY_WORST_IMAGES);
    assert_string_equal(v->worst[0].file, "shard@4711");
    assert_true(v->worst[0].loss == 9 && v->worst[0].predicted == 1);
    for (size_t i = 1; i < v->worst_count; i++) {
        assert_true(v->worst[i].loss <= v->worst[i - 1].loss);
        assert_int_equal(v->worst[i].label, 2);
        assert_memory_equal(v->worst[i].thumbnail, "/9j/", 4); /* a JPEG begins with ff d8 ff */
    }
    assert_true(v->worst[1].loss == 3 + 3.8);
    assert_true(fabs(v->worst[1].label_probability - exp(-6.8)) < 1e-12);
}

static void collect(struct cvy_validation *v)
{
    static const char *const names[] = {"zero", "<b>one & only</b>", "two", "three"};
    struct cvy_collector collector;

    assert_int_equal(cvy_collector_open(&collector, 5, 2), CVY_OK);
    add_image(&collector, 1, 2, 50, "of another pass");
    cvy_collector_clear(&collector);
    fill(&collector);
    assert_int_equal(cvy_collector_add(&collector, &(struct cvy_validation_image){.label = 5}), CVY_BAD_DATA);
    assert_int_equal(cvy_collector_finish(&collector, names, 4, v), CVY_OK);
    cvy_collector_close(&collector);
    cvy_collector_close(&collector);
    v->epoch = 7;
    v->images = 92;
    v->skipped = 1;
    v->top1 = 50;
    v->topk = 54.25;
    v->loss = 1.5;
}

static void validation_round_trip(void **state)
{
    const char *path = test_path(*state, "validation.json");
    struct cvy_validation v, again;
    size_t size;

    collect(&v);
    check_validation(&v);
    assert_int_equal(cvy_validation_write(&v, path), CVY_OK);
    assert_int_equal(cvy_validation_read(&again, path), CVY_OK);
    check_validation(&again);
    assert_true(again.epoch == 7 && again.images == 92 && again.skipped == 1 && again.top_k == 2);
    assert_true(again.top1 == 50 && again.topk == 54.25 && again.loss == 1.5);
    cvy_validation_release(&again);
    cvy_validation_release(&v);

    /* Damage anywhere is an error with the file's name or a validation that is well-formed, never more. */
    char *text = read_text(path, &size);
    for (size_t at = 0; at < size; at += at < 700 ? 1 : 997) {
        const char old = text[at];
        text[at] = old == '1' ? '9' : '1';
        test_file_write(path, text, size);
        if (cvy_validation_read(&again, path) != CVY_OK)
            assert_error("validation.json");
        cvy_validation_release(&again);
        text[at] = old;
    }
    test_file_write(path, text, size / 2);
    assert_int_equal(cvy_validation_read(&again, path), CVY_BAD_DATA);
    static const char *const bad[] = {"{}", "[]", "{\"format\": 2}", "{\"format\": 1, \"epoch\": 0, \"images\": 1}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        test_file_write(path, bad[i], strlen(bad[i]));
        assert_int_equal(cvy_validation_read(&again, path), CVY_BAD_DATA);
    }
    assert_int_equal(cvy_validation_read(&again, test_path(*state, "none")), CVY_NO_INPUT);
    cvy_free(text);
}

/* Memory that runs out anywhere in a pass is an error and loses nothing. */
static void failing_memory(void **state)
{
    int64_t n = 1;

    for (;; n++) {
        struct cvy_collector collector = {0};
        struct cvy_validation v = {.epoch = 0};
        const struct cvy_validation_image image = {
            .label = 1, .loss = 1, .file = "a", .offset = -1, .image = (const uint8_t *)"\1\2\3", .size = 1};
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_collector_open(&collector, 2, 1);
        if (status == CVY_OK)
            status = cvy_collector_add(&collector, &image);
        if (status == CVY_OK)
            status = cvy_collector_finish(&collector, NULL, 0, &v);
        if (status == CVY_OK)
            status = cvy_page_of_validation(test_path(*state, "page.html"), "x", &v);
        cvy_memory_fail_after(0, false);
        cvy_collector_close(&collector);
        cvy_validation_release(&v);
        if (status == CVY_OK)
            break;
        /* Where the name of the file cannot be kept, the file cannot be written. */
        assert_true(status == CVY_NO_MEMORY || status == CVY_CANNOT_WRITE);
    }
    assert_true(n > 10);
}

/* ---- pages ---- */

/* Nothing is fetched from anywhere, nothing of a name is markup, and every element that is opened is closed. */
static void check_page(const char *text)
{
    static const char *const elements[] = {"div", "section", "table",  "tr",         "td",   "th",
                                           "svg", "text",    "figure", "figcaption", "span", "p",
                                           "dl",  "dt",      "dd",     "details",    "h2",   "h3"};

    assert_memory_equal(text, "<!DOCTYPE html>", 15);
    assert_null(strstr(text, "http:"));
    assert_null(strstr(text, "https:"));
    assert_null(strstr(text, "<link"));
    assert_null(strstr(text, "src=\"/"));
    assert_int_equal(count_of(text, "src=\""), count_of(text, "src=\"data:image/jpeg;base64,"));
    assert_null(strstr(text, "<b>one"));
    assert_null(strstr(text, "one<1>"));
    assert_null(strstr(text, ">nan"));
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        char open[32], open_with[32], close[32];
        snprintf(open, sizeof open, "<%s>", elements[i]);
        snprintf(open_with, sizeof open_with, "<%s ", elements[i]);
        snprintf(close, sizeof close, "</%s>", elements[i]);
        if (count_of(text, open) + count_of(text, open_with) != count_of(text, close))
            fail_msg("%s: %zu and %zu opened, %zu closed", elements[i], count_of(text, open), count_of(text, open_with),
                     count_of(text, close));
    }
}

static void page_of_validation(void **state)
{
    const char *path = test_path(*state, "page.html");
    struct cvy_validation v;

    collect(&v);
    assert_int_equal(cvy_page_of_validation(path, "resnet50", &v), CVY_OK);
    char *text = read_text(path, NULL);
    check_page(text);
    assert_int_equal(count_of(text, "<figure"), CVY_WORST_IMAGES);
    assert_non_null(strstr(text, "&#60;b&#62;one &#38; only&#60;/b&#62;"));
    assert_non_null(strstr(text, "title=\"two taken for zero: 97.5 %\">39</td>"));
    assert_non_null(strstr(text, "shard@4711"));
    /* e^-9 of the truth, three quarters of what was said. */
    assert_non_null(
        strstr(text, "</b> 75.0\xC2\xA0%</span><br><span class=\"is\">is <b>three</b> 0.01\xC2\xA0%</span>"));
    cvy_free(text);
    assert_int_equal(cvy_page_of_validation(test_path(*state, "no/page.html"), "x", &v), CVY_CANNOT_CREATE);
    cvy_validation_release(&v);
}

/* A thousand classes have no matrix that one could read: the top confusions instead. */
static void page_of_many_classes(void **state)
{
    const char *path = test_path(*state, "page.html");
    struct cvy_collector collector;
    struct cvy_validation v;
    struct cvy_validation_image image = {.loss = 1, .offset = -1};

    assert_int_equal(cvy_collector_open(&collector, 1000, 5), CVY_OK);
    for (int32_t i = 0; i < 20000; i++) {
        image.label = i % 1000;
        image.predicted = i % 7 == 0 ? (i * 13 + 1) % 1000 : image.label;
        assert_int_equal(cvy_collector_add(&collector, &image), CVY_OK);
    }
    assert_int_equal(cvy_collector_finish(&collector, NULL, 0, &v), CVY_OK);
    cvy_collector_close(&collector);
    v.images = 20000;
    assert_int_equal(cvy_page_of_validation(path, "many", &v), CVY_OK);
    cvy_validation_release(&v);
    char *text = read_text(path, NULL);
    check_page(text);
    assert_null(strstr(text, "class=\"matrix\""));
    assert_non_null(strstr(text, "All 1000 classes"));
    assert_int_equal(count_of(text, "<tr>"), 1 + 1000 + 1 + 60);
    assert_true(strlen(text) < 1 << 19);
    cvy_free(text);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    test_file_write(test_path(folder, name), text, strlen(text));
}

/* The page of a run whose files are partly there: still running, or of an older version. */
static void page_of_run(void **state)
{
    const char *folder = *state;
    struct cvy_validation v;

    assert_fails(cvy_report(folder, NULL), CVY_NO_INPUT, "is not a run directory");
    write_file(folder, "options.json",
               "{\"data\": \"/data/<photos>\", \"run\": {\"workers\": 2}, \"result\": {\"arch\": \"resnet18\", "
               "\"epochs\": 3, \"lr\": 0.25, \"nesterov\": true, \"topk\": 3, \"freeze\": \"<x>\"}}");
    assert_int_equal(cvy_report(folder, NULL), CVY_OK);
    char *text = read_text(test_path(folder, "report.html"), NULL);
    check_page(text);
    assert_non_null(strstr(text, "<h1>resnet18 on &#60;photos&#62;</h1>"));
    assert_non_null(strstr(text, "0 of 3 epochs are done"));
    assert_non_null(strstr(text, "<dt>nesterov</dt><dd>yes</dd>"));
    assert_null(strstr(text, "class=\"panel notes\""));
    cvy_free(text);

    write_file(folder, "metrics.csv",
               "epoch,train.loss,val.loss,val.top1,val.top3,val_ema.loss,val_ema.top1,val_ema.top3,train.lr\n"
               "0,2,1.5,40,80,1.4,41.5,81,0.25\n1,1,,,,,,,0.125\n");
    write_file(folder, "experiment_raport.json",
               "DLLL {\"datetime\": \"2026-01-02 03:04:05.678901\", \"step\": \"PARAMETER\", \"data\": "
               "{\"data.steps_per_epoch\": 20, \"environment.cpu\": \"a <CPU>\", \"epochs\": 3}}\n"
               "DLLL {\"step\": [0, 10], \"data\": {\"train.loss\": 2.5, \"train.total_ips\": 99, \"train.lr\": 0.25, "
               "\"train.grad_scale\": 64}}\n"
               "DLLL {\"step\": [0, 10], \"data\": {\"diagnosis.learning_rate\": \"too <high>\"}}\n"
               "DLLL {\"step\": [0], \"data\": {\"train.total_ips\": 98, \"train.data_time\": 1, "
               "\"train.compute_time\": 3, \"val.total_ips\": 200}}\n"
               "DLLL {\"step\": [1], \"data\": {\"train.total_ips\": 97, \"diagnosis.one_class\": 5}}\nDLLL {\"st");
    collect(&v);
    assert_int_equal(cvy_validation_write(&v, test_path(folder, "validation.json")), CVY_OK);
    cvy_validation_release(&v);
    assert_int_equal(cvy_report(folder, test_path(folder, "other.html")), CVY_OK);
    text = read_text(test_path(folder, "other.html"), NULL);
    check_page(text);
    assert_non_null(strstr(text, "2 of 3 epochs are done; from 2026-01-02 03:04:05 to"));
    assert_non_null(strstr(text, "Epoch 1, step 10:</b> too &#60;high&#62;."));
    assert_int_equal(count_of(text, "aria-label="), 5); /* loss, accuracy, rate, speed, scale */
    assert_non_null(strstr(text, "its top-3"));
    assert_non_null(strstr(text, ">EMA 41.50</text>"));
    assert_non_null(strstr(text, "25.0 %"));
    assert_non_null(strstr(text, "<dt>environment.cpu</dt><dd>a &#60;CPU&#62;</dd>"));
    cvy_free(text);

    write_file(folder, "metrics.csv", "epoch,train.loss\n0,x\n");
    assert_int_equal(cvy_report(folder, NULL), CVY_BAD_DATA);
    write_file(folder, "metrics.csv", "epoch,train.loss\n");
    write_file(folder, "validation.json", "{");
    assert_int_equal(cvy_report(folder, NULL), CVY_BAD_DATA);
}

/* Write the page of a run whose best epoch was its second of three, and whose loss rose for once. */
static char *page_of_uneven_run(const char *folder)
{
    write_file(folder, "options.json",
               "{\"data\": \"/data/my photos\", \"run\": {}, \"result\": {\"arch\": \"resnet18\", \"epochs\": 8, "
               "\"topk\": 3}}");
    write_file(folder, "metrics.csv",
               "epoch,train.loss,val.loss,val.top1,val.top3,train.lr\n0,2,1.5,40,80,0.1\n1,1.25,0.75,91.5,97,0.1\n"
               "2,1.5,442071.9062,20,60,0.1\n3,1.4,1.1,60,80,0.1\n4,1.3,1234567890,70,85,0.1\n");
    assert_int_equal(cvy_report(folder, NULL), CVY_OK);
    return read_text(test_path(folder, "report.html"), NULL);
}

/* The details are those of the weights that one takes along, where they were kept; tiles say which epoch they are of.
 */
static void page_is_of_the_best_weights(void **state)
{
    const char *folder = *state;
    struct cvy_validation v;
    char *text;

    collect(&v);
    v.epoch = 4;
    v.top1 = 70;
    assert_int_equal(cvy_validation_write(&v, test_path(folder, "validation.json")), CVY_OK);
    text = page_of_uneven_run(folder);
    check_page(text);
    assert_non_null(strstr(text, "those of the last validation, not of the best weights: epoch 5, "));
    cvy_free(text);
    v.epoch = 1;
    v.top1 = 91.5;
    assert_int_equal(cvy_validation_write(&v, test_path(folder, "validation_best.json")), CVY_OK);
    text = page_of_uneven_run(folder);
    check_page(text);
    assert_non_null(strstr(text, "those of model_best.safetensors: epoch 2, "));
    assert_non_null(strstr(text, "<b>91.50 %</b><span>best top-1, epoch 2</span>"));
    assert_non_null(strstr(text, "<b>97.00 %</b><span>its top-3</span>"));
    assert_non_null(strstr(text, "<b>0.7500</b><span>its validation loss</span>"));
    assert_non_null(strstr(text, "<b>1.2500</b><span>its training loss</span>"));
    assert_non_null(strstr(text, "<b>70.00 %</b><span>last top-1, epoch 5</span>"));
    cvy_free(text);
    v.epoch = 2; /* of an older run in the same folder */
    assert_int_equal(cvy_validation_write(&v, test_path(folder, "validation_best.json")), CVY_OK);
    text = page_of_uneven_run(folder);
    assert_non_null(strstr(text, "not of the best weights: epoch 5, "));
    cvy_free(text);
    write_file(folder, "validation_best.json", "{");
    text = page_of_uneven_run(folder);
    assert_non_null(strstr(text, "not of the best weights: epoch 5, "));
    cvy_free(text);
    cvy_validation_release(&v);
}

/* Two losses that went through the roof do not flatten the others; they are marked. Parts follow in their order, and
 * the end says what to do next, in words that a shell takes. */
static void page_keeps_its_structure(void **state)
{
    static const char *const order[] = {"<h1>",
                                        "class=\"cards\"",
                                        "<h2>Curves</h2>",
                                        "<h2>Validation</h2>",
                                        "<h2>Accuracy by class</h2>",
                                        "<h2>Confusions</h2>",
                                        "<h2>The most wrong images</h2>",
                                        "<h2>Configuration</h2>",
                                        "<section class=\"next\"><h2>What to do next</h2>",
                                        "</main>"};
    const char *folder = *state;
    struct cvy_validation v;
    char *text, *at;

    collect(&v);
    v.epoch = 4;
    assert_int_equal(cvy_validation_write(&v, test_path(folder, "validation.json")), CVY_OK);
    cvy_validation_release(&v);
    text = at = page_of_uneven_run(folder);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        at = strstr(at, order[i]);
        if (!at)
            fail_msg("%s is missing, or not after what should be before it", order[i]);
    }
    assert_int_equal(count_of(text, ", beyond the axis, epochs "), 2);
    assert_non_null(strstr(text, "<title>validation 442072, beyond the axis, epochs 3</title>"));
    assert_int_equal(count_of(text, "class=\"clipped\""), 1);
    assert_non_null(strstr(text, "class=\"clipped\">1.23457e+09</text>"));
    assert_non_null(strstr(text, ">1.5</text>")); /* a tick: the axis is that of the usual losses */
    assert_non_null(strstr(text, "<code>convoy train '/data/my photos' --resume "));
    assert_non_null(strstr(text, "/model_best.safetensors network.onnx</code>"));
    /* No word of more than twelve letters in a tile at 400 pixels, and any word may be broken. */
    for (at = text; (at = strstr(at, "<div><b>")); at += 8)
        assert_true(strcspn(at + 8, " <") <= 12);
    assert_non_null(strstr(text, ".cards b { display: block; overflow-wrap: anywhere;"));
    assert_non_null(strstr(text, "@media (prefers-color-scheme: dark)"));
    assert_non_null(strstr(text, "@media (max-width: 520px)"));
    cvy_free(text);
}

RUN_TESTS(NULL, NULL, TEST(base64), TEST(summary_rules), IN_FOLDER(records_are_read), IN_FOLDER(validation_round_trip),
          IN_FOLDER(failing_memory), IN_FOLDER(page_of_validation), IN_FOLDER(page_of_many_classes),
          IN_FOLDER(page_of_run), IN_FOLDER(page_is_of_the_best_weights), IN_FOLDER(page_keeps_its_structure))
