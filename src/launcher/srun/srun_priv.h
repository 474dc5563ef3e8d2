/* What the files of the head share. Private to these files.
 *   srun_io.c        srun, the effects of the head's machine, life
 *   srun_peers_io.c  who connects to the head's port, and what agents say there */
#pragma once

#include <stdbool.h>

#include "base/list.h"
#include "io/loop.h"
#include "io/net/listen.h"
#include "io/net/stream.h"
#include "io/peer/peer_gate.h"
#include "io/process/helper_call.h"
#include "io/process/reaper.h"
#include "launcher/srun/lone_srun_io.h"
#include "launcher/srun/requeue_io.h"
#include "launcher/srun/srun_io.h"
#include "launcher/starter/starter.h"
#include "launcher/starter/starter_key_io.h"
#include "launcher/starter/starter_signals_io.h"
#include "launcher/starter/starter_wire.h"
#include "rendezvous/operate/registry_io.h"

struct srun {
    const struct srun_config *config;
    struct loop *loop;
    struct child_reaper *reaper;
    struct listener *listener;
    struct peer_gate *gate; /* NULL: everybody may connect */
    struct loop_timer *timer, *greeting;
    struct starter_signals *signals;
    struct child_watch *srun;    /* NULL: it has ended */
    struct child_watch *scancel; /* NULL: it was not started, or has ended */
    struct lone_srun lone;       /* while no agent that leads is connected */
    struct starter_key *key;     /* NULL: the job has none */
    char token[STARTER_TOKEN_CHARS + 1];
    char step[STARTER_STEP_MAX]; /* "": not known yet */
    struct list strangers, links;
    unsigned n_strangers, n_links;
    uint64_t last_id;
    struct starter head;
    struct loop_timer *late;   /* until Slurm is asked how long it waits before it kills, */
    struct helper_call *wait;  /* while it is */
    struct helper_call *steps; /* while it is asked whether the step waits */
    uint64_t grace_ns;         /* of the workers; 0: not known */
    struct registry_own registry;
    char run_id[RDZV_RUN_ID_MAX]; /* as on this machine: without the number of the step */
    struct requeue *requeue;      /* NULL: not asked for */
    char lost[STARTER_HOST_MAX];  /* the node of the last agent that led, if it has gone; or "" */
    int status;
    bool over;
};

/* ---- srun_io.c ---- */

/* One step of the machine. No effect calls back at once, so steps are not nested. */
void srun_step(struct srun *h, struct starter_event *event);

/* ---- srun_peers_io.c ---- */

/* Somebody has connected. For listener_new(). */
void srun_on_peer(void *arg, int fd, const struct addr *from);
/* Those that have not said who they are for too long are disconnected. */
void srun_on_greeting_timer(void *arg);
void srun_send(struct srun *h, uint64_t id, const struct starter_message *m);
void srun_free_peers(struct srun *h);
