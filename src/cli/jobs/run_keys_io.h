/* The key that this process was given: by the head that started it (starter/starter_io.h),
 * by the user (--key-file, MUSTER_KEY_FILE, MUSTER_KEY), or by the first task below mpiexec.
 *
 *     struct run_keys keys;
 *     run_keys_take(&keys);                        first: what is forked later has no key
 *     … the command line is read …
 *     r = run_keys_load(&keys, &spec, &err);       keys.ring, which may be empty
 *     run_keys_fini(&keys); */
#pragma once

#include "launcher/job/job.h"
#include "rendezvous/auth/keyring_io.h"

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
