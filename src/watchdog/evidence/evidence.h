/* Evidence: what one node saw of its workers when the job seemed to hang, as data. The agents fill
 * it in (watchdog/evidence/gather_io.h) and send it to the leader as JSON, which compares that of
 * all nodes (watchdog/judge). Pure.
 *
 * Everything has a limit, because a node's evidence is read by another node. A field that could not
 * be read is empty, and `gaps` has the reason. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text/strbuf.h"
#include "watchdog/look/pystack.h"

#define EVIDENCE_WORKERS_MAX 1024 /* of a node */
#define EVIDENCE_FRAMES_MAX 48    /* of a Python stack, innermost first */
#define EVIDENCE_THREADS_MAX 64   /* of a worker */
#define EVIDENCE_CHILDREN_MAX 64  /* of a worker: its data loaders */
#define EVIDENCE_GAPS_MAX 8       /* of a worker or a node */
#define EVIDENCE_WORD_MAX 64      /* wchan, name of a thread, of a system call */
#define EVIDENCE_TARGET_MAX 256
#define EVIDENCE_LOCK "lock "
#define EVIDENCE_LINE_MAX 256
#define EVIDENCE_TEXT_MAX 16384  /* of one source: kernel stack, RAS, recorder, kernel log */
#define EVIDENCE_COUNTS_MAX 4096 /* ranges of ranks with the same number of collectives */
#define EVIDENCE_JSON_MAX ((size_t)1 << 20) /* of a node */

/* Frames are shared: each distinct stack is in the node's table once, and here is its number. */
struct evidence_stack {
    uint32_t n;                   /* 0: no Python stack */
    struct pystack_frame *frames; /* owned by the evidence */
    bool cut;                     /* there were more */
    uint64_t place;               /* evidence_place() of all frames */
};

struct evidence_thread {
    int32_t tid;
    char name[EVIDENCE_WORD_MAX];
    char state;
    char wchan[EVIDENCE_WORD_MAX];   /* the kernel's function in which it waits; "" or "0": none */
    char syscall[EVIDENCE_WORD_MAX]; /* "read", "futex"; "" unknown */
    /* What the call's descriptor is: "pipe", a path, an address; or EVIDENCE_LOCK and the file of
     * the lock for which it polls */
    char target[EVIDENCE_TARGET_MAX];
    int32_t stack; /* number of its Python stack; -1: none */
    uint64_t ran_ns;
};

/* A child of a worker, or a child's child: data loaders. */
struct evidence_child {
    int32_t pid, parent;
    char name[EVIDENCE_WORD_MAX];
    struct evidence_thread main;
};

struct evidence_worker {
    uint32_t rank, local_rank;
    int32_t pid;
    uint64_t still_ns; /* since its main thread last moved */
    uint64_t used_ns;  /* CPU time of its main thread since then */
    bool spins;        /* it runs all the time meanwhile, as one that waits for a GPU */
    bool ended;        /* it has exited with 0: only rank, local_rank and pid are meaningful */
    uint64_t step;     /* the last MUSTER_STEP; 0: none */
    /* It, or a child, has a connection to the workers' store, or has none; neither: not known. */
    bool at_store, not_at_store;
    /* Its main thread waits on a connection to that store, or to another worker of the node. */
    bool awaits_rank;
    uint32_t n_threads;              /* 0: none could be read */
    struct evidence_thread *threads; /* owned; the first is the main thread */
    bool threads_cut;
    uint32_t n_children;
    struct evidence_child *children; /* owned */
    bool children_cut;
    char *kernel_stack;   /* of the main thread; owned; NULL: not permitted, or not asked */
    char *recorder;       /* PyTorch's flight recorder, as it answered; owned; NULL */
    uint64_t collectives; /* how many it had enqueued, by its recorder; 0: not known */
    char *native_stack;   /* of all threads, once it is decided that it is killed; owned; NULL */
    char *log_tail;       /* the last lines of its log; owned; NULL */
    char gaps[EVIDENCE_GAPS_MAX][EVIDENCE_LINE_MAX]; /* "Python stack: Python 3.8 is not known" */
    uint32_t n_gaps;
};

/* n ranks from `first` on have launched so many collectives. */
struct evidence_count {
    uint32_t first, n;
    uint64_t collectives;
};

struct evidence {
    /* Of the host, as its agent knows it. In messages the second agent of a host has another name
     */
    char node[EVIDENCE_WORD_MAX];
    /* Equal on all agents of one machine, and on those of them that see the same NICs; 0: not
     * known */
    uint64_t machine, network;
    uint64_t took_ns;
    uint32_t n_workers;
    struct evidence_worker *workers; /* owned, in order of local rank */
    uint32_t n_stacks;
    struct evidence_stack *stacks; /* owned; each distinct one once */
    char *ras;                     /* NCCL RAS: one answer describes the whole job; owned; NULL */
    uint32_t n_counts;
    struct evidence_count *counts; /* by that; ranks of all nodes; who is not in it: not known */
    char *gpus;                    /* NVML's counters, a line for each GPU; owned; NULL */
    char *nics;                    /* counters of the NICs, a line each; owned; NULL */
    char *kernel_log;              /* its last lines; owned; NULL */
    char gaps[EVIDENCE_GAPS_MAX][EVIDENCE_LINE_MAX];
    uint32_t n_gaps;
    bool cut; /* parts were left out, so that its JSON keeps within EVIDENCE_JSON_MAX */
};

void evidence_fini(struct evidence *e); /* frees what it owns; *e is empty then */

/* A new one at the end, zeroed (a thread's stack is -1), valid until the next one is added. NULL:
 * the limit is reached. */
struct evidence_worker *evidence_add_worker(struct evidence *e);
struct evidence_thread *evidence_add_thread(struct evidence_worker *w);
struct evidence_child *evidence_add_child(struct evidence_worker *w);

/* The number of this stack in the table, which is added if it is new. -E2BIG: the table has
 * EVIDENCE_WORKERS_MAX stacks. Copies the frames; more than EVIDENCE_FRAMES_MAX are cut. */
_must_use_ int evidence_add_stack(struct evidence *e, const struct pystack_frame *frames, size_t n,
                                  uint32_t *ret);
/* Of each rank of the job how many collectives it has launched; 0: not known. -E2BIG: only
 * EVIDENCE_COUNTS_MAX ranges are kept. */
_must_use_ int evidence_add_counts(struct evidence *e, const uint64_t *counts, uint32_t n);
/* Back: of n ranks. */
void evidence_counts(const struct evidence *e, uint64_t *ret, uint32_t n);
/* The number of the place at which such a stack waits, for HANG_EVENT_PLACE: equal in all workers
 * and runs of one program. 0: no frames. */
uint64_t evidence_place(const struct pystack_frame *frames, uint32_t n);
/* "what: why", as printf. A gap too many is dropped. */
#define evidence_gap(e, ...) evidence_add_gap((e)->gaps, &(e)->n_gaps, xasprintf(__VA_ARGS__))
#define evidence_worker_gap(w, ...) evidence_gap(w, __VA_ARGS__)
void evidence_add_gap(char gaps[][EVIDENCE_LINE_MAX], uint32_t *n, char *text); /* takes text */

/* One JSON object of at most EVIDENCE_JSON_MAX bytes: if it would be longer, texts are shortened
 * first, then threads, children and frames are left out, and workers at last. */
void evidence_write(const struct evidence *e, struct strbuf *ret);
/* Back, from a peer that is not trusted: texts hold no control characters then, and a stack's
 * number is within the table. -EINVAL or -E2BIG, with what is wrong; *ret is empty then. */
_must_use_ int evidence_read(const char *text, size_t len, struct evidence *ret, struct err *err);
