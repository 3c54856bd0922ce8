/* What a network makes of its queue: batches of powers of two, of one kind, and refusals. While the test has the turn,
 * nothing is computed and the queue grows. */
#include <pthread.h>

#include "serve/served.h"
#include "support_classifier.h"
#include "support_test.h"

enum { MAX_BATCH = 6, MAX_QUEUE = 12, JOBS = 16 };

static struct cvy_turn turn;
static struct cvy_served served;
static float expected[IMAGES][CLASSES];

/* A job of some painted images from `first` on, as pixels or as a tensor. */
struct work {
    struct cvy_job job;
    struct cvy_pixels pixels[IMAGES];
    struct cvy_image images[IMAGES];
    int first, order; /* order: 1 for the one that was done first; 0: not yet */
};
static struct work works[JOBS];
static int work_count, done_count; /* done_count is written by the network's thread */
static pthread_mutex_t done_mutex = PTHREAD_MUTEX_INITIALIZER;

static void done(void *owner)
{
    struct work *work = owner;

    pthread_mutex_lock(&done_mutex);
    work->order = ++done_count;
    pthread_mutex_unlock(&done_mutex);
}

static cvy_status put(int first, int count, bool tensor)
{
    struct work *work = &works[work_count];
    cvy_status status;

    assert_true(work_count < JOBS && first + count <= IMAGES);
    *work = (struct work){.first = first, .job = {.count = count, .threshold = 0.5, .done = done, .owner = work}};
    for (int i = 0; i < count; i++) {
        work->pixels[i] = painted_pixels(first + i);
        work->images[i] = (struct cvy_image){.size = sizeof work->images[i], .pixels = &work->pixels[i]};
    }
    if (tensor)
        work->job.tensor = nchw[first][0];
    else
        work->job.images = work->images;
    assert_int_equal(cvy_job_prepare(&work->job, &served), CVY_OK);
    status = cvy_served_put(&served, &work->job);
    if (status == CVY_OK)
        work_count++;
    else
        cvy_job_release(&work->job);
    return status;
}

/* Gives the turn away until all jobs are done. */
static void compute(void)
{
    int left;

    cvy_turn_give(&turn);
    do {
        usleep(1000);
        pthread_mutex_lock(&done_mutex);
        left = work_count - done_count;
        pthread_mutex_unlock(&done_mutex);
    } while (left > 0);
    cvy_turn_take(&turn);
    assert_int_equal(served.waiting, 0);
    assert_null(served.first);
}

/* Each has its own answers, whatever it was computed with. */
static void expect_answers(void)
{
    for (int w = 0; w < work_count; w++) {
        const struct cvy_job *job = &works[w].job;

        assert_int_equal(works[w].order, w + 1);
        for (int i = 0; i < job->count; i++) {
            assert_int_equal(job->status[i], CVY_OK);
            assert_string_equal(cvy_job_error(job, i), "");
            for (int c = 0; c < CLASSES; c++)
                assert_float_equal(job->logits[i * CLASSES + c], expected[works[w].first + i][c], 1e-4f);
        }
    }
}

static void drop_works(void)
{
    for (int i = 0; i < work_count; i++)
        cvy_job_release(&works[i].job);
    work_count = done_count = 0;
}

/* Batches that were computed since the last call: `batches` of them with `images` in all. */
static void expect_batches(int batches, int images)
{
    static int64_t old_batches;
    static double old_images;
    const struct cvy_metric_histogram *histogram = &served.counts.batches;
    int64_t count = 0;

    for (int i = 0; i <= CVY_METRIC_BOUNDS; i++)
        count += histogram->counts[i];
    if (batches >= 0) {
        assert_int_equal(count - old_batches, batches);
        assert_int_equal(histogram->sum - old_images, images);
    }
    old_batches = count;
    old_images = histogram->sum;
}

static int set_up(void **state)
{
    const char *weights = make_weights("resnet18");
    cvy_classifier *classifier = open_classifier(weights, "fp32");
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;

    (void)state;
    for (int i = 0; i < IMAGES; i++)
        classify_painted(classifier, i, expected[i]);
    cvy_classifier_close(classifier);
    options.weights = weights;
    options.device = "cpu";
    options.precision = "fp32";
    options.threads = options.workers = 1;
    options.batch_size = MAX_BATCH;
    cvy_turn_init(&turn);
    served = (struct cvy_served){.max_batch = MAX_BATCH, .max_queue = MAX_QUEUE, .turn = &turn};
    assert_int_equal(cvy_served_init(&served, "painted", &options), CVY_OK);
    assert_int_equal(cvy_served_start(&served), CVY_OK);
    assert_int_equal(cvy_served_wait(&served), CVY_OK);
    cvy_turn_take(&turn);
    expect_batches(-1, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cvy_turn_give(&turn);
    cvy_served_release(&served);
    drop_works();
    cvy_turn_release(&turn);
    return 0;
}

static void put_all(const int *counts, int jobs, bool tensor)
{
    for (int i = 0; i < jobs; i++)
        assert_int_equal(put(i % (IMAGES - counts[i] + 1), counts[i], tensor), CVY_OK);
}

static void powers_of_two(void **state)
{
    static const struct {
        int jobs, counts[8], batches; /* counts: of images */
    } rows[] = {
        {1, {1}, 1},
        {2, {1, 1}, 1},
        {3, {1, 1, 1}, 2},                /* 2, 1 */
        {5, {1, 1, 1, 1, 1}, 2},          /* 4, 1 */
        {6, {1, 1, 1, 1, 1, 1}, 1},       /* 6: the largest */
        {8, {1, 1, 1, 1, 1, 1, 1, 1}, 2}, /* 6, 2 */
        {3, {3, 1, 1}, 2},                /* of 5: 4, 1 */
        {3, {2, 3, 1}, 1},                /* 6 */
        {2, {1, 3}, 1},                   /* of 4 */
        {3, {1, 3, 1}, 2},                /* of 5: 4, 1 */
        {2, {2, 3}, 2},                   /* of 5 no 4 can be made: 2, 3 */
    };

    (void)state;
    for (int tensor = 0; tensor < 2; tensor++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            int images = 0;

            put_all(rows[i].counts, rows[i].jobs, tensor);
            for (int k = 0; k < rows[i].jobs; k++)
                images += rows[i].counts[k];
            assert_int_equal(served.waiting, images);
            compute();
            expect_answers();
            expect_batches(rows[i].batches, images);
            drop_works();
        }
    }
}

/* Images and tensors are not computed together, and nobody overtakes. */
static void kinds(void **state)
{
    (void)state;
    assert_int_equal(put(0, 1, false), CVY_OK);
    assert_int_equal(put(1, 1, true), CVY_OK);
    assert_int_equal(put(2, 1, true), CVY_OK);
    assert_int_equal(put(3, 1, false), CVY_OK);
    compute();
    expect_answers();
    expect_batches(3, 4);
}

static void full_queue(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_QUEUE / 4; i++)
        assert_int_equal(put(0, 4, false), CVY_OK);
    assert_int_equal(put(0, 1, false), CVY_UNAVAILABLE);
    assert_string_equal(cvy_error(), "too many images wait for painted: try again later");
    compute();
    expect_answers();
    drop_works();
    assert_int_equal(put(0, 1, false), CVY_OK);
    compute();
    expect_answers();
    expect_batches(-1, 0);
}

/* One that has more than may wait is taken where nothing waits, and computed by itself. */
static void larger_than_the_queue(void **state)
{
    (void)state;
    served.max_queue = 3;
    assert_int_equal(put(0, 4, true), CVY_OK);
    assert_int_equal(put(0, 1, true), CVY_UNAVAILABLE);
    compute();
    expect_answers();
    served.max_queue = MAX_QUEUE;
    expect_batches(1, 4);
}

/* The others of its batch have their answers. */
static void bad_image(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(put(i, i == 1 ? 2 : 1, false), CVY_OK);
    works[1].images[1] =
        (struct cvy_image){.size = sizeof works->images[1], .name = "text", .data = "text", .bytes = 4};
    compute();
    expect_batches(1, 4);
    assert_int_equal(works[1].job.status[1], CVY_BAD_DATA);
    assert_non_null(strstr(cvy_job_error(&works[1].job, 1), "\"text\" is no image"));
    works[1].job.count = 1;
    expect_answers();
}

/* Whatever cannot be allocated: answers, or statuses with sentences. */
static void short_memory(void **state)
{
    int failed = 0, allocations = 0;

    (void)state;
    for (bool whole = false; !whole; drop_works()) {
        assert_int_equal(put(0, 1, allocations % 2), CVY_OK);
        assert_int_equal(put(1, 1, allocations % 2), CVY_OK);
        cvy_memory_fail_after(allocations / 2 + 1, false);
        compute();
        cvy_memory_fail_after(0, false);
        whole = allocations > 2;
        for (int i = 0; i < 2; i++) {
            const cvy_status status = works[i].job.status[0];

            assert_true(status == CVY_OK || status == CVY_NO_MEMORY);
            assert_int_equal(status == CVY_OK, *cvy_job_error(&works[i].job, 0) == '\0');
            failed += status != CVY_OK;
            whole &= status == CVY_OK;
        }
        allocations++;
        assert_true(allocations < 200);
    }
    assert_true(failed > 10);
    expect_batches(-1, 0);
}

/* What waits when it ends is answered; what comes then is refused. */
static void *end(void *argument)
{
    (void)argument;
    cvy_served_end(&served);
    return NULL;
}

static void ending(void **state)
{
    pthread_t thread;
    bool ending;

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(put(i, 1, false), CVY_OK);
    assert_int_equal(pthread_create(&thread, NULL, end, NULL), 0);
    do {
        usleep(1000);
        pthread_mutex_lock(&served.mutex);
        ending = served.state == CVY_SERVED_ENDING;
        pthread_mutex_unlock(&served.mutex);
    } while (!ending);
    assert_int_equal(put(0, 1, false), CVY_UNAVAILABLE);
    assert_string_equal(cvy_error(), "the server is ending");
    compute();
    pthread_join(thread, NULL);
    expect_answers();
}

RUN_TESTS(classifier_setup, classifier_teardown, EACH(powers_of_two), EACH(kinds), EACH(full_queue),
          EACH(larger_than_the_queue), EACH(bad_image), EACH(short_memory), EACH(ending))
