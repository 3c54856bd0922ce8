#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t signals;
static void (*first_asks)(void);

static void handle_signal(int number)
{
    if (signals++) {
        signal(number, SIG_DFL);
        raise(number);
    } else if (first_asks) {
        first_asks();
    }
}

void stop_catch(bool restart, void (*asked)(void))
{
    struct sigaction action = {0};

    first_asks = asked;
    action.sa_handler = handle_signal;
    action.sa_flags = restart ? SA_RESTART : 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_asked(void)
{
    return signals > 0;
}
