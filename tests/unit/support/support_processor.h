/* Tests that are run again with fewer instructions (CONVOY_CPU_ISA). */
#ifndef SUPPORT_PROCESSOR_H
#define SUPPORT_PROCESSOR_H

#include <stdbool.h>

/* Is CONVOY_CPU_ISA set, and to what the processor has anyway? Then the test without it is the same, and says so. */
bool processor_is_repeated(void);

#endif
