#include "launcher/ssh/ssh_args.h"

#include <stdio.h>
#include <string.h>

#include "launcher/place/place.h"

static void add(struct ssh_boot *boot, char *word) {
    ssh_boot_word(boot, word);
    free(word);
}

static void add_endpoint(const struct ssh_place *place, struct ssh_boot *boot) {
    char port[8] = "PORT"; /* where nothing is started, it is not known */
    const bool v6 = strchr(place->addr, ':') != NULL;
    if (place->port > 0)
        (void)snprintf(port, sizeof port, "%u", place->port);
    add(boot, xasprintf("--rdzv-endpoint=%s%s%s:%s", v6 ? "[" : "", place->addr, v6 ? "]" : "",
                        port));
}

static void add_gpus(const struct host *host, struct ssh_boot *boot) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    for (uint32_t i = 0; i < host->n_gpus; i++)
        strbuf_printf(&list, "%s%u", i > 0 ? "," : "", host->gpus[i]);
    if (host->n_gpus > 0)
        envlist_set(&boot->env, "CUDA_VISIBLE_DEVICES", strbuf_text(&list));
}

void ssh_args(const struct job_spec *spec, const struct ssh_place *place, char *const *args,
              struct ssh_boot *boot) {
    const struct job_hosts *hosts = &spec->hosts;
    const struct host *host = &hosts->list.items[place->host];
    if (hosts->add_nnodes)
        add(boot, xasprintf("--nnodes=%u", spec->rdzv.max_nodes));
    if (hosts->add_node_rank)
        add(boot, xasprintf("--node-rank=%zu",
                            (place->host + hosts->list.n - place->first) % hosts->list.n));
    if (hosts->add_nproc && host->slots > 0)
        add(boot, xasprintf("--nproc-per-node=%u", host->slots));
    if (hosts->run_id != NULL)
        add(boot, xasprintf("--rdzv-id=%s", hosts->run_id));
    if (hosts->add_backend)
        ssh_boot_word(boot, "--rdzv-backend=c10d");
    if (hosts->meet)
        add_endpoint(place, boot);
    envlist_setf(&boot->env, STARTER_WORDS_ENV, "%zu", boot->n_args);
    for (; *args != NULL; args++)
        ssh_boot_word(boot, *args);
    add_gpus(host, boot);
    if (hosts->add_is_host) /* no word: the user's own --rdzv-conf would replace it */
        envlist_set(&boot->env, STARTER_FIRST_ENV, place->host == place->first ? "1" : "0");
}

/* Those of this machine itself, or of a link that no other host has. */
static bool is_narrow(const char *addr, size_t len) {
    return strncmp(addr, "127.", 4) == 0 || (len == 3 && strncmp(addr, "::1", 3) == 0) ||
           strncmp(addr, "169.254.", 8) == 0 || strncmp(addr, "fe80:", 5) == 0;
}

char *ssh_meeting_addr(const char *addrs) {
    for (const char *at = addrs; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (n > 0 && !is_narrow(at, n))
            return xstrndup(at, n);
        at += n + (at[n] == ',');
    }
    size_t n = strcspn(addrs, ",");
    return n > 0 ? xstrndup(addrs, n) : xstrdup("127.0.0.1");
}
