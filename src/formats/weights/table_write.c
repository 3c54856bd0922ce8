#include "formats/weights/table_write.h"

#include <string.h>

#include "base/error.h"
#include "formats/crc32c.h"
#include "formats/wire_write.h"

/* TensorFlow's sizes: a key is whole in every 16th entry, and a block ends at 256 KiB. */
enum { WHOLE_KEYS = 16, BLOCK_BYTES = 256 << 10, PLACES = 40 /* bytes of the footer for two locations */ };
static const uint64_t MAGIC = UINT64_C(0xdb4775248b80fb57);

struct location {
    uint64_t offset, size;
};

/* Ends the block's entries and moves it to the table; both texts are empty then. */
static struct location end_block(struct cvy_table_writer *w, struct cvy_text *block, struct cvy_text *restarts)
{
    struct location location = {w->table.length, 0};
    const unsigned char plain = 0; /* no compression */

    if (restarts->length == 0) /* of an empty block, too, there is one */
        cvy_wire_put_fixed(restarts, 4, 0);
    const uint64_t count = restarts->length / 4;
    cvy_text_append(block, restarts->text, restarts->failed ? 0 : restarts->length);
    cvy_wire_put_fixed(block, 4, count);
    location.size = block->length;
    cvy_text_append(block, &plain, 1);
    if (!block->failed) {
        cvy_text_append(&w->table, block->text, block->length);
        cvy_wire_put_fixed(&w->table, 4, cvy_crc32c_mask(cvy_crc32c(0, block->text, block->length)));
    }
    w->table.failed = w->table.failed || block->failed || restarts->failed;
    cvy_text_release(block);
    cvy_text_release(restarts);
    return location;
}

static void put_location(struct cvy_text *text, struct location location)
{
    cvy_wire_put_varint(text, location.offset);
    cvy_wire_put_varint(text, location.size);
}

static void put_entry(struct cvy_text *block, const char *key, size_t key_size, size_t shared, const void *value,
                      size_t value_size)
{
    cvy_wire_put_varint(block, shared);
    cvy_wire_put_varint(block, key_size - shared);
    cvy_wire_put_varint(block, value_size);
    cvy_text_append(block, key + shared, key_size - shared);
    cvy_text_append(block, value, value_size);
}

/* The data block ends, and the index gets its last key and its location. */
static void flush(struct cvy_table_writer *w)
{
    struct cvy_text value = {0};

    put_location(&value, end_block(w, &w->block, &w->restarts));
    cvy_wire_put_fixed(&w->index_restarts, 4, w->index.length);
    put_entry(&w->index, w->key, w->key_size, 0, value.text, value.failed ? 0 : value.length);
    w->table.failed = w->table.failed || value.failed;
    w->entries = 0;
    cvy_text_release(&value);
}

void cvy_table_add(struct cvy_table_writer *w, const char *key, size_t key_size, const void *value, size_t value_size)
{
    size_t shared = 0;

    if (w->entries % WHOLE_KEYS == 0)
        cvy_wire_put_fixed(&w->restarts, 4, w->block.length);
    else
        while (shared < key_size && shared < w->key_size && key[shared] == w->key[shared])
            shared++;
    put_entry(&w->block, key, key_size, shared, value, value_size);
    memcpy(w->key, key, key_size);
    w->key_size = key_size;
    w->entries++;
    if (w->block.length >= BLOCK_BYTES)
        flush(w);
}

cvy_status cvy_table_finish(struct cvy_table_writer *w)
{
    struct cvy_text filters = {0}, none = {0}, places = {0};

    if (w->entries > 0)
        flush(w);
    put_location(&places, end_block(w, &filters, &none));
    put_location(&places, end_block(w, &w->index, &w->index_restarts));
    while (!places.failed && places.length < PLACES)
        cvy_wire_put_fixed(&places, 1, 0);
    cvy_wire_put_fixed(&places, 8, MAGIC);
    cvy_text_append(&w->table, places.text, places.failed ? 0 : places.length);
    const bool failed = w->table.failed || places.failed;
    cvy_text_release(&places);
    return failed ? cvy_fail_memory(w->table.capacity, "a table") : CVY_OK;
}

void cvy_table_writer_release(struct cvy_table_writer *w)
{
    cvy_text_release(&w->table);
    cvy_text_release(&w->block);
    cvy_text_release(&w->restarts);
    cvy_text_release(&w->index);
    cvy_text_release(&w->index_restarts);
}
