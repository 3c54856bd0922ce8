#include "formats/tensors.h"

#include <string.h>

#include "formats/safetensors.h"

cvy_status cvy_tensor_file_open(struct cvy_tensor_file *file, const char *path)
{
    return cvy_st_open(file, path);
}

void cvy_tensor_file_close(struct cvy_tensor_file *file)
{
    cvy_arena_release(&file->arena);
    cvy_file_unmap(&file->mapping);
    *file = (struct cvy_tensor_file){0};
}

const struct cvy_named_tensor *cvy_tensor_find(const struct cvy_tensor_file *file, const char *name)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (!strcmp(file->tensors[i].name, name))
            return &file->tensors[i];
    return NULL;
}

const char *cvy_tensor_metadata(const struct cvy_tensor_file *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (!strcmp(file->metadata[i].key, key))
            return file->metadata[i].value;
    return NULL;
}
