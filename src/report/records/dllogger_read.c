/* DLLogger lines read back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "report/records/dllogger.h"

/* step, data and moment of a LOG record; false for anything else. */
static bool take_record(const struct cvy_json_value *root, struct cvy_log_record *record)
{
    const struct cvy_json_value *step = cvy_json_get(root, "step");

    *record = (struct cvy_log_record){
        .moment = cvy_json_get_string(root, "datetime", ""),
        .data = cvy_json_get(root, "data"),
    };
    if (!step || !record->data || record->data->type != CVY_JSON_OBJECT)
        return false;
    if (step->type == CVY_JSON_STRING) {
        record->step_count = CVY_STEP_PARAMETER;
        return strcmp(step->text, "PARAMETER") == 0;
    }
    if (step->type != CVY_JSON_ARRAY || step->count > 3)
        return false;
    for (const struct cvy_json_value *entry = step->first; entry; entry = entry->next) {
        if (entry->type != CVY_JSON_NUMBER || !entry->is_integer)
            return false;
        record->step[record->step_count++] = entry->integer;
    }
    return true;
}

static cvy_status read_line(const char *line, size_t length, cvy_log_record_handler handler, void *context)
{
    static const char prefix[] = "DLLL {";
    struct cvy_arena arena = {0};
    struct cvy_json_value *root;
    struct cvy_log_record record;
    cvy_status status;

    if (length < sizeof prefix || line[length - 1] != '\n' || strncmp(line, prefix, sizeof prefix - 1) != 0)
        return CVY_OK;
    status = cvy_json_parse("the log", line + 5, length - 6, &arena, &root);
    if (status == CVY_OK && take_record(root, &record))
        status = handler(context, &record);
    else if (status == CVY_BAD_DATA)
        status = CVY_OK;
    cvy_arena_release(&arena);
    return status;
}

cvy_status cvy_dllogger_read(const char *path, cvy_log_record_handler handler, void *context)
{
    struct stat about;
    FILE *file;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    cvy_status status = CVY_OK;

    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return CVY_OK;
    file = fopen(path, "re");
    if (!file)
        return cvy_fail_errno(CVY_NO_INPUT, "cannot open %s", cvy_quote(path));
    while (status == CVY_OK && (length = getline(&line, &capacity, file)) > 0)
        status = read_line(line, (size_t)length, handler, context);
    free(line); /* allocated by getline */
    fclose(file);
    return status;
}
