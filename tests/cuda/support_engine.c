#include "support_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/gpu.h"
#include "base/log.h"

/* device.c's, which brings the whole table with it. */
cvy_status gpu_queued(const struct gpu_device *device)
{
    (void)device;
    return gpu_last_error();
}

char folder[256];
char warnings[4096];

static void note_warning(void *context, enum cvy_log_level level, const char *text)
{
    const size_t used = strlen(warnings);

    (void)context;
    if (level == CVY_LOG_WARNING)
        snprintf(warnings + used, sizeof warnings - used, "%s\n", text);
}

void note_warnings(void)
{
    cvy_set_log_handler(note_warning, NULL);
}

int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/convoy-cudnn-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    setenv("CONVOY_CACHE_DIR", folder, 1);
    warnings[0] = '\0';
    return 0;
}

int remove_folder(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

void must(cvy_status status)
{
    if (status != CVY_OK)
        fail_msg("%s", cvy_error());
}

void must_say(const char *part)
{
    if (!strstr(cvy_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", cvy_error(), part);
}
