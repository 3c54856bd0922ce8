/* Shared by the parts of the PyTorch reader. */
#ifndef CVY_FORMATS_WEIGHTS_PYTORCH_INTERNAL_H
#define CVY_FORMATS_WEIGHTS_PYTORCH_INTERNAL_H

#include "formats/container/zip.h"
#include "formats/weights/pickle.h"
#include "formats/weights/tensors.h"

struct cvy_pytorch_reader {
    const char *what;
    struct cvy_zip zip;
    const char *root;    /* folder of all members inside the zip file, terminated */
    size_t budget;       /* bytes still allowed for names, tables and tensors that are not contiguous */
    unsigned char *used; /* by member: its sum is to be checked */
    struct cvy_tensor_file *file;
};

/* Counts memory allocated on behalf of the file, which a small file may inflate. CVY_BAD_DATA when the budget is
 * exceeded. */
CVY_CHECKED cvy_status cvy_pytorch_count_bytes(struct cvy_pytorch_reader *reader, size_t bytes);

/* A member of the root folder, NULL when there is none. */
const struct cvy_zip_member *cvy_pytorch_member(const struct cvy_pytorch_reader *reader, const char *name);

/* Is it a call that makes a tensor? */
bool cvy_pytorch_is_tensor(const struct cvy_pickle_value *value);
/* The tensor that the call describes: its data in place, or copied when it is a view with gaps or another order. The
 * name is for errors and belongs to the tensor from here on. */
CVY_CHECKED cvy_status cvy_pytorch_tensor(struct cvy_pytorch_reader *reader, const char *name,
                                          const struct cvy_pickle_value *value, struct cvy_named_tensor *tensor);

/* Finds the state dict in what the pickle holds, and fills in the file's tensors and metadata. */
CVY_CHECKED cvy_status cvy_pytorch_find_state(struct cvy_pytorch_reader *reader, const struct cvy_pickle_value *root);

#endif
