#include "watchdog/judge/suspects.h"

#include "base/json/json.h"
#include "rig/unit.h"

static struct strbuf text, json;

static void finish(void) {
    strbuf_fini(&text);
    strbuf_fini(&json);
}
TestSuite(suspects_native, .fini = finish);

Test(suspects_native, stacks_and_gaps_are_told) {
    struct evidence_worker two = {.rank = 2, .pid = 12, .native_stack = (char[]){"thread 12:\n  pause\n"}};
    struct evidence_worker five = {.rank = 5, .pid = 15};
    evidence_worker_gap(&five, "native stack: eu-stack is not installed (elfutils)");
    struct suspects_native list[] = {{.rank = 2, .node = "b", .worker = &two},
                                     {.rank = 5, .node = "c", .worker = &five},
                                     {.rank = 7, .node = "d", .missing = "it was lost"}};
    suspects_native_text(list, 3, &text);
    cr_assert_str_eq(strbuf_text(&text), "\nnative stacks, read before these were ended\n"
                                         "\nrank 2 (node b, pid 12)\n    thread 12:\n      pause\n"
                                         "\nrank 5 (node c, pid 15)\n"
                                         "  missing: native stack: eu-stack is not installed (elfutils)\n"
                                         "\nrank 7 (node d)\n  missing: native stack: it was lost\n");
    suspects_native_json(list, 3, &json);
    cr_assert_str_eq(strbuf_text(&json),
                     ",\"native_stacks\":["
                     "{\"rank\":2,\"node\":\"b\",\"pid\":12,\"stack\":\"thread 12:\\n  pause\\n\",\"gaps\":[]},"
                     "{\"rank\":5,\"node\":\"c\",\"pid\":15,\"stack\":null,"
                     "\"gaps\":[\"native stack: eu-stack is not installed (elfutils)\"]},"
                     "{\"rank\":7,\"node\":\"d\",\"pid\":null,\"stack\":null,\"gaps\":[\"it was lost\"]}],"
                     "\"native_stacks_left_out\":0");
}

Test(suspects_native, of_many_some_are_told) {
    struct suspects_native list[SUSPECTS_NATIVE_MAX + 3];
    for (uint32_t i = 0; i < SUSPECTS_NATIVE_MAX + 3; i++)
        list[i] = (struct suspects_native){.rank = i, .node = "b", .missing = "it was lost"};
    suspects_native_text(list, SUSPECTS_NATIVE_MAX + 3, &text);
    assert_has(strbuf_text(&text), "\n3 more suspects are left out\n");
    cr_assert(strstr(strbuf_text(&text), "rank 15 ") != NULL && strstr(strbuf_text(&text), "rank 16 ") == NULL);
    suspects_native_json(list, SUSPECTS_NATIVE_MAX + 3, &json);
    assert_has(strbuf_text(&json), "\"native_stacks_left_out\":3");
}
