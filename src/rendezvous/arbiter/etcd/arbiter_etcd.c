#include "rendezvous/arbiter/etcd/arbiter_etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text/base64.h"
#include "base/text/parse.h"
#include "base/text/utf8.h"
#include "rendezvous/arbiter/arbiter_record.h"

#define DEFAULT_PORT 2379
/* A record and its base64. */
#define VALUE_TEXT_MAX ((size_t)ARBITER_RECORD_TEXT_MAX / 3 * 4 + 4)

/* --- questions -------------------------------------------------------------------------------- */

#define RANGE "{\"requestRange\":{\"key\":\"%s\"}}"
#define PUT "{\"requestPut\":{\"key\":\"%s\",\"value\":\"%s\"}}"

/* Both texts together, as base64. The caller frees it. */
static char *coded(const char *base, const char *text) {
    _cleanup_(freep) char *whole = xasprintf("%s%s", base, text);
    struct strbuf s = {0};
    base64_encode(whole, strlen(whole), &s);
    return strbuf_take(&s);
}

void arbiter_etcd_begin(struct arbiter_etcd_step *s, const char *base,
                        const struct arbiter_request *request, uint64_t hint) {
    *s = (struct arbiter_etcd_step){.base = base, .request = *request};
    s->write = request->kind == ARBITER_BEAT && hint != 0;
    s->mod = s->write ? hint : 0;
}

void arbiter_etcd_question(const struct arbiter_etcd_step *s, struct strbuf *body) {
    _cleanup_(freep) char *latest = coded(s->base, "latest"), *beat = coded(s->base, "beat");
    _cleanup_(freep) char *ranges = xasprintf(RANGE "," RANGE, latest, beat);
    if (!s->write) {
        strbuf_printf(body, "{\"success\":[%s]}", ranges);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    _cleanup_(freep) char *value = NULL, *epoch = NULL;
    strbuf_printf(
        body, "{\"compare\":[{\"target\":\"MOD\",\"key\":\"%s\",\"modRevision\":\"%" PRIu64 "\"}",
        latest, s->mod);
    if (s->request.kind == ARBITER_BEAT) {
        /* the value does not matter, only that it was written */
        strbuf_printf(&text, "%" PRIu32, s->request.epoch);
        value = coded("", strbuf_text(&text));
        strbuf_printf(body, "],\"success\":[" PUT, beat, value);
    } else {
        strbuf_printf(&text, "epoch-%" PRIu32, s->record.epoch);
        epoch = coded(s->base, strbuf_text(&text));
        strbuf_clear(&text);
        arbiter_record_write(&s->record, NULL, &text);
        value = coded("", strbuf_text(&text));
        strbuf_printf(body, ",{\"target\":\"CREATE\",\"key\":\"%s\",\"createRevision\":\"0\"}",
                      epoch);
        strbuf_printf(body, "],\"success\":[" PUT "," PUT, epoch, value, latest, value);
    }
    strbuf_printf(body, ",%s],\"failure\":[%s]}", ranges, ranges);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* The only pair in the answer to a range, or NULL: there is no such key. */
static int read_pair(const char *base, const char *name, const struct json *response,
                     const struct json **ret, struct err *err) {
    const struct json *range = json_member(response, "response_range"), *pairs;
    *ret = NULL;
    int r = json_as_object(range, "response_range", err);
    if (r < 0 || !json_has(range, "kvs"))
        return r;
    r = json_get_array(range, "kvs", 1, &pairs, err);
    if (r < 0 || json_count(pairs) == 0)
        return r;
    const struct json *pair = json_first(pairs);
    _cleanup_(freep) char *key = coded(base, name);
    const char *found;
    r = json_get_string(pair, "key", strlen(key), &found, err);
    if (r == 0 && strcmp(found, key) != 0)
        r = err_set(err, -EBADMSG, "it shows another key where '%s%s' was asked for", base, name);
    if (r == 0)
        *ret = pair;
    return r;
}

static int read_mod(const struct json *pair, uint64_t *ret, struct err *err) {
    int r = json_get_id(pair, "mod_revision", ret, err);
    return r == 0 && *ret == 0 ? err_set(err, -EBADMSG, "\"mod_revision\" is 0") : r;
}

static int read_latest(const struct json *pair, const char *base, struct arbiter_etcd_view *v,
                       struct err *err) {
    const char *value;
    int r = read_mod(pair, &v->mod, err);
    if (r == 0)
        r = json_get_string(pair, "value", VALUE_TEXT_MAX, &value, err);
    if (r < 0)
        return r;
    size_t len = strlen(value), n;
    _cleanup_(freep) uint8_t *text = malloc(BASE64_BYTES_MAX(len) + 1);
    if (text == NULL)
        return err_set(err, -ENOMEM, "no memory for a record of %zu bytes", len);
    if (base64_decode(value, len, text, &n) < 0)
        return err_set(err, -EBADMSG, "\"value\" is not base64");
    r = arbiter_record_read((const char *)text, n, &v->record, NULL, err);
    if (r < 0 && r != -ENOMEM) {
        err_prefix(err, "the key '%slatest' is not a record of this program's", base);
        return ARBITER_ETCD_RUINED;
    }
    return r;
}

int arbiter_etcd_read(const char *base, const char *text, size_t len, struct arbiter_etcd_view *ret,
                      struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    struct arbiter_etcd_view v = {0};
    const struct json *all, *latest, *beat;
    int r = json_parse(text, len, &JSON_LIMITS_DEFAULT, &doc, err);
    if (r == 0 && json_has(doc, "succeeded"))
        r = json_as_bool(json_member(doc, "succeeded"), "succeeded", &v.succeeded, err);
    if (r == 0)
        r = json_get_array(doc, "responses", 4, &all, err);
    if (r == 0 && json_count(all) < 2)
        r = err_set(err, -EBADMSG, "\"responses\" has less than 2 elements");
    if (r < 0)
        return r;
    const struct json *response = json_first(all);
    for (uint32_t skip = json_count(all) - 2; skip > 0; skip--)
        response = json_next(response);
    r = read_pair(base, "latest", response, &latest, err);
    if (r == 0)
        r = read_pair(base, "beat", json_next(response), &beat, err);
    if (r == 0 && latest != NULL)
        r = read_latest(latest, base, &v, err);
    if (r == 0 && beat != NULL)
        r = read_mod(beat, &v.record.beat, err);
    if (r == 0)
        *ret = v;
    return r;
}

/* --- what the answers mean -------------------------------------------------------------------- */

int arbiter_etcd_see(struct arbiter_etcd_seen *seen, const char *base,
                     const struct arbiter_etcd_view *view, struct err *err) {
    const struct arbiter_record *latest = &view->record;
    bool same = latest->epoch == seen->epoch && latest->leader.incarnation == seen->leader;
    if (latest->epoch > seen->epoch || same) {
        *seen = (struct arbiter_etcd_seen){latest->epoch, latest->leader.incarnation, view->mod};
        return 0;
    }
    if (latest->epoch == 0)
        return err_set(err, ARBITER_ETCD_RUINED,
                       "'%.100slatest' was removed, or the cluster was set up again", base);
    return err_set(err, ARBITER_ETCD_RUINED,
                   "'%.100slatest' was replaced by another job's (number %" PRIu32 " after %" PRIu32
                   "): the keys of this job were removed",
                   base, latest->epoch, seen->epoch);
}

/* The revision that was just seen becomes the condition. */
static int ask_to_write(struct arbiter_etcd_step *s, const struct arbiter_etcd_view *view,
                        const struct arbiter_record *record, struct err *err) {
    if (s->write && s->mod == view->mod)
        return err_set(err, ARBITER_ETCD_RUINED,
                       "'%sepoch-%" PRIu32 "' exists although '%slatest' has number %" PRIu32
                       ": another program changed these keys; use another run id",
                       s->base, s->record.epoch, s->base, view->record.epoch);
    s->write = true;
    s->mod = view->mod;
    s->record = *record;
    return ARBITER_ETCD_E_ASK;
}

int arbiter_etcd_next(struct arbiter_etcd_step *s, const struct arbiter_etcd_view *view,
                      enum arbiter_result *ret, struct err *err) {
    const struct arbiter_request *q = &s->request;
    struct arbiter_record record = {0};
    *ret = ARBITER_OK;
    if (q->kind == ARBITER_READ)
        return 0;
    if (q->kind != ARBITER_BEAT) {
        int r = arbiter_decide(q, &view->record, ret, &record, err);
        return r == ARBITER_E_WRITE ? ask_to_write(s, view, &record, err) : r;
    }
    bool own = arbiter_record_is_of(&view->record, q->epoch, q->leader.incarnation);
    return !own || (s->write && view->succeeded) ? 0 : ask_to_write(s, view, &record, err);
}

void arbiter_etcd_login(const char *user, const char *password, struct strbuf *body) {
    struct json_writer w = json_writer_of(body);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "name", user);
    json_write_string(&w, "password", password);
    json_write_object_end(&w);
}

int arbiter_etcd_token(const char *text, size_t len, char ret[ARBITER_ETCD_TOKEN_MAX + 1],
                       struct err *err) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const char *token;
    int r = json_parse(text, len, &JSON_LIMITS_DEFAULT, &doc, err);
    if (r == 0)
        r = json_get_string(doc, "token", ARBITER_ETCD_TOKEN_MAX, &token, err);
    if (r < 0)
        return r;
    bool good = token[0] != '\0';
    for (const char *p = token; *p != '\0'; p++)
        good = good && *p > ' ' && *p < 0x7f;
    if (!good)
        return err_set(err, -EBADMSG, "\"token\" is empty or not printable");
    memcpy(ret, token, strlen(token) + 1);
    return 0;
}

/* google.golang.org/grpc/codes */
enum { GRPC_INVALID = 3, GRPC_DENIED = 7, GRPC_PRECONDITION = 9, GRPC_UNAUTHENTICATED = 16 };

/* Copies etcd's error text into `words`, and returns its gRPC code; -EINVAL: there is none. */
static int read_refusal(const char *body, size_t len, char *words, size_t size, uint32_t *code) {
    _cleanup_(json_freep) struct json *doc = NULL;
    const char *text;
    int r = json_parse(body, len, &JSON_LIMITS_DEFAULT, &doc, NULL);
    if (r == 0)
        r = json_get_string(doc, json_has(doc, "message") ? "message" : "error", SIZE_MAX, &text,
                            NULL);
    if (r < 0)
        return -EINVAL;
    utf8_copy(words, size, text);
    for (char *p = words; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    if (json_get_u32(doc, "code", UINT32_MAX, code, NULL) < 0)
        *code = 0;
    return 0;
}

enum arbiter_etcd_refusal arbiter_etcd_refused(int status, const char *body, size_t len,
                                               struct err *text) {
    char words[ERR_TEXT_MAX / 2];
    uint32_t code;
    if (read_refusal(body, len, words, sizeof words, &code) < 0) {
        bool redirect = status >= 300 && status < 400;
        (void)err_set(text, -EPROTO, "HTTP status %d%s", status,
                      redirect        ? ", a redirect: it is not followed; name the right endpoint"
                      : status == 404 ? ": no etcd of version 3.4 or later is there"
                                      : ", and nothing about etcd");
        return status == 401   ? ARBITER_ETCD_LOG_IN
               : status == 403 ? ARBITER_ETCD_DENIED
                               : ARBITER_ETCD_ELSEWHERE;
    }
    (void)err_set(text, -EPROTO, "%s (HTTP status %d)", words, status);
    if (code == GRPC_UNAUTHENTICATED || status == 401)
        return ARBITER_ETCD_LOG_IN;
    if (code == GRPC_INVALID && (strstr(words, "user name is empty") != NULL ||
                                 strstr(words, "revision of auth store is old") != NULL))
        return ARBITER_ETCD_LOG_IN;
    if (code == GRPC_PRECONDITION && strstr(words, "authentication is not enabled") != NULL)
        return ARBITER_ETCD_NO_LOG_IN;
    return code == GRPC_INVALID || code == GRPC_DENIED ? ARBITER_ETCD_DENIED
                                                       : ARBITER_ETCD_ELSEWHERE;
}

int arbiter_etcd_endpoint(const char *text, struct arbiter_etcd_endpoint *ret, struct err *err) {
    struct arbiter_etcd_endpoint e = {.port = DEFAULT_PORT};
    e.https = text_begins(text, "https://");
    e.http = text_begins(text, "http://");
    _cleanup_(freep) char *all =
        xstrdup(text + (e.https || e.http ? strlen("http://") + e.https : 0));
    size_t len = strlen(all);
    if (len > 0 && all[len - 1] == '/' && (e.https || e.http))
        all[len - 1] = '\0';
    /* "[host]:port"; "host:port" with one colon; else all of it is the host */
    char *host = all, *colon = strchr(all, ':'), *end = strchr(all, ']');
    const char *port = NULL;
    if (all[0] == '[' && end != NULL) {
        host = all + 1;
        port = end[1] == ':' ? end + 2 : end[1] != '\0' ? "" : NULL;
        *end = '\0';
    } else if (colon != NULL && colon == strrchr(all, ':')) {
        port = colon + 1;
        *colon = '\0';
    }
    bool good = host[0] != '\0' && strlen(host) < sizeof e.host &&
                (port == NULL || (parse_port(port, &e.port) == 0 && e.port != 0));
    for (const char *c = host; good && *c != '\0'; c++)
        good = *c > ' ' && *c < 0x7f && strchr("/@?#[]\\\"", *c) == NULL;
    if (!good)
        return err_set(err, -EINVAL,
                       "'%.128s' is not an endpoint of etcd: give host:port, or [address]:port",
                       text);
    memcpy(e.host, host, strlen(host));
    *ret = e;
    return 0;
}
