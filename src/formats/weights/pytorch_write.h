/* Writing what torch.load reads, with weights_only=True too: a zip file of a pickle and storages. The pickle is put
 * together piece by piece, in the order of Python's: a dictionary begins, then keys and values in turn, then it ends.
 */
#ifndef CVY_FORMATS_WEIGHTS_PYTORCH_WRITE_H
#define CVY_FORMATS_WEIGHTS_PYTORCH_WRITE_H

#include "formats/container/zip.h"
#include "formats/weights/tensors.h"

/* Zero-initialise before opening. The first error sticks and is told by cvy_pytorch_commit. */
struct cvy_pytorch_writer {
    struct cvy_zip_writer zip;
    const struct cvy_tensor_file *source; /* whose the tensors' data is; NULL: none's. May be set after the creation: */
    const char *source_name;              /* nothing is written where it has changed (cvy_tensor_file_check) */
    struct cvy_text pickle;
    const struct cvy_named_tensor **storages; /* in the order of their keys; borrowed */
    size_t storage_count, storage_capacity;
    bool failed; /* memory ran out */
};
CVY_CHECKED cvy_status cvy_pytorch_create(struct cvy_pytorch_writer *writer, const char *path);

void cvy_pytorch_begin_dict(struct cvy_pytorch_writer *writer);
void cvy_pytorch_begin_ordered_dict(struct cvy_pytorch_writer *writer); /* what a state_dict() is */
void cvy_pytorch_end_dict(struct cvy_pytorch_writer *writer);
void cvy_pytorch_begin_list(struct cvy_pytorch_writer *writer);
void cvy_pytorch_end_list(struct cvy_pytorch_writer *writer);
/* A key of the innermost dictionary, or a text. */
void cvy_pytorch_put_text(struct cvy_pytorch_writer *writer, const char *text);
void cvy_pytorch_put_int(struct cvy_pytorch_writer *writer, int64_t value);
void cvy_pytorch_put_float(struct cvy_pytorch_writer *writer, double value);
void cvy_pytorch_put_bool(struct cvy_pytorch_writer *writer, bool value);
/* A tensor of its own storage; its data must stay until the commit. Its name is not used. */
void cvy_pytorch_put_tensor(struct cvy_pytorch_writer *writer, const struct cvy_named_tensor *tensor);
/* A key and its tensor. */
void cvy_pytorch_put_named(struct cvy_pytorch_writer *writer, const struct cvy_named_tensor *tensor);

/* Writes everything; `texts` go next to the weights, where torch.load does not look (the reader gives them back as
 * metadata when their keys begin with "convoy."). Closes in any case; the file appears whole or not at all. */
CVY_CHECKED cvy_status cvy_pytorch_commit(struct cvy_pytorch_writer *writer, const struct cvy_tensor_meta *texts,
                                          size_t text_count);

#endif
