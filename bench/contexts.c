/* What a context on shared weights costs and gives: memory of the first classifier and of each context, and images a
 * second of one classifier with N threads beside N contexts of a thread each, in turn.
 *
 *   contexts WEIGHTS [CONTEXTS [ROUNDS]]         (2 contexts, 5 rounds of 2 seconds on either side)
 *
 * An image is pixels of the network's size; what is timed is resizing and the network, not decoding. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/system.h"
#include "convoy/infer.h"

enum { MOST = 64 };
static const double seconds_each = 2;

struct thread {
    cvy_classifier *classifier;
    struct cvy_pixels pixels;
    float *probabilities;
    int64_t images;
    cvy_status status;
    char error[512];
};

static double resident_mib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static void *classify(void *argument)
{
    struct thread *thread = argument;
    const double end = cvy_clock() + seconds_each;

    thread->images = 0;
    while (thread->status == CVY_OK && cvy_clock() < end) {
        thread->status =
            cvy_classify_pixels(thread->classifier, "an image", &thread->pixels, NULL, thread->probabilities);
        thread->images++;
    }
    if (thread->status != CVY_OK)
        snprintf(thread->error, sizeof thread->error, "%s", cvy_error());
    return NULL;
}

/* Images a second of all these threads together; 0 where one fails. */
static double run(struct thread *threads, int count)
{
    const double start = cvy_clock();
    pthread_t ids[MOST];
    int started = 0;
    int64_t images = 0;

    while (started < count && pthread_create(&ids[started], NULL, classify, &threads[started]) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < count; i++) {
        images += threads[i].images;
        if (i >= started || threads[i].status != CVY_OK) {
            fprintf(stderr, "contexts: %s\n", i < started ? threads[i].error : "no more threads");
            return 0;
        }
    }
    return (double)images / (cvy_clock() - start);
}

static bool prepare(struct thread *thread, cvy_classifier *classifier)
{
    const int side = cvy_classifier_image_size(classifier);
    uint8_t *bytes = cvy_calloc((size_t)side * (size_t)side, 3);

    *thread = (struct thread){.classifier = classifier};
    thread->probabilities = cvy_calloc((size_t)cvy_classifier_classes(classifier), sizeof(float));
    for (int i = 0; bytes && i < side * side * 3; i++)
        bytes[i] = (uint8_t)(i * 7);
    thread->pixels = (struct cvy_pixels){sizeof thread->pixels, bytes, CVY_PIXELS_RGB, side, side, 0};
    return bytes && thread->probabilities &&
           cvy_classify_pixels(classifier, "an image", &thread->pixels, NULL, thread->probabilities) == CVY_OK;
}

static bool open_all(const char *weights, int contexts, struct thread *threads, struct thread *together)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    const double before = resident_mib();
    cvy_classifier *classifier, *context;
    double first;

    options.weights = weights;
    options.threads = 1;
    if (cvy_classifier_open(&options, &classifier) != CVY_OK || !prepare(together, classifier))
        return false;
    first = resident_mib();
    for (int i = 0; i < contexts; i++) {
        if (cvy_classifier_open_context(classifier, 0, &context) != CVY_OK || !prepare(&threads[i], context))
            return false;
    }
    printf("memory: %.0f MiB for the first, %.0f MiB for each context\n", first - before,
           (resident_mib() - first) / contexts);
    if (contexts == 1)
        return true;
    options.threads = contexts;
    return cvy_classifier_open(&options, &classifier) == CVY_OK && prepare(together, classifier);
}

int main(int argc, char **argv)
{
    static struct thread threads[MOST], together;
    const int contexts = argc > 2 ? atoi(argv[2]) : 2, rounds = argc > 3 ? atoi(argv[3]) : 5;

    if (argc < 2 || contexts < 1 || contexts > MOST || rounds < 1) {
        fprintf(stderr, "usage: contexts WEIGHTS [CONTEXTS [ROUNDS]]\n");
        return 2;
    }
    if (!open_all(argv[1], contexts, threads, &together)) {
        fprintf(stderr, "contexts: %s\n", cvy_error());
        return 1;
    }
    for (int round = 0; round < rounds; round++) {
        const double apart = run(threads, contexts), joined = run(&together, 1);

        if (apart <= 0 || joined <= 0)
            return 1;
        printf("images/s: %.1f by %d contexts, %.1f by one classifier with %d threads, ratio %.2f\n", apart, contexts,
               joined, contexts, apart / joined);
    }
    return 0;
}
