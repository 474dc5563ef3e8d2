/* Any bytes as the answers of a PMI-1 server, which has gone then; the first is the number of tasks. At the end either
 * an error, or all cards, of which a place or a sentence comes. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "launcher/pmi/pmi_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static int converse(struct pmi_tasks *tasks, const uint8_t *data, size_t size) {
    struct err err = {0};
    bool waits;
    int fds[2];
    pmi_card_write("host1", "muster-key-1:0", tasks->own);
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    check(write(fds[1], data, size) == (ssize_t)size && shutdown(fds[1], SHUT_WR) == 0);
    int r = pmi1_ask(fds[0], tasks, clock_now_ns() + 60 * NS_PER_S, &waits, &err);
    check(r == 0 || r == -EPROTO || r == -ECONNRESET);
    check((r == -EPROTO) == (err.text[0] != '\0'));
    (void)close(fds[0]);
    (void)close(fds[1]);
    return r;
}

static void check_place(const struct pmi_tasks *tasks) {
    struct place place = {0};
    char *run_id = NULL;
    struct err err = {0};
    for (uint32_t i = 0; i < tasks->n; i++)
        check(strlen(tasks->cards[i]) < PMI_CARD_MAX);
    if (pmi_tasks_read(tasks, &place, &run_id, &err) < 0) {
        check(err.text[0] != '\0');
        return;
    }
    check(place.n_nodes >= 1 && place.n_nodes <= tasks->n && place.node_id < place.n_nodes);
    check(place.node_tasks >= 1 && place.node_tasks <= place.most_tasks && place.local_id < place.node_tasks);
    const size_t len = strlen(run_id), kept = len - strlen(".01234567"); /* and a hash */
    check(place.first_host[0] != '\0' && len > kept && strncmp(run_id, tasks->run_id, kept) == 0);
    free(place.first_host);
    free(run_id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 65536)
        return 0;
    struct pmi_tasks tasks = {.n = 1 + data[0] % 8};
    if (converse(&tasks, data + 1, size - 1) == 0)
        check_place(&tasks);
    pmi_tasks_fini(&tasks);
    return 0;
}
