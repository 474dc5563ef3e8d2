/* The launchers, batch systems and clouds other than Slurm and Kubernetes, as data: a row each.
 * place_read_launcher() (place.h) reads them all into struct place. Pure.
 *
 * A launcher that fits these columns needs a row in launchers.c, an environment in
 * tests/places, and a line in docs/launchers.md. The sources of a row are named beside it.
 *
 * Columns that name variables have one name, or two, of which the first that is set and not empty
 * counts. NULL: the launcher has no such variable. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum launcher_kind {
    /* Another program has started one agent on each node, and variables contain which node. */
    LAUNCHER_NODES = 1,
    /* It has started this process on the first of several hosts, and nothing on the others. */
    LAUNCHER_ALLOC,
    /* It has started several tasks, of which this process is one. */
    LAUNCHER_INSIDE,
};

/* Where sizes and ranks of the tasks come from. */
enum launcher_sizes {
    LAUNCHER_BY_VARIABLES = 0,
    LAUNCHER_BY_PMI1, /* a PMI-1 server at the file descriptor PMI_FD: place_probes.pmi */
    LAUNCHER_BY_PMIX, /* a PMIx server: place_probes.pmi */
};

#define LAUNCHER_ANCESTORS_MAX 9
#define LAUNCHER_PROOF_MAX 5
#define LAUNCHER_WORDS_MAX 4
#define LAUNCHER_SIGNALS_MAX 2

struct launcher {
    const char *name;  /* "gridengine": of --starter */
    const char *title; /* "Grid Engine": for people */
    enum launcher_kind kind;

    /* ---- proof ---- */
    /* Programs that start its tasks: the nearest ancestor of any row decides. None: none is
     * visible, in containers. At most 15 bytes each (/proc/PID/stat). */
    const char *ancestors[LAUNCHER_ANCESTORS_MAX + 1];
    /* Variables that are all set, or else this is another launcher. */
    const char *proof[LAUNCHER_PROOF_MAX + 1];
    /* A variable whose value must be a word or number in that of another: JOB_ID in PE_HOSTFILE. */
    const char *part, *whole;
    const char *absent; /* a variable that must not be set; NULL: none */

    /* ---- the group ---- */
    enum launcher_sizes sizes;
    const char *nodes[2];   /* number of nodes */
    const char *node_rank;  /* of this node, from 0 */
    const char *first_rank; /* the node_rank of the node where they meet; NULL: 0 */
    /* INSIDE: number of tasks; of this one, from 0. ALLOC: task of an array, if it is a number */
    const char *tasks, *task;
    /* ALLOC: the path of a file, or its text, in a form of hosts/hosts.h. NODES: separated by white
     * space or commas, or a list of JSON */
    const char *hosts;
    const char *self;       /* this host, as it is written in `hosts` */
    const char *first_host; /* where the nodes meet; else the first of `hosts` */
    const char *port;
    const char *nproc; /* GPUs of this node */
    const char *run_id[2], *attempt;

    /* ---- agents ---- */
    /* ALLOC: the command that runs another command on a host, which it gets as its next word and
     * the command as the last. NULL in the first: ssh with its options. */
    const char *start[LAUNCHER_WORDS_MAX];
    const char *folder; /* variable with the folder of that command, if it is not on PATH */
    const char *advice; /* what to do where muster cannot find the group: an imperative sentence */

    /* ---- workers, and the end ---- */
    const char *hidden[2];          /* prefixes of variables that workers do not see */
    int save[LAUNCHER_SIGNALS_MAX]; /* signals that announce the end of the job; 0: none */
    int again;                      /* the exit status that queues the job again; 0: none */
    /* The command that also does, with the job as the last word: ID or, in an array, ID.TASK. */
    const char *requeue[LAUNCHER_WORDS_MAX];
};

/* Rows of kind ALLOC whose hosts are those of the job: an enumerator and the word of --starter. */
#define LAUNCHER_STARTERS(row)                                                                    \
    row(GRIDENGINE, "gridengine") row(LSF, "lsf") row(OAR, "oar") row(PBS, "pbs") row(PJM, "pjm") \
        row(COBALT, "cobalt")

extern const struct launcher launchers[];
extern const size_t n_launchers;

/* The row of this name; NULL: there is none. */
const struct launcher *launcher_by_name(const char *name);
/* The first row with this ancestor; NULL: there is none. */
const struct launcher *launcher_by_ancestor(const char *program);
/* The first row from `from` on whose variables agree; NULL: there is none. */
const struct launcher *launcher_by_variables(char *const *envp, const struct launcher *from);
/* The value of a variable that is set and not empty; NULL: it is not, or the name is NULL. */
const char *launcher_value(char *const *envp, const char *name);
/* The first of two names whose variable is; NULL: neither is. */
const char *launcher_name(char *const *envp, const char *const names[2]);
/* Its value as a number. False: it is not set, or no number from least to most. */
bool launcher_number(char *const *envp, const char *name, uint32_t least, uint32_t most,
                     uint32_t *ret);
