/* What a process of "muster run" is given: its command line, read by job_options.h with this
 * process's environment, CPUs, GPUs and random numbers, and its key.
 *
 *     struct run_keys keys;
 *     run_keys_take(&keys);                        first: what is forked later has no key
 *     status = run_line_read(argc, argv, &keys, &spec);
 *     r = run_keys_load(&keys, &spec, &err);       keys.ring, which may be empty
 *     run_keys_fini(&keys); */
#pragma once

#include "cli/options/job_options.h"
#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

/* The key that this process was given: by the head that started it (starter/starter_io.h), by the
 * user (--key-file, MUSTER_KEY_FILE, MUSTER_KEY), or by the first task below mpiexec. */
struct run_keys {
    struct keyring *ring;     /* NULL: what was found is not a key */
    struct keyring *of_tasks; /* from the task of rank 0 (pmi_io.h); NULL: none */
    bool of_head;             /* it has the head's, and so no other */
    bool none_of_head;        /* a head reports that there is none */
    int code;                 /* for run_keys_load() */
    struct err err;
};

/* Takes keys out of the environment, where /proc shows them. */
void run_keys_take(struct run_keys *ret);
/* Reads the file of --key-file, unless a head has given a key. For a job that can't leave this
 * machine the file is only checked. 0, or a negative errno and a sentence, also for what was in the
 * environment. -ENOKEY: the head's has not arrived. With --auth=none there are no keys. */
_must_use_ int run_keys_load(struct run_keys *k, const struct job_spec *spec, struct err *err);
void run_keys_fini(struct run_keys *k);

/* -1: *ret is the job to run; the caller must free it; the log level is set, and warnings are
 * printed; `keys` has the key of the tasks that a process manager started. Otherwise returns the
 * exit status: help, version or configuration was printed (0), or an error (2). */
_must_use_ int run_line_read(int argc, char **argv, struct run_keys *keys, struct job_spec *ret);

/* Probes of this process and machine, for other readers of such options. */
extern const struct job_probes run_line_probes;
