#include "cli/jobs/run_keys_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/agent/agent_io.h"
#include "launcher/place/place.h"
#include "launcher/starter/starter_link_io.h"

extern char **environ;

#define KEY_ENV "MUSTER_KEY"

/* A node may have a key in every login's environment, which is wiped: the head's counts. */
static int drop_key_of_login(struct err *err) {
    _cleanup_(keyring_freep) struct keyring *other = NULL;
    int r = keyring_new(&other, err);
    if (r == 0 && keyring_take_env(other, KEY_ENV, AUTH_FROM_ENV, NULL) < 0)
        return 0; /* it is not a key, and it is removed */
    return r;
}

void run_keys_take(struct run_keys *ret) {
    const char *of_head = getenv(STARTER_KEY_ENV);
    *ret = (struct run_keys){0};
    ret->none_of_head = of_head != NULL && strcmp(of_head, STARTER_NO_KEY) == 0;
    if (ret->none_of_head)
        (void)unsetenv(STARTER_KEY_ENV);
    ret->code = keyring_new(&ret->ring, &ret->err);
    if (ret->code == 0)
        ret->code = keyring_take_env(ret->ring, STARTER_KEY_ENV, AUTH_FROM_HEAD, &ret->err);
    ret->of_head = ret->code == 0 && keyring_n(ret->ring) > 0;
    if (ret->of_head)
        ret->code = drop_key_of_login(&ret->err);
    else if (ret->code == 0)
        ret->code = keyring_take_env(ret->ring, KEY_ENV, AUTH_FROM_ENV, &ret->err);
}

/* Whether other machines take part. A head starts agents there, whatever this one would do. */
static bool leaves_machine(const struct job_spec *spec) {
    return spec->start_nodes > 0 || !start_is_local(spec);
}

/* Whether the nodes are those of the tasks. A user can join several groups of tasks. */
static bool is_of_tasks(const struct job_spec *spec) {
    return place_has_one_agent(spec->nodes) || spec->rdzv.max_nodes <= spec->place.n_nodes;
}

/* Whether a file holds a key, for a job that needs none. */
static int check_file(const char *path, struct err *err) {
    _cleanup_(keyring_freep) struct keyring *unused = NULL;
    int r = keyring_new(&unused, err);
    return r < 0 ? r : keyring_load_given(unused, path, err);
}

int run_keys_load(struct run_keys *k, const struct job_spec *spec, struct err *err) {
    if (spec->auth == AUTH_NONE) {
        run_keys_fini(k);
        return 0;
    }
    if (k->code < 0) {
        *err = k->err;
        return k->code;
    }
    if (!k->of_head && !k->none_of_head && starter_link_is_given(environ))
        return err_set(
            err, -ENOKEY,
            "the muster that started this one has a key for the job, and " STARTER_KEY_ENV
            " has not arrived here: a wrapper or prolog in between must pass the environment "
            "through");
    if (!k->of_head && leaves_machine(spec)) {
        int r = keyring_load_given(k->ring, spec->key_file, err);
        if (r == 0 && keyring_n(k->ring) == 0 && is_of_tasks(spec))
            r = keyring_add_all(k->ring, k->of_tasks, err);
        keyring_free(TAKE_PTR(k->of_tasks));
        return r;
    }
    return k->of_head || spec->key_file == NULL ? 0 : check_file(spec->key_file, err);
}

void run_keys_fini(struct run_keys *k) {
    keyring_free(k->ring);
    keyring_free(k->of_tasks);
    k->ring = k->of_tasks = NULL;
}
