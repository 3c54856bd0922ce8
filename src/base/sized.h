/* Structs of programs that begin with their size (CVY_SIZED), also where a program was compiled with another version.
 */
#ifndef CVY_BASE_SIZED_H
#define CVY_BASE_SIZED_H

#include "convoy/status.h"

/* Copies the fields of `given` that both know over those of `own`, a struct of own_size bytes that holds the defaults;
 * its size stays its own. Bytes between fields count as fields. CVY_USAGE, with the struct's name: the size is none, or
 * a byte beyond own_size is not 0, which only a newer library would understand. */
CVY_CHECKED cvy_status cvy_sized_take(void *own, size_t own_size, const void *given, const char *name);

#endif
