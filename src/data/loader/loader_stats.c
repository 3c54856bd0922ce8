#include "data/loader/loader_stats.h"

#include <stdio.h>

#include "base/error.h"

static const double NO_WAIT = 0.05; /* share of the time: the data come fast enough */
static const double BUSY = 0.8;     /* share of the time of lanes: the device is what the others wait for; of threads */
static const double LARGER = 1.2;   /* times the shorter side that would do: worth to be made smaller */

void cvy_loader_stats_add(struct cvy_loader_stats *sum, const struct cvy_loader_stats *part)
{
    sum->images += part->images;
    sum->left += part->left;
    sum->bytes += part->bytes;
    sum->sides += part->sides;
    sum->read += part->read;
    sum->decode += part->decode;
    sum->transform += part->transform;
    sum->device += part->device;
    sum->elapsed += part->elapsed;
    sum->wait += part->wait;
    sum->workers = part->workers;
    sum->lanes = part->lanes;
}

static double work(const struct cvy_loader_stats *stats)
{
    return stats->read + stats->decode + stats->transform;
}

double cvy_loader_stats_busy(const struct cvy_loader_stats *stats)
{
    const double all = stats->elapsed * stats->workers, share = all > 0 ? work(stats) / all : 0;

    return share > 1 ? 1 : share; /* what was in progress at the ends of the time is counted whole */
}

enum cvy_bottleneck cvy_loader_bottleneck(const struct cvy_loader_stats *stats)
{
    if (stats->wait <= NO_WAIT * stats->elapsed)
        return CVY_BOUND_BY_NETWORK;
    if (stats->lanes > 0 && stats->device > BUSY * stats->elapsed * stats->lanes)
        return CVY_BOUND_BY_DEVICE;
    if (stats->read >= stats->decode && stats->read >= stats->transform)
        return CVY_BOUND_BY_READING;
    return stats->decode >= stats->transform ? CVY_BOUND_BY_DECODING : CVY_BOUND_BY_TRANSFORM;
}

const char *cvy_bottleneck_name(enum cvy_bottleneck bottleneck)
{
    static const char *const names[] = {"network", "reading", "decoding", "transform", "device"};

    return names[bottleneck];
}

/* ---- what helps ---- */

enum { REMEDY_TEXT = 160 };

static bool images_are_large(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place)
{
    return stats->sides > LARGER * place->resize * (double)stats->images;
}

/* Beside more threads; "": nothing. */
static void help_reading(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place,
                         char text[REMEDY_TEXT])
{
    const bool large = images_are_large(stats, place);
    char side[40] = "";
    size_t length = 0;

    if (large)
        snprintf(side, sizeof side, " --shorter-side %d", (int)place->resize);
    if (!place->boxes && (large || !place->records))
        length = (size_t)snprintf(text, REMEDY_TEXT, "convoy dataset pack%s makes %s, ", side,
                                  place->records ? "images smaller" : "one sequential file of many small ones");
    snprintf(text + length, REMEDY_TEXT - length,
             place->cached ? "--ram-cache has them in memory from the second epoch on"
                           : "--ram-cache keeps what was read");
}

static void help_decoding(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place,
                          char text[REMEDY_TEXT])
{
    const double images = (double)stats->images;

    if (place->boxes)
        return;
    if (images_are_large(stats, place))
        snprintf(text, REMEDY_TEXT, "convoy dataset pack --shorter-side %d makes images smaller, once%s",
                 (int)place->resize,
                 place->scaled > 0 && stats->sides >= place->scaled * images ? "; --decode fast saves a little" : "");
    else
        snprintf(text, REMEDY_TEXT, "convoy dataset pack --raw keeps pixels that need no decoding, 3 bytes for each");
}

/* Where neither threads nor the images can be others. Small images make batches that are taken before the threads have
 * begun the next ones: of 64 pixels, batches of 32 keep two threads busy 55 % of the time, and of 256 92 %. */
static const char *help_nothing(const struct cvy_loader_stats *stats)
{
    if (cvy_loader_stats_busy(stats) >= BUSY)
        return "every core is at it already";
    return "threads wait at the ends of batches, of which larger ones make fewer";
}

static void advise_device(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place,
                          char text[CVY_ADVICE_TEXT])
{
    char side[80] = "";

    if (images_are_large(stats, place))
        snprintf(side, sizeof side, "convoy dataset pack --shorter-side %d makes images smaller; ", (int)place->resize);
    snprintf(text, CVY_ADVICE_TEXT,
             "the GPU's decoder (%d batches at a time, %.0f %% busy; %s, %.0f %% busy): %sthe processor may be "
             "faster where it has many cores",
             (int)stats->lanes, 100 * stats->device / (stats->elapsed * stats->lanes),
             cvy_counted(stats->workers, "thread"), 100 * cvy_loader_stats_busy(stats), side);
}

void cvy_loader_advice(const struct cvy_loader_stats *stats, const struct cvy_loader_context *place,
                       char text[CVY_ADVICE_TEXT])
{
    static const char *const what[] = {"", "reading files", "decoding", "resizing and augmenting"};
    const enum cvy_bottleneck bottleneck = cvy_loader_bottleneck(stats);
    const double share[] = {0, stats->read, stats->decode, stats->transform};
    const double all = work(stats), images = stats->images > 0 ? (double)stats->images : 1;
    /* A thread that reads waits for the disk: more of them help without a core for each. */
    const bool more = stats->workers < place->cores || bottleneck == CVY_BOUND_BY_READING;
    char remedy[REMEDY_TEXT] = "";
    int length;

    if (bottleneck == CVY_BOUND_BY_NETWORK) {
        snprintf(text, CVY_ADVICE_TEXT, "the network, not the data: waiting for images takes %.1f %% of the time",
                 stats->elapsed > 0 ? 100 * stats->wait / stats->elapsed : 0);
        return;
    }
    if (bottleneck == CVY_BOUND_BY_DEVICE) {
        advise_device(stats, place, text);
        return;
    }
    length =
        snprintf(text, CVY_ADVICE_TEXT, "%s takes %.0f %% of the loader's work (%.2f ms an image; %s, %.0f %% busy)",
                 what[bottleneck], all > 0 ? 100 * share[bottleneck] / all : 0, 1e3 * share[bottleneck] / images,
                 cvy_counted(stats->workers, "thread"), 100 * cvy_loader_stats_busy(stats));
    if (bottleneck == CVY_BOUND_BY_READING)
        help_reading(stats, place, remedy);
    else if (bottleneck == CVY_BOUND_BY_DECODING)
        help_decoding(stats, place, remedy);
    snprintf(text + length, CVY_ADVICE_TEXT - (size_t)length, ": %s%s%s", more ? "more --workers" : "",
             more && remedy[0] ? "; or " : "",
             remedy[0] ? remedy
             : more    ? ""
                       : help_nothing(stats));
}
