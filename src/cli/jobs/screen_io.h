/* The whole terminal, for a command that redraws it: the alternate screen, without a cursor and
 * without an echo of keys. It is restored when the process ends, also by a signal except SIGKILL,
 * and while the process is stopped. One for each process.
 *
 *     if (screen_is_possible())
 *         for (;;) {
 *             if (screen_enter())
 *                 r = screen_write(frame of screen_size());
 *             … screen_wait(NS_PER_S)
 *         }
 *     screen_leave(); */
#pragma once

#include "base/util.h"
#include "cli/jobs/status_screen.h"

enum screen_event { SCREEN_TIMEOUT = 1, SCREEN_REDRAW, SCREEN_QUIT };

/* Whether standard output is a terminal that can do this. */
bool screen_is_possible(void);
/* Takes the terminal, if not taken. False: this process is in the background: it must not write. */
bool screen_enter(void);
void screen_leave(void);
struct screen_size screen_size(void);
/* The columns of the terminal; 0: standard output is not one. */
uint32_t screen_columns(void);
/* Writes a frame, with one call if the terminal takes all of it. 0 or a negative errno. */
_must_use_ int screen_write(const char *text, size_t len);
/* Waits for so long, or until its size changes, it comes to the foreground, or "q" is typed. */
enum screen_event screen_wait(uint64_t ns);
