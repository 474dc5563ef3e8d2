#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 128

/* The signal handler needs these. They are set once, before it is installed. */
static int trace_fd = -1;
static char trace_generation[32];
static unsigned trace_rank;

static char *put_text(char *p, const char *text) {
    while (*text != 0)
        *p++ = *text++;
    return p;
}

static char *put_number(char *p, uint64_t v) {
    char digits[20];
    unsigned n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    while (n > 0)
        *p++ = digits[--n];
    return p;
}

/* Calls only what a signal handler may call. It makes one write, so lines of several processes do
 * not mix. */
static void write_line(const char *event, const unsigned *epoch) {
    char line[LINE_MAX_BYTES], *p = line;
    struct timespec ts;
    if (trace_fd < 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    p = put_text(p, trace_generation);
    p = put_text(p, " ");
    p = put_number(p, (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec);
    p = put_text(p, " ");
    p = put_text(p, event);
    p = put_text(p, " ");
    p = put_number(p, trace_rank);
    if (epoch != NULL) {
        p = put_text(p, " ");
        p = put_number(p, *epoch);
    }
    *p++ = '\n';
    if (write(trace_fd, line, (size_t)(p - line)) < 0)
        trace_fd = -1; /* a full disk must not end the training */
}

static void write_end(void) { write_line("end", NULL); }

static void on_signal(int sig) {
    int saved = errno;
    write_end();
    errno = saved;
    (void)raise(sig); /* SA_RESETHAND: this time the signal ends the process */
}

int trace_open(const char *path, const char *generation, unsigned rank) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    if (path == NULL)
        return 0;
    trace_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (trace_fd < 0 || strlen(generation) >= sizeof(trace_generation)) {
        fprintf(stderr, "cannot write the trace %s: %s\n", path, strerror(errno));
        return -1;
    }
    (void)snprintf(trace_generation, sizeof(trace_generation), "%s", generation);
    trace_rank = rank;
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_NODEFER};
    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (sigaction(signals[i], &sa, NULL) < 0)
            return -1;
    write_line("start", NULL);
    return atexit(write_end) == 0 ? 0 : -1;
}

void trace_progress(unsigned epoch) { write_line("progress", &epoch); }
