/* The arbiter over etcd, which a test controls by lines (tests/e2e/test_etcd.py).
 *
 *     arbiter_etcd [--prefix P] [--user U --password P] [--tls] [--cacert F] [--cert F --key F] [--timeout-ms N]
 *                  RUN_ID ENDPOINT...
 *
 * Standard input: "read", "beat E WHO", "claim E WHO [idle]", "close E WHO OUTCOME", "stalled". Each is answered by one
 * line of JSON, in the order in which answers come. "stalled" reports the longest time that the loop has been blocked
 * since the last "stalled". If the configuration is refused, it prints one line and exits with status 2. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/text/parse.h"
#include "io/clock.h"
#include "rendezvous/arbiter/etcd/arbiter_etcd_io.h"

#define TICK_NS (5 * NS_PER_MS)

static struct loop *loop;
static struct arbiter *arbiter;
static struct loop_timer *tick;
static uint64_t expected_ns, stalled_ns;
static struct strbuf input;

static void say(struct strbuf *line) {
    strbuf_add_char(line, '\n');
    if (write(1, line->data, line->len) != (ssize_t)line->len)
        _exit(3);
}

static void on_answer(void *arg, const struct arbiter_answer *a) {
    (void)arg;
    static const char *const kinds[] = {"", "read", "claim", "beat", "close", "vacate"};
    static const char *const results[] = {"", "ok", "lost", "unreachable", "ruined"};
    static const char *const outcomes[] = {"", "success", "failed"};
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    struct json_writer w = json_writer_of(&line);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "asked", kinds[a->request.kind]);
    json_write_string(&w, "result", results[a->result]);
    json_write_u64(&w, "ms", (clock_now_ns() - a->started_ns) / NS_PER_MS);
    if (a->record.vacant)
        json_write_bool(&w, "vacant", true);
    if (a->record.idle)
        json_write_bool(&w, "idle", true);
    if (a->result == ARBITER_UNREACHABLE || a->result == ARBITER_RUINED) {
        json_write_string(&w, "text", a->text);
    } else {
        json_write_u64(&w, "epoch", a->record.epoch);
        json_write_u64(&w, "leader", a->record.leader.incarnation);
        json_write_string(&w, "addr", a->record.leader.addr);
        json_write_u64(&w, "port", a->record.leader.port);
        json_write_id(&w, "beat", a->record.beat);
        json_write_bool(&w, "closed", a->record.closed);
        json_write_string(&w, "outcome", outcomes[a->record.outcome]);
        json_write_string(&w, "reason", a->record.reason);
    }
    json_write_object_end(&w);
    say(&line);
}

static void obey(char *line) {
    struct arbiter_request q = {.leader = {.addr = "10.0.0.1", .port = 4711}};
    char kind[16] = "", outcome[16] = "";
    int n = sscanf(line, "%15s %" SCNu32 " %" SCNu64 " %15s", kind, &q.epoch, &q.leader.incarnation, outcome);
    if (strcmp(kind, "stalled") == 0) {
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        strbuf_printf(&text, "{\"asked\":\"stalled\",\"ms\":%" PRIu64 "}", stalled_ns / NS_PER_MS);
        stalled_ns = 0;
        say(&text);
        return;
    }
    if (strcmp(kind, "read") == 0 && n == 1)
        q.kind = ARBITER_READ;
    else if (strcmp(kind, "beat") == 0 && n == 3)
        q.kind = ARBITER_BEAT;
    else if (strcmp(kind, "claim") == 0 && (n == 3 || strcmp(outcome, "idle") == 0))
        q.kind = ARBITER_CLAIM;
    else if (strcmp(kind, "vacate") == 0 && n == 3)
        q.kind = ARBITER_VACATE;
    else if (strcmp(kind, "close") == 0 && n == 4)
        q.kind = ARBITER_CLOSE;
    else
        _exit(4);
    q.idle = q.kind == ARBITER_CLAIM && n == 4;
    if (q.kind == ARBITER_CLOSE) {
        q.outcome = strcmp(outcome, "success") == 0 ? OUTCOME_SUCCESS : OUTCOME_FAILED;
        (void)snprintf(q.reason, sizeof q.reason, "said by %s", outcome);
    }
    arbiter_ask(arbiter, &q, on_answer, NULL);
}

static void on_input(void *arg, int fd, unsigned events) {
    (void)arg;
    (void)events;
    char chunk[4096];
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n <= 0) {
        loop_quit(loop);
        return;
    }
    strbuf_add_bytes(&input, chunk, (size_t)n);
    char *text = input.data, *end;
    for (; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = '\0';
        obey(text);
    }
    _cleanup_(freep) char *rest = xstrdup(text);
    strbuf_clear(&input);
    strbuf_add(&input, rest);
}

static void on_tick(void *arg) {
    (void)arg;
    uint64_t now = clock_now_ns();
    if (expected_ns != 0 && now > expected_ns)
        stalled_ns = MAX2(stalled_ns, now - expected_ns);
    expected_ns = now + TICK_NS;
    loop_timer_set(tick, expected_ns);
}

static int read_arguments(char **argv, struct arbiter_etcd_config *c, const char **endpoints) {
    for (argv++; *argv != NULL; argv++) {
        const char *flag = *argv;
        uint64_t ms = 0;
        if (strcmp(flag, "--tls") == 0)
            c->tls = true;
        else if (strncmp(flag, "--", 2) == 0 && argv[1] == NULL)
            return -EINVAL;
        else if (strcmp(flag, "--prefix") == 0)
            c->prefix = *++argv;
        else if (strcmp(flag, "--user") == 0)
            c->user = *++argv;
        else if (strcmp(flag, "--password") == 0)
            c->password = *++argv;
        else if (strcmp(flag, "--cacert") == 0)
            c->cacert = *++argv;
        else if (strcmp(flag, "--cert") == 0)
            c->cert = *++argv;
        else if (strcmp(flag, "--key") == 0)
            c->key = *++argv;
        else if (strcmp(flag, "--timeout-ms") == 0 && parse_u64(*++argv, &ms) == 0)
            c->timeout_ns = ms * NS_PER_MS;
        else if (c->run_id == NULL)
            c->run_id = flag;
        else if (c->n < 32)
            endpoints[c->n++] = flag;
    }
    c->endpoints = endpoints;
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    const char *endpoints[32];
    struct arbiter_etcd_config config = {0};
    struct err err = {0};
    struct loop_watch *watch;
    (void)signal(SIGPIPE, SIG_IGN);
    if (read_arguments(argv, &config, endpoints) < 0 || loop_new(&loop) < 0)
        return 1;
    if (arbiter_etcd_new(loop, &config, &arbiter, &err) < 0) {
        printf("%s\n", err.text);
        loop_free(loop);
        return 2;
    }
    watch = loop_watch_new(loop, 0, LOOP_READ, LOOP_PRIO_BULK, on_input, NULL);
    tick = loop_timer_new(loop, on_tick, NULL);
    loop_timer_set(tick, clock_now_ns());
    int r = loop_run(loop);
    arbiter_free(arbiter);
    loop_timer_free(tick);
    loop_watch_free(watch);
    loop_free(loop);
    strbuf_fini(&input);
    return r < 0;
}
