/* Which of some images look most like the first one, by the features of a network for classification.
 *
 *   cc nearest_images.c -o nearest_images $(pkg-config --cflags --libs convoy) -lm
 *   ./nearest_images model_best.safetensors query.jpg images/1.jpg images/2.jpg ...
 *
 * C and C++. Prints the three nearest images, each after the cosine of the angle between its features and the query's.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <convoy/convoy.h>

/* The bytes of a file as an image. The caller frees image->data; false: `errno` says why. */
static int read_image(const char *path, struct cvy_image *image)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    long length = -1;

    memset(image, 0, sizeof(*image));
    if (file && fseek(file, 0, SEEK_END) == 0)
        length = ftell(file);
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = (char *)malloc((size_t)length + 1);
    if (bytes && fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
    image->size = sizeof(*image);
    image->name = path;
    image->data = bytes;
    image->bytes = bytes ? (size_t)length : 0;
    return bytes != NULL;
}

static float cosine(const float *a, const float *b, int count)
{
    double product = 0, aa = 0, bb = 0;

    for (int i = 0; i < count; i++) {
        product += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return (float)(product / sqrt(aa * bb));
}

/* features: of the query and of `count` images. */
static void print_nearest(const float *features, int columns, int count, char **names)
{
    float *likeness = (float *)calloc((size_t)count, sizeof(*likeness));
    int best[3], found;

    for (int i = 0; likeness && i < count; i++)
        likeness[i] = cosine(features, features + (size_t)(i + 1) * (size_t)columns, columns);
    found = cvy_top_k(likeness, count, 3, best);
    for (int i = 0; i < found; i++)
        printf("%.3f  %s\n", (double)likeness[best[i]], names[best[i]]);
    free(likeness);
}

int main(int argc, char **argv)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier = NULL;
    const int count = argc - 2; /* the query and what it is compared with */
    struct cvy_outputs outputs;
    struct cvy_image *images = NULL;
    int columns;
    cvy_status status;

    if (argc < 4) {
        fprintf(stderr, "usage: nearest_images WEIGHTS QUERY IMAGE...\n");
        return CVY_USAGE;
    }
    memset(&outputs, 0, sizeof(outputs));
    outputs.size = sizeof(outputs);
    options.weights = argv[1];
    options.features = 1;
    status = cvy_classifier_open(&options, &classifier);
    if (status == CVY_OK) {
        columns = cvy_classifier_features(classifier);
        images = (struct cvy_image *)calloc((size_t)count, sizeof(*images));
        outputs.features = (float *)calloc((size_t)count * (size_t)columns, sizeof(*outputs.features));
        status = images && outputs.features ? CVY_OK : CVY_NO_MEMORY;
        for (int i = 0; i < count && status == CVY_OK; i++) {
            if (!read_image(argv[i + 2], &images[i])) {
                fprintf(stderr, "cannot read %s: %s\n", argv[i + 2], strerror(errno));
                status = CVY_NO_INPUT;
                goto done;
            }
        }
        if (status == CVY_OK)
            status = cvy_classify_images(classifier, images, count, &outputs);
    }
    if (status == CVY_OK)
        print_nearest(outputs.features, columns, count - 1, argv + 3);
    else
        fprintf(stderr, "%s\n", cvy_error());
done:
    for (int i = 0; images && i < count; i++)
        free((void *)images[i].data);
    free(images);
    free(outputs.features);
    cvy_classifier_close(classifier);
    return status;
}
