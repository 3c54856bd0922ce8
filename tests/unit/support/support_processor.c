#include "support_processor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"

bool processor_is_repeated(void)
{
    const char *set = getenv("CONVOY_CPU_ISA");
    if (!set)
        return false;
    const enum cvy_isa isa = cvy_cpu_isa();
    const unsigned integers = cvy_cpu_int8();
    char *kept = strdup(set);
    if (!kept)
        abort();
    unsetenv("CONVOY_CPU_ISA");
    const bool repeated = cvy_cpu_isa() == isa && cvy_cpu_int8() == integers;
    setenv("CONVOY_CPU_ISA", kept, 1);
    if (repeated)
        fprintf(stderr, "skipped: this processor has no more than %s, with which the same test runs anyway\n", kept);
    free(kept);
    return repeated;
}
