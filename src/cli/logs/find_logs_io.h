/* From what a user calls a run to the folder of its logs.
 *
 *     r = logs_find(&place, &found, &err);
 *     log_tree_scan(…found.dir…);
 *     logs_found_fini(&found); */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "rendezvous/operate/recent_runs_io.h"

struct logs_place {
    const char *run;     /* a run id, the beginning of one, or a folder; NULL: the newest run */
    const char *log_dir; /* where its folder is, as --log-dir of muster run; NULL: any */
};

struct logs_found {
    char *dir;        /* of the run */
    char *generation; /* if the folder of one was named; or NULL */
    char *run_id;     /* NULL: not known */
    char **others;    /* -EEXIST: which runs it could be */
    size_t n_others;
};

/* -ENOENT: there is none; -ENODATA: it keeps no logs; -EEXIST: several have that name, they are in
 * `others`; each with a sentence. Call logs_found_fini() in every case. */
_must_use_ int logs_find(const struct logs_place *place, struct logs_found *ret, struct err *err);
void logs_found_fini(struct logs_found *found);

/* Whether an agent of the run lives on this machine. run_id: NULL: false. */
bool logs_run_lives(const char *run_id);
