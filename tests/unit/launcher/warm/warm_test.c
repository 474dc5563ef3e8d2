#include "launcher/warm/warm.h"

#include "rig/unit.h"

#define ENV(...) ((char *const *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})

static struct strbuf out; /* of the last go() */
static char reason[WARM_REASON_MAX];

static void finish(void) { strbuf_fini(&out); }
TestSuite(warm, .fini = finish);

static const char *go(char *const *from, char *const *to) {
    strbuf_clear(&out);
    struct warm_to all = {.envp = to, .marker = "1.0.ab", .cwd = "/here", .umask = 022};
    bool ok = warm_go(from, &all, &out, reason);
    cr_assert_eq(warm_may_go(from, to, reason), ok);
    return ok ? strbuf_text(&out) : NULL;
}

Test(warm, a_go_has_what_has_changed) {
    const char *text = go(ENV("PATH=/bin", "RANK=0", "MUSTER_EPOCH=1", "NOTIFY_SOCKET=@a", "MASTER_PORT=1=2"),
                          ENV("PATH=/bin", "RANK=3", "MASTER_PORT=1=2", "MUSTER_EPOCH=1", "LOCAL_RANK="));
    cr_assert_str_eq(text, "{\"kind\":\"go\",\"marker\":\"1.0.ab\",\"cwd\":\"/here\",\"umask\":18,"
                           "\"set\":{\"RANK\":\"3\",\"LOCAL_RANK\":\"\"},\"unset\":[\"NOTIFY_SOCKET\"]}");
    struct warm_to nowhere = {.envp = ENV("RANK=1"), .marker = ""};
    strbuf_clear(&out);
    cr_assert(warm_go(ENV("RANK=1"), &nowhere, &out, reason));
    cr_assert_str_eq(strbuf_text(&out), "{\"kind\":\"go\",\"marker\":\"\",\"umask\":0,\"set\":{},\"unset\":[]}");
}

Test(warm, the_order_of_an_environment_does_not_matter) {
    const char *text = go(ENV("A=1", "RANK=0", "B=2", "C=3"), ENV("C=3", "B=2", "RANK=0", "A=1"));
    cr_assert(strstr(text, "\"set\":{},\"unset\":[]"), "%s", text);
    text = go(ENV("RANK=0", "A=1", "AB=2"), ENV("AB=2", "RANK=1", "A=1"));
    cr_assert(strstr(text, "\"set\":{\"RANK\":\"1\"},\"unset\":[]"), "%s", text);
    cr_assert_null(go(ENV("A=1", "AB=2", "RANK=0"), ENV("RANK=0", "AB=2")));
    cr_assert_str_eq(reason, "A has changed since the modules were imported");
}

Test(warm, only_what_muster_sets_may_change) {
    cr_assert_not_null(go(ENV("NCCL_SOCKET_IFNAME=a", "RANK=0"), ENV("NCCL_SOCKET_IFNAME=b", "RANK=1")));
    strbuf_clear(&out);
    cr_assert_null(go(ENV("ROLE_NAME=a"), ENV("ROLE_NAME=b")));
    cr_assert_null(go(ENV("NCCLX=1"), ENV("NCCLX=2")));
    cr_assert_str_eq(reason, "NCCLX has changed since the modules were imported");
    cr_assert_null(go(ENV("A=1"), ENV("A=1", "OMP_NUM_THREADS=2")));
    cr_assert_str_eq(reason, "OMP_NUM_THREADS has changed since the modules were imported");
    cr_assert_null(go(ENV("A=1", "RANKS=2"), ENV("A=1")));
    cr_assert_str_eq(reason, "RANKS has changed since the modules were imported");
}

Test(warm, the_gate_is_first_in_the_path_and_knows_what_was_there) {
    struct warm_gate gate = {.role = WARM_TEMPLATE, .agent = 7, .zip_fd = 5, .control_fd = 6, .record_fd = 8};
    _cleanup_(envlist_fini) struct envlist none = {0}, some = {0}, empty = {0};
    warm_gate_env(&gate, &none);
    cr_assert_str_eq(envlist_get(&none, "PYTHONPATH"), "/proc/self/fd/5");
    cr_assert_str_eq(envlist_get(&none, "MUSTER_WARM"), "template:7:5:6:8:0:");
    cr_assert_eq(strlen(envlist_get(&none, "MUSTER_WORKER_ID")), WARM_MARKER_ROOM);
    envlist_set(&some, "PYTHONPATH", "/a:/b");
    envlist_set(&some, "MUSTER_WORKER_ID", "1.2.ab");
    gate = (struct warm_gate){
        .role = WARM_RECORD, .agent = 7, .zip_fd = 5, .control_fd = -1, .record_fd = 8, .skip = "x,y"};
    warm_gate_env(&gate, &some);
    cr_assert_str_eq(envlist_get(&some, "PYTHONPATH"), "/proc/self/fd/5:/a:/b");
    cr_assert_str_eq(envlist_get(&some, "MUSTER_WARM"), "record:7:5:-1:8:1:x,y");
    cr_assert_str_eq(envlist_get(&some, "MUSTER_WORKER_ID"), "1.2.ab");
    envlist_set(&empty, "PYTHONPATH", "");
    warm_gate_env(&gate, &empty);
    cr_assert_str_eq(envlist_get(&empty, "PYTHONPATH"), "/proc/self/fd/5");
    cr_assert_str_eq(envlist_get(&empty, "MUSTER_WARM"), "record:7:5:-1:8:1:x,y");
}

Test(warm, a_record_tells_whether_the_gate_was_passed_and_where_it_stopped) {
    char name[8];
    cr_assert(!warm_record_ok("", 0, reason));
    cr_assert(strstr(reason, "did not load muster's sitecustomize"));
    cr_assert(!warm_record_ok("gate 3.11\n", 10, reason));
    cr_assert(strstr(reason, "has imported no installed package"));
    static const char text[] = "gate 3.11\njson\njson.decoder\n!TOKENIZERS_PARALLELISM\n";
    cr_assert(warm_record_ok(text, strlen(text), reason));
    warm_record_stop(text, strlen(text), name, sizeof name);
    cr_assert_str_eq(name, "TOKENIZ");
    warm_record_stop(text, 20, name, sizeof name);
    cr_assert_str_eq(name, "");
}

Test(warm, messages_are_read_strictly) {
    struct warm_message message;
    struct err err = {0};
    static const char ready[] = "{\"kind\": \"ready\", \"pid\": 12, \"seconds\": 1.5, \"modules\": 3, \"failed\": 1, "
                                "\"threads\": \"a, b\", \"devices\": \"\", \"read\": \"RANK\", \"moved\": \"\"}";
    cr_assert_eq(warm_read(ready, strlen(ready), &message, &err), 0, "%s", err.text);
    cr_assert(message.kind == WARM_READY && message.pid == 12 && message.modules == 3 && message.failed == 1);
    cr_assert_str_eq(message.threads, "a, b");
    static const char cold[] = "{\"kind\":\"cold\",\"reason\":\"why\"}";
    cr_assert_eq(warm_read(cold, strlen(cold), &message, &err), 0, "%s", err.text);
    cr_assert(message.kind == WARM_COLD && strcmp(message.reason, "why") == 0);
    cr_assert_eq(warm_read("{\"kind\":\"going\"}", 16, &message, &err), 0);
    static const char *const bad[] = {"",
                                      "{}",
                                      "{\"kind\":\"go\"}",
                                      "{\"kind\":\"cold\"}",
                                      "{\"kind\":\"going\",\"x\":1}",
                                      "{\"kind\":\"ready\",\"pid\":0}"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        cr_assert_lt(warm_read(bad[i], strlen(bad[i]), &message, &err), 0, "%s", bad[i]);
}

Test(warm, threads_devices_and_ranks_refuse) {
    struct warm_message message = {.kind = WARM_READY};
    cr_assert(!warm_refuses(WARM_TEMPLATE, &message, reason));
    strcpy(message.read, "RANK");
    cr_assert(!warm_refuses(WARM_STANDBY, &message, reason));
    cr_assert(warm_refuses(WARM_TEMPLATE, &message, reason));
    cr_assert_str_eq(reason, "an import reads RANK, which differs from rank to rank");
    strcpy(message.threads, "python3");
    cr_assert(!warm_refuses(WARM_STANDBY, &message, reason));
    cr_assert(warm_refuses(WARM_TEMPLATE, &message, reason));
    cr_assert_str_eq(reason, "importing leaves threads: python3");
    strcpy(message.moved, "the umask");
    cr_assert(warm_refuses(WARM_STANDBY, &message, reason));
    cr_assert_str_eq(reason, "importing changes the umask");
    strcpy(message.devices, "/dev/nvidia0");
    cr_assert(warm_refuses(WARM_STANDBY, &message, reason));
    cr_assert_str_eq(reason, "importing opens /dev/nvidia0");
}
