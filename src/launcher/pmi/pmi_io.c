#include "launcher/pmi/pmi_io.h"

#include <errno.h>
#include <string.h>

#include "base/text/parse.h"
#include "io/clock.h"
#include "io/net/resolver.h"
#include "launcher/pmi/pmi1_io.h"
#include "launcher/pmi/pmi_tasks.h"
#include "launcher/pmi/pmix_io.h"

static_assert(PMI_KEY_TEXT_MAX >= AUTH_KEY_TEXT_MAX, "a key fits");

/* Without OpenSSL on its node, rank 0 gives no key, as a starter does. */
static bool make_key(char ret[AUTH_KEY_TEXT_MAX]) {
    _cleanup_(keyring_freep) struct keyring *ring = NULL;
    uint8_t secret[AUTH_SECRET_BYTES];
    random_bytes(secret, sizeof secret);
    auth_key_to_text(secret, ret);
    const bool is_made = keyring_new(&ring, NULL) == 0 &&
                         keyring_add(ring, secret, AUTH_FROM_HEAD, NULL) == 0 &&
                         keyring_derive(ring, NULL) == 0;
    explicit_bzero(secret, sizeof secret);
    return is_made;
}

static void write_own_card(struct pmi_tasks *tasks) {
    char host[RESOLVE_NAME_MAX + 1], key[AUTH_KEY_TEXT_MAX] = "";
    const bool has_key = tasks->rank == 0 && make_key(key);
    resolve_own_name(host, sizeof host);
    pmi_card_write(host, has_key ? key : NULL, tasks->own);
    explicit_bzero(key, sizeof key);
}

static int take_key(const struct pmi_tasks *tasks, struct keyring *ring, struct err *err) {
    const char *text = pmi_card_key(tasks->cards[0]);
    uint8_t secret[AUTH_SECRET_BYTES];
    if (text == NULL)
        return 0;
    int r = auth_key_from_text(text, strlen(text), "the key of task 0", secret, err);
    if (r == 0)
        r = keyring_add(ring, secret, AUTH_FROM_HEAD, err);
    explicit_bzero(secret, sizeof secret);
    return r;
}

static int ask(const struct launcher *row, char *const *envp, struct pmi_tasks *tasks,
               struct err *err) {
    switch (row->sizes) {
    case LAUNCHER_BY_PMI1: return pmi1_read(envp, row->title, PMI1_NS, tasks, err);
    case LAUNCHER_BY_PMIX: return pmix_read(envp, tasks, err);
    case LAUNCHER_BY_VARIABLES: break;
    }
    return -ENOSYS;
}

int pmi_read(const struct launcher *row, char *const *envp, struct keyring *key,
             struct place_pmi *ret, struct err *err) {
    _cleanup_(pmi_tasks_fini) struct pmi_tasks tasks = {0};
    uint32_t n, rank;
    const char *n_text = launcher_value(envp, row->tasks, NULL),
               *rank_text = launcher_value(envp, row->task, NULL);
    if (n_text == NULL || rank_text == NULL || parse_u32(n_text, &n) < 0 ||
        parse_u32(rank_text, &rank) < 0 || rank >= n)
        return -ENOENT;
    if (n > PMI_TASKS_MAX)
        return err_set(err, -E2BIG, "%s has %u tasks; muster takes at most %u", row->title, n,
                       PMI_TASKS_MAX);
    tasks.n = n;
    tasks.rank = rank;
    write_own_card(&tasks);
    int r = ask(row, envp, &tasks, err);
    if (r == 0)
        r = pmi_tasks_read(&tasks, ret, err);
    if (r == 0)
        r = take_key(&tasks, key, err);
    return r;
}
