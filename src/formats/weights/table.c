#include "formats/weights/table.h"

#include <string.h>

#include "base/error.h"
#include "formats/crc32c.h"

enum { FOOTER = 48, MAGIC_BYTES = 8, TRAILER = 5 };
static const uint64_t MAGIC = UINT64_C(0xdb4775248b80fb57);

struct table {
    const char *what;
    struct cvy_wire bytes; /* without the footer */
    uint64_t visited;      /* the data blocks before this byte have been: none comes twice */
    cvy_table_visitor visitor;
    void *context;
};

static cvy_status damaged(const struct table *table, const char *why)
{
    return cvy_fail(CVY_BAD_DATA, "%s is a damaged TensorFlow checkpoint: %s", cvy_quote(table->what), why);
}

bool cvy_table_looks_like(const void *data, size_t size)
{
    struct cvy_wire end;
    uint64_t magic;

    if (size < FOOTER)
        return false;
    end = (struct cvy_wire){(const uint8_t *)data + size - MAGIC_BYTES, (const uint8_t *)data + size};
    return cvy_wire_fixed(&end, MAGIC_BYTES, &magic) && magic == MAGIC;
}

/* ---- blocks ---- */

/* A block by its place: two varints. */
static cvy_status find_block(const struct table *table, struct cvy_wire *place, uint64_t *offset,
                             struct cvy_wire *block)
{
    struct cvy_wire rest = table->bytes, skipped;
    uint64_t size, compression, sum;

    if (!cvy_wire_varint(place, offset) || !cvy_wire_varint(place, &size) || !cvy_wire_read(&rest, *offset, &skipped) ||
        !cvy_wire_read(&rest, size, block) || !cvy_wire_fixed(&rest, 1, &compression) ||
        !cvy_wire_fixed(&rest, 4, &sum))
        return damaged(table, "a block lies beyond its end (truncated?)");
    if (sum != cvy_crc32c_mask(cvy_crc32c(0, block->at, (size_t)size + 1)))
        return damaged(table, "a checksum is wrong");
    if (compression != 0)
        return cvy_fail(CVY_BAD_DATA, "%s is a compressed table: only those without compression are read",
                        cvy_quote(table->what));
    return CVY_OK;
}

/* What stands after the entries goes away. */
static cvy_status cut_restarts(const struct table *table, struct cvy_wire *block)
{
    struct cvy_wire count_bytes = *block;
    uint64_t count;

    if (cvy_wire_size(block) < 4)
        return damaged(table, "a block is too short");
    count_bytes.at = block->end - 4;
    if (!cvy_wire_fixed(&count_bytes, 4, &count) || count > (cvy_wire_size(block) - 4) / 4)
        return damaged(table, "a block is too short");
    block->end -= 4 + 4 * count;
    return CVY_OK;
}

/* The next entry; `key` (CVY_TABLE_KEY + 1 bytes) holds that of the one before. */
static cvy_status next_entry(const struct table *table, struct cvy_wire *block, char *key,
                             struct cvy_table_entry *entry)
{
    uint64_t shared, own, value;
    struct cvy_wire more;

    if (!cvy_wire_varint(block, &shared) || !cvy_wire_varint(block, &own) || !cvy_wire_varint(block, &value) ||
        !cvy_wire_read(block, own, &more) || !cvy_wire_read(block, value, &entry->value))
        return damaged(table, "an entry reaches beyond its block");
    if (shared > entry->key_size)
        return damaged(table, "a key shares more than there is");
    if (own > CVY_TABLE_KEY - shared)
        return damaged(table, "a name in it is too long");
    memcpy(key + shared, more.at, (size_t)own);
    entry->key = key;
    entry->key_size = (size_t)(shared + own);
    key[entry->key_size] = '\0';
    return CVY_OK;
}

static cvy_status visit_block(struct table *table, struct cvy_wire block)
{
    struct cvy_table_entry entry = {0};
    char key[CVY_TABLE_KEY + 1];

    CVY_TRY(cut_restarts(table, &block));
    while (block.at != block.end) {
        CVY_TRY(next_entry(table, &block, key, &entry));
        CVY_TRY(table->visitor(table->context, &entry));
    }
    return CVY_OK;
}

/* ---- the whole ---- */

static cvy_status visit_all(struct table *table, struct cvy_wire index)
{
    struct cvy_table_entry entry = {0};
    char key[CVY_TABLE_KEY + 1];

    CVY_TRY(cut_restarts(table, &index));
    while (index.at != index.end) {
        struct cvy_wire block;
        uint64_t offset;

        CVY_TRY(next_entry(table, &index, key, &entry));
        CVY_TRY(find_block(table, &entry.value, &offset, &block));
        if (offset < table->visited)
            return damaged(table, "its blocks overlap");
        table->visited = offset + cvy_wire_size(&block) + TRAILER;
        CVY_TRY(visit_block(table, block));
    }
    return CVY_OK;
}

cvy_status cvy_table_visit(const char *what, const void *data, size_t size, cvy_table_visitor visitor, void *context)
{
    struct table table = {.what = what, .visitor = visitor, .context = context};
    struct cvy_wire footer, index;
    uint64_t offset;

    if (!cvy_table_looks_like(data, size))
        return cvy_fail(CVY_BAD_DATA, "%s is no TensorFlow checkpoint", cvy_quote(what));
    table.bytes = (struct cvy_wire){data, (const uint8_t *)data + size - FOOTER};
    footer = (struct cvy_wire){table.bytes.end, table.bytes.end + FOOTER - MAGIC_BYTES};
    for (int i = 0; i < 2; i++) { /* the place of the filters, which are not used */
        uint64_t unused;
        if (!cvy_wire_varint(&footer, &unused))
            return damaged(&table, "its end is no footer");
    }
    CVY_TRY(find_block(&table, &footer, &offset, &index));
    return visit_all(&table, index);
}
