/* convoy report: the page of a run. */
#include "convoy/report.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "terminal.h"
#include "verbs.h"

cvy_status verb_report(int argc, char **argv)
{
    const char *output = NULL;
    const struct option options[] = {
        OPT_TEXT("output", 'o', &output, "FILE", "where to write (default: RUNDIR/report.html)"),
    };
    const struct option_table table = {
        .verb = "report",
        .arguments = "RUNDIR",
        .summary =
            "Writes one HTML page about a run, finished or still running: curves, accuracy by class, confusions,\n"
            "the most wrong images, the configuration. It opens in any browser and needs nothing else.",
        .options = options,
        .count = OPT_COUNT(options),
        .min_arguments = 1,
        .max_arguments = 1,
    };
    struct arguments arguments;
    cvy_status status;
    if (!options_begin(&table, argc, argv, &arguments, &status))
        return status;
    status = cvy_report(arguments.value[0], output);
    if (status != CVY_OK)
        return terminal_fail_library(status);
    if (output)
        printf("%s\n", output);
    else
        printf("%s%sreport.html\n", arguments.value[0],
               arguments.value[0][0] && arguments.value[0][strlen(arguments.value[0]) - 1] == '/' ? "" : "/");
    return CVY_OK;
}
