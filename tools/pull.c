/* convoy pull: published weights into the cache, and what there is. */
#include "convoy/pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "options.h"
#include "stop.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON };

static const double mib = 1048576;

/* ---- the list ---- */

static bool is_pulled(const struct cvy_published_weights *weights)
{
    char path[4096];
    bool pulled;

    return cvy_published_path(weights, path, sizeof path, &pulled) == CVY_OK && pulled;
}

static void print_list(void)
{
    const struct cvy_published_weights *weights;

    printf("%-38s  %-19s  %7s  %6s  %-12s  %s\n", "name", "network", "MiB", "top-1", "licence", "trained on");
    for (size_t i = 0; (weights = cvy_published_at(i)); i++) {
        char size[16] = "?", top1[16] = "";
        if (weights->bytes > 0)
            snprintf(size, sizeof size, "%.1f", (double)weights->bytes / mib);
        if (weights->top1 > 0)
            snprintf(top1, sizeof top1, "%.2f", weights->top1);
        printf("%-38s  %-19s  %7s  %6s  %-12s  %s%s\n", weights->name, weights->arch, size, top1,
               weights->licence[0] ? weights->licence : "?", weights->trained, is_pulled(weights) ? "  (here)" : "");
    }
    printf(
        "\n\"convoy pull NAME\" downloads one of them; the name of a network means the first of it. Sizes, accuracies "
        "and\nlicences are the publishers'; ? stands where they state none. The data a network has seen may have terms "
        "of their own.\n");
}

static void put_weights(struct json *json, const struct cvy_published_weights *weights)
{
    char path[4096] = "";
    bool pulled = false;
    const bool known = cvy_published_path(weights, path, sizeof path, &pulled) == CVY_OK;

    json_open_object(json, NULL);
    json_string(json, "name", weights->name);
    json_string(json, "arch", weights->arch);
    json_string(json, "trained", weights->trained);
    json_string(json, "licence", weights->licence[0] ? weights->licence : NULL);
    json_string(json, "page", weights->page);
    json_string(json, "url", weights->url);
    json_string(json, "file", weights->file);
    json_string(json, "sha256", weights->sha256[0] ? weights->sha256 : NULL);
    json_int(json, "bytes", weights->bytes);
    json_real(json, "top1", weights->top1, 6);
    json_string(json, "path", known && pulled ? path : NULL);
    json_close_object(json);
}

static void print_list_json(void)
{
    struct json json = {0};

    json_open_array(&json, NULL);
    for (size_t i = 0; cvy_published_at(i); i++)
        put_weights(&json, cvy_published_at(i));
    json_close_array(&json);
}

/* ---- one of them ---- */

struct pulling {
    const char *name;
    struct timespec begin;
    int64_t first; /* bytes that were there in the beginning; -1: nothing was reported yet */
};

static bool show_progress(void *context, int64_t done, int64_t total)
{
    struct pulling *pulling = context;
    struct timespec now;
    char left[32] = "";

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (pulling->first < 0 || done < pulling->first) {
        pulling->first = done;
        pulling->begin = now;
    }
    const double seconds =
        (double)(now.tv_sec - pulling->begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - pulling->begin.tv_nsec);
    const double rate = seconds > 0.5 ? (double)(done - pulling->first) / seconds : 0;
    if (total > 0 && rate > 0)
        duration_text((double)(total - done) / rate, left, sizeof left);
    if (total > 0)
        terminal_progress("%s: %.1f of %.1f MiB (%.0f %%), %.1f MiB/s%s%s", pulling->name, (double)done / mib,
                          (double)total / mib, 100 * (double)done / (double)total, rate / mib, left[0] ? ", left " : "",
                          left);
    else
        terminal_progress("%s: %.1f MiB, %.1f MiB/s", pulling->name, (double)done / mib, rate / mib);
    return !stop_asked();
}

static void print_result(const struct cvy_pull_result *result, const struct cvy_published_weights *weights)
{
    printf("%s\n", result->path);
    if (result->there) {
        terminal_note("%s was here already; --again downloads it anew\n", result->name);
        return;
    }
    if (result->sha256_digits == 64 && strlen(weights->sha256) == 64)
        terminal_note("its SHA-256 is the one that is published\n");
    else if (result->sha256_digits == 64)
        terminal_note("its SHA-256 is the one that the server states%s\n",
                      weights->sha256[0] ? ", and begins with the published digits" : "; none is published elsewhere");
    else if (result->sha256_digits > 0)
        terminal_note("its SHA-256 begins with the %d digits that the published name carries\n", result->sha256_digits);
    else
        terminal_note("no checksum of it is published; it was opened, and holds the network's weights\n");
    terminal_note("licence %s: %s\n", weights->licence[0] ? weights->licence : "not stated", weights->page);
    terminal_note("to start from it: convoy train DIR --pretrained-weights %s%s\n", result->name,
                  strcmp(weights->arch, "ssd320") == 0 ? "" : " --reset-head");
}

static void print_result_json(const struct cvy_pull_result *result)
{
    struct json json = {0};

    json_open_object(&json, NULL);
    json_string(&json, "name", result->name);
    json_string(&json, "path", result->path);
    json_int(&json, "downloaded", result->bytes);
    json_int(&json, "sha256_digits", result->sha256_digits);
    json_close_object(&json);
}

cvy_status verb_pull(int argc, char **argv)
{
    struct cvy_pull_options pull = CVY_PULL_DEFAULTS;
    struct pulling pulling = {.first = -1};
    struct cvy_pull_result result;
    struct arguments arguments;
    int format = FORMAT_TEXT;
    const struct option options[] = {
        OPT_FLAG("again", 0, &pull.again, "download it even if it is in the cache"),
        OPT_CHOICE("format", 'f', &format, "text|json", "how to print the list, or where the file is (default: text)"),
    };
    const struct option_table table = {
        .verb = "pull",
        .arguments = "[NAME]",
        .summary = "Downloads published weights, for --weights and --pretrained-weights; without NAME lists those that "
                   "are known.",
        .options = options,
        .count = OPT_COUNT(options),
        .max_arguments = 1,
    };
    cvy_status status;

    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    if (arguments.count == 0) {
        if (format == FORMAT_JSON)
            print_list_json();
        else
            print_list();
        return CVY_OK;
    }
    pull.name = pulling.name = arguments.value[0];
    pull.progress = show_progress;
    pull.context = &pulling;
    stop_catch(false, NULL);
    status = cvy_pull(&pull, &result);
    terminal_clear_progress();
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (format == FORMAT_JSON)
        print_result_json(&result);
    else
        print_result(&result, cvy_published_find(result.name));
    return CVY_OK;
}
