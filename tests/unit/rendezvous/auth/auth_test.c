/* What each side decides. Every pair of sources, with the sentence that the user gets: decisions.txt. With
 * MUSTER_TEST_REWRITE=1 in the environment it is rewritten; review it then. */
#include "rendezvous/auth/auth.h"

#include "base/text/strbuf.h"
#include "io/file.h"
#include "rig/unit.h"

#define GOLDEN_MAX ((size_t)128 << 10)
#define ID(n) (UINT64_C(0x1111111111111111) * (n))

static const struct peer_owner elsewhere = {.kind = PEER_ELSEWHERE};
static char why[AUTH_WHY_MAX]; /* of the last decision */

static struct auth_side side_with(enum auth_source source, uint64_t id) {
    struct auth_side me = {.n_keys = 1, .ids = {{.id = id, .source = source}}};
    me.munge = auth_source_is_given(source) ? AUTH_MUNGE_UNUSED : AUTH_MUNGE_ABSENT;
    return me;
}

static struct auth_greeting greeting_with(enum auth_source source, uint64_t id) {
    struct auth_greeting g = {.version = AUTH_VERSION, .n_keys = 1, .ids = {{.id = id, .source = source}}};
    if (source == AUTH_FROM_MUNGE)
        (void)snprintf(g.munge, sizeof g.munge, "MUNGE:…:");
    return g;
}

static enum auth_way decide(const struct auth_side *me, const struct auth_greeting *g) {
    uint32_t key;
    why[0] = '\0';
    return auth_decide(me, g, &elsewhere, &key, why);
}

struct here {
    const char *name;
    struct auth_side side;
};

static uint32_t all_here(struct here out[24]) {
    uint32_t n = 0;
    out[n++] = (struct here){"nothing, no munge", {.munge = AUTH_MUNGE_ABSENT}};
    out[n++] = (struct here){"nothing, munge not asked yet", {.munge = AUTH_MUNGE_UNKNOWN}};
    out[n++] = (struct here){"nothing, munged hangs", {.munge = AUTH_MUNGE_SILENT}};
    out[n] = (struct here){"nothing, munged hangs, asked about this", {.munge = AUTH_MUNGE_SILENT}};
    out[n++].side.munge_why = "munged here does not answer";
    out[n++] = (struct here){"nothing, munge answers", {.munge = AUTH_MUNGE_ANSWERS}};
    out[n] = (struct here){"nothing, munge of another realm", {.munge = AUTH_MUNGE_ANSWERS}};
    out[n++].side.munge_why = "that node has a different munge.key";
    out[n++] = (struct here){"nothing, --auth=on", {.mode = AUTH_ON, .munge = AUTH_MUNGE_ABSENT}};
    out[n++] = (struct here){"--auth=none", {.mode = AUTH_NONE}};
    for (uint32_t s = 1; s <= AUTH_SOURCE_MAX; s++)
        out[n++] = (struct here){auth_source_words[s], side_with((enum auth_source)s, ID(1))};
    return n;
}

struct there {
    const char *name;
    struct auth_greeting greeting;
};

static uint32_t all_there(struct there out[16]) {
    uint32_t n = 0;
    out[n++] = (struct there){"open", {.version = AUTH_VERSION, .open = true}};
    out[n++] = (struct there){"its own machine only", {.version = AUTH_VERSION}};
    for (uint32_t s = 1; s <= AUTH_SOURCE_MAX; s++)
        out[n++] = (struct there){auth_source_words[s], greeting_with((enum auth_source)s, ID(2))};
    return n;
}

static const char *way_name(enum auth_way way) {
    switch (way) {
    case AUTH_WAY_PLAIN: return "plain";
    case AUTH_WAY_TLS: return "TLS";
    case AUTH_WAY_MUNGE: return "ask munge";
    case AUTH_WAY_REFUSED: return "refused";
    }
    return "?";
}

Test(auth, every_pair_of_sources_has_its_sentence) {
    struct here here[24];
    struct there there[16];
    uint32_t n_here = all_here(here), n_there = all_there(there);
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (uint32_t i = 0; i < n_there; i++)
        for (uint32_t j = 0; j < n_here; j++) {
            enum auth_way way = decide(&here[j].side, &there[i].greeting);
            cr_assert_lt(strlen(why), AUTH_WHY_MAX - 1, "%s", why);
            strbuf_printf(&s, "there: %s; here: %s\n    %s%s%s\n", there[i].name, here[j].name, way_name(way),
                          why[0] != '\0' ? ": " : "", why);
        }
    _cleanup_(freep) char *path = xasprintf("%s/unit/rendezvous/auth/decisions.txt", getenv("MUSTER_TEST_SOURCE_DIR"));
    _cleanup_(freep) char *golden = NULL;
    size_t len;
    const char *rewrite = getenv("MUSTER_TEST_REWRITE");
    if (rewrite != NULL && strcmp(rewrite, "1") == 0)
        cr_assert_eq(file_write_atomic(path, s.data, s.len), 0, "%s", path);
    cr_assert_eq(file_read_text(path, GOLDEN_MAX, &golden, &len), 0, "%s", path);
    cr_assert_str_eq(s.data, golden, "%s differs:\n%s", path, s.data);
}

/* Each side decides alone: whatever the other says. */
Test(auth, with_a_key_nothing_is_plain_with_another_machine) {
    for (uint32_t s = 1; s <= AUTH_SOURCE_MAX; s++)
        for (unsigned what = 0; what < 8; what++) {
            struct auth_side me = side_with((enum auth_source)s, ID(1));
            struct auth_greeting g = {.version = AUTH_VERSION, .open = (what & 1) != 0};
            if ((what & 2) != 0)
                g.ids[g.n_keys++] = (struct auth_id){ID(2), AUTH_FROM_HOME};
            if ((what & 4) != 0)
                (void)snprintf(g.munge, sizeof g.munge, "MUNGE:…:");
            cr_assert_neq(decide(&me, &g), AUTH_WAY_PLAIN);
            cr_assert_not(auth_is_open(&me));
        }
    struct auth_side munge = {.munge = AUTH_MUNGE_ANSWERS};
    cr_assert_eq(decide(&munge, &(struct auth_greeting){.version = AUTH_VERSION, .open = true}), AUTH_WAY_REFUSED);
    cr_assert_not(auth_is_open(&munge));
}

Test(auth, a_common_key_is_taken_whatever_its_sources) {
    uint32_t key = 9;
    struct auth_side me = {.n_keys = 3,
                           .munge = AUTH_MUNGE_UNKNOWN,
                           .ids = {{ID(1), AUTH_FROM_JOB_DIR}, {ID(2), AUTH_FROM_HOME}, {ID(3), AUTH_FROM_MUNGE}}};
    struct auth_greeting g = {.n_keys = 2, .ids = {{ID(3), AUTH_FROM_MUNGE}, {ID(2), AUTH_FROM_FILE}}};
    cr_assert_eq(auth_decide(&me, &g, &elsewhere, &key, why), AUTH_WAY_TLS);
    cr_assert_eq(key, 1, "the first of this side's, which are in the order of their sources");
}

Test(auth, who_has_nothing_asks_munge_before_it_is_plain) {
    struct auth_side me = {.munge = AUTH_MUNGE_UNKNOWN};
    struct auth_greeting open = {.open = true};
    cr_assert_eq(decide(&me, &open), AUTH_WAY_MUNGE);
    cr_assert_not(auth_is_open(&me), "not before munge was asked");
    me.munge = AUTH_MUNGE_SILENT;
    cr_assert_eq(decide(&me, &open), AUTH_WAY_PLAIN);
    me.munge = AUTH_MUNGE_ANSWERS;
    cr_assert_eq(decide(&me, &open), AUTH_WAY_REFUSED);
}

Test(auth, a_munge_that_did_not_answer_is_asked_again_for_an_offer) {
    struct auth_side me = {.munge = AUTH_MUNGE_SILENT};
    struct auth_greeting g = greeting_with(AUTH_FROM_MUNGE, ID(2));
    cr_assert_eq(decide(&me, &g), AUTH_WAY_MUNGE);
    me.munge_why = "munged here does not answer";
    cr_assert_eq(decide(&me, &g), AUTH_WAY_REFUSED, "once for each connection");
}

Test(auth, of_another_users_job_munge_is_not_blamed) {
    struct auth_side me = {.munge = AUTH_MUNGE_ANSWERS, .munge_why = "its munge credential is for another user"};
    struct auth_greeting g = greeting_with(AUTH_FROM_MUNGE, ID(2));
    me.munge_other_user = true;
    cr_assert_eq(decide(&me, &g), AUTH_WAY_REFUSED);
    assert_has(why, "; its munge credential is for another user: run this as the user of that job, ");
}

Test(auth, on_one_machine_the_kernel_decides) {
    uint32_t key;
    struct auth_side me = side_with(AUTH_FROM_FILE, ID(1));
    struct auth_greeting g = greeting_with(AUTH_FROM_HOME, ID(2));
    struct peer_owner ours = {.kind = PEER_OURS};
    struct peer_owner other = {.kind = PEER_OTHER_USER, .uid = 1001};
    struct peer_owner closed = {.kind = PEER_CLOSED};
    cr_assert_eq(auth_decide(&me, &g, &ours, &key, why), AUTH_WAY_PLAIN);
    cr_assert(auth_admits_plain(&me, &ours, why));
    cr_assert_eq(auth_decide(&me, &g, &other, &key, why), AUTH_WAY_REFUSED);
    cr_assert_str_eq(why, "what listens there belongs to another user of this machine (uid 1001): choose another port");
    cr_assert_not(auth_admits_plain(&me, &other, why));
    cr_assert_str_eq(why, "it belongs to another user (uid 1001)");
    cr_assert_eq(auth_decide(&me, &g, &closed, &key, why), AUTH_WAY_REFUSED);
    cr_assert_not(auth_admits_plain(&me, &closed, why));
    struct auth_side none = {.mode = AUTH_NONE};
    cr_assert(auth_admits_plain(&none, &other, why));
    cr_assert(auth_admits_plain(&none, &elsewhere, why));
}

Test(auth, whoever_has_nothing_is_open) {
    struct auth_side me = {.munge = AUTH_MUNGE_ABSENT};
    cr_assert(auth_is_open(&me));
    cr_assert(auth_admits_plain(&me, &elsewhere, why));
    me.mode = AUTH_ON;
    cr_assert_not(auth_is_open(&me));
    me = (struct auth_side){.local = true};
    cr_assert_not(auth_is_open(&me));
    cr_assert_not(auth_admits_plain(&me, &elsewhere, why));
    cr_assert_str_eq(why, "it comes from another machine, and this job has only one");
    me = side_with(AUTH_FROM_FILE, ID(1));
    cr_assert_not(auth_admits_plain(&me, &elsewhere, why));
    cr_assert_str_eq(why, "it came without a key; keys here: 1111111111111111 from --key-file");
}

Test(auth, many_keys_are_named_in_part) {
    char text[AUTH_KEYS_TEXT_MAX];
    struct auth_id ids[AUTH_KEYS_MAX];
    for (uint32_t i = 0; i < AUTH_KEYS_MAX; i++)
        ids[i] = (struct auth_id){ID(i + 1), AUTH_FROM_HOME};
    auth_keys_text(ids, 1, text);
    cr_assert_str_eq(text, "1111111111111111 from ~/.config/muster/key");
    auth_keys_text(ids, AUTH_KEYS_MAX, text);
    cr_assert_str_eq(text, "1111111111111111 from ~/.config/muster/key, 2222222222222222 from "
                           "~/.config/muster/key, 3333333333333333 from ~/.config/muster/key and 5 more");
    auth_id_to_text(&ids[9 - 2], text);
    cr_assert_str_eq(text, "8888888888888888");
}

/* ---- the text of a key ---- */

static const uint8_t secret[AUTH_SECRET_BYTES] = {0, 1, 0x7f, 0x80, 0xff, [31] = 0xa5};
#define TEXT "muster-key-1:00017f80ff0000000000000000000000000000000000000000000000000000a5"

static int read_text(const char *text, uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    return auth_key_from_text(text, strlen(text), "the key file '/k'", ret, err);
}

Test(auth, a_key_is_one_line) {
    char text[AUTH_KEY_TEXT_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    auth_key_to_text(secret, text);
    cr_assert_str_eq(text, TEXT);
    cr_assert_eq(strlen(text), sizeof text - 1);
    cr_assert_eq(read_text(text, back, NULL), 0);
    cr_assert_arr_eq(back, secret, sizeof secret);
    cr_assert_eq(read_text(" \n" TEXT "\r\n\n", back, NULL), 0, "blanks around it do not count");
}

Test(auth, a_bad_key_is_said_to_be_so_and_not_told) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "the key file '/k' is empty; \"muster keygen\" writes a key"},
        {" \n\n", "the key file '/k' is empty; \"muster keygen\" writes a key"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-2:00",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-1",
         "the key file '/k' is not a key of muster, which begins with \"muster-key-1:\"; \"muster keygen\" writes one"},
        {"muster-key-1:", "the key file '/k' is too short for a key: it has 0 of 64 digits; copy the whole line"},
        {"muster-key-1:00017f80",
         "the key file '/k' is too short for a key: it has 8 of 64 digits; copy the whole line"},
        {TEXT "\n" TEXT, "the key file '/k' holds more than one key: 78 bytes after its 64 digits; leave one line"},
        {"muster-key-1:00017f80fg0000000000000000000000000000000000000000000000000000a5",
         "the key file '/k' is damaged: after \"muster-key-1:\" stand 64 digits, 0-9 and a-f; copy it again"},
        {"muster-key-1:00017F80FF0000000000000000000000000000000000000000000000000000A5",
         "the key file '/k' is damaged: after \"muster-key-1:\" stand 64 digits, 0-9 and a-f; copy it again"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        uint8_t back[AUTH_SECRET_BYTES] = {7};
        cr_assert_eq(read_text(bad[i].text, back, &err), -EINVAL, "%s", bad[i].text);
        cr_assert_str_eq(err.text, bad[i].why);
        cr_assert_eq(back[0], 7, "nothing is written then");
    }
}

/* ---- munge's credentials ---- */

static struct auth_munge_decoded decoded(int code, const char *run_id, char payload[AUTH_MUNGE_PAYLOAD_MAX]) {
    return (struct auth_munge_decoded){.code = code,
                                       .text = "words of munge",
                                       .uid = 1000,
                                       .payload = payload,
                                       .len = auth_munge_payload(secret, run_id, payload)};
}

Test(auth, old_and_used_credentials_are_taken) {
    static const int good[] = {MUNGE_E_SUCCESS, MUNGE_E_EXPIRED, MUNGE_E_REPLAYED, MUNGE_E_REWOUND};
    char payload[AUTH_MUNGE_PAYLOAD_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint8_t back[AUTH_SECRET_BYTES] = {0};
        struct auth_munge_decoded d = decoded(good[i], "night-1", payload);
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), 0, "%d", good[i]);
        cr_assert_arr_eq(back, secret, sizeof secret);
        cr_assert_eq(auth_munge_judge(&d, 1000, NULL, back, why), 0, "an operator takes any run's");
    }
}

Test(auth, what_is_not_ours_is_refused) {
    char payload[AUTH_MUNGE_PAYLOAD_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    static const struct {
        int code, outcome;
        const char *why;
    } bad[] = {
        {MUNGE_E_SOCKET, AUTH_MUNGE_E_SILENT, "munged here does not answer"},
        {MUNGE_E_TIMEOUT, AUTH_MUNGE_E_SILENT, "munged here does not answer"},
        {MUNGE_E_INVALID, AUTH_MUNGE_E_UNFIT, "that node has a different munge.key"},
        {MUNGE_E_BAD_REALM, AUTH_MUNGE_E_UNFIT, "that node has a different munge.key"},
        {MUNGE_E_UNAUTHORIZED, AUTH_MUNGE_E_OTHER_USER,
         "its munge credential is for another user than this one (uid 1000)"},
        {8, AUTH_MUNGE_E_UNFIT, "munge reports: words of munge"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct auth_munge_decoded d = decoded(bad[i].code, "night-1", payload);
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), bad[i].outcome);
        cr_assert_str_eq(why, bad[i].why);
    }
    struct auth_munge_decoded d = decoded(MUNGE_E_SUCCESS, "night-1", payload);
    cr_assert_eq(auth_munge_judge(&d, 1001, "night-1", back, why), AUTH_MUNGE_E_OTHER_USER);
    cr_assert_str_eq(why, "its munge credential was made by another user (uid 1000)");
    cr_assert_eq(auth_munge_judge(&d, 1000, "night-2", back, why), AUTH_MUNGE_E_OTHER_RUN);
    cr_assert_str_eq(why, "the agent there is of the job 'night-1'");
    cr_assert_eq(auth_munge_judge(&d, 1000, "night", back, why), AUTH_MUNGE_E_OTHER_RUN, "nor a beginning of it");
}

Test(auth, a_payload_of_others_is_no_key) {
    uint8_t back[AUTH_SECRET_BYTES];
    static const char *const payloads[] = {"", "\n", "hello", "muster-key-1:00\nnight-1"};
    for (size_t i = 0; i < ARRAY_SIZE(payloads); i++) {
        struct auth_munge_decoded d = {.uid = 1000, .payload = payloads[i], .len = strlen(payloads[i])};
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), AUTH_MUNGE_E_UNFIT);
        cr_assert_str_eq(why, "its munge credential holds no key of muster's");
    }
    struct auth_munge_decoded none = {.uid = 1000};
    cr_assert_eq(auth_munge_judge(&none, 1000, NULL, back, why), AUTH_MUNGE_E_UNFIT);
}
