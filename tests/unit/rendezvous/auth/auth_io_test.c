#include "rendezvous/auth/auth_io.h"

#include "auth_rig.h"
#include "io/peer/peer_gate.h"
#include "rig/unit.h"

#define KEY "muster-key-1:0707070707070707070707070707070707070707070707070707070707070707"

/* Both ends of a connection of this process over loopback. */
static struct {
    int listening, accepted, client;
    struct peer_gate *gate;
    struct addr of_accepted, of_client; /* as the other end sees them */
} pair;

static void finish(void) {
    rig_finish();
    if (pair.gate == NULL)
        return;
    peer_gate_free(pair.gate);
    (void)close(pair.listening);
    (void)close(pair.accepted);
    (void)close(pair.client);
}

TestSuite(auth_io, .init = rig_begin, .fini = finish);

static struct rig_munged one;
static const struct auth_config nothing = {.run_id = RIG_RUN_ID};

static struct auth *with_key(uint8_t byte, enum auth_source source) {
    return rig_auth(&(struct auth_config){.run_id = RIG_RUN_ID, .keys = rig_keys(byte, source), .munge = true}, NULL);
}

Test(auth_io, sides_with_the_same_key_shake_hands) {
    struct auth *a = with_key(7, AUTH_FROM_HOME), *b = with_key(7, AUTH_FROM_FILE);
    cr_assert_str_eq(rig_meet(a, b), "TLS");
    cr_assert_str_eq(rig_meet(b, a), "TLS");
    cr_assert_eq(auth_state(a), AUTH_STATE_KEYS);
}

Test(auth_io, other_keys_are_refused_with_both_named) {
    struct auth *a = with_key(7, AUTH_FROM_HOME), *b = with_key(8, AUTH_FROM_FILE);
    struct auth_greeting g = rig_greeting(a), own = rig_greeting(b);
    char theirs[AUTH_ID_TEXT_MAX], ours[AUTH_ID_TEXT_MAX];
    auth_id_to_text(&g.ids[0], theirs);
    auth_id_to_text(&own.ids[0], ours);
    const char *why = rig_meet(a, b);
    assert_has(why, theirs);
    assert_has(why, ours);
    cr_assert_str_neq(theirs, ours);
}

Test(auth_io, without_any_key_it_is_plain_and_said_once) {
    struct rig_lines lines;
    struct auth *a = rig_auth(&nothing, &lines), *b = rig_auth(&nothing, NULL);
    cr_assert_str_eq(rig_meet(a, b), "plain");
    cr_assert_eq(lines.n, 0, "by whoever leads the job");
    auth_tell_no_key(a);
    cr_assert_eq(lines.n, 1);
    cr_assert_eq(strncmp(lines.last, "this job is open: no node has a key, so any process", 51), 0, "%s", lines.last);
    auth_tell_no_key(a);
    cr_assert_eq(lines.n, 1);
    cr_assert_eq(auth_state(a), AUTH_STATE_OPEN);
}

Test(auth_io, mixed_is_refused_by_either_side) {
    struct auth *a = rig_auth(&nothing, NULL), *b = with_key(7, AUTH_FROM_FILE);
    const char *why = rig_meet(a, b);
    assert_has(why, "has no key and admits anybody, but the key here is");
    why = rig_meet(b, a);
    assert_has(why, "there is no key here: give --key-file here");
    struct addr peer;
    char no[AUTH_WHY_MAX];
    cr_assert_eq(addr_from_literal("10.9.9.9", 1024, &peer), 0);
    cr_assert_not(auth_takes_plain(b, -1, &peer, no), "whatever the other does");
}

Test(auth_io, none_takes_whoever_comes) {
    struct rig_lines lines;
    struct auth_config config = {
        .mode = AUTH_NONE, .run_id = RIG_RUN_ID, .keys = rig_keys(7, AUTH_FROM_FILE), .munge = true};
    struct auth *a = rig_auth(&config, &lines), *b = rig_auth(&nothing, NULL);
    cr_assert_str_eq(rig_meet(a, b), "plain");
    cr_assert_eq(lines.n, 0, "the user said so");
    cr_assert_eq(auth_state(a), AUTH_STATE_NONE);
    cr_assert_eq(auth_state(NULL), AUTH_STATE_NONE);
}

Test(auth_io, on_needs_a_key) {
    struct auth *a;
    struct err err = {0};
    struct auth_config config = {.mode = AUTH_ON, .run_id = RIG_RUN_ID};
    cr_assert_eq(auth_new(rig_loop, &config, &a, &err), -ENOKEY);
    cr_assert_str_eq(err.text, "--auth=on needs a key, and there is none: run \"muster keygen\" and copy "
                               "~/.config/muster/key to all nodes, or give them a key by --key-file");
    config.munge = true;
    config.munge_socket = "/nowhere";
    cr_assert_eq(auth_new(rig_loop, &config, &a, &err), -ENOKEY);
    config.keys = rig_keys(7, AUTH_FROM_HOME);
    cr_assert_eq(auth_new(rig_loop, &config, &a, &err), 0, "%s", err.text);
    auth_free(a);
}

static void never(void *arg, const struct auth_choice *choice) { cr_assert_fail("it was cancelled"); }

static void on_quit(void *arg) { loop_quit(rig_loop); }

Test(auth_io, an_ask_can_be_cancelled_and_outlive_the_auth) {
    struct auth *a = rig_auth(&nothing, NULL);
    struct auth_greeting g = rig_greeting(a);
    struct auth_ask *first, *second;
    struct addr peer;
    cr_assert_eq(addr_from_literal("10.9.9.9", 1024, &peer), 0);
    first = auth_choose(a, -1, &peer, &g, never, NULL);
    second = auth_choose(a, -1, &peer, &g, never, NULL);
    auth_ask_free(first);
    rig_free(a);
    loop_defer(rig_loop, LOOP_PRIO_ACCEPT, on_quit, NULL);
    rig_run();
    auth_ask_free(second);
    auth_ask_free(NULL);
}

static void free_it(void *arg, const struct auth_choice *choice) {
    struct auth **a = arg;
    cr_assert_eq(choice->way, AUTH_WAY_PLAIN);
    rig_free(TAKE_PTR(*a));
    loop_quit(rig_loop);
}

Test(auth_io, it_can_be_freed_by_who_is_called) {
    struct auth *a = rig_auth(&nothing, NULL);
    struct auth_greeting g = rig_greeting(a);
    struct addr peer;
    cr_assert_eq(addr_from_literal("10.9.9.9", 1024, &peer), 0);
    cr_assert_not_null(auth_choose(a, -1, &peer, &g, free_it, &a));
    struct auth_ask *second = auth_choose(a, -1, &peer, &g, never, NULL);
    rig_run();
    cr_assert_null(a);
    auth_ask_free(second);
}

Test(auth_io, refusals_are_counted_and_told_once_for_each_address_and_reason) {
    struct rig_lines lines;
    struct auth *a = rig_auth(&nothing, &lines);
    struct addr peer;
    cr_assert_eq(addr_from_literal("10.9.9.9", 1024, &peer), 0);
    auth_refused(a, &peer, "it came without a key");
    cr_assert_str_eq(lines.last, "refused a connection from 10.9.9.9: it came without a key");
    addr_set_port(&peer, 1025);
    auth_refused(a, &peer, "it came without a key");
    cr_assert_eq(lines.n, 1);
    auth_refused(a, &peer, "it has another key");
    cr_assert_eq(lines.n, 2);
    for (unsigned i = 0; i < 100; i++) {
        cr_assert_eq(addr_from_literal(rig_text("10.9.8.%u", i), 1024, &peer), 0);
        auth_refused(a, &peer, "it came without a key");
    }
    cr_assert_eq(lines.n, AUTH_REFUSED_LINES);
    assert_has(lines.last, " (further ones are only counted)");
    cr_assert_eq(auth_n_refused(a), 103);
    cr_assert_eq(auth_n_refused(NULL), 0);
}

static struct auth *with_munge(struct rig_munged *m, const char *run_id) {
    return rig_auth(&(struct auth_config){.run_id = run_id, .munge = true, .munge_socket = m->socket}, NULL);
}

Test(auth_io, munge_carries_the_key) {
    rig_munged_start(&one, "one");
    struct auth *leader = with_munge(&one, RIG_RUN_ID), *node = with_munge(&one, RIG_RUN_ID);
    struct auth *second = with_munge(&one, RIG_RUN_ID), *operator_ = with_munge(&one, NULL);
    cr_assert_not(auth_is_ready(leader), "nobody has asked it yet");
    cr_assert_str_eq(rig_meet(leader, node), "TLS");
    struct auth_greeting g = rig_greeting(leader);
    cr_assert_eq(g.n_keys, 1);
    cr_assert_eq(g.ids[0].source, AUTH_FROM_MUNGE);
    cr_assert_not(g.open);
    cr_assert_str_eq(rig_meet(leader, second), "TLS", "the credential is read a second time");
    cr_assert_str_eq(rig_meet(leader, operator_), "TLS", "an operator knows no run id");
    /* A node that has learned the leader's key offers the same. */
    struct auth_greeting of_node = rig_greeting(node);
    cr_assert_eq(of_node.n_keys, 1);
    cr_assert_eq(of_node.ids[0].id, g.ids[0].id);
    rig_munged_stop(&one);
    cr_assert_str_eq(rig_meet(node, second), "TLS", "munge is not needed any more");
}

Test(auth_io, the_key_of_another_job_is_not_taken) {
    rig_munged_start(&one, "one");
    struct auth *leader = with_munge(&one, RIG_RUN_ID), *node = with_munge(&one, "night 2");
    cr_assert_str_eq(rig_meet(leader, node), "the agent there is of the job 'night 1'");
}

Test(auth_io, a_munged_of_another_realm_is_said_to_be_so) {
    struct rig_munged other;
    rig_munged_start(&one, "one");
    rig_munged_start(&other, "other");
    struct auth *leader = with_munge(&one, RIG_RUN_ID), *node = with_munge(&other, RIG_RUN_ID);
    const char *why = rig_meet(leader, node);
    assert_has(why, "; that node has a different munge.key: start munged here");
}

Test(auth_io, a_munged_that_hangs_costs_two_seconds_and_is_no_munge) {
    struct rig_lines lines;
    rig_munged_start(&one, "one");
    struct auth *keyed = with_munge(&one, RIG_RUN_ID);
    struct auth_greeting g = rig_greeting(keyed);
    rig_munged_signal(&one, SIGSTOP);
    struct auth *node = with_munge(&one, RIG_RUN_ID);
    struct rig_choice c;
    rig_choose(node, &g, &c);
    cr_assert_eq(c.way, AUTH_WAY_REFUSED);
    assert_has(c.why, "there is no key here; munged here does not answer: ");
    struct auth *leader =
        rig_auth(&(struct auth_config){.run_id = RIG_RUN_ID, .munge = true, .munge_socket = one.socket}, &lines);
    node = with_munge(&one, RIG_RUN_ID);
    cr_assert_str_eq(rig_meet(leader, node), "plain");
    auth_tell_no_key(leader);
    assert_has(lines.last, "no node has a key (munge here: munged here does not answer)");
    leader = rig_auth(
        &(struct auth_config){.mode = AUTH_ON, .run_id = RIG_RUN_ID, .munge = true, .munge_socket = one.socket},
        &lines);
    struct auth_greeting shut = rig_greeting(leader);
    auth_tell_no_key(leader);
    cr_assert_not(shut.open);
    assert_has(lines.last, "with --auth=on no other node is admitted");
}

Test(auth_io, with_a_munge_that_answers_nothing_is_plain) {
    rig_munged_start(&one, "one");
    struct auth *leader = rig_auth(&nothing, NULL), *node = with_munge(&one, RIG_RUN_ID);
    const char *why = rig_meet(leader, node);
    assert_has(why, "admits anybody, but the key here is");
    assert_has(why, " from munge: start munged on that node; ");
}

Test(auth_io, absent_munge_is_never_asked) {
    struct auth *a = rig_auth(
        &(struct auth_config){.run_id = RIG_RUN_ID, .munge = true, .munge_socket = "/nowhere/munge.socket"}, NULL);
    cr_assert(auth_is_ready(a));
    cr_assert_str_eq(rig_meet(a, a), "plain");
}

Test(auth_io, with_a_given_key_munge_is_not_asked) {
    rig_munged_start(&one, "one");
    struct auth_config config = {
        .run_id = RIG_RUN_ID, .munge = true, .munge_socket = one.socket, .keys = rig_keys(7, AUTH_FROM_FILE)};
    struct auth *a = rig_auth(&config, NULL), *leader = with_munge(&one, RIG_RUN_ID);
    cr_assert(auth_is_ready(a));
    struct auth_greeting g = rig_greeting(a);
    cr_assert_eq(g.munge[0], '\0');
    const char *why = rig_meet(leader, a);
    assert_has(why, "; munge is not asked where a key is given: ");
}

Test(auth_io, the_longest_run_id_fits_into_a_credential) {
    char run_id[AUTH_RUN_ID_MAX];
    memset(run_id, 'r', sizeof run_id - 1);
    run_id[sizeof run_id - 1] = '\0';
    rig_munged_start(&one, "one");
    struct auth *leader = with_munge(&one, run_id), *node = with_munge(&one, run_id);
    cr_assert_str_eq(rig_meet(leader, node), "TLS");
}

/* What somebody else shows in a greeting. */
static const char *offered(struct rig_munged *m, const char *credential) {
    static struct rig_choice c;
    struct auth *node = with_munge(m, RIG_RUN_ID);
    struct auth_greeting g = {.version = AUTH_VERSION, .n_keys = 1, .ids = {{.id = 1, .source = AUTH_FROM_MUNGE}}};
    (void)snprintf(g.munge, sizeof g.munge, "%s", credential);
    rig_choose(node, &g, &c);
    cr_assert_eq(c.way, AUTH_WAY_REFUSED);
    return c.why;
}

Test(auth_io, credentials_of_other_users_are_not_taken) {
    char credential[AUTH_MUNGE_MAX];
    const char *why;
    if (geteuid() != 0)
        cr_skip_test("needs root");
    rig_munged_start(&one, "one");
    rig_munge(&one, 1001, -1, KEY "\\n" RIG_RUN_ID, credential);
    why = offered(&one, credential);
    assert_has(why, "; its munge credential was made by another user (uid 1001): ");
    rig_munge(&one, 1001, 1001, KEY "\\n" RIG_RUN_ID, credential);
    why = offered(&one, credential);
    cr_assert_not_null(strstr(why, "; its munge credential is for another user than "), "root can't read it: %s", why);
    rig_munge(&one, 0, 0, "hello", credential);
    why = offered(&one, credential);
    assert_has(why, "; its munge credential holds no key of muster's: ");
    rig_munge(&one, 0, 0, KEY "\\n" RIG_RUN_ID, credential);
    why = offered(&one, credential);
    assert_has(why, "; its munge credential holds another key than the one that the agent there uses: ");
    why = offered(&one, "MUNGE:nonsense:");
    assert_has(why, "; munge reports: ");
}

/* Whoever shows old credentials of this user again pushes no key out that is used. */
Test(auth_io, many_credentials_push_out_no_key_that_is_used) {
    rig_munged_start(&one, "one");
    struct auth *node = with_munge(&one, RIG_RUN_ID);
    struct auth_greeting own = rig_greeting(node);
    for (unsigned i = 0; i < 2 * AUTH_KEYS_MAX; i++) {
        struct auth *other = with_munge(&one, RIG_RUN_ID);
        cr_assert_str_eq(rig_meet(other, node), "TLS");
        rig_free(other);
    }
    struct auth_greeting g = rig_greeting(node);
    cr_assert_eq(g.n_keys, AUTH_KEYS_MAX);
    cr_assert_eq(g.ids[0].id, own.ids[0].id);
}

static void pair_open(void) {
    struct addr at;
    struct err err = {0};
    cr_assert_eq(addr_from_literal("127.0.0.1", 0, &at), 0);
    pair.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(pair.listening, (const struct sockaddr *)&at.ss, at.len), 0);
    cr_assert_eq(listen(pair.listening, 1), 0);
    cr_assert_eq(addr_of_socket(pair.listening, &at), 0);
    pair.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(pair.client, (const struct sockaddr *)&at.ss, at.len), 0);
    pair.accepted = accept4(pair.listening, NULL, NULL, SOCK_CLOEXEC);
    cr_assert_geq(pair.accepted, 0);
    cr_assert_eq(addr_of_peer(pair.accepted, &pair.of_client), 0);
    cr_assert_eq(addr_of_peer(pair.client, &pair.of_accepted), 0);
    if (peer_gate_new(pair.listening, NULL, NULL, &pair.gate, &err) < 0)
        cr_skip_test("the kernel does not say whose connections they are: %s", err.text);
}

static void on_plain(void *arg, const struct auth_choice *choice) {
    cr_assert_eq(choice->way, AUTH_WAY_PLAIN, "%s", choice->why);
    loop_quit(rig_loop);
}

static void meets_in_plain(struct auth *server, struct auth *client) {
    struct auth_greeting g;
    auth_greet(server, &g);
    cr_assert_not_null(auth_choose(client, pair.client, &pair.of_accepted, &g, on_plain, NULL));
    rig_run();
    cr_assert(auth_takes_plain(server, pair.accepted, &pair.of_client, (char[AUTH_WHY_MAX]){""}));
}

Test(auth_io, on_one_machine_no_key_is_needed) {
    pair_open();
    struct auth_config config = {.run_id = RIG_RUN_ID, .gate = pair.gate, .keys = rig_keys(7, AUTH_FROM_FILE)};
    struct auth *a = rig_auth(&config, NULL);
    config.keys = rig_keys(8, AUTH_FROM_FILE);
    struct auth *b = rig_auth(&config, NULL);
    config.keys = NULL;
    struct auth *c = rig_auth(&config, NULL);
    meets_in_plain(a, b);
    meets_in_plain(a, c);
    config.mode = AUTH_NONE;
    struct auth *none = rig_auth(&config, NULL);
    meets_in_plain(a, none);
}

Test(auth_io, a_job_of_one_machine_uses_no_key) {
    struct addr far;
    char why[AUTH_WHY_MAX];
    pair_open();
    struct auth_config config = {
        .run_id = RIG_RUN_ID, .gate = pair.gate, .local = true, .munge = true, .keys = rig_keys(7, AUTH_FROM_FILE)};
    struct auth *a = rig_auth(&config, NULL);
    cr_assert(auth_is_ready(a));
    cr_assert_eq(auth_state(a), AUTH_STATE_LOCAL);
    meets_in_plain(a, a);
    cr_assert_eq(addr_from_literal("10.9.9.9", 1024, &far), 0);
    cr_assert_not(auth_takes_plain(a, pair.accepted, &far, why));
    cr_assert_str_eq(why, "it comes from another machine, and this job has only one");
    struct auth_greeting g = rig_greeting(a);
    cr_assert_eq(g.n_keys, 0);
    config.mode = AUTH_ON;
    a = rig_auth(&config, NULL);
    config.gate = NULL;
    struct err err = {0};
    cr_assert_eq(auth_new(rig_loop, &config, &a, &err), -ENOKEY);
    cr_assert_str_eq(err.text, "--auth=on is not possible here: the kernel does not report the user of a connection");
}
