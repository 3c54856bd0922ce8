/* Writing the tables that formats/weights/table.h reads, in memory: without compression and filters. */
#ifndef CVY_FORMATS_WEIGHTS_TABLE_WRITE_H
#define CVY_FORMATS_WEIGHTS_TABLE_WRITE_H

#include "base/memory.h"
#include "formats/weights/table.h"

/* Zero-initialise to use. The first failed allocation sticks: cvy_table_finish tells. */
struct cvy_table_writer {
    struct cvy_text table;           /* what is done */
    struct cvy_text block, restarts; /* the data block that is being filled, and where its keys are whole */
    struct cvy_text index;           /* the entries of the index block */
    struct cvy_text index_restarts;
    char key[CVY_TABLE_KEY + 1]; /* the last one */
    size_t key_size, entries;    /* entries of the block */
};
/* Keys come in bytewise ascending order, with at most CVY_TABLE_KEY bytes each. */
void cvy_table_add(struct cvy_table_writer *writer, const char *key, size_t key_size, const void *value,
                   size_t value_size);
/* Writes the index and the footer; writer->table then is the whole. CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_table_finish(struct cvy_table_writer *writer);
void cvy_table_writer_release(struct cvy_table_writer *writer);

#endif
