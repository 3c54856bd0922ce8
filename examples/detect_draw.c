/* Find objects on the frames of a camera or film, as they come on standard input (3 bytes a pixel: red, green, blue),
 * and write the frames to standard output with boxes drawn on them; what was found goes to standard error. C and C++.
 *   ffmpeg -i film.mp4 -f rawvideo -pix_fmt rgb24 - | detect_draw WEIGHTS 1280 720 0.5 |
 *       ffplay -f rawvideo -pixel_format rgb24 -video_size 1280x720 -
 * cc detect_draw.c $(pkg-config --cflags --libs convoy) */
#include <convoy/convoy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct frame {
    unsigned char *bytes; /* (height, width, 3) */
    int width, height;
};

static int limited(float value, int end)
{
    return value < 0 ? 0 : value >= (float)end ? end - 1 : (int)value;
}

static void paint(struct frame *frame, int x, int y)
{
    static const unsigned char red[3] = {255, 0, 0};

    memcpy(frame->bytes + ((size_t)y * (size_t)frame->width + (size_t)x) * 3, red, sizeof(red));
}

/* The outline of a box: x, y, width, height in pixels. */
static void draw_box(struct frame *frame, const float *box)
{
    const int left = limited(box[0], frame->width), right = limited(box[0] + box[2], frame->width);
    const int top = limited(box[1], frame->height), bottom = limited(box[1] + box[3], frame->height);

    for (int x = left; x <= right; x++) {
        paint(frame, x, top);
        paint(frame, x, bottom);
    }
    for (int y = top; y <= bottom; y++) {
        paint(frame, left, y);
        paint(frame, right, y);
    }
}

static cvy_status detect_frame(cvy_detector *detector, struct frame *frame, int number, double threshold)
{
    struct cvy_detected_object objects[CVY_DETECTED_OBJECTS_MAX];
    struct cvy_pixels pixels = CVY_SIZED(cvy_pixels);
    int count;

    pixels.data = frame->bytes;
    pixels.format = CVY_PIXELS_RGB;
    pixels.width = frame->width;
    pixels.height = frame->height;
    const cvy_status status = cvy_detect_pixels(detector, "frame", &pixels, threshold, objects, &count);
    for (int i = 0; status == CVY_OK && i < count; i++) {
        const struct cvy_detected_object *object = &objects[i];
        fprintf(stderr, "%d: %.2f %s %.1f %.1f %.1f %.1f\n", number, (double)object->score,
                object->class_name ? object->class_name : "(no name)", (double)object->box[0], (double)object->box[1],
                (double)object->box[2], (double)object->box[3]);
        draw_box(frame, object->box);
    }
    return status;
}

/* All frames; what fails has said so. */
static cvy_status detect_frames(cvy_detector *detector, struct frame *frame, double threshold)
{
    const size_t bytes = (size_t)frame->width * (size_t)frame->height * 3;
    size_t count;

    for (int number = 0; (count = fread(frame->bytes, 1, bytes, stdin)) == bytes; number++) {
        const cvy_status status = detect_frame(detector, frame, number, threshold);
        if (status != CVY_OK) {
            fprintf(stderr, "%s\n", cvy_error());
            return status;
        }
        if (fwrite(frame->bytes, 1, bytes, stdout) != bytes || fflush(stdout) != 0) {
            perror("cannot write");
            return CVY_CANNOT_WRITE;
        }
    }
    if (count == 0)
        return CVY_OK;
    fprintf(stderr, "the last frame is not complete\n");
    return CVY_BAD_DATA;
}

int main(int argc, char **argv)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_detector *detector = NULL;
    struct frame frame;

    frame.width = argc == 5 ? atoi(argv[2]) : 0;
    frame.height = argc == 5 ? atoi(argv[3]) : 0;
    if (frame.width < 1 || frame.height < 1 || frame.width > 16384 || frame.height > 16384) {
        fprintf(stderr, "usage: detect_draw WEIGHTS WIDTH HEIGHT THRESHOLD\n");
        return CVY_USAGE;
    }
    options.weights = argv[1];
    cvy_status status = cvy_detector_open(&options, &detector);
    if (status != CVY_OK) {
        fprintf(stderr, "%s\n", cvy_error());
        return (int)status;
    }
    frame.bytes = (unsigned char *)malloc((size_t)frame.width * (size_t)frame.height * 3);
    if (frame.bytes) {
        status = detect_frames(detector, &frame, atof(argv[4]));
    } else {
        fprintf(stderr, "memory ran out\n");
        status = CVY_NO_MEMORY;
    }
    free(frame.bytes);
    cvy_detector_close(detector);
    return (int)status;
}
