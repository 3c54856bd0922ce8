#include "data/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "formats/tfrecord.h"

/* No encoded image is longer. */
static const size_t max_file_bytes = (size_t)1 << 30;

static cvy_status read_file(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    encoded->name = sample->path;
    CVY_TRY(cvy_file_read(sample->path, max_file_bytes, &encoded->block, &encoded->size));
    encoded->data = encoded->block;
    return CVY_OK;
}

static cvy_status read_bytes(const struct cvy_sample *sample, uint8_t *bytes)
{
    cvy_status status = CVY_OK;
    const int file = open(sample->path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;

    if (file < 0)
        return cvy_fail_errno(cvy_input_status(errno), "cannot open %s", cvy_quote(sample->path));
    while (status == CVY_OK && done < sample->record_bytes) {
        const ssize_t got =
            pread(file, bytes + done, sample->record_bytes - done, (off_t)(sample->record_offset + done));
        if (got < 0 && errno != EINTR)
            status = cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(sample->path));
        else if (got == 0)
            status = cvy_tfrecord_truncated(sample->path, sample->record_offset);
        else if (got > 0)
            done += (size_t)got;
    }
    close(file);
    return status;
}

/* A record's name in messages: its file, where it begins, and the name that the image had. */
static char *name_record(char *name, size_t size, const struct cvy_sample *sample, const char *filename)
{
    const unsigned long long offset = sample->record_offset;

    if (filename[0])
        snprintf(name, size, "%s@%llu (%s)", sample->path, offset, filename);
    else
        snprintf(name, size, "%s@%llu", sample->path, offset);
    return name;
}

static cvy_status read_record(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    cvy_status status = CVY_OK;
    const size_t name_size = strlen(sample->path) + sizeof(((struct cvy_image_record *)0)->filename) + 32;
    struct cvy_image_record record = {0};
    struct cvy_example example;
    const uint8_t *message;
    size_t message_size;

    encoded->block = cvy_realloc(NULL, sample->record_bytes + name_size, 1);
    if (!encoded->block)
        return cvy_fail_memory(sample->record_bytes + name_size, cvy_quote(sample->path));
    CVY_GOTO(read_bytes(sample, encoded->block));
    CVY_GOTO(cvy_tfrecord_parse(sample->path, sample->record_offset, encoded->block, sample->record_bytes, &message,
                                &message_size, NULL));
    cvy_example_open_memory(&example, sample->path, sample->record_offset, message, message_size);
    CVY_GOTO(cvy_image_record_read(&example, true, &record));
    encoded->data = message + record.image_from;
    encoded->size = record.image_size;
    encoded->boxes = record.boxes;
    encoded->box_count = record.box_count;
    encoded->name = name_record((char *)encoded->block + sample->record_bytes, name_size, sample, record.filename);
    return CVY_OK;
fail:
    cvy_image_record_release(&record);
    cvy_encoded_release(encoded);
    return status;
}

cvy_status cvy_sample_read(const struct cvy_sample *sample, struct cvy_encoded *encoded)
{
    *encoded = (struct cvy_encoded){0};
    return sample->record_bytes > 0 ? read_record(sample, encoded) : read_file(sample, encoded);
}

void cvy_encoded_release(struct cvy_encoded *encoded)
{
    cvy_free(encoded->boxes);
    cvy_free(encoded->block);
    *encoded = (struct cvy_encoded){0};
}
