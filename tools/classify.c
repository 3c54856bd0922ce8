/* convoy classify: the most probable classes of images, as text, JSON or CSV. Good files come first; then each bad one
 * gets a sentence on stderr. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answers.h"
#include "convoy/program/program.h"
#include "json.h"
#include "names.h"
#include "network_options.h"
#include "terminal.h"
#include "verbs.h"

enum format { FORMAT_TEXT, FORMAT_JSON, FORMAT_CSV };
enum { MAX_INPUT = 1 << 30 }; /* bytes of standard input */

struct classification {
    cvy_classifier *classifier;
    int classes, topk;
    bool with_logits;
    int format;
    struct json json;
    int *order; /* class indices, the topk most probable first */
    struct bad_files bad;
    size_t file_count;
};

/* More probable first; equal ones by index, so that the answer does not depend on the sorting. */
static void rank_classes(struct classification *c, const float *probabilities)
{
    for (int k = 0; k < c->topk; k++) {
        int best = -1;
        for (int i = 0; i < c->classes; i++) {
            bool taken = false;
            if (best >= 0 && !(probabilities[i] > probabilities[best]))
                continue;
            for (int j = 0; j < k && !taken; j++)
                taken = c->order[j] == i;
            if (!taken)
                best = i;
        }
        c->order[k] = best;
    }
}

/* A class without a name is called by its index. */
static const char *class_label(const struct classification *c, int index, char buffer[24])
{
    const char *name = cvy_classifier_class_name(c->classifier, index);
    if (name)
        return name;
    snprintf(buffer, 24, "class %d", index);
    return buffer;
}

static void print_text(struct classification *c, const struct cvy_answer *answer)
{
    print_name(answer->file, 0);
    putchar('\n');
    for (int k = 0; k < c->topk; k++) {
        char buffer[24];
        const int index = c->order[k];
        printf("  %6.2f %%  ", 100.0 * (double)answer->probabilities[index]);
        print_name(class_label(c, index, buffer), 0);
        if (c->with_logits)
            printf("  (logit %.6g)", (double)answer->logits[index]);
        putchar('\n');
    }
}

static void print_json(struct classification *c, const struct cvy_answer *answer)
{
    struct json *json = &c->json;
    json_open_object(json, NULL);
    json_string(json, "file", answer->file);
    json_open_array(json, "predictions");
    for (int k = 0; k < c->topk; k++) {
        const int index = c->order[k];
        json_open_object(json, NULL);
        json_int(json, "index", index);
        json_string(json, "class", cvy_classifier_class_name(c->classifier, index));
        json_real(json, "probability", (double)answer->probabilities[index], 9);
        json_close_object(json);
    }
    json_close_array(json);
    if (c->with_logits) {
        json_open_array(json, "logits");
        for (int i = 0; i < c->classes; i++)
            json_real(json, NULL, (double)answer->logits[i], 9);
        json_close_array(json);
    }
    json_close_object(json);
}

static void print_csv(struct classification *c, const struct cvy_answer *answer)
{
    for (int k = 0; k < c->topk; k++) {
        const int index = c->order[k];
        const char *name = cvy_classifier_class_name(c->classifier, index);
        print_csv_field(answer->file);
        printf(",%d,%d,", k + 1, index);
        print_csv_field(name ? name : "");
        printf(",%.9g", (double)answer->probabilities[index]);
        if (c->with_logits)
            printf(",%.9g", (double)answer->logits[index]);
        putchar('\n');
    }
}

static void handle_answer(void *context, const struct cvy_answer *answer)
{
    struct classification *c = context;
    c->file_count++;
    if (answer->status != CVY_OK) {
        bad_files_add(&c->bad, answer->status, answer->error);
    } else {
        rank_classes(c, answer->probabilities);
        if (c->format == FORMAT_JSON)
            print_json(c, answer);
        else if (c->format == FORMAT_CSV)
            print_csv(c, answer);
        else
            print_text(c, answer);
    }
    terminal_progress("%s", cvy_counted((int64_t)c->file_count, "image"));
}

/* All of standard input, freed by the caller also after a failure; *why is a sentence then. */
static cvy_status read_input(char **data, size_t *size, const char **why)
{
    size_t capacity = 1 << 16, got;

    *size = 0;
    *why = "out of memory for standard input";
    *data = malloc(capacity);
    while (*data && (got = fread(*data + *size, 1, capacity - *size, stdin)) > 0) {
        *size += got;
        if (*size < capacity)
            continue;
        char *larger = capacity < MAX_INPUT ? realloc(*data, 2 * capacity) : NULL;
        if (!larger) {
            *why = "standard input is larger than 1 GiB, or than memory";
            return CVY_BAD_DATA;
        }
        *data = larger;
        capacity *= 2;
    }
    if (!*data)
        return CVY_NO_MEMORY;
    *why = "cannot read standard input";
    return ferror(stdin) ? CVY_NO_INPUT : CVY_OK;
}

/* The one image of standard input. */
static cvy_status classify_input(struct classification *c)
{
    struct cvy_answer answer = {.file = "standard input", .error = "out of memory for the answer"};
    float *numbers = malloc(2 * (size_t)c->classes * sizeof *numbers);
    char *data = NULL;
    size_t size;

    answer.logits = numbers;
    answer.probabilities = numbers ? numbers + c->classes : NULL;
    answer.status = numbers ? read_input(&data, &size, &answer.error) : CVY_NO_MEMORY;
    if (answer.status == CVY_OK) {
        answer.status = cvy_classify_memory(c->classifier, answer.file, data, size, numbers, numbers + c->classes);
        answer.error = cvy_error();
    }
    handle_answer(c, &answer);
    free(data);
    free(numbers);
    return answer.status;
}

static cvy_status classify_all(struct classification *c, const struct arguments *arguments)
{
    const bool input = arguments->count == 1 && strcmp(arguments->value[0], "-") == 0;

    if (c->format == FORMAT_JSON)
        json_open_array(&c->json, NULL);
    else if (c->format == FORMAT_CSV)
        printf("file,rank,index,class,probability%s\n", c->with_logits ? ",logit" : "");
    const cvy_status status = input ? classify_input(c)
                                    : cvy_classify_paths(c->classifier, (const char *const *)arguments->value,
                                                         (size_t)arguments->count, handle_answer, c);
    if (c->format == FORMAT_JSON)
        json_close_array(&c->json);
    return bad_files_end(&c->bad, status, "classifying");
}

/* ---- options ---- */

/* What classify.py of PyTorch's program has instead of ours. */
struct spellings {
    const char *image, *config;
    bool cpu;
};

static cvy_status take_spellings(const struct spellings *there, struct cvy_classifier_options *network,
                                 struct arguments *arguments)
{
    static const char *const precisions[][2] = {{"AMP", "amp"}, {"FP16", "amp"}, {"FP32", "fp32"}, {"TF32", "tf32"}};

    for (size_t i = 0; network->precision && i < sizeof(precisions) / sizeof(precisions[0]); i++)
        if (strcmp(network->precision, precisions[i][0]) == 0)
            network->precision = precisions[i][1];
    if (there->cpu && network->device && strcmp(network->device, "cpu") != 0)
        return terminal_fail(CVY_USAGE, "options --cpu and --device %s exclude each other", quoted(network->device));
    if (there->cpu)
        network->device = "cpu";
    if (there->config)
        terminal_note("option --model-config has no effect: it says how weights begin, and here they are loaded\n");
    if (there->image) /* argv has had two more, at least */
        arguments->value[arguments->count++] = (char *)(uintptr_t)there->image;
    if (arguments->count == 0)
        return terminal_fail(CVY_USAGE, "classify needs IMAGE|DIR...|- (convoy classify --help says more)");
    return CVY_OK;
}

static cvy_status check_input(const struct arguments *arguments)
{
    for (int i = 0; arguments->count > 1 && i < arguments->count; i++) {
        if (!strcmp(arguments->value[i], "-"))
            return terminal_fail(CVY_USAGE, "- is the one image on standard input, and stands alone (a file: ./-)");
    }
    return CVY_OK;
}

cvy_status verb_classify(int argc, char **argv)
{
    struct cvy_classifier_options network = CVY_CLASSIFIER_DEFAULTS;
    struct classification c = {.topk = 5};
    struct spellings there = {0};
    struct arguments arguments;
    const struct option options[] = {
        NETWORK_OPTIONS(network),
        OPT_TEXT("class-names", 0, &network.class_names, "FILE",
                 "names of the classes, one a line or a JSON array (default: the file's, else ImageNet's for 1000)"),
        OPT_INT("topk", 'k', &c.topk, "N", "how many classes to print (default: 5)", 1, INT_LIMIT),
        OPT_FLAG("logits", 0, &c.with_logits, "print the network's raw outputs too"),
        OPT_CHOICE("format", 'f', &c.format, "text|json|csv", "how to print (default: text)"),
        OPT_TEXT("pretrained-from-file", 0, &network.weights, "FILE", NULL),
        OPT_TEXT("image", 0, &there.image, "FILE", NULL),
        OPT_TEXT("model-config", 'c', &there.config, "NAME", NULL),
        OPT_FLAG("cpu", 0, &there.cpu, NULL),
    };
    const struct option_table table = {
        .verb = "classify",
        .arguments = "IMAGE|DIR...|-",
        .summary = "Says what is on images (JPEG, PNG, WebP, HEIC, AVIF, TIFF, BMP, GIF). Folders are read "
                   "recursively, in bytewise order of the names;\n"
                   "- is one image on standard input.",
        .options = options,
        .count = OPT_COUNT(options),
        .max_arguments = -1,
    };
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = take_spellings(&there, &network, &arguments);
    if (status != CVY_OK)
        return status;
    if (!network.weights)
        return terminal_fail(CVY_USAGE, "classify needs --weights FILE");
    status = check_input(&arguments);
    if (status != CVY_OK)
        return status;
    status = cvy_classifier_open(&network, &c.classifier);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    c.classes = cvy_classifier_classes(c.classifier);
    if (c.topk > c.classes)
        c.topk = c.classes;
    c.order = malloc((size_t)c.topk * sizeof(*c.order));
    if (c.order)
        status = classify_all(&c, &arguments);
    else
        status = terminal_fail(CVY_NO_MEMORY, "out of memory for %d classes", c.topk);

    free(c.order);
    cvy_classifier_close(c.classifier);
    return status;
}
