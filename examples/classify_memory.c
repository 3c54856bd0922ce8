/* Load weights once and classify an image that is in memory, as a server would do with what it received.
 *
 *   cc classify_memory.c -o classify_memory $(pkg-config --cflags --libs convoy)
 *   ./classify_memory runs/.../model_best.safetensors picture.jpg
 *
 * C and C++. Weights may be any file that Convoy reads: a .pth of torchvision or timm works as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <convoy/convoy.h>

/* Reads a whole file. The caller frees the bytes; NULL on failure. */
static void *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    size_t capacity = 0;

    *size = 0;
    while (file && !feof(file) && !ferror(file)) {
        if (*size == capacity) {
            char *larger = (char *)realloc(bytes, capacity = capacity ? 2 * capacity : 65536);
            if (!larger)
                break;
            bytes = larger;
        }
        *size += fread(bytes + *size, 1, capacity - *size, file);
    }
    if (!file || !feof(file)) {
        free(bytes);
        bytes = NULL;
    }
    if (file)
        fclose(file);
    return bytes;
}

/* The three most probable classes. */
static void print_answer(const cvy_classifier *classifier, float *probabilities)
{
    const int classes = cvy_classifier_classes(classifier);
    for (int rank = 0; rank < 3 && rank < classes; rank++) {
        int best = 0;
        for (int i = 1; i < classes; i++)
            if (probabilities[i] > probabilities[best])
                best = i;
        const char *name = cvy_classifier_class_name(classifier, best);
        printf("%6.2f %%  %s\n", 100.0 * (double)probabilities[best], name ? name : "(no name)");
        probabilities[best] = -1.0f;
    }
}

int main(int argc, char **argv)
{
    struct cvy_classifier_options options = CVY_CLASSIFIER_DEFAULTS;
    cvy_classifier *classifier = NULL;
    float *probabilities = NULL;
    void *image = NULL;
    size_t size = 0;

    if (argc != 3) {
        fprintf(stderr, "usage: classify_memory WEIGHTS IMAGE\n");
        return CVY_USAGE;
    }
    options.weights = argv[1];
    cvy_status status = cvy_classifier_open(&options, &classifier);
    if (status == CVY_OK) {
        image = read_file(argv[2], &size);
        probabilities = (float *)calloc((size_t)cvy_classifier_classes(classifier), sizeof(*probabilities));
        if (!image || !probabilities) {
            fprintf(stderr, "cannot read %s: %s\n", argv[2], strerror(errno));
            status = CVY_NO_INPUT;
            goto done;
        }
        status = cvy_classify_memory(classifier, argv[2], image, size, NULL, probabilities);
    }
    if (status == CVY_OK)
        print_answer(classifier, probabilities);
    else
        fprintf(stderr, "%s\n", cvy_error());
done:
    free(probabilities);
    free(image);
    cvy_classifier_close(classifier);
    return (int)status;
}
