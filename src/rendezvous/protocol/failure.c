#include "rendezvous/protocol/failure.h"

#include <signal.h>

#include "base/util.h"

static int noise_of_exit(const struct failure *f) {
    static const char *const echoes[] = {
        "DistNetworkError",
        "DistStoreError",
        "DistBackendError",
        "NCCL",
        "TCPStore",
        "gloo",
        "Connection closed by peer",
        "Connection refused",
        "Connection reset by peer",
        "lost the connection",
    };
    return text_has_any(f->text, echoes, ARRAY_SIZE(echoes)) ? 2 : 1;
}

int failure_noise(const struct failure *f) {
    switch (f->kind) {
    case FAILURE_OOM:
    case FAILURE_SPAWN:
    case FAILURE_HANG: return 0;
    case FAILURE_SIGNAL: return f->code == SIGABRT || f->code == SIGPIPE ? noise_of_exit(f) : 0;
    case FAILURE_EXIT:
    case FAILURE_NODE: return noise_of_exit(f);
    case FAILURE_NONE:
    case FAILURE_KIND_COUNT: return 3;
    }
    assert_not_reached();
}

bool failure_may_end_node(const struct failure *f) {
    return f->kind == FAILURE_OOM ||
           (f->kind == FAILURE_SIGNAL && (f->code == SIGKILL || f->code == SIGTERM));
}
