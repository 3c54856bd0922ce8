#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

cvy_status cvy_input_status(int code)
{
    switch (code) {
    case ENOMEM:
        return CVY_NO_MEMORY;
    case EMFILE:
    case ENFILE:
    case EIO:
        return CVY_FAILED;
    default:
        return CVY_NO_INPUT;
    }
}

cvy_status cvy_fail_open(const char *path, const char *what)
{
    const int code = errno;

    if (code == ENOENT && strstr(path, "://"))
        return cvy_fail(CVY_NO_INPUT, "%s is an address on a network, and only files are read: download it first",
                        cvy_quote(path));
    errno = code;
    return cvy_fail_errno(cvy_input_status(code), "cannot open %s%s", what, cvy_quote(path));
}

/* O_NONBLOCK, so that a pipe in a folder of images is refused and not waited for. */
cvy_status cvy_file_open_regular(const char *path, int *file, struct stat *about)
{
    *file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0)
        return cvy_fail_open(path, "");
    cvy_status status = CVY_OK;
    if (fstat(*file, about) != 0)
        status = cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(path));
    else if (S_ISDIR(about->st_mode))
        status = cvy_fail(CVY_BAD_DATA, "%s is a folder, not a file", cvy_quote(path));
    else if (!S_ISREG(about->st_mode))
        status = cvy_fail(CVY_BAD_DATA, "%s is not a regular file", cvy_quote(path));
    if (status != CVY_OK) {
        close(*file);
        *file = -1;
        return status;
    }
    return CVY_OK;
}

static cvy_status too_long(const char *path, size_t limit)
{
    return cvy_fail(CVY_BAD_DATA, "%s is longer than %zu bytes, the most that is read of such a file", cvy_quote(path),
                    limit);
}

cvy_status cvy_file_read(const char *path, size_t limit, void **data, size_t *size)
{
    int file = -1;
    char *bytes = NULL;
    struct stat about;
    size_t expected, capacity, used = 0;
    *data = NULL;
    *size = 0;
    CVY_TRY(cvy_file_open_regular(path, &file, &about));
    expected = (size_t)about.st_size;

    /* The size is a hint: files of /proc say 0, and a file may grow while it is read. */
    cvy_status status = CVY_OK;
    if (expected > limit || !cvy_size_add(expected, 2, &capacity)) {
        status = too_long(path, limit);
        goto done;
    }
    for (;;) {
        if (!bytes || used + 1 == capacity) {
            if (bytes && !cvy_size_mul(capacity, 2, &capacity)) {
                status = too_long(path, limit);
                goto done;
            }
            char *grown = cvy_realloc(bytes, capacity, 1);
            if (!grown) {
                status = cvy_fail_memory(capacity, cvy_quote(path));
                goto done;
            }
            bytes = grown;
        }
        ssize_t got = read(file, bytes + used, capacity - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(path));
            goto done;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > limit) {
            status = too_long(path, limit);
            goto done;
        }
    }
    bytes[used] = 0;
    *data = bytes;
    *size = used;
    bytes = NULL;

done:
    cvy_free(bytes);
    close(file);
    return status;
}

cvy_status cvy_file_read_at(const char *what, int file, uint64_t offset, void *bytes, size_t size, size_t *got)
{
    for (*got = 0; *got < size;) {
        const ssize_t now = pread(file, (char *)bytes + *got, size - *got, (off_t)(offset + *got));
        if (now < 0 && errno != EINTR)
            return cvy_fail_errno(cvy_input_status(errno), "cannot read %s", cvy_quote(what));
        if (now == 0)
            break;
        if (now > 0)
            *got += (size_t)now;
    }
    return CVY_OK;
}

/* Fill output->path with the file that is meant: the target of a symbolic link (a rename would replace the link). */
static cvy_status resolve_output(struct cvy_output *output, const char *path)
{
    struct stat about;
    char *resolved = NULL;
    if (lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
        resolved = realpath(path, NULL); /* NULL for a link that points nowhere: then the link is replaced */
    output->path = cvy_strdup(resolved ? resolved : path);
    free(resolved);
    if (!output->path)
        return cvy_fail_memory(strlen(path) + 1, "a file name");
    return CVY_OK;
}

cvy_status cvy_output_open(struct cvy_output *output, const char *path)
{
    struct stat about;
    int file;
    *output = (struct cvy_output){0};
    cvy_status status;
    CVY_GOTO(resolve_output(output, path));

    bool exists = stat(output->path, &about) == 0;
    if (exists && S_ISDIR(about.st_mode)) {
        status = cvy_fail(CVY_CANNOT_CREATE, "cannot create %s: it is a folder", cvy_quote(path));
        goto fail;
    }
    if (exists && !S_ISREG(about.st_mode)) {
        /* A device or a pipe (/dev/null) cannot be replaced: it is written in place. */
        file = open(output->path, O_WRONLY | O_CLOEXEC);
    } else {
        size_t size = strlen(output->path) + 32;
        output->temporary = cvy_calloc(size, 1);
        if (!output->temporary) {
            status = cvy_fail_memory(size, "a file name");
            goto fail;
        }
        snprintf(output->temporary, size, "%s.tmp.%ld", output->path, (long)getpid());
        unlink(output->temporary); /* of an earlier process with our number */
        file = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (file >= 0 && !(output->stream = fdopen(file, "wb"))) {
        int code = errno;
        close(file);
        if (output->temporary)
            unlink(output->temporary);
        errno = code;
    }
    if (!output->stream) {
        status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(path));
        cvy_free(output->temporary); /* nothing there to remove */
        output->temporary = NULL;
        goto fail;
    }
    return CVY_OK;

fail:
    cvy_output_abort(output);
    return status;
}

cvy_status cvy_output_write(struct cvy_output *output, const void *data, size_t size)
{
    if (size > 0 && fwrite(data, 1, size, output->stream) != size)
        return cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(output->path));
    return CVY_OK;
}

/* Make a rename in the folder of `path` last. File systems that cannot sync a folder say EINVAL. */
static int sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? cvy_strdup(path) : NULL;
    if (slash && !folder) {
        errno = ENOMEM;
        return -1;
    }
    if (folder)
        folder[slash == path ? 1 : slash - path] = 0;
    int file = open(folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cvy_free(folder);
    if (file < 0)
        return errno == EACCES ? 0 : -1; /* a folder one may write but not list cannot be opened to sync it */
    int result = fsync(file);
    int code = errno;
    close(file);
    errno = code;
    return result != 0 && (code == EINVAL || code == ENOTSUP) ? 0 : result;
}

static bool is_on_disk(const struct cvy_output *output)
{
    return fflush(output->stream) == 0 && (!output->temporary || fsync(fileno(output->stream)) == 0);
}

cvy_status cvy_output_sync(struct cvy_output *output)
{
    return is_on_disk(output) ? CVY_OK : cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(output->path));
}

cvy_status cvy_output_commit(struct cvy_output *output)
{
    cvy_status status = CVY_OK;
    bool written = is_on_disk(output);
    int code = errno;
    /* Closing may report what a network file system kept back. */
    if (fclose(output->stream) != 0 && written) {
        written = false;
        code = errno;
    }
    output->stream = NULL;
    if (written && output->temporary) {
        if (rename(output->temporary, output->path) != 0) {
            written = false;
            code = errno;
        } else {
            cvy_free(output->temporary);
            output->temporary = NULL;
            if (sync_folder(output->path) != 0) {
                written = false;
                code = errno;
            }
        }
    }
    if (!written) {
        errno = code;
        status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(output->path));
    }
    cvy_output_abort(output);
    return status;
}

void cvy_output_abort(struct cvy_output *output)
{
    int code = errno;
    if (output->stream)
        fclose(output->stream);
    if (output->temporary)
        unlink(output->temporary);
    cvy_free(output->temporary);
    cvy_free(output->path);
    *output = (struct cvy_output){0};
    errno = code;
}

cvy_status cvy_file_rename(const char *from, const char *to)
{
    return rename(from, to) == 0 && sync_folder(to) == 0
               ? CVY_OK
               : cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(to));
}

cvy_status cvy_file_replace(const char *path, const void *data, size_t size)
{
    struct cvy_output output;
    CVY_TRY(cvy_output_open(&output, path));
    cvy_status status = cvy_output_write(&output, data, size);
    if (status != CVY_OK) {
        cvy_output_abort(&output);
        return status;
    }
    return cvy_output_commit(&output);
}

bool cvy_path_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

bool cvy_path_is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

bool cvy_path_is_file(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

char *cvy_path_join(const char *folder, const char *name)
{
    size_t length = strlen(folder), name_bytes = strlen(name) + 1;
    bool slash = length > 0 && folder[length - 1] != '/';
    char *path = cvy_calloc(length + slash + name_bytes, 1);
    if (!path)
        return NULL;
    memcpy(path, folder, length);
    if (slash)
        path[length] = '/';
    memcpy(path + length + slash, name, name_bytes);
    return path;
}

cvy_status cvy_make_directories(const char *path)
{
    cvy_status status = CVY_OK;
    char *part = cvy_strdup(path);
    if (!part)
        return cvy_fail_memory(strlen(path) + 1, "a folder name");
    /* Each prefix that ends before a slash, then the whole. */
    char *slash = part;
    do {
        slash = *slash ? strchr(slash + 1, '/') : NULL;
        if (slash)
            *slash = 0;
        const int error = mkdir(part, 0777) == 0 ? 0 : errno;
        if (error && !cvy_path_is_directory(part)) {   /* which may change errno */
            errno = error == EEXIST ? ENOTDIR : error; /* what stands there is something else */
            status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create folder %s", cvy_quote(path));
        }
        if (slash)
            *slash = '/';
    } while (slash && status == CVY_OK);
    cvy_free(part);
    return status;
}

/* Whether `name` is "<base>.tmp.<pid>" of a process that is gone (or of ourselves: then from an earlier life). */
static bool is_left_over(const char *name, const char *base, size_t base_length)
{
    static const char infix[] = ".tmp.";
    if (strncmp(name, base, base_length) != 0 || strncmp(name + base_length, infix, sizeof infix - 1) != 0)
        return false;
    const char *digits = name + base_length + sizeof infix - 1;
    if (!isdigit((unsigned char)digits[0]) || strlen(digits) > 10)
        return false;
    char *end;
    long pid = strtol(digits, &end, 10);
    if (*end)
        return false;
    return pid == (long)getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

cvy_status cvy_folder_check_new(const char *folder)
{
    const struct dirent *entry;
    DIR *listing = opendir(folder);
    bool empty = true;

    if (!listing)
        return errno == ENOENT ? CVY_OK : cvy_fail_errno(CVY_CANNOT_CREATE, "cannot write to %s", cvy_quote(folder));
    while (empty && (entry = readdir(listing)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(listing);
    return empty ? CVY_OK : cvy_fail(CVY_CANNOT_CREATE, "the folder %s exists and is not empty", cvy_quote(folder));
}

void cvy_output_clean(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    char *folder = cvy_strdup(slash ? path : ".");
    if (!folder)
        return;
    if (slash)
        folder[slash == path ? 1 : slash - path] = 0;
    DIR *listing = opendir(folder);
    if (listing) {
        size_t base_length = strlen(base);
        for (struct dirent *entry; (entry = readdir(listing));)
            if (is_left_over(entry->d_name, base, base_length))
                unlinkat(dirfd(listing), entry->d_name, 0);
        closedir(listing);
    }
    cvy_free(folder);
}
