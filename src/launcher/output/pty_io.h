/* A pseudo-terminal for a worker's output, so that the worker behaves as on the user's terminal:
 * lines appear at once, progress bars and colours are shown. It changes no byte (raw mode, no
 * echo), so the bytes can be passed on to the real terminal. It never becomes a controlling
 * terminal by being opened here. Reading gives EIO after the last process has closed its end.
 * pty(7) */
#pragma once

#include "base/util.h"

/* Both ends are close-on-exec, ours is non-blocking. Settings are those of the terminal `like`;
 * there is no window size yet. -errno: there is none (no /dev/ptmx, the limit kernel.pty.max). */
_must_use_ int pty_open(int like, int *ret_ours, int *ret_workers);
/* Gives it the window size of `like`, less `narrower` columns. The caller notifies the workers
 * (SIGWINCH): the kernel does not, because it is not their controlling terminal. */
void pty_resize(int ours, int like, unsigned narrower);
