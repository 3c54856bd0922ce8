/* Classify the frames of a camera or film as they come on standard input, one line for each; C and C++. For example
 *   ffmpeg -i film.mp4 -f rawvideo -pix_fmt rgb24 - | classify_pixels WEIGHTS 1280 720 rgb24
 * cc classify_pixels.c $(pkg-config --cflags --libs convoy) */
#include <convoy/convoy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names as ffmpeg has them; the bytes of a pixel, 0 for another name. */
static size_t find_format(const char *name, enum cvy_pixel_format *format)
{
    static const struct {
        const char *name;
        enum cvy_pixel_format format;
        size_t bytes;
    } formats[] = {{"rgb24", CVY_PIXELS_RGB, 3},
                   {"bgr24", CVY_PIXELS_BGR, 3},
                   {"rgba", CVY_PIXELS_RGBA, 4},
                   {"bgra", CVY_PIXELS_BGRA, 4},
                   {"gray", CVY_PIXELS_GREY, 1}};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(name, formats[i].name) == 0) {
            *format = formats[i].format;
            return formats[i].bytes;
        }
    }
    return 0;
}

static void print_best(const cvy_classifier *classifier, const float *probabilities)
{
    int best = 0;

    for (int i = 1; i < cvy_classifier_classes(classifier); i++)
        if (probabilities[i] > probabilities[best])
            best = i;
    const char *name = cvy_classifier_class_name(classifier, best);
    printf("%6.2f %%  %s\n", 100.0 * (double)probabilities[best], name ? name : "(no name)");
}

/* CVY_BAD_DATA, without a sentence of the library: the input ends within a frame. */
static cvy_status classify_frames(cvy_classifier *classifier, const struct cvy_pixels *pixels, void *frame,
                                  size_t bytes, float *probabilities)
{
    size_t count;

    while ((count = fread(frame, 1, bytes, stdin)) == bytes) {
        const cvy_status status = cvy_classify_pixels(classifier, "frame", pixels, NULL, probabilities);
        if (status != CVY_OK) {
            fprintf(stderr, "%s\n", cvy_error());
            return status;
        }
        print_best(classifier, probabilities);
        fflush(stdout);
    }
    if (count == 0)
        return CVY_OK;
    fprintf(stderr, "the last frame is not complete\n");
    return CVY_BAD_DATA;
}

int main(int argc, char **argv)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    struct cvy_pixels pixels;
    cvy_classifier *classifier = NULL;
    size_t bytes;

    memset(&pixels, 0, sizeof(pixels));
    if (argc != 5 || (bytes = find_format(argv[4], &pixels.format)) == 0) {
        fprintf(stderr, "usage: classify_pixels WEIGHTS WIDTH HEIGHT rgb24|bgr24|rgba|bgra|gray\n");
        return CVY_USAGE;
    }
    pixels.size = sizeof(pixels);
    pixels.width = atoi(argv[2]);
    pixels.height = atoi(argv[3]);
    if (pixels.width < 1 || pixels.height < 1 || pixels.width > 16384 || pixels.height > 16384) {
        fprintf(stderr, "frames of %d x %d pixels are not possible\n", pixels.width, pixels.height);
        return CVY_USAGE;
    }
    bytes *= (size_t)pixels.width * (size_t)pixels.height;
    options.weights = argv[1];
    cvy_status status = cvy_classifier_open(&options, &classifier);
    if (status != CVY_OK) {
        fprintf(stderr, "%s\n", cvy_error());
        return (int)status;
    }
    void *frame = malloc(bytes);
    float *probabilities = (float *)malloc((size_t)cvy_classifier_classes(classifier) * sizeof(*probabilities));
    pixels.data = frame;
    status = CVY_NO_MEMORY;
    if (frame && probabilities)
        status = classify_frames(classifier, &pixels, frame, bytes, probabilities);
    else
        fprintf(stderr, "memory ran out\n");
    free(probabilities);
    free(frame);
    cvy_classifier_close(classifier);
    return (int)status;
}
