#include "run/records/divergence.h"

#include <math.h>
#include <string.h>

/* Means over so many steps that no healthy training reaches, but for a fresh one in its first steps, as multiples of
 * the loss of guessing, plus an amount for sets of few classes. One step of an unlucky batch may be far above the mean;
 * ten in a row are not. The measured beginnings of healthy and diverging trainings are in
 * tests/unit/run/test_divergence.c. */
static const struct {
    int steps;
    double factor, offset;
} limits[] = {{1, 8, 8}, {3, 4, 3}, {5, 3, 2}, {10, 2, 1.5}};
enum { LIMITS = sizeof limits / sizeof *limits, CALM_STEPS = 3 };
static const double CALM = 1.25; /* of guessing, plus a half: what calm steps do not exceed */

static double mean_of_last(const struct cvy_train_state *state, int steps)
{
    double sum = 0;

    for (int64_t i = state->recent_count - steps; i < state->recent_count; i++)
        sum += state->recent_losses[i];
    return sum / steps;
}

static void append(struct cvy_train_state *state, double loss)
{
    if (state->recent_count == CVY_RECENT_STEPS)
        memmove(state->recent_losses, state->recent_losses + 1, (CVY_RECENT_STEPS - 1) * sizeof(double));
    else
        state->recent_count++;
    state->recent_losses[state->recent_count - 1] = loss;
}

static bool none_is_finite(const struct cvy_train_state *state)
{
    for (int64_t i = 0; i < state->recent_count; i++) {
        if (isfinite(state->recent_losses[i]))
            return false;
    }
    return true;
}

/* The loss that limits are multiples of: that of guessing, or that of the first step where it was higher, until ten
 * steps were better. */
static double level(struct cvy_train_state *state, double guess)
{
    if (state->start_loss <= 0 && state->recent_count == 1)
        state->start_loss = state->recent_losses[0];
    return fmax(guess, state->start_loss);
}

static void lower_level(struct cvy_train_state *state)
{
    const double mean = state->recent_count == CVY_RECENT_STEPS ? mean_of_last(state, CVY_RECENT_STEPS) : INFINITY;

    if (mean < state->start_loss)
        state->start_loss = mean;
}

void cvy_divergence_add(struct cvy_train_state *state, int64_t step, double loss, double guess, bool scaled,
                        enum cvy_beginning beginning)
{
    const bool trained = beginning == CVY_BEGINS_TRAINED && guess > 0;
    const int count = beginning == CVY_BEGINS_LONG && step <= CVY_FIRST_STEPS ? 1 : LIMITS;

    if (state->diverged_step > 0)
        return;
    append(state, loss);
    if (!isfinite(loss)) {
        if (!scaled || (state->recent_count == CVY_RECENT_STEPS && none_is_finite(state))) {
            state->diverged_step = step;
            state->diverged_loss = loss;
        }
        return;
    }
    const double from = trained ? level(state, guess) : guess;
    for (int i = 0; i < count && guess > 0; i++) {
        const double mean = state->recent_count >= limits[i].steps ? mean_of_last(state, limits[i].steps) : 0;

        if (isfinite(mean) && mean > limits[i].factor * from + limits[i].offset) {
            state->diverged_step = step;
            state->diverged_loss = mean;
            return;
        }
    }
    if (trained)
        lower_level(state);
}

bool cvy_divergence_is_calm(const struct cvy_train_state *state, double guess)
{
    const double limit = guess > 0 ? CALM * guess + 0.5 : INFINITY;

    if (state->recent_count < CALM_STEPS || state->diverged_step > 0)
        return false;
    for (int64_t i = state->recent_count - CALM_STEPS; i < state->recent_count; i++) {
        if (!isfinite(state->recent_losses[i]) || state->recent_losses[i] > limit)
            return false;
    }
    return true;
}
