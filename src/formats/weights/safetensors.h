/* safetensors: u64 header length, JSON header, data. Every number in a file is checked before it is used. */
#ifndef CVY_FORMATS_WEIGHTS_SAFETENSORS_H
#define CVY_FORMATS_WEIGHTS_SAFETENSORS_H

#include "formats/weights/tensors.h"

/* Tensors are in the order of their data. Errors name the file and say what is wrong: CVY_NO_INPUT, CVY_BAD_DATA
 * (truncated, overlapping, holes, unknown type, size mismatch, bad JSON, header over 100,000,000 bytes), CVY_NO_MEMORY.
 * A failed open leaves a released object. */
CVY_CHECKED cvy_status cvy_st_open(struct cvy_tensor_file *file, const char *path);
/* The same over bytes in memory (not copied; they must outlive the object). */
CVY_CHECKED cvy_status cvy_st_open_memory(struct cvy_tensor_file *file, const char *what, const void *data,
                                          size_t size);

/* Write: tensors ordered by type alignment (largest first) then as given, header padded to 8 bytes, file whole or not
 * at all. `data` of each tensor must hold shape * size bytes. */
CVY_CHECKED cvy_status cvy_st_write(const char *path, const struct cvy_named_tensor *tensors, size_t tensor_count,
                                    const struct cvy_tensor_meta *metadata, size_t metadata_count);
/* The same for tensors whose data belongs to the file `source`, called `what`: nothing is written where it has changed
 * meanwhile (cvy_tensor_file_check). */
CVY_CHECKED cvy_status cvy_st_write_from(const struct cvy_tensor_file *source, const char *what, const char *path,
                                         const struct cvy_named_tensor *tensors, size_t tensor_count,
                                         const struct cvy_tensor_meta *metadata, size_t metadata_count);

#endif
