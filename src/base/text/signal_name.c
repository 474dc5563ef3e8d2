#include "base/text/signal_name.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

#include "base/util.h"

#define NAME(x) [SIG##x] = #x

static const char *const names[] = {
    NAME(HUP),    NAME(INT),  NAME(QUIT),  NAME(ILL),  NAME(TRAP), NAME(ABRT),
    NAME(BUS),    NAME(FPE),  NAME(KILL),  NAME(USR1), NAME(SEGV), NAME(USR2),
    NAME(PIPE),   NAME(ALRM), NAME(TERM),  NAME(CHLD), NAME(CONT), NAME(STOP),
    NAME(TSTP),   NAME(TTIN), NAME(TTOU),  NAME(URG),  NAME(XCPU), NAME(XFSZ),
    NAME(VTALRM), NAME(PROF), NAME(WINCH), NAME(POLL), NAME(PWR),  NAME(SYS),
#ifdef SIGSTKFLT
    NAME(STKFLT),
#endif
};

const char *signal_abbrev(int signo) {
    return signo > 0 && (size_t)signo < ARRAY_SIZE(names) ? names[signo] : NULL;
}

void signal_text(int signo, char ret[SIGNAL_TEXT_MAX]) {
    const char *name = signal_abbrev(signo);
    if (name != NULL)
        (void)snprintf(ret, SIGNAL_TEXT_MAX, "SIG%s", name);
    else if (signo >= SIGRTMIN && signo <= SIGRTMAX)
        (void)snprintf(ret, SIGNAL_TEXT_MAX, "SIGRTMIN+%d", signo - SIGRTMIN);
    else
        (void)snprintf(ret, SIGNAL_TEXT_MAX, "signal %d", signo);
}
