#include "rendezvous/protocol/wire.h"

#include <dirent.h>

#include "../../../tools/json_any.h"
#include "base/json/json.h"
#include "base/text/utf8.h"
#include "io/peer/peer_gate.h"
#include "rig/unit.h"

/* ---- random messages ---- */

static struct prng prng;

static void any_message(enum wire_kind kind, struct wire_message *m) {
    memset(m, 0, sizeof *m);
    m->kind = kind;
    json_any(&prng, wire_table(kind), (char *)m + offsetof(struct wire_message, body));
    if (kind == WIRE_CALL) /* of others only the version is read */
        m->call.version = WIRE_VERSION;
    else if (kind == WIRE_GREETING)
        m->greeting.version = WIRE_VERSION;
    else if (kind == WIRE_HELLO)
        m->hello.version = WIRE_VERSION;
    else if (kind == WIRE_JOIN)
        m->join.version = WIRE_VERSION;
    else if (kind == WIRE_COMMAND)
        m->command.version = WIRE_VERSION;
}

/* ---- there and back ---- */

static uint64_t seed(void) {
    const char *s = getenv("SEED");
    return s == NULL ? 20261121 : strtoull(s, NULL, 10);
}

Test(wire, every_message_comes_back_as_it_was) {
    static struct wire_message in, out;
    for (uint64_t i = 0; i < 300; i++) {
        prng.state = seed() + i;
        for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
            any_message((enum wire_kind)kind, &in);
            _cleanup_(strbuf_fini) struct strbuf text = {0}, again = {0};
            wire_encode(&in, &text);
            cr_assert_lt(text.len, WIRE_MESSAGE_MAX / 2, "%s", wire_kind_name(in.kind));
            bool is_call = strncmp(strbuf_text(&text), PEER_GATE_CALL, strlen(PEER_GATE_CALL)) == 0;
            cr_assert_eq(is_call, kind == WIRE_CALL, "%s", strbuf_text(&text));
            struct err err = {0};
            int r = wire_decode(strbuf_text(&text), text.len, &out, &err);
            cr_assert_eq(r, 0, "seed %llu %s: %s: %s", (unsigned long long)(seed() + i), wire_kind_name(in.kind),
                         err.text, strbuf_text(&text));
            const char *key =
                json_difference(wire_table(in.kind), (const char *)&in + offsetof(struct wire_message, body),
                                (const char *)&out + offsetof(struct wire_message, body));
            cr_assert_null(key, "seed %llu %s: %s", (unsigned long long)(seed() + i), wire_kind_name(in.kind), key);
            wire_encode(&out, &again);
            cr_assert_str_eq(strbuf_text(&again), strbuf_text(&text), "seed %llu", (unsigned long long)(seed() + i));
        }
    }
}

static void there_and_back(const struct wire_message *in, struct wire_message *out) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct err err = {0};
    wire_encode(in, &text);
    cr_assert_eq(wire_decode(strbuf_text(&text), text.len, out, &err), 0, "%s", err.text);
}

/* An address is the reader's business: what a node says of itself has none. */
Test(wire, the_address_of_a_node_does_not_travel) {
    static struct wire_message in, out;
    prng.state = 3;
    any_message(WIRE_JOIN, &in);
    (void)strcpy(in.join.info.addr, "10.0.0.9");
    (void)strcpy(in.join.info.topology, "rack1.leaf2.node3");
    (void)strcpy(in.join.addrs, "10.0.0.1,fd00::1");
    there_and_back(&in, &out);
    cr_assert_str_eq(out.join.info.addr, "");
    cr_assert_str_eq(out.join.info.topology, "rack1.leaf2.node3");
    cr_assert_str_eq(out.join.addrs, "10.0.0.1,fd00::1");
    in.join.addrs[0] = '\0';
    there_and_back(&in, &out);
    cr_assert_str_eq(out.join.addrs, "");
}

/* A member that has no row in the table of its message does not arrive. */
static const struct wire_message whole[] = {
    {.kind = WIRE_DESIRED,
     .desired = {.kind = DESIRED_FORM,
                 .epoch = 3,
                 .generation = {3, 9},
                 .grace_ns = UINT64_MAX, /* the node's own */
                 .form = {.node_rank = 1,
                          .n_nodes = 2,
                          .first_rank = 4,
                          .world_size = 8,
                          .role_first_rank = 5,
                          .role_world_size = 6,
                          .host_index = 7,
                          .store_host = "10.0.0.1",
                          .store_port = 29500,
                          .restarts_used = 1,
                          .max_restarts = 3,
                          .losses = 2,
                          .log_nonce = UINT64_MAX,
                          .job_ns = 4}}},
    {.kind = WIRE_DESIRED,
     .desired = {.kind = DESIRED_IDLE,
                 .epoch = 1,
                 .losses = 6,
                 .excluded = true,
                 .grace_ns = UINT64_MAX,
                 .reason = "an operator excluded it"}},
    {.kind = WIRE_DESIRED, .desired = {.kind = DESIRED_IDLE, .epoch = 1, .spare = true, .grace_ns = UINT64_MAX}},
    {.kind = WIRE_REPORT,
     .report = {.state = NODE_STOPPED,
                .generation = {2, 3},
                .epoch = 7,
                .leaving = true,
                .at_safe_point = true,
                .excluded_why = "three failures in a row",
                .leaving_why = "was stopped by SIGTERM",
                .restarts_used = 4,
                .losses = 5}},
    {.kind = WIRE_REPORT,
     .report = {.state = NODE_STOPPED,
                .generation = {2, 3},
                .finished = true,
                .excluded = true,
                .unusable = "no disk",
                .sick = "80 ms after Xid 79 on GPU 4",
                .xid = 79,
                .gpu = 4}},
    {.kind = WIRE_NAMED, .named = {.epoch = 4, .n = 2, .list = {{0xa, "", 7}, {0xb, "10.0.0.2,fe80::1%eth0", 8}}}},
    {.kind = WIRE_MEMBERS,
     .members = {.handover = {.epoch = 9,
                              .formed = {9, 2},
                              .started = {8, 7},
                              .restarts_used = 1,
                              .losses = 2,
                              .log_nonce = UINT64_MAX,
                              .n_order = 4,
                              .n_members = 5},
                 .first = 3,
                 .n = 2,
                 .list = {{1, "10.0.0.1", 11, "a", "", false}, {2, "", 12, "b", "rack1", true}}}},
    {.kind = WIRE_REDIRECT, .redirect = {5, {0xc, "::1", 3}}},
    {.kind = WIRE_REDIRECT, .redirect = {.epoch = 0}}, /* no leader is known */
    {.kind = WIRE_ECHO, .echo = {6, 1234}},
    {.kind = WIRE_OVERVIEW,
     .overview = {.state = GROUP_RUNNING,
                  .since_ns = 1,
                  .epoch = 2,
                  .generation = {2, 3},
                  .running_ns = 4,
                  .leader = 5,
                  .leader_host = "node1",
                  .endpoint = "node1:29402",
                  .min_nodes = 6,
                  .max_nodes = 7,
                  .node_unit = 8,
                  .n_members = 9,
                  .world_size = 10,
                  .n_nodes = 11,
                  .n_spares = 12,
                  .n_excluded = 13,
                  .restarts_used = 14,
                  .max_restarts = 15,
                  .losses = 16,
                  .successors = {17, 18, 0},
                  .job_ns = 23,
                  .command = "train.py",
                  .incident = "lost node4",
                  .incident_ns = 19,
                  .restart_ns = 24,
                  .outcome = OUTCOME_FAILED,
                  .reason = "because",
                  .watchdog = {.state = WATCHDOG_HUNG, .quiet_ns = 20, .limit_ns = UINT64_MAX, .said = "quiet"},
                  .time = {.text = "training", .late = "rank 12", .start = {25, 26, 27, 28}},
                  .access = {.state = AUTH_STATE_KEYS, .n_keys = 1, .keys = {{21, AUTH_FROM_HOME}}, .refused = 22}}},
    {.kind = WIRE_NODES,
     .nodes = {.first = 32,
               .n = 2,
               .list = {{.incarnation = 1,
                         .name = "node2",
                         .domain = "nvl-0badcafe.32766",
                         .fabric = "healthy",
                         .addr = "10.0.0.2",
                         .place = PLACE_SPARE,
                         .state = NODE_JOINED,
                         .connected = true,
                         .silent_ns = 2,
                         .node_rank = 3,
                         .first_rank = 4,
                         .nproc = 5,
                         .pid = 6,
                         .since_ns = 7,
                         .stalls = 8,
                         .longest_stall_ns = 9,
                         .why = "so"},
                        {.incarnation = 2,
                         .place = PLACE_SPARE,
                         .state = NODE_JOINED,
                         .nproc = 1,
                         .has_warm = true,
                         .warm = {.generation = {1, 2}, .warm = 1, .cold = 2, .waiting = 3, .reason = "r"}}}}},
    {.kind = WIRE_SIGNS, .signs = {.generation = {2, 3}, .n = 2, .list = {{1, 2, 3, true, 4, 5, 6}, {.rank = 9}}}},
    {.kind = WIRE_SIGNS, .signs = {.generation = {2, 3}}}, /* all move */
    {.kind = WIRE_ASK, .ask = {.generation = {2, 3}, .id = 4, .timeout_ns = 5}},
    {.kind = WIRE_ASK, .ask = {.generation = {2, 3}, .id = 4, .timeout_ns = 5, .holds = true}},
    {.kind = WIRE_ASK, .ask = {{2, 3}, 4, ASK_PROFILE, 5, 50 * NS_PER_MS, false}},
    {.kind = WIRE_ASK, .ask = {{2, 3}, 4, ASK_TIME, 5, NS_PER_S, false}},
    {.kind = WIRE_SUSPECTS, .suspects = {{2, 3}, 4, 0, RDZV_SUSPECTS_MAX, {[RDZV_SUSPECTS_MAX - 1] = 105}}},
    {.kind = WIRE_PROCEED},
    {.kind = WIRE_EVIDENCE, .evidence = {6, true, false, "{}"}},
    {.kind = WIRE_WHOSE,
     .whose = {.id = 3, .client = "10.0.0.2", .store = "fd00::1", .store_port = 4, .n = 2, .ports = {5, 65535}}},
    {.kind = WIRE_OWNER, .owner = {.id = 3, .uid = 9, .n = 2, .list = {PEER_UNKNOWN, PEER_OURS}}},
};

Test(wire, all_that_is_set_arrives) {
    static struct wire_message out;
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++) {
        there_and_back(&whole[i], &out);
        cr_assert_eq(memcmp(&whole[i].body, &out.body, wire_table(out.kind)->size), 0, "%zu: %s", i,
                     wire_kind_name(out.kind));
    }
}

/* What a worker wrote before it died need not be UTF-8, and must not end the connection. */
Test(wire, texts_that_are_not_utf8_still_arrive) {
    static struct wire_message in, out;
    in = (struct wire_message){.kind = WIRE_REPORT,
                               .report = {.state = NODE_FAILED, .generation = {1, 1}, .has_failure = true}};
    in.report.failure.kind = FAILURE_EXIT;
    memset(in.report.failure.text, 0xff, sizeof in.report.failure.text - 1);
    memset(in.report.failure.error_file, 0x80, sizeof in.report.failure.error_file - 1);
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&in, &text);
    struct err err = {0};
    cr_assert_eq(wire_decode(strbuf_text(&text), text.len, &out, &err), 0, "%s", err.text);
    cr_assert_eq(strncmp(out.report.failure.text, "\xef\xbf\xbd\xef\xbf\xbd", 6), 0);
}

Test(wire, no_name_of_a_node_is_more_than_text_on_a_terminal) {
    static struct wire_message in, out;
    in = (struct wire_message){.kind = WIRE_JOIN,
                               .join = {.version = WIRE_VERSION,
                                        .min_nodes = 1,
                                        .max_nodes = 1,
                                        .info = {.incarnation = 1, .listener_port = 1, .nproc = 1},
                                        .report = {.state = NODE_JOINED}}};
    (void)snprintf(in.join.info.host, sizeof in.join.info.host,
                   "a\x1b]0;b\x07\nmuster: error: c\xc2\x9b"
                   "2J");
    (void)snprintf(in.join.info.role, sizeof in.join.info.role,
                   "\xe2\x80\xae"
                   "d\x7f");
    (void)snprintf(in.join.info.nets[1].netif, sizeof in.join.info.nets[1].netif, "e\tf");
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&in, &text);
    struct err err = {0};
    cr_assert_eq(wire_decode(strbuf_text(&text), text.len, &out, &err), 0, "%s", err.text);
    cr_assert_str_eq(out.join.info.host, "a?]0;b??muster: error: c??2J");
    cr_assert_str_eq(out.join.info.role, "???d?");
    cr_assert_str_eq(out.join.info.nets[1].netif, "e?f");
}

/* ---- what is refused ---- */

static int decode(const char *text) {
    static struct wire_message m;
    return wire_decode(text, strlen(text), &m, NULL);
}

#define RENEW(a, b, c)                                                               \
    "{\"kind\":\"RENEW\",\"clock_ns\":" a ",\"leader_clock_ns\":" b ",\"rtt_ns\":" c \
    ",\"epoch\":1,\"stalls\":0,\"longest_stall_ns\":\"0\"}"
#define HELLO(v, i, r) "{\"kind\":\"HELLO\",\"version\":" v ",\"incarnation\":" i ",\"run_id\":" r "}"
#define GREETING(v, keys, munge) \
    "{\"kind\":\"GREETING\",\"version\":" v ",\"open\":false,\"keys\":[" keys "],\"munge\":\"" munge "\"}"
#define KEY(id, source) "{\"id\":\"" id "\",\"source\":\"" source "\"}"
#define KEYS_2 KEY("0000000000000001", "env") "," KEY("0000000000000001", "head")
#define KEYS_8 KEYS_2 "," KEYS_2 "," KEYS_2 "," KEYS_2
#define WELCOME(e, p, h)                                                                         \
    "{\"kind\":\"WELCOME\",\"epoch\":" e ",\"leader\":\"00000000000000a1\",\"listener_port\":" p \
    ",\"heartbeat_ns\":" h ",\"lease_ns\":\"5000000000\",\"margin_ns\":\"0\",\"min_nodes\":1,\"max_nodes\":1}"
#define LEASE(g) \
    "{\"kind\":\"LEASE\",\"epoch\":1,\"prepared\":" g ",\"echo_ns\":\"1\",\"validity_ns\":\"1\",\"clock_ns\":\"1\"}"
#define INC "\"00000000000000a1\""

#define PEER(i, p) "{\"incarnation\":" i ",\"addr\":\"10.0.0.1\",\"port\":" p "}"
#define HISTORY                                                                                   \
    "\"history\":{\"phases_ns\":[\"1\",\"1\",\"1\",\"1\",\"1\"],\"incidents\":[0,1,1,1,1,1,1,1]," \
    "\"down_ns\":\"1\",\"steps_lost\":\"1\"},"
#define MEMBER "{\"incarnation\":" INC ",\"port\":1,\"addr\":\"\",\"host\":\"a\",\"domain\":\"\",\"started\":true}"
#define MEMBERS_TO_LIST(n, order, first)                                                                     \
    "{\"kind\":\"MEMBERS\",\"epoch\":1,\"formed\":\"1.1\",\"started\":\"0.0\",\"restarts_used\":0,"          \
    "\"losses\":0,\"log_nonce\":\"1\"," HISTORY "\"n_members\":" n ",\"n_order\":" order ",\"first\":" first \
    ",\"members\":"
#define COMMAND(c, run) "{\"kind\":\"COMMAND\",\"version\":10,\"command\":\"" c "\",\"run_id\":\"" run "\""
#define OVERVIEW(phase, successors)                                                                                    \
    "{\"kind\":\"OVERVIEW\",\"phase\":\"" phase "\",\"since_ns\":\"1\",\"epoch\":1,\"generation\":\"1.1\","            \
    "\"running_ns\":\"1\",\"leader\":" INC ",\"leader_host\":\"h\",\"endpoint\":\"\",\"min_nodes\":1,\"max_nodes\":1," \
    "\"node_unit\":1,\"n_members\":1,\"world_size\":1,\"n_nodes\":1,\"n_spares\":0,\"n_excluded\":0,"                  \
    "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0,\"successors\":[" successors "],"                             \
    "\"job_ns\":\"0\",\"command\":\"\",\"incident\":\"\",\"incident_ns\":\"0\",\"restart_ns\":\"0\","                  \
    "\"outcome\":\"none\",\"reason\":\"\","                                                                            \
    "\"watchdog\":\"none\",\"quiet_ns\":\"0\",\"quiet_limit_ns\":\"0\",\"quiet_text\":\"\"," HISTORY                   \
    "\"auth\":\"open\",\"auth_keys\":[],\"refused\":\"0\"}"
#define ROW(state, nproc)                                                                                         \
    "{\"kind\":\"NODES\",\"first\":0,\"nodes\":[{\"incarnation\":" INC ",\"place\":\"member\",\"state\":\"" state \
    "\",\"connected\":true,\"silent_ns\":\"0\",\"node_rank\":0,\"first_rank\":0,\"nproc\":" nproc                 \
    ",\"pid\":1,\"since_ns\":\"0\",\"stalls\":0,\"longest_stall_ns\":\"0\","
#define ROW_REST "\"name\":\"\",\"addr\":\"\",\"domain\":\"\",\"fabric\":\"\",\"why\":\"\"}]}"

#define WHOSE(port, ports) \
    "{\"kind\":\"WHOSE\",\"id\":1,\"client\":\"a\",\"store\":\"b\",\"store_port\":" port ",\"ports\":[" ports "]}"
#define OWNERS(owners) "{\"kind\":\"OWNER\",\"id\":1,\"uid\":0,\"owners\":[" owners "]}"
#define TIMEOUT(ns) ",\"reason\":\"\",\"timeout_ns\":\"" ns "\"}"

static const struct {
    int r;
    const char *text;
} decoded[] = {
    /* succession */
    {0, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":0,\"successors\":[]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[1]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[{}]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":{}}"},
    {0, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[" PEER(INC, "1") "]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[" PEER("\"0000000000000000\"", "1") "]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[" PEER(INC, "0") "]}"},
    {0, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[" PEER(INC, "1") "," PEER(INC, "2") "," PEER(INC, "3") "]}"},
    {-EINVAL, "{\"kind\":\"NAMED\",\"epoch\":1,\"successors\":[" PEER(INC, "1") "," PEER(INC, "2") "," PEER(
                  INC, "3") "," PEER(INC, "4") "]}"},
    {0, MEMBERS_TO_LIST("0", "0", "0") "[]}"},
    {-EINVAL, MEMBERS_TO_LIST("0", "0", "0") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("1", "1", "0") "[]}"},
    {0, MEMBERS_TO_LIST("1", "1", "0") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("1", "1", "1") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("1", "1", "1") "[]}"},
    {-EINVAL, MEMBERS_TO_LIST("1", "2", "0") "[" MEMBER "]}"},
    {0, MEMBERS_TO_LIST("2", "0", "1") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("2", "0", "1") "[" MEMBER "," MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("2", "0", "4294967295") "[" MEMBER "]}"},
    {0, MEMBERS_TO_LIST("200000", "100000", "199999") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("200000", "100001", "0") "[" MEMBER "]}"},
    {-EINVAL, MEMBERS_TO_LIST("200001", "1", "0") "[" MEMBER "]}"},
    {0, "{\"kind\":\"ECHO\",\"epoch\":1,\"leader_clock_ns\":\"1\"}"},
    {-EINVAL, "{\"kind\":\"ECHO\",\"epoch\":0,\"leader_clock_ns\":\"1\"}"},
    {-EINVAL, "{\"kind\":\"ECHO\",\"epoch\":1,\"leader_clock_ns\":1}"},
    {-EINVAL, "{\"kind\":\"ECHO\",\"epoch\":1}"},
    {0, "{\"kind\":\"REDIRECT\",\"epoch\":0}"},
    {0, "{\"kind\":\"REDIRECT\",\"epoch\":1,\"leader\":" PEER(INC, "1") "}"},
    {-EINVAL, "{\"kind\":\"REDIRECT\",\"epoch\":1,\"leader\":" PEER("\"0000000000000000\"", "1") "}"},
    {-EINVAL, "{\"kind\":\"REDIRECT\",\"epoch\":1,\"leader\":null}"},
    {-EINVAL, "{\"kind\":\"REDIRECT\"}"},
    /* questions */
    {-EINVAL, "{\"kind\":\"ASK\",\"generation\":\"1.1\",\"id\":1,\"timeout_ns\":\"0\"}"},
    {-EINVAL, "{\"kind\":\"SUSPECTS\",\"generation\":\"1.1\",\"id\":1,\"timeout_ns\":\"0\",\"ranks\":[]}"},
    {0, WHOSE("1", "1")},
    {-EINVAL, WHOSE("0", "1")},
    {-EINVAL, WHOSE("1", "")},
    {-EINVAL, WHOSE("1", "0")},
    {-EINVAL, WHOSE("1", "65536")},
    {-EINVAL, WHOSE("1", "\"1\"")},
    {0, OWNERS("\"ours\"")},
    {-EINVAL, OWNERS("")},
    {-EINVAL, OWNERS("\"mine\"")},
    {-EINVAL, OWNERS("1")},
    /* operators */
    {0, COMMAND("status", "") ",\"reason\":\"\"}"},
    {0, COMMAND("stop", "r") ",\"reason\":\"new data\"}"},
    {-EINVAL, COMMAND("stop", "r") "}"},
    {-EINVAL, COMMAND("stop", "r") ",\"reason\":\"\",\"node\":\"\"}"},
    {-EINVAL, COMMAND("exclude", "r") ",\"reason\":\"\"}"},
    {-EINVAL, COMMAND("exclude", "r") ",\"reason\":\"\",\"node\":\"\"}"},
    {0, COMMAND("exclude", "r") ",\"reason\":\"\",\"node\":\"n\"}"},
    {-EINVAL, COMMAND("shrink", "r") ",\"reason\":\"\"}"},
    {-EINVAL, COMMAND("stacks", "") ",\"reason\":\"\"}"},
    {-EINVAL, COMMAND("stacks", "") TIMEOUT("999999")},
    {0, COMMAND("stacks", "") TIMEOUT("1000000")},
    {0, COMMAND("stacks", "") TIMEOUT("60000000000")},
    {-EINVAL, COMMAND("stacks", "") TIMEOUT("600000000001")},
    {-EINVAL, COMMAND("status", "") TIMEOUT("1000000")},
    {-EINVAL, COMMAND("none", "r") ",\"reason\":\"\"}"},
    {0, "{\"kind\":\"ANSWER\",\"ok\":false,\"text\":\"\"}"},
    {-EINVAL, "{\"kind\":\"ANSWER\",\"ok\":0,\"text\":\"\"}"},
    {-EINVAL, "{\"kind\":\"ANSWER\",\"ok\":true}"},
    {0, OVERVIEW("gathering", "")},
    {0, OVERVIEW("closed", INC)},
    {0, OVERVIEW("running", INC "," INC "," INC)},
    {-EINVAL, OVERVIEW("running", INC "," INC "," INC "," INC)},
    {-EINVAL, OVERVIEW("running", "\"0000000000000000\"")},
    {-EINVAL, OVERVIEW("running", "\"00000000000000A1\"")},
    {-EINVAL, OVERVIEW("running", "\"a1\"")},
    {-EINVAL, OVERVIEW("running", "1")},
    {-EINVAL, OVERVIEW("", "")},
    {-EINVAL, OVERVIEW("Running", "")},
    {-EINVAL, "{\"kind\":\"OVERVIEW\"}"},
    {0, ROW("running", "1") ROW_REST},
    {-EINVAL, ROW("walking", "1") ROW_REST},
    {-EINVAL, ROW("running", "0") ROW_REST},
    {-EINVAL, ROW("running", "4097") ROW_REST},
    {-EINVAL, ROW("running", "1") "\"new\":1," ROW_REST},
    {-EINVAL, "{\"kind\":\"NODES\",\"first\":0,\"nodes\":[]}"},
    {-EINVAL, "{\"kind\":\"NODES\",\"first\":0,\"nodes\":[1]}"},
    /* any */
    {0, "{\"kind\":\"LEAVE\"}"},
    {0, " { \"kind\" : \"LEAVE\" } "},
    {-EINVAL, ""},
    {-EINVAL, "x"},
    {-EINVAL, "[]"},
    {-EINVAL, "\"LEAVE\""},
    {-EINVAL, "{}"},
    {-EINVAL, "{\"kind\":\"LEAVE\"}x"},
    {-EINVAL, "{\"kind\":\"LEAVE\",\"kind\":\"LEAVE\"}"},
    {-EINVAL, "{\"kind\":\"leave\"}"},
    {-EINVAL, "{\"kind\":\"NONE\"}"},
    {-EINVAL, "{\"kind\":8}"},
    {-EINVAL, "{\"kind\":\"LEAVE\",\"why\":1}"},
    {0, RENEW("\"1\"", "\"0\"", "\"18446744073709551615\"")},
    {-EINVAL, RENEW("\"1\"", "\"0\"", "\"18446744073709551616\"")},
    {-EINVAL, RENEW("1", "\"0\"", "\"1\"")},
    {-EINVAL, RENEW("\"-1\"", "\"0\"", "\"1\"")},
    {-EINVAL, RENEW("\"1.0\"", "\"0\"", "\"1\"")},
    {-EINVAL, RENEW("\"\"", "\"0\"", "\"1\"")},
    {-EINVAL, "{\"kind\":\"RENEW\",\"clock_ns\":\"1\",\"rtt_ns\":\"1\"}"},
    {0, HELLO("10", INC, "\"\"")},
    {WIRE_E_VERSION, HELLO("1", INC, "\"\"")},
    {WIRE_E_VERSION, "{\"kind\":\"HELLO\",\"version\":3,\"new\":[{}]}"},
    {WIRE_E_VERSION, "{\"kind\":\"JOIN\",\"version\":4294967295}"},
    {-EINVAL, "{\"kind\":\"JOIN\",\"version\":4294967296}"},
    {-EINVAL, "{\"kind\":\"JOIN\",\"version\":10}"},
    {WIRE_E_VERSION, "{\"kind\":\"COMMAND\",\"version\":1}"},
    {-EINVAL, "{\"kind\":\"COMMAND\",\"version\":10}"},
    {-EINVAL, HELLO("-1", INC, "\"\"")},
    {-EINVAL, HELLO("1.5", INC, "\"\"")},
    {-EINVAL, HELLO("10", "\"0000000000000000\"", "\"\"")},
    {-EINVAL, HELLO("10", "\"a1\"", "\"\"")},
    {-EINVAL, HELLO("10", "\"00000000000000A1\"", "\"\"")},
    {-EINVAL, HELLO("10", INC, "7")},
    {-EINVAL, HELLO("10", INC, "\"a\\u0000b\"")},
    {0, WELCOME("1", "1", "\"1000000\"")},
    {-EINVAL, WELCOME("0", "1", "\"1000000\"")},
    {-EINVAL, WELCOME("1", "0", "\"1000000\"")},
    {0, WELCOME("1", "65535", "\"1000000\"")},
    {-EINVAL, WELCOME("1", "65536", "\"1000000\"")},
    {-EINVAL, WELCOME("1", "1", "\"999999\"")},
    {0, WELCOME("1", "1", "\"1000000000000000\"")},
    {-EINVAL, WELCOME("1", "1", "\"1000000000000001\"")},
    {0, LEASE("\"0.0\"")},
    {0, LEASE("\"4294967295.4294967295\"")},
    {-EINVAL, LEASE("\"4294967296.1\"")},
    {-EINVAL, LEASE("\"0.1\"")},
    {-EINVAL, LEASE("\"1.0\"")},
    {-EINVAL, LEASE("\"1\"")},
    {-EINVAL, LEASE("\"1.\"")},
    {-EINVAL, LEASE("\"1.2.3\"")},
    {-EINVAL, LEASE("1.2")},
    {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"idle\"}"},
    {0, "{\"kind\":\"DESIRED\",\"desired\":\"idle\",\"epoch\":1,\"generation\":\"0.0\","
        "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0,\"excluded\":false,\"spare\":true,"
        "\"reason\":\"\"}"},
    {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"start\",\"epoch\":1,\"generation\":\"0.0\","
              "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0}"},
    {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"form\",\"epoch\":1,\"generation\":\"1.1\","
              "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0}"},
    {-EINVAL, "{\"kind\":\"DESIRED\",\"desired\":\"closed\",\"epoch\":1,\"generation\":\"1.1\","
              "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0,\"grace_ns\":\"1\",\"will_restart\":false,"
              "\"n_stopping\":0,\"outcome\":\"none\",\"reason\":\"\"}"},
    {0, "{\"kind\":\"DESIRED\",\"desired\":\"closed\",\"epoch\":1,\"generation\":\"1.1\","
        "\"restarts_used\":0,\"max_restarts\":0,\"losses\":0,\"grace_ns\":\"1\",\"will_restart\":false,"
        "\"n_stopping\":0,\"outcome\":\"failed\",\"reason\":\"\"}"},
    /* greetings */
    {0, GREETING("10", "", "")},
    {0, GREETING("10", KEY("0000000000000001", "file"), "")},
    {0, GREETING("10", KEY("ffffffffffffffff", "munge") "," KEY("0000000000000000", "home"), "MUNGE:x")},
    {WIRE_E_VERSION, GREETING("9", "", "")},
    {WIRE_E_VERSION, "{\"kind\":\"GREETING\",\"version\":11,\"new\":[{}]}"},
    {WIRE_E_VERSION, "{\"kind\":\"CALL\",\"version\":11,\"new\":[{}]}"},
    {-EINVAL, "{\"kind\":\"CALL\",\"version\":10,\"new\":[{}]}"},
    {-EINVAL, GREETING("10", KEY("1", "file"), "")},
    {-EINVAL, GREETING("10", KEY("0000000000000001", "friend"), "")},
    {-EINVAL, GREETING("10", "{\"id\":\"0000000000000001\"}", "")},
    {-EINVAL, GREETING("10", KEYS_8 "," KEY("0000000000000001", "dir"), "")},
    {0, GREETING("10", KEYS_8, "")},
};

Test(wire, decoding_refuses_what_breaks_the_protocol) {
    for (size_t i = 0; i < ARRAY_SIZE(decoded); i++)
        cr_assert_eq(decode(decoded[i].text), decoded[i].r, "%s", decoded[i].text);
}

/* A list holds so many and no more; the largest that we write are read. */
static void check_list_limit(enum wire_kind kind, const char *key, uint32_t max) {
    static struct wire_message m, out;
    for (uint32_t n = max; n <= max + 1; n++) {
        prng.state = 1;
        do
            any_message(kind, &m);
        while (kind == WIRE_MEMBERS ? m.members.n == 0 : m.nodes.n == 0);
        if (kind == WIRE_MEMBERS) {
            m.members.n = 1;
            m.members.first = 0;
            m.members.handover.n_members = RDZV_NODES_MAX;
            m.members.handover.n_order = 1;
        } else {
            m.nodes.n = 1;
        }
        _cleanup_(strbuf_fini) struct strbuf one = {0}, many = {0};
        wire_encode(&m, &one);
        const char *from = strstr(strbuf_text(&one), key);
        cr_assert_not_null(from);
        from += strlen(key);
        size_t len = one.len - (size_t)(from - one.data) - 2; /* "]}" */
        strbuf_add_bytes(&many, one.data, (size_t)(from - one.data));
        for (uint32_t i = 0; i < n; i++) {
            strbuf_add(&many, i == 0 ? "" : ",");
            strbuf_add_bytes(&many, from, len);
        }
        strbuf_add(&many, "]}");
        struct err err = {0};
        cr_assert_eq(wire_decode(strbuf_text(&many), many.len, &out, &err), n == max ? 0 : -EINVAL, "%u: %s", n,
                     err.text);
    }
}

Test(wire, lists_hold_so_many_and_no_more) {
    check_list_limit(WIRE_MEMBERS, "\"members\":[", RDZV_MEMBERS_CHUNK);
    check_list_limit(WIRE_NODES, "\"nodes\":[", RDZV_OVERVIEW_CHUNK);
}

/* Writes a random valid message that has the key. Returns where the text continues behind "key": and `before`. */
static char *find_value(enum wire_kind kind, const char *key, const char *before, struct strbuf *text) {
    static struct wire_message m;
    _cleanup_(freep) char *quoted = xasprintf("\"%s\":%s", key, before);
    prng.state = 1;
    for (int tries = 0; tries < 1000; tries++) {
        any_message(kind, &m);
        strbuf_clear(text);
        wire_encode(&m, text);
        char *at = strstr(text->data, quoted);
        if (at != NULL)
            return at + strlen(quoted);
    }
    cr_assert_fail("no %s in a %s", key, wire_kind_name(kind));
    return NULL;
}

/* Each text is taken at the length of its array less one, and refused one byte longer. */
static void check_text_limit(enum wire_kind kind, const char *key, size_t size) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const char *at = find_value(kind, key, "\"", &text), *rest = at;
    while (*rest != '"')
        rest += *rest == '\\' ? 2 : 1;
    for (size_t len = size - 1; len <= size; len++) {
        _cleanup_(strbuf_fini) struct strbuf changed = {0};
        strbuf_add_bytes(&changed, text.data, (size_t)(at - text.data));
        for (size_t i = 0; i < len; i++)
            strbuf_add_char(&changed, 'x');
        strbuf_add(&changed, rest);
        cr_assert_eq(decode(strbuf_text(&changed)), len < size ? 0 : -EINVAL, "%s, %zu bytes", key, len);
    }
}

Test(wire, every_text_has_its_limit) {
    check_text_limit(WIRE_HELLO, "run_id", RDZV_RUN_ID_MAX);
    check_text_limit(WIRE_REFUSED, "reason", RDZV_REASON_MAX);
    check_text_limit(WIRE_JOIN, "host", RDZV_HOST_MAX);
    check_text_limit(WIRE_JOIN, "shown", RDZV_PROGRAM_MAX);
    check_text_limit(WIRE_REPORT, "unusable", RDZV_REASON_MAX / 4);
    check_text_limit(WIRE_REPORT, "excluded_why", RDZV_HOST_MAX);
    check_text_limit(WIRE_REPORT, "leaving_why", RDZV_HOST_MAX);
    check_text_limit(WIRE_REPORT, "domain", RDZV_DOMAIN_MAX);
    check_text_limit(WIRE_REPORT, "fabric", RDZV_DOMAIN_MAX);
    check_text_limit(WIRE_REPORT, "sick", RDZV_SICK_MAX);
    check_text_limit(WIRE_REPORT, "text", FAILURE_TEXT_MAX);
    check_text_limit(WIRE_REPORT, "error_file", FAILURE_PATH_MAX);
    check_text_limit(WIRE_REPORT, "node", FAILURE_NODE_MAX);
    check_text_limit(WIRE_REPORT, "role", 64);
    check_text_limit(WIRE_NAMED, "addr", RDZV_ADDRS_MAX);
    check_text_limit(WIRE_REDIRECT, "addr", RDZV_ADDRS_MAX);
    check_text_limit(WIRE_MEMBERS, "addr", RDZV_ADDR_MAX);
    check_text_limit(WIRE_MEMBERS, "host", RDZV_ADDR_MAX);
    check_text_limit(WIRE_COMMAND, "reason", RDZV_HOST_MAX);
    check_text_limit(WIRE_COMMAND, "node", RDZV_HOST_MAX);
    check_text_limit(WIRE_COMMAND, "run_id", RDZV_RUN_ID_MAX);
    check_text_limit(WIRE_EVIDENCE, "text", RDZV_EVIDENCE_CHUNK_MAX);
    check_text_limit(WIRE_WARM, "reason", RDZV_WARM_REASON_MAX);
    check_text_limit(WIRE_STACKS, "name", RDZV_HOST_MAX);
    check_text_limit(WIRE_STACKS, "missing", RDZV_HOST_MAX);
    check_text_limit(WIRE_NODE_SUMMARY, "text", RDZV_NODE_SUMMARY_MAX);
    check_text_limit(WIRE_ANSWER, "text", RDZV_REASON_MAX / 4);
    check_text_limit(WIRE_NODES, "name", RDZV_HOST_MAX);
    check_text_limit(WIRE_NODES, "addr", RDZV_ADDR_MAX);
    check_text_limit(WIRE_NODES, "why", RDZV_HOST_MAX);
}

/* Each number is taken at its limit, and refused above. */
static void check_number_limit(enum wire_kind kind, const char *key, uint64_t limit) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    const char *at = find_value(kind, key, "", &text), *rest = at + strspn(at, "-0123456789");
    for (uint64_t v = limit; v <= limit + 1; v++) {
        _cleanup_(strbuf_fini) struct strbuf changed = {0};
        strbuf_add_bytes(&changed, text.data, (size_t)(at - text.data));
        strbuf_printf(&changed, "%llu%s", (unsigned long long)v, rest);
        cr_assert_eq(decode(strbuf_text(&changed)), v == limit ? 0 : -EINVAL, "%s = %llu", key, (unsigned long long)v);
    }
}

Test(wire, every_number_has_its_limit) {
    check_number_limit(WIRE_JOIN, "max_nodes", RDZV_NODES_MAX);
    check_number_limit(WIRE_JOIN, "nproc", RDZV_WORKERS_MAX);
    check_number_limit(WIRE_JOIN, "listener_port", UINT16_MAX);
    check_number_limit(WIRE_JOIN, "restarts_used", UINT32_MAX);
    check_number_limit(WIRE_JOIN, "pid", INT32_MAX);
    check_number_limit(WIRE_STATUS, "present", RDZV_NODES_MAX);
    check_number_limit(WIRE_STATUS, "spares", RDZV_NODES_MAX);
    check_number_limit(WIRE_RENEW, "epoch", UINT32_MAX);
    check_number_limit(WIRE_OVERVIEW, "node_unit", RDZV_NODES_MAX);
    check_number_limit(WIRE_OVERVIEW, "n_nodes", RDZV_NODES_MAX);
    check_number_limit(WIRE_OVERVIEW, "world_size", UINT32_MAX);
    check_number_limit(WIRE_NODES, "first", RDZV_NODES_MAX - 1);
    check_number_limit(WIRE_NODES, "node_rank", RDZV_NODES_MAX);
    check_number_limit(WIRE_WARM, "warm", RDZV_WORKERS_MAX);
    check_number_limit(WIRE_WARM, "cold", RDZV_WORKERS_MAX);
    check_number_limit(WIRE_WARM, "waiting", RDZV_WORKERS_MAX);
    check_number_limit(WIRE_STACKS, "n_nodes", RDZV_NODES_MAX);
    check_number_limit(WIRE_STACKS, "nproc", RDZV_WORKERS_MAX);
}

Test(wire, a_status_holds_so_many_names_and_no_more) {
    for (uint32_t n = RDZV_STATUS_NAMES_MAX; n <= RDZV_STATUS_NAMES_MAX + 1; n++) {
        _cleanup_(strbuf_fini) struct strbuf s = {0};
        strbuf_add(&s,
                   "{\"kind\":\"STATUS\",\"present\":1,\"usable\":1,\"min_nodes\":1,\"max_nodes\":1,\"wait_ns\":\"1\","
                   "\"last_call\":false,\"spares\":0,\"names\":[],\"missing\":[");
        for (uint32_t i = 0; i < n; i++)
            strbuf_printf(&s, "%s\"n%u\"", i == 0 ? "" : ",", i);
        strbuf_add(&s, "]}");
        cr_assert_eq(decode(strbuf_text(&s)), n == RDZV_STATUS_NAMES_MAX ? 0 : -EINVAL);
    }
    cr_assert_eq(
        decode("{\"kind\":\"STATUS\",\"present\":1,\"usable\":1,\"min_nodes\":1,\"max_nodes\":1,\"wait_ns\":\"1\","
               "\"last_call\":false,\"spares\":0,\"names\":[1],\"missing\":[]}"),
        -EINVAL);
}

Test(wire, no_beginning_of_a_message_is_a_message) {
    static struct wire_message m, out;
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
        prng.state = 5;
        any_message((enum wire_kind)kind, &m);
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        wire_encode(&m, &text);
        for (size_t len = 0; len < text.len; len += 1 + len / 64)
            cr_assert_eq(wire_decode(strbuf_text(&text), len, &out, NULL), -EINVAL);
    }
}

/* ---- beside this file ---- */

static char *path_in_tests(const char *name) {
    const char *tests = getenv("MUSTER_TEST_SOURCE_DIR");
    return xasprintf("%s/%s", tests == NULL ? "tests" : tests, name);
}

/* Takes the path. */
static char *read_text(char *path) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    char line[1024];
    while (fgets(line, sizeof line, f) != NULL)
        strbuf_add(&text, line);
    (void)fclose(f);
    free(path);
    return strbuf_take(&text);
}

/* A fuzzer that begins with texts that are refused at once does not get far. */
Test(wire, the_corpus_of_the_fuzzer_is_of_this_version) {
    static struct wire_message m;
    bool seen[WIRE_KIND_COUNT] = {false};
    char *dir = path_in_tests("fuzz/corpus/fuzz-wire");
    DIR *d = opendir(dir);
    cr_assert_not_null(d, "%s", dir);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        char *text = read_text(xasprintf("%s/%s", dir, e->d_name));
        struct err err = {0};
        int expected = strcmp(e->d_name, "hello-next") == 0    ? WIRE_E_VERSION
                       : strcmp(e->d_name, "unknown-key") == 0 ? -EINVAL
                                                               : 0;
        cr_assert_eq(wire_decode(text, strlen(text), &m, &err), expected, "%s: %s", e->d_name, err.text);
        if (expected == 0) {
            _cleanup_(strbuf_fini) struct strbuf again = {0};
            wire_encode(&m, &again);
            cr_assert_str_eq(strbuf_text(&again), text, "%s", e->d_name);
            seen[m.kind] = true;
        }
        free(text);
    }
    (void)closedir(d);
    free(dir);
    for (int kind = 1; kind < WIRE_KIND_COUNT; kind++)
        cr_assert(seen[kind], "no %s in the corpus", wire_kind_name((enum wire_kind)kind));
}

/* ---- the specification ---- */

static void check_described(const char *page, const struct json *v) {
    for (const struct json *m = json_first(v); m != NULL; m = json_next(m)) {
        if (json_key(m) != NULL && strcmp(json_key(m), "kind") != 0 && strcmp(json_key(m), "form") != 0) {
            const char *item = rig_text("\n.It Li %s Ta ", json_key(m));
            cr_assert(strstr(page, item) != NULL || strcmp(json_key(m), "report") == 0, "no '%s' in the manual",
                      json_key(m));
        }
        check_described(page, m);
    }
}

Test(wire, the_manual_describes_every_field) {
    static struct wire_message m;
    char *page = read_text(path_in_tests("../man/muster-protocol.7"));
    for (uint64_t i = 0; i < 50; i++) {
        for (int kind = 1; kind < WIRE_KIND_COUNT; kind++) {
            prng.state = i;
            any_message((enum wire_kind)kind, &m);
            _cleanup_(strbuf_fini) struct strbuf text = {0};
            wire_encode(&m, &text);
            _cleanup_(json_freep) struct json *doc = NULL;
            cr_assert_eq(json_parse(strbuf_text(&text), text.len, &JSON_LIMITS_DEFAULT, &doc, NULL), 0);
            check_described(page, doc);
            const char *title = rig_text("\n.Ss %s (", wire_kind_name(m.kind));
            cr_assert_not_null(strstr(page, title), "%s", title);
        }
    }
    free(page);
}

Test(wire, a_question_about_connections_holds_so_many_and_no_more) {
    for (unsigned n = RDZV_WHOSE_CHUNK; n <= RDZV_WHOSE_CHUNK + 1; n++) {
        _cleanup_(strbuf_fini) struct strbuf ports = {0}, text = {0};
        for (unsigned i = 0; i < n; i++)
            strbuf_add(&ports, i == 0 ? "65535" : ",65535");
        strbuf_printf(&text, WHOSE("1", "%s"), strbuf_text(&ports));
        cr_expect_eq(decode(strbuf_text(&text)), n > RDZV_WHOSE_CHUNK ? -EINVAL : 0, "%u", n);
    }
}

/* The largest one still fits twice. */
Test(wire, a_long_text_is_cut_between_characters) {
    static struct rdzv_evidence piece;
    _cleanup_(strbuf_fini) struct strbuf text = {0}, got = {0};
    unsigned pieces = 0;
    while (text.len < 3 * RDZV_EVIDENCE_CHUNK_MAX)
        strbuf_add(&text, "x\xe2\x82\xac");
    for (size_t at = 0; !piece.last; pieces++) {
        at += rdzv_evidence_put(&piece, strbuf_text(&text) + at, text.len - at);
        for (const char *s = piece.text; *s != '\0'; s += utf8_char(s))
            cr_assert_gt(utf8_char(s), 0, "it was cut inside a character");
        strbuf_add(&got, piece.text);
    }
    cr_assert_eq(pieces, 4);
    cr_assert_str_eq(strbuf_text(&got), strbuf_text(&text));
    cr_assert_eq(rdzv_evidence_put(&piece, "", 0), 0);
    cr_assert(piece.last && piece.text[0] == '\0');
}

Test(wire, signs_of_as_many_workers_as_one_message_has_fit) {
    static struct wire_message in, out;
    in = (struct wire_message){.kind = WIRE_SIGNS, .signs = {.generation = {1, 1}, .n = RDZV_SIGNS_CHUNK}};
    for (uint32_t i = 0; i < RDZV_SIGNS_CHUNK; i++)
        in.signs.list[i] =
            (struct worker_signs){UINT32_MAX, UINT32_MAX, UINT64_MAX, true, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    wire_encode(&in, &text);
    cr_assert_lt(text.len, WIRE_MESSAGE_MAX / 2);
    there_and_back(&in, &out);
    cr_assert_eq(out.signs.n, RDZV_SIGNS_CHUNK);
}
