/* What the files of the pool share. Private to these files.
 *   warm_pool_io.c     when what is warmed; what a start gets
 *   warm_process_io.c  templates and standbys as processes, and what they say */
#pragma once

#include "launcher/warm/warm_pool_io.h"

#define WARM_LOOKS_MAX 20
/* So often it looks for later imports while all wait, each time twice as long after the last. */
#define WARM_LATER_MAX 6
/* What is lost again and again is made anew after twice the time, so often. */
#define WARM_LOST_MAX 6
#define WARM_TEMPLATE_INDEX UINT32_MAX

/* A template or a standby. */
struct warm_one {
    struct warm_pool *pool;
    uint32_t index; /* the local rank */
    enum warm_state state;
    bool forked;
    bool reaching; /* only looks whether the gate is reached, with nothing that it could run */
    struct child_watch *watch; /* NULL: a forked one has not said its pid yet */
    int fd;                    /* -1: NONE */
    struct loop_watch *heard;
    uint64_t due_ns;         /* WARMING: it is given up then */
    struct child_spec *spec; /* what it stands for, with the environment that it was given; owned */
};

struct warm_pool {
    struct loop *loop;
    struct warm_pool_config config;
    struct loop_timer *timer;
    uint64_t look_ns; /* when it looks what is missing; TIME_NEVER */
    enum warm_form form;
    int zip_fd, record_fd;
    size_t record_bytes;              /* at the last look; what was imported */
    unsigned n_looks;                 /* at a record that grows, or that nobody has begun */
    bool recording, recorded;         /* a worker was started that records; it was read */
    unsigned n_later;                 /* looks whether the script has imported more */
    bool told_wait;                   /* that all wait */
    bool off;                         /* no worker is warm any more, for `why` */
    unsigned failures;                /* standbys in a row that could not be made */
    unsigned lost;                    /* times that what waited has ended, since the start */
    bool made;                        /* something has become ready since the last of them */
    unsigned early;                   /* warm starts in a row that failed soon */
    bool early_counted;               /* the current start is among them */
    char why[WARM_REASON_MAX];        /* why nothing waits, or a part of it */
    char reason[WARM_REASON_MAX];     /* of the last start */
    uint32_t n_warm, n_started;       /* of the last start */
    bool again;                       /* workers were started before: `reason` is always logged */
    uint32_t n_unanswered;            /* taken, and have not answered yet */
    uint32_t n_ended;                 /* by themselves */
    struct loop_timer *tell;          /* facts may have changed */
    struct warm_facts told;           /* without the reason: */
    uint64_t told_reason;             /* its hash */
    bool untold;                      /* nothing of the last start was told */
    struct warm_one template, *ranks; /* [n] */
    struct warm_one *old;             /* [n] that the ranks replace: WAITS or NONE */
    struct child_spec **specs;        /* [n] of the last start; NULL: there was none */
};

/* ---- warm_pool_io.c ---- */

/* It has reported, and waits. */
void warm_one_is_ready(struct warm_one *one, const struct warm_heard *heard);
/* It has ended, or can't be used. `counts`: it could not be made. */
void warm_one_failed(struct warm_one *one, const char *why, bool counts);
void warm_set_timer(struct warm_pool *p);
/* Begins what is missing. */
void warm_go_on(struct warm_pool *p);

/* ---- warm_process_io.c ---- */

/* As spec, but its Python passes through the gate. Borrows env, which is filled in. */
struct child_spec warm_through_gate(const struct warm_pool *p, enum warm_role role, int control_fd,
                                    const struct child_spec *spec, struct envlist *env);
/* Starts a Python that imports, by this spec, once another has shown that it passes the gate. */
_must_use_ int warm_start(struct warm_one *one, const struct child_spec *spec, struct err *err);
/* Asks the template for one that stands for this spec. */
_must_use_ int warm_fork(struct warm_one *one, const struct child_spec *spec, struct err *err);
/* Sends the go. */
_must_use_ int warm_send_go(const struct warm_one *one, const struct child_spec *spec,
                            const struct strbuf *text);
/* Kills it if it is there, and forgets it. */
void warm_drop(struct warm_one *one);
/* A memfd of this text. */
_must_use_ int warm_memfd(const char *name, const struct strbuf *text);
