/* SIGINT and SIGTERM ask a verb to end in good order; the second one ends the process as if nobody had caught it.
 * (`train` has more to do: its own.) */
#ifndef TOOLS_STOP_H
#define TOOLS_STOP_H

#include <stdbool.h>

/* `asked` is called by the handler of the first signal, and does only what a signal handler may do; NULL: nothing is
 * done but that stop_asked() tells. `restart`: calls of the system that a signal interrupts go on (SA_RESTART). */
void stop_catch(bool restart, void (*asked)(void));
bool stop_asked(void);

#endif
