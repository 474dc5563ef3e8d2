#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"
#include "io/clock.h"
#include "io/net/http.h"
#include "io/net/tls.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd.h"

/* The least part of a request's time that one endpoint gets. */
#define SHARE_MIN_NS NS_PER_S
/* The limit of logins for one request: a token can expire before it is used, but not every time. */
#define LOGINS_MAX 3

struct endpoint {
    char *name; /* "host:port" */
    struct http_client *http;
    char error[ERR_TEXT_MAX]; /* of its last failure */
};

struct etcd {
    struct arbiter arbiter; /* first */
    struct loop *loop;
    struct tls_client *tls;
    struct endpoint endpoints[ARBITER_ETCD_ENDPOINTS_MAX];
    size_t n;
    char *base, *user, *password;

    struct arbiter_asked *running; /* the first that waits, while it is being sent */
    struct arbiter_etcd_step step;
    size_t current;  /* endpoint: the one that worked, or the next to try */
    size_t tried;    /* endpoints that failed the running request */
    unsigned logins; /* for the running request */
    bool logging_in; /* the current question is the login */
    bool no_users;   /* etcd has no authentication enabled */
    char token[ARBITER_ETCD_TOKEN_MAX + 1];
    struct arbiter_etcd_seen seen;
    char last_text[RDZV_REASON_MAX / 4]; /* of the last request that failed */
};

static struct etcd *etcd_of(struct arbiter *a) { return CONTAINER_OF(a, struct etcd, arbiter); }

/* --- answers ---------------------------------------------------------------------------------- */

static void etcd_work(struct arbiter *arbiter);

static void complete_running(struct etcd *e, enum arbiter_result result, const char *text) {
    arbiter_done(&e->arbiter, TAKE_PTR(e->running), result, text);
    etcd_work(&e->arbiter);
}

static void fail_running(struct etcd *e, const char *text) {
    utf8_copy(e->last_text, sizeof e->last_text, text);
    complete_running(e, ARBITER_UNREACHABLE, text);
}

/* Of a request for which no time is left: the one before it took all. */
static const char *late_text(const struct etcd *e) {
    return e->last_text[0] != '\0' ? e->last_text : "etcd did not answer in time";
}

/* Reports each endpoint's error, cut so that all fit. */
static void fail_unreachable(struct etcd *e) {
    if (e->tried == 0) {
        complete_running(e, ARBITER_UNREACHABLE, late_text(e));
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    size_t room = (sizeof e->running->answer.text - 64) / e->tried;
    strbuf_add(&text, "etcd did not answer");
    for (size_t i = 0; i < e->tried; i++) {
        const struct endpoint *p = &e->endpoints[(e->current + e->n - e->tried + i) % e->n];
        char one[sizeof e->running->answer.text];
        (void)snprintf(one, MIN2(room, sizeof one), "%s: %s", p->name, p->error);
        strbuf_printf(&text, "%s%s", i == 0 ? ": " : "; ", one);
    }
    if (e->tried < e->n)
        strbuf_printf(&text, "; %zu more not asked in time", e->n - e->tried);
    fail_running(e, strbuf_text(&text));
}

/* --- questions -------------------------------------------------------------------------------- */

static void on_http(void *arg, const struct http_answer *answer);

static void begin(struct etcd *e) {
    const struct arbiter_request *q = &e->running->answer.request;
    bool ours = e->seen.epoch == q->epoch && e->seen.leader == q->leader.incarnation;
    arbiter_etcd_begin(&e->step, e->base, q, ours ? e->seen.mod : 0);
}

static uint64_t share_of(const struct etcd *e, uint64_t left_ns) {
    uint64_t share = left_ns / (e->n - e->tried);
    return MIN2(MAX2(share, SHARE_MIN_NS), left_ns);
}

static void ask_question(struct etcd *e) {
    uint64_t now = clock_now_ns(), deadline = e->running->deadline_ns;
    if (e->tried == e->n || now >= deadline) {
        fail_unreachable(e);
        return;
    }
    _cleanup_(strbuf_fini) struct strbuf body = {0};
    e->logging_in = e->user != NULL && e->token[0] == '\0' && !e->no_users;
    if (e->logging_in)
        arbiter_etcd_login(e->user, e->password, &body);
    else
        arbiter_etcd_question(&e->step, &body);
    struct http_request request = {
        .path = e->logging_in ? ARBITER_ETCD_LOGIN : ARBITER_ETCD_TXN,
        .authorization = !e->logging_in && e->token[0] != '\0' ? e->token : NULL,
        .body = strbuf_text(&body),
        .len = body.len,
        .timeout_ns = share_of(e, deadline - now),
    };
    http_ask(e->endpoints[e->current].http, &request, on_http, e);
    if (e->logging_in)
        explicit_bzero(body.data, body.len);
}

static void etcd_work(struct arbiter *arbiter) {
    struct etcd *e = etcd_of(arbiter);
    struct arbiter_asked *q;
    while (e->running == NULL &&
           (q = LIST_FIRST(struct arbiter_asked, &arbiter->waiting, link)) != NULL) {
        if (clock_now_ns() >= q->deadline_ns) {
            arbiter_done(arbiter, q, ARBITER_UNREACHABLE, late_text(e));
            continue;
        }
        e->running = q;
        e->tried = 0;
        e->logins = 0;
        begin(e);
        ask_question(e);
        return;
    }
}

/* --- results of questions --------------------------------------------------------------------- */

/* It may have been executed nevertheless: the request begins again at another endpoint. */
static void endpoint_failed(struct etcd *e, const char *text) {
    struct endpoint *p = &e->endpoints[e->current];
    (void)snprintf(p->error, sizeof p->error, "%s", text);
    e->current = (e->current + 1) % e->n;
    e->tried++;
    begin(e);
    ask_question(e);
}

/* All endpoints would give the same answer. */
static void denied(struct etcd *e, const char *text) {
    _cleanup_(strbuf_fini) struct strbuf whole = {0};
    strbuf_printf(&whole, "etcd at %s: %s", e->endpoints[e->current].name, text);
    fail_running(e, strbuf_text(&whole));
}

static void on_refused(struct etcd *e, const struct http_answer *a) {
    struct err why = {0};
    switch (arbiter_etcd_refused(a->status, a->body, a->len, &why)) {
    case ARBITER_ETCD_ELSEWHERE: endpoint_failed(e, why.text); return;
    case ARBITER_ETCD_LOG_IN:
        if (e->user != NULL && !e->logging_in && e->logins < LOGINS_MAX) {
            e->logins++;
            e->token[0] = '\0';
            e->no_users = false;
            ask_question(e);
            return;
        }
        if (e->user == NULL)
            err_prefix(&why, "it wants a user and a password, and none were given");
        denied(e, why.text);
        return;
    case ARBITER_ETCD_NO_LOG_IN:
        if (e->logging_in) {
            e->no_users = true;
            ask_question(e);
            return;
        }
        denied(e, why.text);
        return;
    case ARBITER_ETCD_DENIED:
        if (e->user != NULL)
            err_prefix(&why, "user '%.64s'", e->user);
        denied(e, why.text);
        return;
    }
    assert_not_reached();
}

static void on_login(struct etcd *e, const struct http_answer *a) {
    struct err err = {0};
    if (arbiter_etcd_token(a->body, a->len, e->token, &err) < 0) {
        err_prefix(&err, "its answer to a login makes no sense");
        endpoint_failed(e, err.text);
        return;
    }
    ask_question(e);
}

/* The answer includes a record that others have written there since, if any. */
static void ruined(struct etcd *e, const struct arbiter_record *found, const char *text) {
    _cleanup_(strbuf_fini) struct strbuf whole = {0};
    strbuf_printf(&whole, "etcd at %s: %s", e->endpoints[e->current].name, text);
    if (found != NULL && found->leader.incarnation != e->seen.leader)
        e->running->answer.record = *found;
    complete_running(e, ARBITER_RUINED, strbuf_text(&whole));
}

static void on_view(struct etcd *e, const struct http_answer *a) {
    struct arbiter_etcd_view view;
    struct err err = {0};
    enum arbiter_result result;
    int r = arbiter_etcd_read(e->base, a->body, a->len, &view, &err);
    bool readable = r != ARBITER_ETCD_RUINED;
    if (r == 0)
        r = arbiter_etcd_see(&e->seen, e->base, &view, &err);
    if (r == ARBITER_ETCD_RUINED) {
        ruined(e, readable ? &view.record : NULL, err.text);
        return;
    }
    if (r < 0) {
        err_prefix(&err, "its answer makes no sense");
        endpoint_failed(e, err.text);
        return;
    }
    r = arbiter_etcd_next(&e->step, &view, &result, &err);
    if (r == ARBITER_ETCD_E_ASK) {
        ask_question(e);
    } else if (r == ARBITER_ETCD_RUINED) {
        ruined(e, NULL, err.text);
    } else if (r < 0) {
        denied(e, err.text);
    } else {
        e->running->answer.record = view.record;
        complete_running(e, result, "");
    }
}

static void on_http(void *arg, const struct http_answer *a) {
    struct etcd *e = arg;
    if (a->status == 0)
        endpoint_failed(e, a->text);
    else if (a->status != 200)
        on_refused(e, a);
    else if (e->logging_in)
        on_login(e, a);
    else
        on_view(e, a);
}

static void etcd_gone(struct arbiter *a, struct arbiter_asked *q) {
    struct etcd *e = etcd_of(a);
    if (q != e->running)
        return;
    http_cancel(e->endpoints[e->current].http);
    e->running = NULL;
}

static void free_secret(char *secret) {
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void etcd_free(struct arbiter *a) {
    struct etcd *e = etcd_of(a);
    for (size_t i = 0; i < e->n; i++) {
        http_client_free(e->endpoints[i].http);
        free(e->endpoints[i].name);
    }
    tls_client_free(e->tls);
    free(e->base);
    free(e->user);
    free_secret(e->password);
    explicit_bzero(e->token, sizeof e->token);
    free(e);
}

static const struct arbiter_ops etcd_ops = {
    .work = etcd_work, .gone = etcd_gone, .free = etcd_free};

static int check_config(const struct arbiter_etcd_config *c, struct err *err) {
    if (c->n == 0 || c->n > ARBITER_ETCD_ENDPOINTS_MAX)
        return err_set(err, -EINVAL, "%zu endpoints of etcd were given: it takes 1 to %d", c->n,
                       ARBITER_ETCD_ENDPOINTS_MAX);
    if (c->run_id == NULL || c->run_id[0] == '\0' || strlen(c->run_id) >= RDZV_RUN_ID_MAX)
        return err_set(err, -EINVAL, "etcd needs a run id of 1 to %d bytes", RDZV_RUN_ID_MAX - 1);
    if (c->prefix != NULL && strlen(c->prefix) > ARBITER_ETCD_PREFIX_MAX)
        return err_set(err, -EINVAL, "the prefix of etcd's keys is longer than %d bytes",
                       ARBITER_ETCD_PREFIX_MAX);
    if ((c->user == NULL) != (c->password == NULL))
        return err_set(err, -EINVAL, "etcd takes a user and a password: %s is missing",
                       c->user == NULL ? "the user" : "the password");
    return 0;
}

static int read_endpoints(const struct arbiter_etcd_config *c,
                          struct arbiter_etcd_endpoint ret[ARBITER_ETCD_ENDPOINTS_MAX],
                          bool *ret_tls, struct err *err) {
    bool tls = c->tls;
    for (size_t i = 0; i < c->n; i++) {
        int r = arbiter_etcd_endpoint(c->endpoints[i], &ret[i], err);
        if (r < 0)
            return r;
        tls = tls || ret[i].https;
    }
    for (size_t i = 0; tls && i < c->n; i++)
        if (ret[i].http)
            return err_set(err, -EINVAL,
                           "the endpoint '%.128s' of etcd is without TLS, others are "
                           "with it: make them all https:// or none",
                           c->endpoints[i]);
    if (!tls && (c->cacert != NULL || c->cert != NULL || c->key != NULL))
        return err_set(err, -EINVAL,
                       "certificates were given for etcd, but its endpoints are "
                       "without TLS: ask for TLS, or leave the certificates out");
    *ret_tls = tls;
    return 0;
}

static int make_clients(struct etcd *e, const struct arbiter_etcd_endpoint *endpoints, size_t n,
                        struct err *err) {
    for (size_t i = 0; i < n; i++) {
        struct http_config config = {.host = endpoints[i].host,
                                     .port = endpoints[i].port,
                                     .tls = e->tls,
                                     .max_body = ARBITER_ETCD_ANSWER_MAX};
        bool v6 = strchr(config.host, ':') != NULL;
        e->endpoints[i].name = xasprintf("%s%s%s:%u", v6 ? "[" : "", config.host, v6 ? "]" : "",
                                         (unsigned)config.port);
        e->n = i + 1;
        int r = http_client_new(e->loop, &config, &e->endpoints[i].http, err);
        if (r < 0) {
            err_prefix(err, "etcd at %s", e->endpoints[i].name);
            return r;
        }
    }
    return 0;
}

int arbiter_etcd_new(struct loop *loop, const struct arbiter_etcd_config *config,
                     struct arbiter **ret, struct err *err) {
    struct arbiter_etcd_endpoint endpoints[ARBITER_ETCD_ENDPOINTS_MAX];
    bool tls = false;
    int r = check_config(config, err);
    if (r == 0)
        r = read_endpoints(config, endpoints, &tls, err);
    if (r < 0)
        return r;
    struct etcd *e = xcalloc(1, sizeof *e);
    e->loop = loop;
    arbiter_init(&e->arbiter, &etcd_ops, loop, config->timeout_ns);
    const char *prefix = config->prefix != NULL ? config->prefix : ARBITER_ETCD_PREFIX;
    size_t len = strlen(prefix);
    while (len > 0 && prefix[len - 1] == '/')
        len--;
    e->base = xasprintf("%.*s/%s/", (int)len, prefix, config->run_id);
    if (config->user != NULL) {
        e->user = xstrdup(config->user);
        e->password = xstrdup(config->password);
    }
    if (tls) {
        struct tls_config files = {
            .cacert = config->cacert, .cert = config->cert, .key = config->key};
        r = tls_client_new(&files, &e->tls, err);
    }
    if (r == 0)
        r = make_clients(e, endpoints, config->n, err);
    if (r < 0)
        arbiter_free(&e->arbiter);
    else
        *ret = &e->arbiter;
    return r;
}
