/* Names of signals, as glibc 2.32's sigabbrev_np() gives them; muster runs with 2.31, too. */
#pragma once

/* "TERM" for SIGTERM. NULL: a real-time signal, or none at all. */
const char *signal_abbrev(int signo);
/* "SIGSEGV", "SIGRTMIN+3", "signal 77". */
#define SIGNAL_TEXT_MAX 24
void signal_text(int signo, char ret[SIGNAL_TEXT_MAX]);
