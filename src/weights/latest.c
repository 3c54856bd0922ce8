/* The newest checkpoint of a folder: of a run of ours, or of TensorFlow's programs. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "weights/checkpoint.h"

/* "model.ckpt-12500.index": its step; -1 for other names. */
static int64_t step_of(const char *name)
{
    const char *mark = strstr(name, "ckpt-");
    char *end;

    if (!mark || mark[5] < '0' || mark[5] > '9' || strlen(mark) > 24)
        return -1;
    const long long step = strtoll(mark + 5, &end, 10);
    return strcmp(end, ".index") == 0 ? step : -1;
}

static cvy_status find_tensorflow(const char *folder, struct cvy_checkpoint_found *found)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    char name[256] = "";
    int64_t newest = -1;

    if (!listing)
        return cvy_fail_errno(CVY_NO_INPUT, "cannot read %s", cvy_quote(folder));
    while ((entry = readdir(listing)) != NULL) {
        const int64_t step = step_of(entry->d_name);
        if (step <= newest || strlen(entry->d_name) >= sizeof name)
            continue;
        newest = step;
        snprintf(name, sizeof name, "%s", entry->d_name);
    }
    closedir(listing);
    if (newest < 0)
        return CVY_OK;
    name[strlen(name) - strlen(".index")] = '\0';
    if (snprintf(found->file, sizeof found->file, "%s/%s", folder, name) >= (int)sizeof found->file)
        return cvy_fail(CVY_USAGE, "the path %s is too long", cvy_quote(folder));
    found->step = newest;
    return CVY_OK;
}

/* Whether the training that saved it has come to its end. */
static bool is_final(const struct cvy_checkpoint_info *info)
{
    const int64_t epochs = cvy_json_get_int(info->options, "epochs", 0),
                  patience = cvy_json_get_int(info->options, "early-stopping", -1);

    return (epochs > 0 && info->state.epoch >= epochs) || (patience > 0 && info->state.stale_epochs >= patience);
}

static cvy_status read_own(struct cvy_checkpoint_found *found)
{
    struct cvy_tensor_file file = {0};
    struct cvy_checkpoint_info info = {0};
    cvy_status status = cvy_tensor_file_open(&file, found->file);

    if (status == CVY_OK)
        status = cvy_checkpoint_read(&file, found->file, &info);
    if (status == CVY_OK && info.has_state) {
        found->step = info.state.step;
        found->is_final = info.options && is_final(&info);
    }
    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    return status;
}

/* ---- those that --gather-checkpoints keeps ---- */

int64_t cvy_checkpoint_epoch(const char *name)
{
    static const char before[] = "checkpoint_", after[] = ".safetensors";
    char *end;
    int64_t epoch;

    if (strncmp(name, before, strlen(before)) != 0 || !isdigit((unsigned char)name[strlen(before)]))
        return -1;
    epoch = strtoll(name + strlen(before), &end, 10);
    return strcmp(end, after) == 0 ? epoch : -1;
}

cvy_status cvy_checkpoint_probe(const char *path)
{
    struct cvy_tensor_file file = {0};
    struct cvy_checkpoint_info info = {0};
    cvy_status status = cvy_tensor_file_open(&file, path);

    if (status == CVY_OK)
        status = cvy_checkpoint_read(&file, path, &info);
    cvy_checkpoint_info_release(&info);
    cvy_tensor_file_close(&file);
    return status;
}

/* The newest one before `bound`; -1: there is none. */
static int64_t find_before(const char *folder, int64_t bound, char path[CVY_PATH_MAX])
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int64_t newest = -1;

    while (listing && (entry = readdir(listing)) != NULL) {
        const int64_t epoch = cvy_checkpoint_epoch(entry->d_name);

        if (epoch > newest && epoch < bound &&
            snprintf(path, CVY_PATH_MAX, "%s/%s", folder, entry->d_name) < CVY_PATH_MAX)
            newest = epoch;
    }
    if (listing)
        closedir(listing);
    return newest;
}

cvy_status cvy_checkpoint_newest_kept(const char *folder, char path[CVY_PATH_MAX])
{
    int64_t epoch = INT64_MAX;

    while ((epoch = find_before(folder, epoch, path)) >= 0) {
        const cvy_status status = cvy_checkpoint_probe(path);

        if (status == CVY_OK || status == CVY_NO_MEMORY)
            return status;
    }
    path[0] = '\0';
    return CVY_OK;
}

/* ---- any ---- */

cvy_status cvy_checkpoint_latest(const char *path, struct cvy_checkpoint_found *found)
{
    CVY_REQUIRE(path);
    CVY_REQUIRE(found);
    memset(found, 0, sizeof *found);
    if (!cvy_path_is_directory(path))
        return cvy_fail(CVY_NO_INPUT, "%s is no folder of checkpoints", cvy_quote(path));
    if (snprintf(found->file, sizeof found->file, "%s/checkpoint.safetensors", path) >= (int)sizeof found->file)
        return cvy_fail(CVY_USAGE, "the path %s is too long", cvy_quote(path));
    if (cvy_path_exists(found->file))
        return read_own(found);
    found->file[0] = '\0';
    return find_tensorflow(path, found);
}
