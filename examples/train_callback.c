/* A training with a say of its own: each epoch is shown as it ends, the network is validated and saved in the middle of
 * each epoch as well, and the run ends as soon as it is good enough, or by Ctrl-C with everything kept. C and C++.
 *   train_callback DATA RUN 95       until 95 % of the validation images are right, 100 epochs at most
 *   train_callback DATA RUN 95 arch=resnet18 image-size=64
 * cc train_callback.c $(pkg-config --cflags --libs convoy) */
#include <convoy/convoy.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static cvy_training *running;

static void interrupt(int signal_number)
{
    (void)signal_number;
    cvy_training_stop(running); /* which a signal handler may call */
}

struct goal {
    double percent;
    bool reached;
    int64_t step, steps; /* of the epoch */
};

/* After each epoch. */
static void show_epoch(void *context, const struct cvy_train_epoch *epoch)
{
    struct goal *goal = (struct goal *)context;
    const double top1 = cvy_measures_get(&epoch->val, "top1");

    printf("epoch %d: loss %.4f, %.2f %% of the validation images%s\n", (int)epoch->epoch, epoch->train_loss, top1,
           epoch->best ? ", the best so far" : "");
    fflush(stdout);
    if (top1 >= goal->percent) {
        goal->reached = true;
        cvy_training_stop(running);
    }
}

/* After each step, and during validations. */
static void note_progress(void *context, const struct cvy_train_progress *progress)
{
    struct goal *goal = (struct goal *)context;

    if (!progress->validating) {
        goal->step = progress->step;
        goal->steps = progress->steps;
    }
}

static void show_message(void *context, enum cvy_log_level level, const char *text)
{
    (void)context;
    if (level <= CVY_LOG_WARNING)
        fprintf(stderr, "%s\n", text);
}

/* Options as the command line has them, "epochs=20". */
static cvy_status set_options(struct cvy_train_options *options, int count, char **words)
{
    cvy_status status = cvy_train_options_set(options, "epochs", "100", CVY_FROM_FLAG);

    for (int i = 0; i < count && status == CVY_OK; i++) {
        char *value = strchr(words[i], '=');
        if (value)
            *value++ = '\0';
        status = cvy_train_options_set(options, words[i], value, CVY_FROM_FLAG);
    }
    return status;
}

static cvy_status train(cvy_training *training, const struct goal *goal, struct cvy_train_result *result)
{
    struct cvy_measures measures;
    bool more = true;
    cvy_status status = cvy_training_open(training);

    while (status == CVY_OK && more) {
        status = cvy_training_step(training, &more);
        if (status == CVY_OK && more && goal->steps > 1 && goal->step == goal->steps / 2) {
            status = cvy_training_validate(training, &measures);
            if (status == CVY_OK)
                printf("  after %d of %d steps: %.2f %%\n", (int)goal->step, (int)goal->steps,
                       cvy_measures_get(&measures, "top1"));
            if (status == CVY_OK)
                status = cvy_training_save(training);
        }
    }
    return cvy_training_finish(training, result); /* says again why it is over */
}

int main(int argc, char **argv)
{
    struct cvy_train_options *options = cvy_train_options_new();
    struct cvy_train_events events = CVY_TRAIN_EVENTS_DEFAULTS;
    static struct cvy_train_result result; /* large: it holds paths */
    struct goal goal;
    cvy_status status;

    if (argc < 4 || !options) {
        fprintf(stderr, "usage: train_callback DATA RUN PERCENT [OPTION=VALUE...]\n");
        cvy_train_options_free(options);
        return CVY_USAGE;
    }
    memset(&goal, 0, sizeof(goal));
    goal.percent = atof(argv[3]);
    events.context = &goal;
    events.epoch = show_epoch;
    events.progress = note_progress;
    cvy_set_log_handler(show_message, NULL);
    status = cvy_train_options_set_data(options, argv[1]);
    if (status == CVY_OK)
        status = cvy_train_options_set(options, "workspace", argv[2], CVY_FROM_FLAG);
    if (status == CVY_OK)
        status = set_options(options, argc - 4, argv + 4);
    if (status == CVY_OK)
        status = cvy_training_new(options, &events, &running);
    cvy_train_options_free(options); /* the training has its own */
    if (status == CVY_OK) {
        signal(SIGINT, interrupt);
        status = train(running, &goal, &result);
        signal(SIGINT, SIG_DFL);
    }
    cvy_training_free(running);
    if (status != CVY_OK && !(status == CVY_STOPPED && goal.reached)) {
        fprintf(stderr, "%s\n", cvy_error());
        return (int)status;
    }
    printf("%s: %.2f %% after %d epoch%s\n", result.weights, result.best_score, (int)result.epochs_done,
           result.epochs_done == 1 ? "" : "s");
    return CVY_OK;
}
