/* The run's log, table and plot: their exact form, cutting back on resume, failing writes and memory. */
#include "base/file.h"
#include "formats/json_in.h"
#include "report/drawing/plot.h"
#include "report/records/csv.h"
#include "report/records/dllogger.h"
#include "report/records/line_file.h"
#include "support_folder.h"
#include "support_test.h"

static void assert_content(const char *path, const char *expected)
{
    char *text = read_text(path, NULL);
    assert_string_equal(text, expected);
    cvy_free(text);
}

/* ---- lines ---- */

static void test_lines(void **state)
{
    const char *path = test_path(*state, "log");
    struct cvy_line_file file = {0};
    assert_int_equal(cvy_line_file_add(&file, "dropped"), CVY_OK);
    assert_int_equal(cvy_line_file_offset(&file), 0);
    cvy_line_file_close(&file);

    test_file_write(path, "old content", 11);
    assert_int_equal(cvy_line_file_open(&file, path, 0), CVY_OK);
    assert_content(path, "");
    assert_int_equal(cvy_line_file_add(&file, "one"), CVY_OK);
    assert_content(path, "one\n"); /* flushed at once */
    int64_t checkpoint = cvy_line_file_offset(&file);
    assert_int_equal(checkpoint, 4);
    assert_int_equal(cvy_line_file_add(&file, "two"), CVY_OK);
    cvy_line_file_close(&file);
    cvy_line_file_close(&file);

    /* Resumed from the checkpoint: what came after is cut off. */
    assert_int_equal(cvy_line_file_open(&file, path, checkpoint), CVY_OK);
    assert_int_equal(cvy_line_file_offset(&file), checkpoint);
    assert_int_equal(cvy_line_file_add(&file, "TWO"), CVY_OK);
    cvy_line_file_close(&file);
    assert_content(path, "one\nTWO\n");

    /* Shorter than the checkpoint says (a lost machine): up to its last whole line, no zeros in between. */
    assert_int_equal(cvy_line_file_open(&file, path, 1000), CVY_OK);
    cvy_line_file_close(&file);
    assert_content(path, "one\nTWO\n");
    test_file_write(path, "one\nTW", 6);
    assert_int_equal(cvy_line_file_open(&file, path, 8), CVY_OK);
    assert_int_equal(cvy_line_file_add(&file, "next"), CVY_OK);
    cvy_line_file_close(&file);
    assert_content(path, "one\nnext\n");

    assert_fails(cvy_line_file_open(&file, test_path(*state, "no/such"), 0), CVY_CANNOT_CREATE,
                 "no/such\": No such file");
    assert_int_equal(cvy_line_file_open(&file, *state, 0), CVY_CANNOT_CREATE);
    cvy_line_file_close(&file);
    assert_int_equal(cvy_line_file_open(&file, "/dev/full", 100), CVY_OK);
    assert_fails(cvy_line_file_add(&file, "x"), CVY_CANNOT_WRITE, "/dev/full\": No space left");
    cvy_line_file_close(&file);
}

/* The last whole line lies further back than one block that is searched. */
static void test_long_broken_line(void **state)
{
    const char *path = test_path(*state, "log");
    char text[20004];
    memset(text, 'x', sizeof text);
    memcpy(text, "one\n", 4);
    test_file_write(path, text, sizeof text);
    struct cvy_line_file file;
    assert_int_equal(cvy_line_file_open(&file, path, 30000), CVY_OK);
    assert_int_equal(cvy_line_file_offset(&file), 4);
    cvy_line_file_close(&file);
    test_file_write(path, text + 4, sizeof text - 4);
    assert_int_equal(cvy_line_file_open(&file, path, 30000), CVY_OK);
    assert_int_equal(cvy_line_file_offset(&file), 0);
    cvy_line_file_close(&file);
}

/* ---- DLLogger ---- */

/* The next line of a log, parsed; the keys in the given order. */
static const struct cvy_json_value *next_record(char **text, struct cvy_arena *arena, const char *const *keys)
{
    char *line = *text, *newline = strchr(line, '\n');
    struct cvy_json_value *root;
    assert_non_null(newline);
    assert_memory_equal(line, "DLLL {", 6);
    assert_int_equal(cvy_json_parse("log", line + 5, (size_t)(newline - line - 5), arena, &root), CVY_OK);
    *text = newline + 1;
    const struct cvy_json_value *entry = root->first;
    for (size_t i = 0; keys[i]; i++, entry = entry->next) {
        assert_non_null(entry);
        assert_string_equal(entry->key, keys[i]);
    }
    assert_null(entry);
    return root;
}

/* "93.25" or "93.0": digits, a point, one to six digits. */
static void assert_seconds(const char *text)
{
    size_t whole = strspn(text, "0123456789");
    assert_true(whole > 0 && text[whole] == '.');
    size_t fraction = strspn(text + whole + 1, "0123456789");
    assert_true(fraction >= 1 && fraction <= 6 && text[whole + 1 + fraction] == 0);
}

static const char *const log_keys[] = {"timestamp", "datetime", "elapsedtime", "type", "step", "data", NULL};
static const char *const metadata_keys[] = {"timestamp", "elapsedtime", "datetime", "type", "metric", "metadata", NULL};

static void write_log(const char *path)
{
    struct cvy_dllogger log;
    const int64_t step[3] = {0, 20, 3};
    const struct cvy_metric metrics[] = {{"train.loss", 6.93}, {"train.lr", 0.256}, {"train.total_ips", NAN}};
    assert_int_equal(cvy_dllogger_open(&log, path, 0), CVY_OK);
    assert_int_equal(cvy_dllogger_parameters(&log, "{\"arch\": \"resnet18\", \"epochs\": 10}"), CVY_OK);
    assert_int_equal(cvy_dllogger_metadata(&log, "val.top1", "%", ":.2f"), CVY_OK);
    assert_int_equal(cvy_dllogger_metadata(&log, "train.lr", NULL, NULL), CVY_OK);
    assert_int_equal(cvy_dllogger_log(&log, step, 2, metrics, 3), CVY_OK);
    assert_int_equal(cvy_dllogger_log(&log, step, 3, metrics, 1), CVY_OK);
    assert_int_equal(cvy_dllogger_log(&log, NULL, 0, metrics, 1), CVY_OK);
    cvy_dllogger_close(&log);
    cvy_dllogger_close(&log);
}

static void test_dllogger(void **state)
{
    const char *path = test_path(*state, "raport.json");
    struct cvy_arena arena = {0};
    write_log(path);
    char *content = read_text(path, NULL), *text = content;

    const struct cvy_json_value *record = next_record(&text, &arena, log_keys);
    assert_string_equal(cvy_json_get_string(record, "type", ""), "LOG");
    assert_string_equal(cvy_json_get_string(record, "step", ""), "PARAMETER");
    assert_int_equal(cvy_json_get_int(cvy_json_get(record, "data"), "epochs", 0), 10);
    assert_seconds(cvy_json_get_string(record, "timestamp", ""));
    assert_seconds(cvy_json_get_string(record, "elapsedtime", ""));
    const char *datetime = cvy_json_get_string(record, "datetime", "");
    int year, month, day, hour, minute, second, microsecond, used = 0;
    assert_int_equal(sscanf(datetime, "%4d-%2d-%2d %2d:%2d:%2d.%6d%n", &year, &month, &day, &hour, &minute, &second,
                            &microsecond, &used),
                     7);
    assert_int_equal(used, 26);
    assert_int_equal(strlen(datetime), 26);

    record = next_record(&text, &arena, metadata_keys);
    assert_string_equal(cvy_json_get_string(record, "type", ""), "METADATA");
    assert_string_equal(cvy_json_get_string(record, "metric", ""), "val.top1");
    assert_string_equal(cvy_json_get_string(cvy_json_get(record, "metadata"), "unit", ""), "%");
    assert_string_equal(cvy_json_get_string(cvy_json_get(record, "metadata"), "format", ""), ":.2f");
    record = next_record(&text, &arena, metadata_keys);
    assert_int_equal(cvy_json_get(cvy_json_get(record, "metadata"), "unit")->type, CVY_JSON_NULL);

    record = next_record(&text, &arena, log_keys);
    const struct cvy_json_value *step = cvy_json_get(record, "step"), *data = cvy_json_get(record, "data");
    assert_int_equal(step->count, 2);
    assert_int_equal(step->first->integer, 0);
    assert_int_equal(step->first->next->integer, 20);
    assert_true(cvy_json_get_number(data, "train.loss", 0) == 6.93);
    assert_true(cvy_json_get_number(data, "train.lr", 0) == 0.256);
    assert_int_equal(cvy_json_get(data, "train.total_ips")->type, CVY_JSON_NULL); /* strict JSON has no NaN */
    assert_int_equal(cvy_json_get(next_record(&text, &arena, log_keys), "step")->count, 3);
    record = next_record(&text, &arena, log_keys);
    assert_int_equal(cvy_json_get(record, "step")->type, CVY_JSON_ARRAY);
    assert_int_equal(cvy_json_get(record, "step")->count, 0);
    assert_int_equal(*text, 0);
    cvy_free(content);
    cvy_arena_release(&arena);
}

static int count_text(const char *text, const char *what)
{
    int count = 0;

    while ((text = strstr(text, what)) != NULL) {
        text += strlen(what);
        count++;
    }
    return count;
}

static const struct cvy_measures parts = {.list = {{"box_loss", 0}}, .count = 1};
static const struct cvy_measures measures = {.list = {{"loss", 0}, {"top1", 0}, {"top1", 0}, {"ap", 0}}, .count = 4};

static void test_dllogger_standard_metrics(void **state)
{
    const char *path = test_path(*state, "raport.json");
    struct cvy_dllogger log;
    assert_int_equal(cvy_dllogger_open(&log, path, 0), CVY_OK);
    assert_int_equal(cvy_dllogger_standard_metadata(&log, &parts, &measures, false), CVY_OK);
    cvy_dllogger_close(&log);
    char *text = read_text(path, NULL);
    static const char *const expected[] = {"\"train.loss\"",
                                           "\"train.compute_ips\"",
                                           "\"train.total_ips\"",
                                           "\"train.data_time\"",
                                           "\"train.compute_time\"",
                                           "\"train.lr\"",
                                           "\"train.box_loss\"",
                                           "\"val.loss\"",
                                           "\"val.top1\"",
                                           "\"val.ap\"",
                                           "\"val.compute_latency_at95\""};
    const char *at = text; /* in this order */
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        at = strstr(at, expected[i]);
        assert_non_null(at);
    }
    assert_int_equal(count_text(text, "\"val.top1\""), 1);
    assert_non_null(strstr(text, "\"val.ap\", \"metadata\": {\"unit\": \"%\", \"format\": \":.2f\"}"));
    assert_non_null(strstr(text, "\"train.box_loss\", \"metadata\": {\"unit\": null, \"format\": \":.5f\"}"));
    cvy_free(text);
}

static void test_log_that_is_not_open(void **state)
{
    struct cvy_dllogger log = {0};
    const struct cvy_metric metric = {"train.loss", 1};
    assert_int_equal(cvy_dllogger_parameters(&log, "{}"), CVY_OK);
    assert_int_equal(cvy_dllogger_standard_metadata(&log, &parts, &measures, false), CVY_OK);
    assert_int_equal(cvy_dllogger_log(&log, NULL, 0, &metric, 1), CVY_OK);
    cvy_dllogger_close(&log);
    struct cvy_csv csv = {0};
    const double value = 1;
    assert_int_equal(cvy_csv_row(&csv, &value, NULL), CVY_OK);
    cvy_csv_close(&csv);
}

/* ---- tables ---- */

static const char *const columns[] = {"epoch", "train.loss", "val.loss", "val.top1", "val.top5"};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* A table that is gone on with by a run that knows other numbers. */
static void test_csv_other_columns(void **state)
{
    static const char *const old[] = {"epoch", "loss", "rate"}, *const now[] = {"rate", "average", "epoch"};
    const char *path = test_path(*state, "others.csv");
    double *values = NULL;
    size_t rows = 0;
    struct cvy_csv csv;

    assert_int_equal(cvy_csv_open(&csv, path, old, 3, 0), CVY_OK);
    assert_int_equal(cvy_csv_row(&csv, (double[]){0, 2.5, 0.1}, NULL), CVY_OK);
    const int64_t end = cvy_line_file_offset(&csv.file);
    cvy_csv_close(&csv);
    assert_int_equal(cvy_csv_open(&csv, path, now, 3, end), CVY_OK);
    assert_int_equal(cvy_csv_row(&csv, (double[]){0.2, 7, 1}, NULL), CVY_OK);
    cvy_csv_close(&csv);
    assert_int_equal(cvy_csv_read(path, old, 3, &values, &rows), CVY_OK);
    assert_int_equal(rows, 2);
    assert_true(values[0] == 0 && values[1] == 2.5 && values[2] == 0.1);
    assert_true(values[3] == 1 && isnan(values[4]) && values[5] == 0.2);
    cvy_free(values);
}

static void test_csv(void **state)
{
    const char *path = test_path(*state, "metrics.csv");
    struct cvy_csv csv;
    const double first[COLUMNS] = {0, 2.0 / 3, NAN, 12.5, 1e-10},
                 second[COLUMNS] = {1, INFINITY, 1234567890.123, 0, -1};
    const bool present[COLUMNS] = {true, true, true, false, true};
    assert_int_equal(cvy_csv_open(&csv, path, columns, COLUMNS, 0), CVY_OK);
    assert_int_equal(cvy_csv_row(&csv, first, present), CVY_OK);
    int64_t checkpoint = cvy_line_file_offset(&csv.file);
    assert_int_equal(cvy_csv_row(&csv, second, NULL), CVY_OK);
    cvy_csv_close(&csv);
    const char *expected = "epoch,train.loss,val.loss,val.top1,val.top5\n"
                           "0,0.666666667,nan,,1e-10\n"
                           "1,inf,1.23456789e+09,0,-1\n";
    assert_content(path, expected);

    /* Resumed: cut back, no second line of names. */
    assert_int_equal(cvy_csv_open(&csv, path, columns, COLUMNS, checkpoint), CVY_OK);
    assert_int_equal(cvy_csv_row(&csv, second, NULL), CVY_OK);
    cvy_csv_close(&csv);
    assert_content(path, expected);

    static const char *const wanted[] = {"val.top5", "epoch", "nowhere", "val.top1"};
    double *values;
    size_t rows;
    assert_int_equal(cvy_csv_read(path, wanted, 4, &values, &rows), CVY_OK);
    assert_int_equal(rows, 2);
    assert_true(values[0] == 1e-10 && values[1] == 0 && isnan(values[2]) && isnan(values[3]));
    assert_true(values[4] == -1 && values[5] == 1 && isnan(values[6]) && values[7] == 0);
    cvy_free(values);

    assert_int_equal(cvy_csv_open(&csv, "/dev/full", columns, COLUMNS, 0), CVY_CANNOT_WRITE);
    cvy_csv_close(&csv);
}

static cvy_status read_bytes(const char *folder, const char *text, double **values, size_t *rows)
{
    const char *path = test_path(folder, "read.csv");
    test_file_write(path, text, strlen(text));
    return cvy_csv_read(path, columns, COLUMNS, values, rows);
}

static void test_csv_read_damaged(void **state)
{
    double *values;
    size_t rows;
    assert_int_equal(cvy_csv_read(test_path(*state, "none"), columns, COLUMNS, &values, &rows), CVY_NO_INPUT);
    assert_fails(read_bytes(*state, "", &values, &rows), CVY_BAD_DATA, "read.csv\" is empty");
    assert_fails(read_bytes(*state, "epoch,val.top1\n1,x\n", &values, &rows), CVY_BAD_DATA, "row 1 is damaged");
    assert_fails(read_bytes(*state, "epoch,val.top1\n1,2\n1,2,3\n", &values, &rows), CVY_BAD_DATA, "row 2 is damaged");
    assert_null(values);
    /* Names only; short rows; edited with another editor; no newline at the end. */
    assert_int_equal(read_bytes(*state, "epoch,val.top1", &values, &rows), CVY_OK);
    assert_int_equal(rows, 0);
    cvy_free(values);
    assert_int_equal(read_bytes(*state, "epoch,x,val.top1\r\n1\r\n2,y,5", &values, &rows), CVY_OK);
    assert_int_equal(rows, 2);
    assert_true(values[0] == 1 && isnan(values[3]) && values[COLUMNS] == 2 && values[COLUMNS + 3] == 5);
    cvy_free(values);
}

/* ---- plot ---- */

/* No number of the picture may be one that a viewer cannot draw. */
static char *plot_text(const char *path)
{
    char *text = read_text(path, NULL);
    assert_memory_equal(text, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39);
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_int_equal(count_of(text, "<text"), count_of(text, "</text>"));
    return text;
}

static void test_plot(void **state)
{
    const char *path = test_path(*state, "curves.svg");
    struct cvy_plot_point points[100];
    for (int i = 0; i < 100; i++)
        points[i] = (struct cvy_plot_point){i, 2 * exp(-i / 30.0), i % 10 == 5 ? NAN : 2 * exp(-i / 25.0) + 0.1,
                                            100 - 90 * exp(-i / 20.0), 100 - 50 * exp(-i / 20.0)};
    assert_int_equal(cvy_plot_write(path, "a <b> & \"c\" \x01\xff", points, 100, 5), CVY_OK);
    char *text = plot_text(path);
    assert_non_null(strstr(text, ">a &#60;b&#62; &#38; &#34;c&#34; \xef\xbf\xbd\xef\xbf\xbd</text>"));
    assert_int_equal(count_of(text, "<polyline"), 1 + 11 + 1 + 1); /* ten gaps in one curve */
    assert_int_equal(count_of(text, "<circle"), 0);                /* too many for dots */
    assert_non_null(strstr(text, ">100</text>"));
    assert_non_null(strstr(text, ">top-1 99.36</text>")); /* the newest value, 100 - 90 exp(-4.95) */
    cvy_free(text);
    assert_int_equal(test_folder_entries(*state), 1);

    /* Epochs are counted as on the page, those that are done from 0 at the left end: of four the first at a quarter. */
    assert_int_equal(cvy_plot_write(path, "", points, 4, 5), CVY_OK);
    text = plot_text(path);
    assert_int_equal(count_of(text, "<circle"), 16);
    assert_int_equal(count_of(text, "cx=\"70\""), 0);
    assert_int_equal(count_of(text, "cx=\"170\""), 2);
    assert_int_equal(count_of(text, "cx=\"470\""), 2);
    assert_int_equal(count_of(text, ">epochs</text>"), 2);
    assert_non_null(strstr(text, "@media (prefers-color-scheme: dark)"));
    assert_non_null(strstr(text, ">top-5 "));
    cvy_free(text);

    /* One accuracy, where no other was asked for. */
    assert_int_equal(cvy_plot_write(path, "", points, 4, 1), CVY_OK);
    text = plot_text(path);
    assert_int_equal(count_of(text, "<circle"), 12);
    assert_int_equal(count_of(text, ">top-"), 1 + 4); /* its name and its dots */
    cvy_free(text);
}

/* One spike is drawn at the end of the axis and marked; a start from far above is none. */
static void test_plot_spike(void **state)
{
    const char *path = test_path(*state, "curves.svg");
    struct cvy_plot_point points[20];
    char *text;

    for (int spike = 0; spike < 2; spike++) {
        for (int i = 0; i < 20; i++)
            points[i] = (struct cvy_plot_point){i, 7 * exp(-i / 3.0) + 0.5, 6 * exp(-i / 4.0) + 0.7, 50, 90};
        if (spike)
            points[11].val_loss = 442072;
        assert_int_equal(cvy_plot_write(path, "", points, 20, 5), CVY_OK);
        text = plot_text(path);
        assert_int_equal(count_of(text, "class=\"clipped\">442072<"), spike);
        assert_int_equal(count_of(text, "beyond the axis"), spike);
        assert_non_null(strstr(text, ">8</text>")); /* the axis of the loss ends there with the spike and without */
        assert_null(strstr(text, ">500000</text>"));
        cvy_free(text);
    }
}

static void test_plot_extremes(void **state)
{
    const char *path = test_path(*state, "curves.svg");
    const struct cvy_plot_point cases[][2] = {
        {{0, NAN, NAN, NAN, NAN}, {1, NAN, NAN, NAN, NAN}},
        {{0, 1, 1, 50, 50}, {1, 1, 1, 50, 50}},
        {{NAN, 1, 1, 50, 50}, {INFINITY, 1, 1, 50, 50}},
        {{0, 1.7e308, -1.7e308, 0, 100}, {1, 2e299, -2e299, 0, 100}},
        {{0, 1e299, -1e299, 0, 100}, {1, INFINITY, 1e-300, 100, 0}},
        {{0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}},
        {{0, 1e-320, 1e-322, 1e-320, 100}, {1000000, 1e-321, 1e-323, 100, 100}},
        {{-5, 3, 3, 100, 100}, {7, 3.0000001, 3, 100, 100}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t count = 0; count <= 2; count++) {
            assert_int_equal(cvy_plot_write(path, "x", cases[i], count, 5), CVY_OK);
            char *text = plot_text(path);
            assert_true(count_of(text, "<line") < 80); /* ticks did not run away */
            assert_true(count_of(text, "<line") >= 8);
            cvy_free(text);
        }
}

static void test_plot_metrics(void **state)
{
    const char *path = test_path(*state, "curves.svg"), *csv_path = test_path(*state, "metrics.csv");
    struct cvy_csv csv;
    assert_int_equal(cvy_plot_metrics(path, "x", 5, csv_path), CVY_NO_INPUT);
    assert_int_equal(cvy_csv_open(&csv, csv_path, columns, COLUMNS, 0), CVY_OK);
    for (int i = 0; i < 3; i++) {
        const double row[COLUMNS] = {i, 3 - i, 2.5 - i / 2.0, 10.25 * i, 20.5 * i};
        assert_int_equal(cvy_csv_row(&csv, row, NULL), CVY_OK);
        assert_int_equal(cvy_plot_metrics(path, "x", 5, csv_path),
                         CVY_OK); /* after each epoch, while the table is open */
    }
    cvy_csv_close(&csv);
    char *text = plot_text(path);
    assert_non_null(strstr(text, ">train 1.0000</text>"));
    assert_non_null(strstr(text, ">validation 1.5000</text>"));
    assert_non_null(strstr(text, ">top-1 20.50</text>"));
    assert_non_null(strstr(text, ">top-5 41.00</text>"));
    cvy_free(text);
    test_file_write(csv_path, "epoch,val.top1,val.top3\n0,50,75\n", 33);
    assert_int_equal(cvy_plot_metrics(path, "x", 3, csv_path), CVY_OK);
    text = plot_text(path);
    assert_non_null(strstr(text, ">top-3 75.00</text>"));
    cvy_free(text);
}

static void test_failing_memory(void **state)
{
    const char *path = test_path(*state, "curves.svg"), *csv_path = test_path(*state, "metrics.csv");
    int64_t n = 1;
    for (;; n++) {
        struct cvy_csv csv;
        const double row[COLUMNS] = {1, 2, 3, 4, 5};
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_csv_open(&csv, csv_path, columns, COLUMNS, 0);
        if (status == CVY_OK)
            status = cvy_csv_row(&csv, row, NULL);
        cvy_csv_close(&csv);
        if (status == CVY_OK)
            status = cvy_plot_metrics(path, "x", 5, csv_path);
        cvy_memory_fail_after(0, false);
        if (status == CVY_OK)
            break;
        assert_true(status == CVY_NO_MEMORY || status == CVY_CANNOT_WRITE);
    }
    assert_true(n > 8);
    for (n = 1;; n++) {
        struct cvy_dllogger log;
        cvy_memory_fail_after(n, true);
        cvy_status status = cvy_dllogger_open(&log, path, 0);
        if (status == CVY_OK)
            status = cvy_dllogger_standard_metadata(&log, &parts, &measures, false);
        cvy_dllogger_close(&log);
        cvy_memory_fail_after(0, false);
        if (status == CVY_OK)
            break;
        assert_int_equal(status, CVY_NO_MEMORY);
    }
    assert_true(n > 4);
}

RUN_TESTS(NULL, NULL, IN_FOLDER(test_lines), IN_FOLDER(test_long_broken_line), IN_FOLDER(test_dllogger),
          IN_FOLDER(test_dllogger_standard_metrics), TEST(test_log_that_is_not_open), IN_FOLDER(test_csv),
          IN_FOLDER(test_csv_other_columns), IN_FOLDER(test_csv_read_damaged), IN_FOLDER(test_plot),
          IN_FOLDER(test_plot_spike), IN_FOLDER(test_plot_extremes), IN_FOLDER(test_plot_metrics),
          IN_FOLDER(test_failing_memory))
