/* muster's store in a child process, for tests of its clients. */
#pragma once

#include <sys/prctl.h>

#include "rendezvous/store/store_io.h"
#include "rig/unit.h"

struct live_store {
    pid_t pid;
    uint16_t port;
};

static inline int live_store_on_ready(void *arg, const char *where) {
    uint16_t port = (uint16_t)atoi(strrchr(where, ':') + 1);
    return write(*(int *)arg, &port, sizeof(port)) == sizeof(port) ? 0 : -1;
}

static inline void live_store_log(void *arg, const char *line) { abort(); /* it has nothing to report */ }

static inline struct live_store live_store_start(void) {
    struct live_store s;
    int p[2];
    cr_assert_eq(pipe(p), 0);
    s.pid = fork();
    cr_assert_geq(s.pid, 0);
    if (s.pid == 0) {
        struct err err = {0};
        struct store_serve_config config = {
            .listen = "127.0.0.1:0", .on_ready = live_store_on_ready, .log = live_store_log, .arg = &p[1]};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(p[0]);
        _exit(store_serve(&config, &err) == 0 ? 0 : 1);
    }
    close(p[1]);
    cr_assert_eq(read(p[0], &s.port, sizeof(s.port)), sizeof(s.port), "the store did not start");
    close(p[0]);
    return s;
}

static inline void live_store_stop(struct live_store *s) {
    int status = -1;
    cr_assert_eq(kill(s->pid, SIGTERM), 0);
    cr_assert_eq(waitpid(s->pid, &status, 0), s->pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the store ended with %#x", status);
}
