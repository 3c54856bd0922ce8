/* Sorted tables of keys and values: LevelDB's file format, in which TensorFlow keeps its checkpoints.
 *
 *   data blocks   entries, each: varints of the bytes that its key shares with the one before, of the key's others and
 *                 of the value; those bytes. Then the places of entries that share nothing (32 bits each), their number
 *   index block   the same; values are the places of data blocks: varints of offset and size
 *   footer        48 bytes: places of a block for filters and of the index, padding, a magic number
 *
 * After each block come a byte for its compression and a masked CRC-32C of both. */
#ifndef CVY_FORMATS_WEIGHTS_TABLE_H
#define CVY_FORMATS_WEIGHTS_TABLE_H

#include "convoy/status.h"
#include "formats/wire.h"

enum { CVY_TABLE_KEY = 512 }; /* longer keys are refused */

/* Keys may hold any bytes; a 0 follows. Values lie in the table. */
struct cvy_table_entry {
    const char *key;
    size_t key_size;
    struct cvy_wire value;
};
typedef cvy_status (*cvy_table_visitor)(void *context, const struct cvy_table_entry *entry);

/* By its last bytes. */
bool cvy_table_looks_like(const void *data, size_t size);
/* All entries in their order, until the visitor fails. CVY_BAD_DATA: no table, damaged, or compressed. `what` names the
 * file. */
CVY_CHECKED cvy_status cvy_table_visit(const char *what, const void *data, size_t size, cvy_table_visitor visitor,
                                       void *context);

#endif
