/* A PMIx library that needs no server, for tests of what its helper makes of its answers. FAKE_PMIX has words:
 *
 *     FUNCTION=hang, FUNCTION=crash, FUNCTION=fail   what this function does
 *     late                                           not all tasks come
 *     slow-card                                      the card of task 1 is there when it is asked for again
 *     no-hosts                                       the server has forgotten the tasks' hosts, as Open MPI's can
 *
 * Task i runs on host "node" i/2, and has published "card" i; task 0 what it was given, or a card with a key. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/pmi/pmix_abi.h"

static struct pmix_process own;
static char *card;

static int act(const char *function) {
    const char *words = getenv("FAKE_PMIX"), *at = words != NULL ? strstr(words, function) : NULL;
    const char *what = at != NULL ? at + strlen(function) : "";
    if (strncmp(what, "=hang", 5) == 0)
        for (;;)
            (void)pause();
    if (strncmp(what, "=crash", 6) == 0)
        (void)raise(SIGKILL);
    return strncmp(what, "=fail", 5) == 0 ? -25 : 0;
}

int PMIx_Init(struct pmix_process *ret, void *info, size_t n);
int PMIx_Init(struct pmix_process *ret, void *info, size_t n) {
    (void)info;
    (void)n;
    own.rank = (uint32_t)atoi(getenv("PMIX_RANK"));
    (void)snprintf(own.nspace, sizeof own.nspace, "fake@1");
    *ret = own;
    return act("PMIx_Init");
}

int PMIx_Put(uint8_t scope, const char *key, struct pmix_text *value);
int PMIx_Put(uint8_t scope, const char *key, struct pmix_text *value) {
    (void)key;
    card = strdup(value->data.string);
    return scope == PMIX_TO_ALL && value->type == PMIX_TYPE_STRING ? act("PMIx_Put") : -1;
}

int PMIx_Commit(void);
int PMIx_Commit(void) { return act("PMIx_Commit"); }

int PMIx_Fence_nb(const struct pmix_process *list, size_t n, const void *info, size_t m, pmix_done_fn *fn, void *arg);
int PMIx_Fence_nb(const struct pmix_process *list, size_t n, const void *info, size_t m, pmix_done_fn *fn, void *arg) {
    (void)list;
    (void)n;
    (void)info;
    (void)m;
    const char *words = getenv("FAKE_PMIX");
    if (words == NULL || strstr(words, "late") == NULL)
        fn(act("PMIx_Fence"), arg);
    return PMIX_OK;
}

int PMIx_Get(const struct pmix_process *of, const char *key, const void *info, size_t n, struct pmix_text **ret);
int PMIx_Get(const struct pmix_process *of, const char *key, const void *info, size_t n, struct pmix_text **ret) {
    (void)info;
    (void)n;
    const char *words = getenv("FAKE_PMIX");
    const int is_host = strcmp(key, PMIX_KEY_HOSTNAME) == 0;
    if (is_host && words != NULL && strstr(words, "no-hosts") != NULL)
        return PMIX_NONE;
    static int asked;
    if (!is_host && of->rank == 1 && words != NULL && strstr(words, "slow-card") != NULL && asked++ == 0)
        return PMIX_NONE;
    char text[512];
    if (is_host)
        (void)snprintf(text, sizeof text, "node%u", of->rank / 2);
    else if (of->rank == own.rank)
        (void)snprintf(text, sizeof text, "%s", card);
    else
        (void)snprintf(text, sizeof text, of->rank == 0 ? "card%u,the-key" : "card%u", of->rank);
    *ret = calloc(1, sizeof **ret);
    (*ret)->type = PMIX_TYPE_STRING;
    (*ret)->data.string = strdup(text);
    return act("PMIx_Get");
}

int PMIx_Finalize(const void *info, size_t n);
int PMIx_Finalize(const void *info, size_t n) {
    (void)info;
    (void)n;
    return act("PMIx_Finalize");
}

const char *PMIx_Error_string(int status);
const char *PMIx_Error_string(int status) { return status == -25 ? "UNREACHABLE" : "NOT-FOUND"; }
