/* TensorBoard's events of a run: their bytes, and what a run that goes back leaves of them. */
#include <dirent.h>

#include "base/file.h"
#include "formats/container/tfrecord.h"
#include "report/records/events.h"
#include "support_folder.h"
#include "support_test.h"

static const char *event_file(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    const char *path = NULL;

    assert_non_null(listing);
    while ((entry = readdir(listing)))
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            assert_null(path); /* one and no more */
            path = test_path(folder, entry->d_name);
        }
    closedir(listing);
    assert_non_null(path);
    return path;
}

static size_t count_events(const char *path)
{
    size_t size, used, payload_size, count = 0;
    char *data = read_text(path, &size);
    const uint8_t *payload;

    for (size_t at = 0; at < size; at += used, count++)
        assert_int_equal(cvy_tfrecord_parse("events", at, data + at, size - at, &payload, &payload_size, &used),
                         CVY_OK);
    cvy_free(data);
    return count;
}

static void add(struct cvy_events *events, int64_t step, const char *tag, double value)
{
    assert_int_equal(cvy_events_add(events, step, &(struct cvy_scalar){tag, value}, 1), CVY_OK);
}

/* Ten steps of two epochs, a record every other step. */
static void write_events(struct cvy_events *events)
{
    for (int64_t step = 2; step <= 20; step += 2) {
        add(events, step, "train/loss", 1.0 / (double)step);
        if (step % 10 == 0)
            add(events, step, "epoch", (double)(step / 10 - 1));
    }
}

static void event_bytes(void **state)
{
    struct cvy_events events = {0};
    size_t size;

    add(&events, 1, "dropped", 1);
    assert_int_equal(cvy_events_open(&events, *state, NULL), CVY_OK);
    add(&events, 300, "train/loss", 0.5);
    cvy_events_close(&events);
    cvy_events_close(&events);
    /* The second record: 12 bytes of frame, wall time (key 0x09, 8 bytes), step 300 (key 0x10, 0xac 0x02), summary of
     * 19 bytes with a value of 17: tag of 10 bytes, simple_value 0.5. */
    static const unsigned char tail[] = "\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x00\x3f";
    char *data = read_text(event_file(*state), &size);
    assert_int_equal((unsigned char)data[0], 9 + 2 + 13);
    assert_memory_equal(data + 12 + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    assert_int_equal(size, 16 + 24 + 16 + 9 + sizeof tail - 1);
    assert_memory_equal(data + size - 4 - (sizeof tail - 1), tail, sizeof tail - 1);
    cvy_free(data);
    assert_int_equal(cvy_events_open(&events, test_path(*state, "none"), NULL), CVY_CANNOT_CREATE);
}

static void events_are_cut_back(void **state)
{
    static const struct {
        struct cvy_events_keep keep;
        size_t events; /* the one that says the version among them */
    } cases[] = {
        {{20, 2}, 13}, {{20, 1}, 12}, /* the end of the second epoch was not reached */
        {{19, 1}, 11}, {{12, 1}, 8},  {{10, 1}, 7}, {{10, 0}, 6}, {{1, 0}, 1}, {{0, 0}, 1},
    };
    struct cvy_events events;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cvy_events_open(&events, *state, NULL), CVY_OK);
        write_events(&events);
        cvy_events_close(&events);
        assert_int_equal(count_events(event_file(*state)), 13);
        assert_int_equal(cvy_events_open(&events, *state, &cases[i].keep), CVY_OK);
        cvy_events_close(&events);
        assert_int_equal(count_events(event_file(*state)), cases[i].events);
    }
    /* A torn record, and one whose checksum is wrong, go with everything after them. */
    for (int damage = 0; damage < 2; damage++) {
        size_t size;
        assert_int_equal(cvy_events_open(&events, *state, NULL), CVY_OK);
        write_events(&events);
        cvy_events_close(&events);
        char *data = read_text(event_file(*state), &size);
        data[size - 2] = (char)(data[size - 2] ^ damage);
        test_file_write(event_file(*state), data, size - (damage ? 0 : 3));
        cvy_free(data);
        assert_int_equal(cvy_events_open(&events, *state, &(struct cvy_events_keep){100, 100}), CVY_OK);
        add(&events, 21, "train/loss", 1);
        cvy_events_close(&events);
        assert_int_equal(count_events(event_file(*state)), 13);
    }
    /* Files of others stay as they are. */
    test_file_write(test_path(*state, "events.out.tfevents.1.other"), "x", 1);
    assert_int_equal(cvy_events_open(&events, *state, NULL), CVY_OK);
    cvy_events_close(&events);
    cvy_free(read_text(test_path(*state, "events.out.tfevents.1.other"), NULL));
}

RUN_TESTS(NULL, NULL, IN_FOLDER(event_bytes), IN_FOLDER(events_are_cut_back))
