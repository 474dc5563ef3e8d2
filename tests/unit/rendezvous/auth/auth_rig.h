/* Two sides that meet: what one greets with, the other chooses by; with TLS, their sessions shake hands. No kernel is
 * asked (there is no gate), so both are elsewhere to each other. And a real munged. */
#pragma once

#include "io/loop.h"
#include "rendezvous/auth/auth_io.h"

#define RIG_RUN_ID "night 1"

extern struct loop *rig_loop;
extern char rig_folder[64]; /* of the test, 0755 */

void rig_begin(void);
void rig_finish(void);
void rig_run(void); /* until loop_quit(); fails the test at doomsday */

/* What a side has said. */
struct rig_lines {
    uint32_t n;
    char last[2048];
};

/* The defaults: AUTO, RIG_RUN_ID, no munge. `lines` may be NULL. Fails the test if it can't be made. Freed by
 * rig_finish(), if not before. */
struct auth *rig_auth(const struct auth_config *config, struct rig_lines *lines);
void rig_free(struct auth *a);
/* A ring with one key, whose bytes are all `byte`; 0: an empty ring. Freed by rig_finish(). */
struct keyring *rig_keys(uint8_t byte, enum auth_source source);

struct auth_greeting rig_greeting(struct auth *a); /* when it is ready */

struct rig_choice {
    enum auth_way way;
    struct ssl_st *session; /* owned */
    char why[AUTH_WHY_MAX];
};
void rig_choose(struct auth *a, const struct auth_greeting *g, struct rig_choice *ret);
/* Both: "plain", "TLS", or why not. Valid until the next call. */
const char *rig_meet(struct auth *server, struct auth *client);

struct rig_munged {
    char folder[96], socket[128];
};
/* Skips the test if it is not installed. Killed by rig_finish(), if it was not stopped. */
void rig_munged_start(struct rig_munged *m, const char *name);
void rig_munged_stop(struct rig_munged *m);
void rig_munged_signal(struct rig_munged *m, int signo);
/* A credential with this payload that a user has made; to_uid -1: for everybody. Needs root. */
void rig_munge(struct rig_munged *m, uid_t uid, int to_uid, const char *payload, char out[AUTH_MUNGE_MAX]);
