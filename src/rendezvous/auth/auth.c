#include "rendezvous/auth/auth.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"

const char *const auth_source_words[AUTH_SOURCE_MAX + 1] = {
    [AUTH_FROM_FILE] = "file",   [AUTH_FROM_ENV] = "env",   [AUTH_FROM_HEAD] = "head",
    [AUTH_FROM_JOB_DIR] = "dir", [AUTH_FROM_HOME] = "home", [AUTH_FROM_MUNGE] = "munge",
    [AUTH_FROM_RUN_DIR] = "run",
};

const char *const auth_state_words[AUTH_STATE_COUNT] = {
    [AUTH_STATE_KEYS] = "keys",
    [AUTH_STATE_OPEN] = "open",
    [AUTH_STATE_LOCAL] = "local",
    [AUTH_STATE_NONE] = "none",
};

bool auth_source_is_given(enum auth_source source) {
    return source == AUTH_FROM_FILE || source == AUTH_FROM_ENV || source == AUTH_FROM_HEAD;
}

void auth_id_to_text(const struct auth_id *id, char out[AUTH_ID_TEXT_MAX]) {
    (void)snprintf(out, AUTH_ID_TEXT_MAX, "%016" PRIx64, id->id);
}

#define KEYGEN "run \"muster keygen\" and copy ~/.config/muster/key to all nodes"
#define TOGETHER "start all nodes by one \"muster run\" (with -H, or in Slurm)"
#define ONE_OF_THEM \
    "only the nodes that were started together have that key; run this command on one of them"

/* there: to do for an agent without a key; here: so that this side has its key. */
static const struct {
    const char *text, *there, *here;
} sources[AUTH_SOURCE_MAX + 1] = {
    [AUTH_FROM_FILE] = {"--key-file", "give the same --key-file on that node",
                        "give --key-file here, with the file that is given there"},
    [AUTH_FROM_ENV] = {"MUSTER_KEY", "set the same MUSTER_KEY on that node",
                       "set MUSTER_KEY here as it is set there"},
    [AUTH_FROM_HEAD] = {"the muster run that started the job", TOGETHER, ONE_OF_THEM},
    [AUTH_FROM_JOB_DIR] = {"the job's folder", "give all nodes the same dir: endpoint",
                           "use the same dir: endpoint here, or --key-file with the file \"key\" "
                           "of the job's folder"},
    [AUTH_FROM_HOME] = {"~/.config/muster/key",
                        "copy ~/.config/muster/key to that node (mode 0600)",
                        "copy ~/.config/muster/key from there to this node (mode 0600)"},
    [AUTH_FROM_MUNGE] = {"munge", "start munged on that node; or " KEYGEN,
                         "start munged here with the munge.key of that node; or " KEYGEN},
    [AUTH_FROM_RUN_DIR] = {"a job of this machine", TOGETHER, ONE_OF_THEM},
};

static enum auth_source first_source(const struct auth_id *ids, uint32_t n) {
    return n > 0 ? ids[0].source : AUTH_FROM_MUNGE;
}

void auth_keys_text(const struct auth_id *ids, uint32_t n, char out[AUTH_KEYS_TEXT_MAX]) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    for (uint32_t i = 0; i < n && i < AUTH_KEYS_NAMED; i++)
        strbuf_printf(&s, "%s%016" PRIx64 " from %s", i > 0 ? ", " : "", ids[i].id,
                      sources[ids[i].source].text);
    if (n > AUTH_KEYS_NAMED)
        strbuf_printf(&s, " and %" PRIu32 " more", n - AUTH_KEYS_NAMED);
    (void)snprintf(out, AUTH_KEYS_TEXT_MAX, "%s", strbuf_text(&s));
}

/* What the agent there takes. */
static void say_theirs(const struct auth_greeting *g, struct strbuf *s) {
    char keys[AUTH_KEYS_TEXT_MAX];
    auth_keys_text(g->ids, g->n_keys, keys);
    if (g->n_keys > 0)
        strbuf_printf(s, "the agent there admits only those who have its key (%s)", keys);
    else if (g->munge[0] != '\0')
        strbuf_add(s, "the agent there admits only those who can read its key through munge");
    else if (g->open)
        strbuf_add(s, "the agent there has no key and admits anybody");
    else
        strbuf_add(s, "the agent there admits only its own machine: its job runs there alone, or "
                      "has no key yet");
}

/* What there is here. */
static void say_ours(const struct auth_side *me, const struct auth_greeting *g, struct strbuf *s) {
    char keys[AUTH_KEYS_TEXT_MAX];
    auth_keys_text(me->ids, me->n_keys, keys);
    if (me->n_keys > 0)
        strbuf_printf(s, "%s the key%s here %s %s", g->open ? ", but" : ";",
                      me->n_keys > 1 ? "s" : "", me->n_keys > 1 ? "are" : "is", keys);
    else if (me->munge == AUTH_MUNGE_ANSWERS && g->munge[0] == '\0')
        strbuf_printf(s, "%s munge is used here", g->open ? ", but" : ";");
    else
        strbuf_add(s, ", and there is no key here");
    if (g->munge[0] == '\0')
        return;
    if (me->munge_why != NULL)
        strbuf_printf(s, "; %s", me->munge_why);
    else if (me->munge == AUTH_MUNGE_UNUSED)
        strbuf_add(s, "; munge is not asked where a key is given");
    else
        strbuf_add(s, "; munged does not run here");
}

static const char *remedy_there(const struct auth_side *me) {
    if (me->n_keys == 0 && me->munge != AUTH_MUNGE_ANSWERS)
        return KEYGEN;
    return sources[first_source(me->ids, me->n_keys)].there;
}

static const char *remedy_here(const struct auth_side *me, const struct auth_greeting *g) {
    if (me->munge_other_user)
        return "run this as the user of that job, who must have the same uid on all nodes; or with "
               "another endpoint";
    return sources[first_source(g->ids, g->n_keys)].here;
}

static const char *remedy(const struct auth_side *me, const struct auth_greeting *g) {
    if (g->open)
        return remedy_there(me);
    if (me->n_keys > 0 && auth_source_is_given(me->ids[0].source))
        return "give both nodes the same key, or neither (a key that is given excludes all others)";
    return remedy_here(me, g);
}

/* Perhaps both are of one file, which was replaced while the job runs. */
static bool is_of_one_file(const struct auth_side *me, const struct auth_greeting *g) {
    enum auth_source source = first_source(g->ids, g->n_keys);
    return me->n_keys > 0 && me->ids[0].source == source &&
           (source == AUTH_FROM_FILE || source == AUTH_FROM_HOME || source == AUTH_FROM_JOB_DIR);
}

static enum auth_way refuse(const struct auth_side *me, const struct auth_greeting *g, char *why) {
    _cleanup_(strbuf_fini) struct strbuf s = {0};
    say_theirs(g, &s);
    if (me->mode == AUTH_NONE)
        strbuf_add(&s, ", and --auth=none is given here: leave it out, or give it on all nodes");
    else if (g->open || g->n_keys > 0 || g->munge[0] != '\0') {
        say_ours(me, g, &s);
        strbuf_printf(&s, ": %s%s", remedy(me, g), g->open ? ", or --auth=none on all nodes" : "");
        if (is_of_one_file(me, g))
            strbuf_add(&s,
                       "; a job keeps the key with which it began, even if the file has changed");
    }
    (void)snprintf(why, AUTH_WHY_MAX, "%s", strbuf_text(&s));
    return AUTH_WAY_REFUSED;
}

/* ---- the connecting side ---- */

static bool common_key(const struct auth_side *me, const struct auth_greeting *g, uint32_t *ret) {
    for (uint32_t i = 0; i < me->n_keys; i++)
        for (uint32_t j = 0; j < g->n_keys; j++)
            if (me->ids[i].id == g->ids[j].id) {
                *ret = i;
                return true;
            }
    return false;
}

/* Whether an answer of munge could change the decision. */
static bool must_ask_munge(const struct auth_side *me, const struct auth_greeting *g) {
    if (me->munge == AUTH_MUNGE_UNUSED || me->munge == AUTH_MUNGE_ABSENT || me->munge_why != NULL)
        return false;
    if (g->munge[0] != '\0') /* one that did not answer is tried again: only it can help */
        return true;
    return me->n_keys == 0 && g->open && me->munge == AUTH_MUNGE_UNKNOWN;
}

static enum auth_way decide_elsewhere(const struct auth_side *me, const struct auth_greeting *g,
                                      uint32_t *ret_key, char *why) {
    if (me->mode == AUTH_NONE)
        return g->open ? AUTH_WAY_PLAIN : refuse(me, g, why);
    if (common_key(me, g, ret_key))
        return AUTH_WAY_TLS;
    if (must_ask_munge(me, g))
        return AUTH_WAY_MUNGE;
    if (g->open && auth_is_open(me))
        return AUTH_WAY_PLAIN;
    return refuse(me, g, why);
}

enum auth_way auth_decide(const struct auth_side *me, const struct auth_greeting *g,
                          const struct peer_owner *peer, uint32_t *ret_key,
                          char why[AUTH_WHY_MAX]) {
    switch (peer->kind) {
    case PEER_OURS: return AUTH_WAY_PLAIN;
    case PEER_OTHER_USER:
        (void)snprintf(why, AUTH_WHY_MAX,
                       "what listens there belongs to another user of this machine (uid %" PRIu32
                       "): choose another port",
                       peer->uid);
        return AUTH_WAY_REFUSED;
    case PEER_CLOSED:
        (void)snprintf(why, AUTH_WHY_MAX, "what listened there has closed the connection");
        return AUTH_WAY_REFUSED;
    case PEER_ELSEWHERE:
    case PEER_UNKNOWN:
    case PEER_TRANSLATED:
    case PEER_OWNER_KIND_COUNT: break;
    }
    return decide_elsewhere(me, g, ret_key, why);
}

/* ---- the accepting side ---- */

bool auth_is_open(const struct auth_side *me) {
    if (me->mode == AUTH_NONE)
        return true;
    bool knows_none = me->munge != AUTH_MUNGE_UNKNOWN && me->munge != AUTH_MUNGE_ANSWERS;
    return me->mode == AUTH_AUTO && !me->local && me->n_keys == 0 && knows_none;
}

bool auth_admits_plain(const struct auth_side *me, const struct peer_owner *peer,
                       char why[AUTH_WHY_MAX]) {
    char keys[AUTH_KEYS_TEXT_MAX];
    bool is_here = peer->kind == PEER_OTHER_USER || peer->kind == PEER_CLOSED;
    if (peer->kind == PEER_OURS || (is_here ? me->mode == AUTH_NONE : auth_is_open(me)))
        return true;
    auth_keys_text(me->ids, me->n_keys, keys);
    if (peer->kind == PEER_OTHER_USER)
        (void)snprintf(why, AUTH_WHY_MAX, "it belongs to another user (uid %" PRIu32 ")",
                       peer->uid);
    else if (is_here)
        (void)snprintf(why, AUTH_WHY_MAX,
                       "it has closed its end, so its owner is not known any more");
    else if (me->local)
        (void)snprintf(why, AUTH_WHY_MAX,
                       "it comes from another machine, and this job has only one");
    else if (me->n_keys > 0)
        (void)snprintf(why, AUTH_WHY_MAX, "it came without a key; keys here: %s", keys);
    else
        (void)snprintf(why, AUTH_WHY_MAX, "it came without a key, and munge is used here");
    return false;
}

#define DIGITS (2 * (size_t)AUTH_SECRET_BYTES)
#define PREFIX_LEN (sizeof(AUTH_KEY_PREFIX) - 1)

void auth_key_to_text(const uint8_t secret[AUTH_SECRET_BYTES], char out[AUTH_KEY_TEXT_MAX]) {
    static const char digits[] = "0123456789abcdef";
    memcpy(out, AUTH_KEY_PREFIX, PREFIX_LEN);
    for (size_t i = 0; i < AUTH_SECRET_BYTES; i++) {
        out[PREFIX_LEN + 2 * i] = digits[secret[i] >> 4];
        out[PREFIX_LEN + 2 * i + 1] = digits[secret[i] & 15];
    }
    out[PREFIX_LEN + DIGITS] = '\0';
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static int digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int auth_key_from_text(const char *text, size_t len, const char *what,
                       uint8_t ret[AUTH_SECRET_BYTES], struct err *err) {
    while (len > 0 && is_blank(text[len - 1]))
        len--;
    while (len > 0 && is_blank(*text)) {
        text++;
        len--;
    }
    if (len == 0)
        return err_set(err, -EINVAL, "%s is empty; \"muster keygen\" writes a key", what);
    if (len < PREFIX_LEN || memcmp(text, AUTH_KEY_PREFIX, PREFIX_LEN) != 0)
        return err_set(err, -EINVAL,
                       "%s is not a key of muster, which begins with \"" AUTH_KEY_PREFIX
                       "\"; \"muster keygen\" writes one",
                       what);
    text += PREFIX_LEN;
    len -= PREFIX_LEN;
    if (len < DIGITS)
        return err_set(err, -EINVAL,
                       "%s is too short for a key: it has %zu of %zu digits; copy the whole line",
                       what, len, DIGITS);
    if (len > DIGITS)
        return err_set(err, -EINVAL,
                       "%s holds more than one key: %zu bytes after its %zu digits; leave one line",
                       what, len - DIGITS, DIGITS);
    uint8_t secret[AUTH_SECRET_BYTES];
    int bad = 0;
    for (size_t i = 0; i < AUTH_SECRET_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        bad |= high < 0 || low < 0;
        secret[i] = (uint8_t)(bad != 0 ? 0 : high << 4 | low);
    }
    if (!bad)
        memcpy(ret, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    return bad ? err_set(err, -EINVAL,
                         "%s is damaged: after \"" AUTH_KEY_PREFIX
                         "\" stand %zu digits, 0-9 and a-f; copy it again",
                         what, DIGITS)
               : 0;
}

/* ---- in a credential of munge ---- */

size_t auth_munge_payload(const uint8_t secret[AUTH_SECRET_BYTES], const char *run_id,
                          char out[AUTH_MUNGE_PAYLOAD_MAX]) {
    auth_key_to_text(secret, out);
    size_t at = strlen(out);
    int n = snprintf(out + at, AUTH_MUNGE_PAYLOAD_MAX - at, "\n%s", run_id);
    return MIN2(at + (size_t)n, AUTH_MUNGE_PAYLOAD_MAX - 1);
}

#define UNFIT(outcome, why, ...) ((void)snprintf(why, AUTH_WHY_MAX, __VA_ARGS__), (outcome))

static int judge_code(const struct auth_munge_decoded *d, uid_t own, char *why) {
    switch (d->code) {
    case MUNGE_E_SUCCESS:
    case MUNGE_E_EXPIRED:
    case MUNGE_E_REWOUND: /* clocks of nodes differ */
    case MUNGE_E_REPLAYED: return 0;
    case MUNGE_E_SOCKET:
    case MUNGE_E_TIMEOUT: return UNFIT(AUTH_MUNGE_E_SILENT, why, "munged here does not answer");
    case MUNGE_E_BAD_REALM:
    case MUNGE_E_INVALID:
        return UNFIT(AUTH_MUNGE_E_UNFIT, why, "that node has a different munge.key");
    case MUNGE_E_UNAUTHORIZED:
        return UNFIT(AUTH_MUNGE_E_OTHER_USER, why,
                     "its munge credential is for another user than this one (uid %u)",
                     (unsigned)own);
    default: return UNFIT(AUTH_MUNGE_E_UNFIT, why, "munge reports: %s", d->text);
    }
}

int auth_munge_judge(const struct auth_munge_decoded *d, uid_t own, const char *run_id,
                     uint8_t ret[AUTH_SECRET_BYTES], char why[AUTH_WHY_MAX]) {
    int r = judge_code(d, own, why);
    if (r != 0)
        return r;
    if (d->uid != own)
        return UNFIT(AUTH_MUNGE_E_OTHER_USER, why,
                     "its munge credential was made by another user (uid %u)", (unsigned)d->uid);
    const char *end = d->payload != NULL ? memchr(d->payload, '\n', d->len) : NULL;
    uint8_t secret[AUTH_SECRET_BYTES];
    if (end == NULL ||
        auth_key_from_text(d->payload, (size_t)(end - d->payload), "it", secret, NULL) < 0)
        return UNFIT(AUTH_MUNGE_E_UNFIT, why, "its munge credential holds no key of muster's");
    size_t len = d->len - (size_t)(end + 1 - d->payload);
    bool fits = run_id == NULL || (strlen(run_id) == len && memcmp(run_id, end + 1, len) == 0);
    if (fits)
        memcpy(ret, secret, sizeof secret);
    explicit_bzero(secret, sizeof secret);
    if (!fits)
        return UNFIT(AUTH_MUNGE_E_OTHER_RUN, why, "the agent there is of the job '%.*s'",
                     (int)MIN2(len, (size_t)AUTH_RUN_ID_MAX), end + 1);
    return 0;
}
