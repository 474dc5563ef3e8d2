/* One host as the head sees it: the ssh that was started for it, and what comes over that.
 *
 *     ssh_host_new(&env, i, &host);
 *     r = ssh_host_call(host, argv, envp, &err);
 *     … on_message: HELLO; ssh_host_send(host, &m); OUT, ERR, …
 *     … on_gone, once: what is left is to free it
 *
 * Its stdin and stdout are a socket pair, stderr a pipe. It has a session of its own (^C, ^Z). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "io/loop.h"
#include "io/process/reaper.h"
#include "launcher/place/launchers.h"
#include "launcher/ssh/ssh_boot.h"

#define SSH_HOST_LINE_MAX 512 /* of ssh's last line */
/* After one of ssh's end and the end of its output: how long the other may take. */
#define SSH_HOST_LINGER_NS (1 * NS_PER_S)

struct ssh_host;

struct ssh_host_ops {
    /* HELLO is the first. Borrowed for the call. It may stop or pause any host. */
    void (*on_message)(void *arg, uint32_t i, const struct starter_message *m);
    /* Nothing more comes. why: NULL after EXIT, else a sentence. */
    void (*on_gone)(void *arg, uint32_t i, const char *why);
};

struct ssh_host_env { /* borrowed; the same for all */
    struct loop *loop;
    struct ssh_host_ops ops;
    void *arg;
    const char *program; /* muster's path there, for messages */
    const char *version; /* of this muster */
    const char *by;      /* the command that reaches hosts, for messages: "ssh" */
    const int *save;     /* LAUNCHER_SIGNALS_MAX that its batch system sends to it, too; NULL */
};

struct ssh_host *ssh_host_new(const struct ssh_host_env *env, uint32_t i);
void ssh_host_free(struct ssh_host *h); /* takes NULL; kills ssh if it is there */

_must_use_ int ssh_host_call(struct ssh_host *h, char *const *argv, char *const *envp,
                             struct err *err);
/* A message for its relay, sent at once if nothing is queued. Dropped if it is gone. */
void ssh_host_send(struct ssh_host *h, const struct starter_message *m);
/* The same with frames; takes the text, and overwrites it when it is sent. */
void ssh_host_send_secret(struct ssh_host *h, struct strbuf *frames);
/* Bytes that wait to be sent: whoever sends often looks first. */
size_t ssh_host_unsent(const struct ssh_host *h);
/* The end of its input: the relay ends the job there, in order. Output still comes. */
void ssh_host_hang_up(struct ssh_host *h);
void ssh_host_kill(struct ssh_host *h);
/* Kills it for this reason; on_gone is called at once. */
void ssh_host_give_up(struct ssh_host *h, const char *why);
void ssh_host_pause(struct ssh_host *h, bool pause);
