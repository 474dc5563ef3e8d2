/* The head's parts know each other (ssh_head_io.h). */
#pragma once

#include "io/loop.h"
#include "io/process/reaper.h"
#include "launcher/ssh/ssh_crew.h"
#include "launcher/ssh/ssh_head_io.h"
#include "launcher/ssh/ssh_host_io.h"
#include "launcher/ssh/ssh_output_io.h"
#include "launcher/starter/starter.h"
#include "launcher/starter/starter_key_io.h"
#include "launcher/starter/starter_signals_io.h"
#include "rendezvous/operate/registry_io.h"

struct ssh_member {
    struct ssh_host *host;
    char *addrs;        /* of HELLO; NULL: not yet */
    uint64_t called_ns; /* when; 0: not yet */
    bool told;          /* that it takes long */
};

struct ssh_head {
    const struct ssh_head_config *config;
    struct loop *loop;
    struct child_reaper *reaper;
    struct starter_signals *signals;
    struct loop_signal *suspend; /* ^Z; NULL: it is ignored */
    struct loop_timer *timer;    /* of `head` */
    struct ssh_output *output;
    struct registry_own registry;
    struct starter_key *key; /* NULL: the job has none */
    char *program, *command; /* muster's path, and what a host's shell is to run */
    char **words;            /* of --ssh */
    char *cwd;
    char host_name[STARTER_HOST_MAX];
    struct envlist env;  /* of the agents, over that of their login */
    struct envlist here; /* of a relay on this machine, which has no login of its own */
    struct ssh_host_env host_env;
    struct ssh_crew crew;
    struct ssh_member *members; /* [crew.n] */
    uint32_t first;             /* node 0, once somebody was booted; else UINT32_MAX */
    char *addr;                 /* its address */
    struct starter head;
    bool ended; /* the machine knows that all have */
    struct {
        struct loop_timer *ping;
        struct loop_timer *silence; /* until the next that is called takes long, or too long */
        uint64_t silence_ns;
        uint64_t answered_ns;    /* when the last of all hosts has answered; 0: none has */
        struct loop_timer *late; /* until the job begins without the first host */
        bool is_late_set;
    } calls;
    struct {
        struct loop_timer *alone, *naming, *leave;
        bool too_few;         /* which ends the job */
        bool is_naming;       /* too few are left, and others may fail, too */
        bool is_leaving;      /* the lost ones are no longer waited for */
        int code;             /* of the first agent that ended with an error */
        uint32_t first_ended; /* its host */
        int code_of_first;    /* of the agent on node 0, if it has ended with an error */
    } losses;
    bool over;    /* END: what is left is to write */
    bool written; /* it is */
    int status;
};

static inline const struct host *ssh_head_host(const struct ssh_head *h, uint32_t i) {
    return &h->config->spec->hosts.list.items[i];
}

/* ssh_head_io.c */
void ssh_head_step(struct ssh_head *h, struct starter_event *event);
/* Does what is due after any event. */
void ssh_head_advance(struct ssh_head *h);

/* ssh_calls_io.c: hosts are called, and told. */
_must_use_ int ssh_calls_begin(struct ssh_head *h);
void ssh_calls_free(struct ssh_head *h);
/* It is this machine, by its name: no ssh is needed. */
bool ssh_calls_is_here(const struct ssh_head *h, const struct host *host);
void ssh_calls_call(struct ssh_head *h, uint32_t i);
void ssh_calls_boot(struct ssh_head *h, uint32_t i);
void ssh_calls_hello(struct ssh_head *h, uint32_t i, const char *addrs);
/* Its relay has gone; why: NULL after its agent's end. */
void ssh_calls_gone(struct ssh_head *h, uint32_t i, const char *why);
/* Hosts that have no agent yet get none. */
void ssh_calls_nobody_else(struct ssh_head *h);
void ssh_calls_send(struct ssh_head *h, uint32_t i, enum ssh_kind kind, int signo);
void ssh_calls_send_all(struct ssh_head *h, enum ssh_kind kind, int signo);
/* Whoever leads learns how many can take part, so that the group forms without the others. */
void ssh_calls_tell_expected(struct ssh_head *h);
/* To those whose relay is there. */
void ssh_calls_ping(struct ssh_head *h);
/* The sockets of these, for a deputy that does the same; their number. */
size_t ssh_calls_fds(struct ssh_head *h, int fds[]);

/* ssh_losses_io.c: whether the job goes on without hosts that fail or end. */
_must_use_ int ssh_losses_begin(struct ssh_head *h);
void ssh_losses_free(struct ssh_head *h);
/* Fewer are left than the job needs. */
void ssh_losses_too_few(struct ssh_head *h);
void ssh_losses_advance(struct ssh_head *h);
/* An agent has ended. */
void ssh_losses_exit(struct ssh_head *h, uint32_t i, const struct ssh_exit *e);
/* A host is gone, perhaps the one at which the others meet. */
void ssh_losses_gone(struct ssh_head *h, uint32_t i, const char *why);
/* The exit status of a job that ended without a verdict, as agents and hosts ended; 0: all well. */
int ssh_losses_code(const struct ssh_head *h);
/* The exit status: that of `status`, unless the job ended for lack of hosts. */
int ssh_losses_status(const struct ssh_head *h, int status);
