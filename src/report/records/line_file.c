#include "report/records/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

/* The end of the last whole line within the first `size` bytes of an open file. */
static off_t last_line_end(int file, off_t size)
{
    char block[4096];
    while (size > 0) {
        off_t begin = size > (off_t)sizeof block ? size - (off_t)sizeof block : 0;
        ssize_t got = pread(file, block, (size_t)(size - begin), begin);
        if (got <= 0)
            return 0;
        for (ssize_t i = got; i > 0; i--)
            if (block[i - 1] == '\n')
                return begin + i;
        size = begin;
    }
    return 0;
}

/* Cut the file back and stand at its end. Pipes and terminals have nothing to cut. */
static int cut_back(int file, int64_t offset)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return -1;
    if (!S_ISREG(about.st_mode))
        return 0;
    off_t keep = offset < 0 ? 0 : (off_t)offset;
    if (about.st_size < keep)
        keep = last_line_end(file, about.st_size);
    return ftruncate(file, keep) == 0 && lseek(file, keep, SEEK_SET) == keep ? 0 : -1;
}

cvy_status cvy_line_file_open(struct cvy_line_file *file, const char *path, int64_t offset)
{
    *file = (struct cvy_line_file){0};
    char *name = cvy_strdup(path);
    if (!name)
        return cvy_fail_memory(strlen(path) + 1, "a file name");
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor >= 0 && cut_back(descriptor, offset) == 0)
        file->stream = fdopen(descriptor, "wb");
    if (!file->stream) {
        cvy_status status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(path));
        if (descriptor >= 0)
            close(descriptor);
        cvy_free(name);
        return status;
    }
    file->path = name;
    return CVY_OK;
}

cvy_status cvy_line_file_add(struct cvy_line_file *file, const char *text)
{
    if (!file->stream)
        return CVY_OK;
    if (fputs(text, file->stream) == EOF || fputc('\n', file->stream) == EOF || fflush(file->stream) != 0)
        return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(file->path));
    return CVY_OK;
}

cvy_status cvy_line_file_append(struct cvy_line_file *file, const void *data, size_t size)
{
    if (!file->stream)
        return CVY_OK;
    if (fwrite(data, 1, size, file->stream) != size || fflush(file->stream) != 0)
        return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(file->path));
    return CVY_OK;
}

cvy_status cvy_line_file_sync(struct cvy_line_file *file)
{
    if (!file->stream || fdatasync(fileno(file->stream)) == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS)
        return CVY_OK;
    return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(file->path));
}

int64_t cvy_line_file_offset(const struct cvy_line_file *file)
{
    if (!file->stream)
        return 0;
    off_t offset = ftello(file->stream);
    return offset > 0 ? (int64_t)offset : 0;
}

void cvy_line_file_close(struct cvy_line_file *file)
{
    if (file->stream)
        fclose(file->stream); /* every line is flushed: nothing can be lost here */
    cvy_free(file->path);
    *file = (struct cvy_line_file){0};
}
