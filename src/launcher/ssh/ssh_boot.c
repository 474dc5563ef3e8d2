#include "launcher/ssh/ssh_boot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/frame.h"
#include "base/text/parse.h"

#define GRACE_MAX_NS (UINT64_C(1) << 62) /* a clock's time can be added to it */

/* ---- the beginning ---- */

int ssh_find_begin(const uint8_t *data, size_t len, size_t *ret_bytes) {
    static const char any[] = "\nMUSTER-SSH ";
    const size_t n_any = sizeof any - 1, n_begin = sizeof SSH_BEGIN - 1;
    const uint8_t *at = memmem(data, len, any, n_any);
    if (at == NULL || (size_t)(at - data) > SSH_NOISE_MAX)
        return len > SSH_NOISE_MAX + n_any ? -EMSGSIZE : FRAME_E_MORE;
    size_t left = len - (size_t)(at - data);
    if (memcmp(at, SSH_BEGIN, MIN2(left, n_begin)) != 0)
        return -EPROTONOSUPPORT;
    if (left < n_begin)
        return FRAME_E_MORE;
    *ret_bytes = (size_t)(at - data) + n_begin;
    return 0;
}

/* ---- BOOT ---- */

/* The first byte of each text says what it is. */
enum {
    TEXT_CWD = 'c',
    TEXT_GRACE = 'g',
    TEXT_JOB = 'j',
    TEXT_WORD = 'a',
    TEXT_VARIABLE = 'e',
};

void ssh_boot_fini(struct ssh_boot *boot) {
    free(boot->cwd);
    if (boot->job != NULL)
        explicit_bzero(boot->job, strlen(boot->job)); /* it can have a password */
    free(boot->job);
    words_free(boot->args);
    envlist_fini(&boot->env);
    *boot = (struct ssh_boot){0};
}

static void add_text(struct strbuf *to, char what, const char *text) {
    strbuf_add_char(to, what);
    strbuf_add_bytes(to, text, strlen(text) + 1);
}

int ssh_boot_add(const struct ssh_boot *boot, struct strbuf *to, struct err *err) {
    _cleanup_(strbuf_forget) struct strbuf all = {.is_secret = true};
    char *const *env = envlist_items(&boot->env);
    char grace[32];
    (void)snprintf(grace, sizeof grace, "%" PRIu64, boot->grace_ns);
    add_text(&all, TEXT_CWD, boot->cwd);
    add_text(&all, TEXT_GRACE, grace);
    if (boot->job != NULL)
        add_text(&all, TEXT_JOB, boot->job);
    for (size_t i = 0; i < boot->n_args; i++)
        add_text(&all, TEXT_WORD, boot->args[i]);
    for (size_t i = 0; env[i] != NULL; i++)
        add_text(&all, TEXT_VARIABLE, env[i]);
    if (all.len > SSH_BOOT_MAX)
        return err_set(err, -E2BIG,
                       "the command line and the environment have %zu bytes, and at most %zu can "
                       "be sent to other hosts; send fewer variables: --export",
                       all.len, SSH_BOOT_MAX);
    const char *text = strbuf_text(&all);
    size_t left = all.len;
    for (; left > STARTER_DATA_MAX; left -= STARTER_DATA_MAX, text += STARTER_DATA_MAX)
        starter_add_data(STARTER_BOOT_PART, text, STARTER_DATA_MAX, to);
    starter_add_data(STARTER_BOOT, text, left, to);
    return 0;
}

/* An environment without a name twice takes no search, unlike envlist_set(). */
static int read_text(char what, const char *text, struct ssh_boot *boot, struct envlist *env,
                     struct err *err) {
    switch (what) {
    case TEXT_CWD:
        if (text[0] != '/' || boot->cwd != NULL)
            return err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
        boot->cwd = xstrdup(text);
        return 0;
    case TEXT_GRACE:
        return parse_u64(text, &boot->grace_ns) == 0 && boot->grace_ns < GRACE_MAX_NS
                   ? 0
                   : err_set(err, -EINVAL, "BOOT has a grace that is not a time");
    case TEXT_JOB:
        if (boot->job != NULL)
            return err_set(err, -EINVAL, "BOOT must have one job");
        boot->job = xstrdup(text);
        return 0;
    case TEXT_WORD: words_add(&boot->args, &boot->n_args, xstrdup(text)); return 0;
    case TEXT_VARIABLE:
        if (text[0] == '=' || strchr(text, '=') == NULL)
            return err_set(err, -EINVAL, "BOOT has a variable without a name, or without \"=\"");
        envlist_add(env, xstrdup(text));
        return 0;
    default: return err_set(err, -EINVAL, "BOOT has a text of an unknown kind");
    }
}

static int read_boot(const char *text, size_t len, struct ssh_boot *ret, struct err *err) {
    if (len == 0 || text[len - 1] != '\0')
        return err_set(err, -EINVAL, "BOOT has a text without its end");
    int r = 0;
    for (size_t n; r == 0 && len > 0; text += n, len -= n) {
        n = strlen(text) + 1;
        r = n < 2 ? err_set(err, -EINVAL, "BOOT has an empty text")
                  : read_text(text[0], text + 1, ret, &ret->env, err);
    }
    if (r == 0 && ret->cwd == NULL)
        r = err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
    return r;
}

int ssh_boot_take(struct strbuf *parts, const struct starter_message *m, struct ssh_boot *ret,
                  struct err *err) {
    assert(m->kind == STARTER_BOOT_PART || m->kind == STARTER_BOOT);
    if (m->data.len > SSH_BOOT_MAX - parts->len)
        return err_set(err, -EMSGSIZE, "BOOT has more than %zu bytes", SSH_BOOT_MAX);
    strbuf_add_bytes(parts, m->data.bytes, m->data.len);
    if (m->kind == STARTER_BOOT_PART)
        return FRAME_E_MORE;
    struct ssh_boot boot = {0};
    int r = read_boot(strbuf_text(parts), parts->len, &boot, err);
    if (r == 0)
        *ret = boot;
    else
        ssh_boot_fini(&boot);
    return r;
}

/* ==== the job of one host ==== */

struct job_spec ssh_job_of(const struct job_spec *spec, const struct ssh_place *place) {
    const struct hosts *hosts = &spec->hosts.list;
    const uint32_t slots = hosts->items[place->host].slots;
    struct job_spec job = *spec;
    if (!job_is_given(spec, "node-rank"))
        job.node_rank = (int32_t)((place->host + hosts->n - place->first) % hosts->n);
    if (!job_is_given(spec, "nproc-per-node") && slots > 0)
        job.nproc = slots;
    if (!job_meets_at_host(spec))
        return job;
    job.endpoint_host = (char *)(uintptr_t)place->addr;
    job.endpoint_port = place->port;
    /* two hosts may have one address (names of one machine, NAT), so addresses don't decide */
    if (job.is_host < 0)
        job.is_host = place->host == place->first;
    return job;
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
