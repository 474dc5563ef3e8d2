#include "launcher/hosts/hostfilter.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "launcher/hosts/words.h"

/* Numbers of GPUs, each once, in the order written. */
struct gpus {
    uint64_t has[HOST_GPUS_MAX / 64];
    uint32_t *ids; /* owned */
    uint32_t n;
};

/* What the filter says of one host. */
struct pick {
    bool whole;
    struct gpus gpus;
};

struct filter {
    bool exclude;
    const struct hosts *hosts;
    size_t n;           /* of the hosts */
    struct pick *picks; /* owned: one for each host */
    bool *keep;         /* owned: one for each host */
    size_t names;       /* named so far */
    struct err *err;
};

static void filter_fini(struct filter *f) {
    for (size_t i = 0; i < f->n; i++)
        free(f->picks[i].gpus.ids);
    free(f->picks);
    free(f->keep);
}

/* ---- reading ---- */

static bool has(const struct gpus *g, uint32_t id) {
    return (g->has[id / 64] >> (id % 64) & 1) != 0;
}

static void add(struct gpus *g, uint32_t id) {
    if (has(g, id))
        return;
    g->has[id / 64] |= UINT64_C(1) << (id % 64);
    g->ids = xrealloc(g->ids, (g->n + 1) * sizeof *g->ids);
    g->ids[g->n++] = id;
}

static void gpus_fini(struct gpus *g) { free(g->ids); }

/* Reads "0,2". */
static int read_gpus(struct filter *f, const char *text, struct gpus *g) {
    for (;; text++) {
        uint32_t id;
        size_t n = strcspn(text, ",");
        int r = words_number(text, n, "a GPU", 0, HOST_GPUS_MAX - 1, &id, f->err);
        if (r < 0)
            return r;
        add(g, id);
        text += n;
        if (*text == '\0')
            return 0;
    }
}

/* What a spec says of one of its names. `gpus` is empty if it means the whole host. */
static int pick(struct filter *f, const char *name, const struct gpus *gpus) {
    const struct host *host = hosts_find(f->hosts, name);
    if (host == NULL)
        return err_set(f->err, -EINVAL, "%s is not one of the hosts", name);
    struct pick *p = &f->picks[host - f->hosts->items];
    p->whole = p->whole || gpus->n == 0;
    for (uint32_t i = 0; i < gpus->n; i++) {
        if (host->slots > 0 && gpus->ids[i] >= host->slots)
            return err_set(f->err, -EINVAL,
                           "host %s has %" PRIu32 " slots, so there is no GPU %" PRIu32, name,
                           host->slots, gpus->ids[i]);
        add(&p->gpus, gpus->ids[i]);
    }
    return 0;
}

static int read_spec(struct filter *f, const char *spec) {
    _cleanup_(hostlist_fini) struct hostlist names = {0};
    _cleanup_(gpus_fini) struct gpus gpus = {0};
    size_t n = words_span(spec, ":");
    int r = words_names(spec, n, &names, f->err);
    if (r == 0 && spec[n] == ':')
        r = read_gpus(f, spec + n + 1, &gpus);
    if (r < 0)
        return r;
    if (names.n > HOSTFILTER_NAMES_MAX - f->names)
        return err_set(f->err, -ERANGE, "hosts are named more than %u times", HOSTFILTER_NAMES_MAX);
    f->names += names.n;
    for (size_t i = 0; r == 0 && i < names.n; i++)
        r = pick(f, names.names[i], &gpus);
    return r;
}

static int read_specs(struct filter *f, const char *text) {
    if (strnlen(text, HOSTLIST_TEXT_MAX + 1) > HOSTLIST_TEXT_MAX)
        return err_set(f->err, -ERANGE, "more than %zu bytes", HOSTLIST_TEXT_MAX);
    for (;; text++) {
        size_t n = words_span(text, "@");
        _cleanup_(freep) char *spec = xstrndup(text, n);
        int r = read_spec(f, spec);
        if (r < 0)
            return r;
        text += n;
        if (*text == '\0')
            return 0;
    }
}

/* ---- applying ---- */

/* Turns the GPUs to exclude into those that are left. */
static int invert(struct filter *f, const struct host *host, struct gpus *g) {
    if (host->slots == 0 || host->slots > HOST_GPUS_MAX)
        return err_set(f->err, -EINVAL,
                       "which GPUs of host %s are left is not known: give its slots, at most %u, "
                       "as in -H %s:8, or slots=8 in a host file",
                       host->name, HOST_GPUS_MAX, host->name);
    struct gpus left = {0};
    for (uint32_t id = 0; id < host->slots; id++)
        if (!has(g, id))
            add(&left, id);
    gpus_fini(g);
    *g = left;
    return 0;
}

/* Decides whether a host is kept, and then which GPUs of it: none in the list are all. */
static int decide(struct filter *f, const struct host *host, struct pick *p, bool *ret_keep) {
    bool named = p->whole || p->gpus.n > 0;
    if (p->whole)
        p->gpus.n = 0;
    *ret_keep = named != f->exclude;
    if (!f->exclude || p->gpus.n == 0)
        return 0;
    int r = invert(f, host, &p->gpus);
    *ret_keep = r == 0 && p->gpus.n > 0;
    return r;
}

static int run(struct filter *f, const char *text) {
    size_t left = 0;
    int r = read_specs(f, text);
    for (size_t i = 0; r == 0 && i < f->n; i++) {
        r = decide(f, &f->hosts->items[i], &f->picks[i], &f->keep[i]);
        left += f->keep[i];
    }
    if (r == 0 && left == 0)
        r = err_set(f->err, -EINVAL, "no host is left");
    return r;
}

static void apply(struct filter *f, struct hosts *hosts) {
    for (size_t i = 0; i < f->n; i++) {
        struct host *host = &hosts->items[i];
        struct gpus *g = &f->picks[i].gpus;
        if (!f->keep[i] || g->n == 0)
            continue;
        host->gpus = TAKE_PTR(g->ids);
        host->n_gpus = host->slots = g->n;
    }
    hosts_keep(hosts, f->keep);
}

int hosts_filter(struct hosts *hosts, const char *include, const char *exclude, struct err *err) {
    if (include != NULL && exclude != NULL)
        return err_set(err, -EINVAL, "--include and --exclude do not go together: give one");
    if (include == NULL && exclude == NULL)
        return 0;
    _cleanup_(filter_fini) struct filter f = {
        .exclude = exclude != NULL,
        .hosts = hosts,
        .n = hosts->n,
        .picks = xcalloc(hosts->n, sizeof *f.picks),
        .keep = xcalloc(hosts->n, sizeof *f.keep),
        .err = err,
    };
    int r = run(&f, f.exclude ? exclude : include);
    if (r < 0) {
        err_prefix(err, f.exclude ? "--exclude" : "--include");
        return r;
    }
    apply(&f, hosts);
    return 0;
}
