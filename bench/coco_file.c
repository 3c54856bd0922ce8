/* Writes a COCO annotation file as large as instances_train2017.json (450 MB, 118,287 images, 860,001 annotations, 80
 * categories, outlines of about 43 numbers), and times reading it: coco_file [FILE [SHARE]].
 * SHARE < 1 makes a smaller one of the same kind. The file is left there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/resources.h"
#include "base/rng.h"
#include "base/system.h"
#include "data/detection/coco_set.h"

enum { IMAGES = 118287, ANNOTATIONS = 860001, CATEGORIES = 80 };

static void write_images(FILE *out, int64_t images)
{
    fputs("{\"info\": {\"description\": \"generated\"}, \"licenses\": [], \"images\": [", out);
    for (int64_t i = 0; i < images; i++)
        fprintf(out,
                "%s{\"license\": 3, \"file_name\": \"%012" PRId64 ".jpg\", \"coco_url\": "
                "\"http://images.example/train2017/%012" PRId64 ".jpg\", \"height\": 480, \"width\": 640, "
                "\"date_captured\": \"2013-11-14 11:18:45\", \"flickr_url\": "
                "\"http://farm9.example/8186/%010" PRId64 "_cbc94ce8b4_z.jpg\", \"id\": %" PRId64 "}",
                i ? ", " : "", 5 * i + 9, 5 * i + 9, i, 5 * i + 9);
}

static void write_annotations(FILE *out, int64_t images, int64_t annotations)
{
    struct cvy_rng rng = cvy_rng_new(0, CVY_RNG_BENCH, 0, 0);

    fputs("], \"annotations\": [", out);
    for (int64_t i = 0; i < annotations; i++) {
        const double width = cvy_rng_range(&rng, 2, 300), height = cvy_rng_range(&rng, 2, 300);
        const double x = cvy_rng_range(&rng, 0, 640 - width), y = cvy_rng_range(&rng, 0, 480 - height);
        const uint32_t points = 2 * (3 + cvy_rng_below(&rng, 38));
        fprintf(out, "%s{\"segmentation\": [[", i ? ", " : "");
        for (uint32_t p = 0; p < points; p++)
            fprintf(out, "%s%.2f", p ? ", " : "",
                    p % 2 ? y + cvy_rng_uniform(&rng) * height : x + cvy_rng_uniform(&rng) * width);
        fprintf(out,
                "]], \"area\": %.4f, \"iscrowd\": 0, \"image_id\": %" PRId64 ", \"bbox\": [%.2f, %.2f, %.2f, %.2f], "
                "\"category_id\": %u, \"id\": %" PRId64 "}",
                width * height / 2, 5 * (int64_t)cvy_rng_below(&rng, (uint32_t)images) + 9, x, y, width, height,
                1 + cvy_rng_below(&rng, CATEGORIES), 3 * i + 1);
    }
}

static int write_file(const char *path, double share)
{
    FILE *out = fopen(path, "w");
    const int64_t images = (int64_t)(share * IMAGES) + 1, annotations = (int64_t)(share * ANNOTATIONS);

    if (!out)
        return 1;
    write_images(out, images);
    write_annotations(out, images, annotations);
    fputs("], \"categories\": [", out);
    for (int c = 0; c < CATEGORIES; c++)
        fprintf(out, "%s{\"supercategory\": \"thing\", \"id\": %d, \"name\": \"thing %d\"}", c ? ", " : "", c + 1,
                c + 1);
    fputs("]}", out);
    return fclose(out);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "instances_train.json";
    const double share = argc > 2 ? atof(argv[2]) : 1;
    const struct cvy_category_rule rule = {0};
    struct cvy_dataset set;

    if (share > 0 && write_file(path, share) != 0) {
        perror(path);
        return 1;
    }
    const double begin = cvy_clock(), worked = (double)clock() / CLOCKS_PER_SEC;
    if (cvy_dataset_open_coco(&set, path, "images", &rule) != CVY_OK) {
        fprintf(stderr, "%s\n", cvy_error());
        return 1;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%u images with %u objects in %.2f s, %.2f s of the processor; %.0f MiB resident, %ld MiB at most\n",
           set.sample_count, set.object_count, cvy_clock() - begin, (double)clock() / CLOCKS_PER_SEC - worked,
           (double)cvy_resident_memory() / 1048576, usage.ru_maxrss / 1024);
    cvy_dataset_close(&set);
    return 0;
}
