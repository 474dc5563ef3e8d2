#include "launcher/report/failure_text.h"

#include "rig/unit.h"

Test(failure_json, has_what_torchs_exception_needs) {
    struct failure f = {.kind = FAILURE_SIGNAL, .code = SIGSEGV, .rank = 3, .local_rank = 1, .pid = 77};
    (void)snprintf(f.node, sizeof f.node, "b");
    (void)snprintf(f.text, sizeof f.text, "a \"b\"\n");
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    failure_json("train.py", &f, &got);
    cr_assert_str_eq(strbuf_text(&got),
                     "{\"entrypoint\":\"train.py\",\"node\":\"b\",\"cause\":\"died of SIGSEGV\",\"rank\":3,"
                     "\"local_rank\":1,\"pid\":77,\"exitcode\":-11,\"error_file\":\"\","
                     "\"text\":\"a \\\"b\\\"\\n\"}\n");
}

Test(failure_json, a_lost_node_has_no_rank) {
    struct failure f = {.kind = FAILURE_NODE};
    (void)snprintf(f.node, sizeof f.node, "b");
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    failure_json("t", &f, &got);
    cr_assert_str_eq(
        strbuf_text(&got),
        "{\"entrypoint\":\"t\",\"node\":\"b\",\"cause\":\"was lost\",\"error_file\":\"\",\"text\":\"\"}\n");
}
