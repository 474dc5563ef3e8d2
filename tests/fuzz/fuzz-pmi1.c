/* Any bytes as a PMI-1 server's. The first byte is the number of tasks; the rest arrives in one piece, and again in
 * two: both lead to the same end. At the end either an error with a sentence, or an unfinished conversation, or all
 * cards, of which a place or a sentence comes. */
#include <string.h>

#include "launcher/pmi/pmi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static int converse(struct pmi1 *pmi, struct pmi_tasks *tasks, const uint8_t *data, size_t size, size_t cut,
                    struct strbuf *out) {
    struct err err = {0};
    pmi_card_write("host1", "muster-key-1:0", tasks->own);
    pmi1_begin(pmi, tasks, out);
    int r = pmi1_receive(pmi, (const char *)data, cut, out, &err);
    if (r == 0)
        r = pmi1_receive(pmi, (const char *)data + cut, size - cut, out, &err);
    check((r < 0) == (err.text[0] != '\0'));
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
    const uint32_t n = 1 + data[0] % 8;
    struct pmi_tasks tasks[2] = {{.n = n}, {.n = n}};
    struct strbuf out[2] = {{0}};
    struct pmi1 pmi[2];
    int r[2];
    for (size_t i = 0; i < 2; i++)
        r[i] = converse(&pmi[i], &tasks[i], data + 1, size - 1, i * (data[1] % size), &out[i]);
    check(r[0] == r[1] && pmi[0].state == pmi[1].state);
    check(strcmp(strbuf_text(&out[0]), strbuf_text(&out[1])) == 0);
    if (pmi[0].state == PMI1_DONE)
        check_place(&tasks[0]);
    for (size_t i = 0; i < 2; i++) {
        pmi_tasks_fini(&tasks[i]);
        strbuf_fini(&out[i]);
    }
    return 0;
}
