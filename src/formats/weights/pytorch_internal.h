/* Shared by the parts of the PyTorch reader. */
#ifndef CVY_FORMATS_WEIGHTS_PYTORCH_INTERNAL_H
#define CVY_FORMATS_WEIGHTS_PYTORCH_INTERNAL_H

#include "formats/container/zip.h"
#include "formats/weights/pickle.h"
#include "formats/weights/tensors.h"

/* What a pickle says of a storage, which the file keeps elsewhere; texts of the pickle. */
struct cvy_pytorch_storage_id {
    const char *class, *key; /* "torch.FloatStorage"; its name in the file */
    int64_t count;           /* of elements, or of bytes where the class has no type */
};

/* The bytes of a storage, in the file's. */
struct cvy_pytorch_storage {
    const unsigned char *data;
    size_t size;     /* bytes */
    const char *key; /* this and the next of the format before 1.6 alone */
    size_t unit;     /* bytes of an element */
};

struct cvy_pytorch_reader {
    const char *what;
    size_t budget; /* bytes still allowed for names, tables and tensors that are not contiguous */
    struct cvy_tensor_file *file;
    /* Finds a storage that a tensor needs. CVY_BAD_DATA where there is none of this key. */
    cvy_status (*find_storage)(const struct cvy_pytorch_reader *reader, const char *tensor, const char *key,
                               struct cvy_pytorch_storage *storage);

    /* since 1.6 */
    struct cvy_zip zip;  /* empty before 1.6 */
    const char *root;    /* folder of all members inside the zip file, terminated */
    unsigned char *used; /* by member: its sum is to be checked */

    /* before 1.6 */
    struct cvy_pytorch_storage *storages; /* (storage_count) by key */
    size_t storage_count;
};

/* What a pickle may name. */
bool cvy_pytorch_is_known(const char *name);

/* Bytes that the tree of a pickle in a file of `size` bytes may take. */
size_t cvy_pytorch_tree_bytes(size_t size);

/* Counts memory allocated on behalf of the file, which a small file may inflate. CVY_BAD_DATA when the budget is
 * exceeded. */
CVY_CHECKED cvy_status cvy_pytorch_count_bytes(struct cvy_pytorch_reader *reader, size_t bytes);

/* What the tuple ("storage", class, key, device, count) says; false where it is none, or a part of another storage. */
bool cvy_pytorch_storage_id(const struct cvy_pickle_value *storage, struct cvy_pytorch_storage_id *id);
/* Bytes of an element of a storage of this class, 0 where it is not supported. */
size_t cvy_pytorch_element_size(const char *class);

/* Is it a call that makes a tensor? */
bool cvy_pytorch_is_tensor(const struct cvy_pickle_value *value);
/* The tensor that the call describes: its data in place, or copied when it is a view with gaps or another order. The
 * name is for errors and belongs to the tensor from here on. */
CVY_CHECKED cvy_status cvy_pytorch_tensor(struct cvy_pytorch_reader *reader, const char *name,
                                          const struct cvy_pickle_value *value, struct cvy_named_tensor *tensor);

/* Finds the state dict in what the pickle holds, and fills in the file's tensors and metadata. */
CVY_CHECKED cvy_status cvy_pytorch_find_state(struct cvy_pytorch_reader *reader, const struct cvy_pickle_value *root);

/* Files of before 1.6: begin like one? What is in it, in the reader's file. */
bool cvy_pytorch_is_old(const void *data, size_t size);
CVY_CHECKED cvy_status cvy_pytorch_read_old(struct cvy_pytorch_reader *reader, const void *data, size_t size);

#endif
