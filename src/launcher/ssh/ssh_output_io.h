/* What all hosts write, and the head's own lines: lines of several hosts don't mix, and a reader
 * that is slow or has stopped holds up the hosts, but not the end of the job.
 *
 *     ssh_output_new(loop, n_hosts, &ops, me, &o);
 *     ssh_output_add(o, host, which, bytes, len);  …  ssh_output_end_host(o, host);
 *     ssh_output_hurry(o);          a signal came: output that a reader does not take is dropped
 *     ssh_output_finish(o);         nothing more comes; on_done() follows
 *
 * After a reader has gone (EPIPE), its output is dropped: the job continues, as without ssh. */
#pragma once

#include <stdbool.h>

#include "io/loop.h"

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

/* Writes to standard output and error. 0, or a negative errno: no descriptor. */
_must_use_ int ssh_output_new(struct loop *loop, uint32_t n_hosts, const struct ssh_output_ops *ops,
                              void *arg, struct ssh_output **ret);
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
