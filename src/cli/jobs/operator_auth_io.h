/* By what an operator's command is known to the agents that it asks: on their machine by its user,
 * from elsewhere by a key. It looks for keys where muster run does.
 *
 *     struct operator_auth_config config = {.key_file = "/shared/key"};
 *     r = operator_auth_new(&config, &auth, &err);
 *     r = operator_auth_ask(auth, &question, &reply, &err);
 *     operator_auth_free(auth); */
#pragma once

#include "io/loop.h"
#include "rendezvous/auth/auth_io.h"
#include "rendezvous/operate/operator_io.h"

struct operator_auth;

struct operator_auth_config {
    enum auth_mode mode;
    const char *key_file; /* --key-file, NULL: not given */
    bool lenient;         /* a key that can't be used is reported, but not an error */
};

/* Takes MUSTER_KEY out of the environment. 0, or a negative errno and a sentence. */
_must_use_ int operator_auth_new(const struct operator_auth_config *config,
                                 struct operator_auth **ret, struct err *err);
void operator_auth_free(struct operator_auth *o);
/* Its own, in which it asks. */
struct loop *operator_auth_loop(const struct operator_auth *o);
/* operator_ask(), with its loop and as whom it knows. */
_must_use_ int operator_auth_ask(struct operator_auth *o, struct operator_question *q,
                                 struct operator_reply *ret, struct err *err);

/* Takes the keys of a run of this user's, too, which an agent of this machine has left, if this is
 * root. Returns whether that is another user. */
bool operator_auth_add_user(struct operator_auth *o, uint32_t uid, const char *run_id);
/* Takes the key of the job's folder, too, if it can be read. */
void operator_auth_add_job_dir(struct operator_auth *o, const char *path, const char *run_id);
