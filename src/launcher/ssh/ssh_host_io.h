/* One host as the head sees it: the ssh that was started for it, and what comes over that.
 *
 *     r = ssh_host_call(&env, i, argv, envp, &host, &err);
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

/* *ret is made also if it fails. */
_must_use_ int ssh_host_call(const struct ssh_host_env *env, uint32_t i, char *const *argv,
                             char *const *envp, struct ssh_host **ret, struct err *err);
void ssh_host_free(struct ssh_host *h); /* takes NULL; kills ssh if it is there */
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

/* ==== what all hosts write ====
 *
 * And the head's own lines: lines of several hosts don't mix, and a reader that is slow or has
 * stopped holds up the hosts, but not the end of the job.
 *
 *     o = ssh_output_new(loop, n_hosts, &ops, me);
 *     ssh_output_add(o, host, which, bytes, len);  …  ssh_output_end_host(o, host);
 *     ssh_output_hurry(o);          a signal came: output that a reader does not take is dropped
 *     ssh_output_finish(o);         nothing more comes; on_done() follows
 *
 * After a reader has gone (EPIPE), its output is dropped: the job continues, as without ssh. */

/* After ssh_output_hurry(): until what a reader does not take is dropped. */
#define SSH_OUTPUT_HURRY_NS (1 * NS_PER_S)
/* If more than this waits for readers, hosts are not read until nothing does. */
#define SSH_OUTPUT_ROOM ((size_t)256 * 1024)

enum { SSH_OUTPUT_OUT = 0, SSH_OUTPUT_ERR, SSH_OUTPUTS };

struct ssh_output;

struct ssh_output_ops {
    /* Hosts must not be read until this is called with false. Also from ssh_output_add(). */
    void (*pause)(void *arg, bool pause);
    /* After ssh_output_hurry(): output of this kind is dropped from now on. */
    void (*on_dropped)(void *arg, size_t which);
    /* After ssh_output_finish(), and maybe from it: all is written, or given up. Maybe repeated. */
    void (*on_done)(void *arg);
};

/* Writes to standard output and error. */
_must_use_ struct ssh_output *ssh_output_new(struct loop *loop, uint32_t n_hosts,
                                             const struct ssh_output_ops *ops, void *arg);
/* Takes NULL; drops what can't be written at once. */
void ssh_output_free(struct ssh_output *o);

void ssh_output_add(struct ssh_output *o, uint32_t host, size_t which, const void *bytes,
                    size_t len);
/* Nothing more comes from this host: the beginning of a line is written as it is. */
void ssh_output_end_host(struct ssh_output *o, uint32_t host);
/* From now on muster's own lines of hosts are left out: all agents were killed on purpose. */
void ssh_output_only_workers(struct ssh_output *o);
/* Writes what can be written now: this process is about to be stopped. */
void ssh_output_flush(struct ssh_output *o);
void ssh_output_hurry(struct ssh_output *o);
void ssh_output_finish(struct ssh_output *o);
