#include "dataset_tools/new_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { OPEN_FOLDERS = 16 }; /* descriptors while a tree is removed */

/* Whether the folder itself is there, so that the temporary one is inside. */
static bool is_there(const struct cvy_new_folder *folder)
{
    return folder->there == strlen(folder->path);
}

/* ---- removing ---- */

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    (void)remove(path); /* what cannot be removed stays, and the folders above it */
    return 0;
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

static void release(struct cvy_new_folder *folder)
{
    cvy_free(folder->path);
    cvy_free(folder->temporary);
    *folder = (struct cvy_new_folder){0};
}

void cvy_new_folder_abort(struct cvy_new_folder *folder)
{
    char *slash;

    if (folder->temporary)
        remove_tree(folder->temporary);
    while (folder->path && strlen(folder->path) > folder->there) { /* folders above, where they are empty again */
        (void)rmdir(folder->path);
        slash = strrchr(folder->path, '/');
        *(slash ? slash : folder->path) = '\0';
    }
    release(folder);
}

/* ---- making ---- */

/* The part of `path` that is there as a folder: all of it, or what is before a slash. */
static cvy_status measure_there(const char *path, size_t *bytes)
{
    char *part = cvy_strdup(path), *slash;

    if (!part)
        return cvy_fail_memory(strlen(path), "a folder name");
    while (*part && !cvy_path_is_directory(part)) {
        slash = strrchr(part, '/');
        *(slash ? slash : part) = '\0';
    }
    *bytes = strlen(part);
    cvy_free(part);
    return CVY_OK;
}

static cvy_status name_folders(struct cvy_new_folder *folder, const char *path)
{
    struct cvy_text temporary = {0};
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    folder->path = cvy_strdup(path);
    if (!folder->path)
        return cvy_fail_memory(length, "a folder name");
    folder->path[length] = '\0';
    folder->there = length; /* until it is known: nothing above is removed */
    CVY_TRY(measure_there(folder->path, &folder->there));
    cvy_text_printf(&temporary, "%s%s.tmp.%ld", folder->path, is_there(folder) ? "/" : "", (long)getpid());
    folder->temporary = temporary.failed ? NULL : cvy_strdup(temporary.text);
    cvy_text_release(&temporary);
    if (!folder->temporary)
        return cvy_fail_memory(length, "a folder name");
    remove_tree(folder->temporary); /* of an earlier process with our number */
    return CVY_OK;
}

/* "<where>/<name>", freed with cvy_text_release. */
static cvy_status name_below(const char *where, const char *name, struct cvy_text *path)
{
    *path = (struct cvy_text){0};
    cvy_text_printf(path, "%s/%s", where, name);
    return path->failed ? cvy_fail_memory(strlen(where) + strlen(name), "a path") : CVY_OK;
}

cvy_status cvy_new_folder_make(const struct cvy_new_folder *folder, const char *name)
{
    struct cvy_text path, final = {0};
    cvy_status status;

    CVY_GOTO(name_below(folder->temporary, name, &path));
    CVY_GOTO(name_below(folder->path, name, &final));
    if (mkdir(path.text, 0777) != 0)
        status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create folder %s", cvy_quote(final.text));
fail:
    cvy_text_release(&path);
    cvy_text_release(&final);
    return status;
}

cvy_status cvy_new_folder_begin(struct cvy_new_folder *folder, const char *path, const char *const *parts,
                                int part_count)
{
    cvy_status status;

    *folder = (struct cvy_new_folder){.parts = parts, .part_count = part_count};
    CVY_TRY(cvy_folder_check_new(path));
    CVY_GOTO(name_folders(folder, path));
    if (!*path) {
        errno = ENOENT;
        status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create folder %s", cvy_quote(path));
        goto fail;
    }
    CVY_GOTO(cvy_make_directories(folder->temporary));
    for (int i = 0; i < part_count; i++)
        CVY_GOTO(cvy_new_folder_make(folder, parts[i]));
    return CVY_OK;
fail:
    cvy_new_folder_abort(folder);
    return status;
}

static bool write_all(int file, const char *data, size_t size)
{
    while (size > 0) {
        const ssize_t written = write(file, data, size);

        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            data += written;
            size -= (size_t)written;
        }
    }
    return true;
}

cvy_status cvy_new_folder_write(const struct cvy_new_folder *folder, const char *name, const void *data, size_t size)
{
    struct cvy_text path, final = {0};
    cvy_status status;
    int file;

    CVY_GOTO(name_below(folder->temporary, name, &path));
    CVY_GOTO(name_below(folder->path, name, &final));
    file = open(path.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create %s", cvy_quote(final.text));
        goto fail;
    }
    if (!write_all(file, data, size))
        status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(final.text));
    if (close(file) != 0 && status == CVY_OK) /* a network file system may have kept an error back */
        status = cvy_fail_errno(CVY_CANNOT_WRITE, "cannot write %s", cvy_quote(final.text));
fail:
    cvy_text_release(&path);
    cvy_text_release(&final);
    return status;
}

/* ---- the end ---- */

/* Each part to the folder that is there, or back to the temporary one. The first `count` of them; returns how many
 * could be moved. */
static int move_parts(const struct cvy_new_folder *folder, int count, bool back, cvy_status *status)
{
    int moved = 0;

    for (*status = CVY_OK; moved < count && *status == CVY_OK; moved += *status == CVY_OK) {
        struct cvy_text from = {0}, to = {0};

        *status = name_below(back ? folder->path : folder->temporary, folder->parts[moved], &from);
        if (*status == CVY_OK)
            *status = name_below(back ? folder->temporary : folder->path, folder->parts[moved], &to);
        if (*status == CVY_OK && rename(from.text, to.text) != 0)
            *status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create folder %s", cvy_quote(to.text));
        cvy_text_release(&from);
        cvy_text_release(&to);
    }
    return moved;
}

cvy_status cvy_new_folder_commit(struct cvy_new_folder *folder)
{
    cvy_status status = CVY_OK, ignored;

    if (!is_there(folder)) {
        if (rename(folder->temporary, folder->path) != 0)
            status = cvy_fail_errno(CVY_CANNOT_CREATE, "cannot create folder %s", cvy_quote(folder->path));
    } else {
        const int moved = move_parts(folder, folder->part_count, false, &status);

        if (status != CVY_OK)
            (void)move_parts(folder, moved, true, &ignored);
        else
            (void)rmdir(folder->temporary);
    }
    if (status != CVY_OK)
        cvy_new_folder_abort(folder);
    release(folder);
    return status;
}
