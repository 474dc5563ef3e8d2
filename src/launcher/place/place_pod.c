#include "launcher/place/place.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/envlist.h"
#include "base/text/parse.h"

#define BLANKS " \t\r\f\v"
#define WORDS_MAX 3 /* of a line that are looked at: address, full name, host name */

/* A piece of a text that goes on behind it. */
struct word {
    const char *at;
    size_t len;
};

/* The first words of a line of hosts(5), without its comment. Returns how many, <= WORDS_MAX. */
static size_t split(const char *line, size_t len, struct word ret[WORDS_MAX]) {
    const char *comment = memchr(line, '#', len);
    const char *end = comment != NULL ? comment : line + len;
    size_t n = 0;
    for (const char *c = line; n < WORDS_MAX; n++) {
        c += MIN2(strspn(c, BLANKS), (size_t)(end - c));
        if (c == end)
            break;
        ret[n] = (struct word){.at = c, .len = MIN2(strcspn(c, BLANKS), (size_t)(end - c))};
        c += ret[n].len;
    }
    return n;
}

/* Letters, digits, dots and dashes: RFC 1123 §2.1. */
static bool is_name(const struct word *w) {
    for (size_t i = 0; i < w->len; i++)
        if (!isalnum((unsigned char)w->at[i]) && w->at[i] != '.' && w->at[i] != '-')
            return false;
    return w->len > 0 && w->len < PLACE_POD_NAME_MAX;
}

static bool same(const struct word *a, const struct word *b) {
    return a->len == b->len && strncasecmp(a->at, b->at, a->len) == 0;
}

/* The length of JOB in "JOB-INDEX", 0: it is another name. */
static size_t job_length(const struct word *label, uint32_t index) {
    char end[16];
    int n = snprintf(end, sizeof end, "-%u", index);
    bool ends_so =
        label->len > (size_t)n && memcmp(label->at + label->len - (size_t)n, end, (size_t)n) == 0;
    return ends_so ? label->len - (size_t)n : 0;
}

static void keep(char *ret, size_t size, const struct word *text) {
    (void)snprintf(ret, size, "%.*s", (int)MIN2(text->len, size - 1), text->at);
}

/* One line: "ADDRESS JOB-INDEX.SUBDOMAIN… JOB-INDEX". A line that the user added (hostAliases) can
 * have such a name, too, but not with the host name behind it and before the pod's own lines. */
static void read_line(struct place_pod *p, const char *line, size_t len) {
    struct word words[WORDS_MAX];
    if (split(line, len, words) < WORDS_MAX)
        return;
    const struct word *addr = &words[0], *full = &words[1], *host = &words[2];
    const char *dot = memchr(full->at, '.', full->len);
    if (dot == NULL || !is_name(full) || addr->len >= PLACE_POD_ADDR_MAX)
        return;
    const struct word label = {.at = full->at, .len = (size_t)(dot - full->at)};
    size_t job = job_length(&label, p->index);
    if (job == 0 || !same(&label, host))
        return;
    if (p->full_name[0] == '\0') {
        keep(p->full_name, sizeof p->full_name, full);
        keep(p->job, sizeof p->job, &(struct word){.at = label.at, .len = job});
        /* no longer than the full name */
        char *end = mempcpy(p->first_host, label.at, job);
        end = mempcpy(end, "-0", 2);
        (void)memcpy(end, dot, full->len - label.len);
    }
    const struct word known = {.at = p->full_name, .len = strlen(p->full_name)};
    if (same(full, &known) && p->n_addrs < PLACE_POD_ADDRS_MAX)
        keep(p->addrs[p->n_addrs++], PLACE_POD_ADDR_MAX, addr);
}

void place_read_pod(char *const *envp, const char *hosts, struct place_pod *ret) {
    const char *service = env_get(envp, "KUBERNETES_SERVICE_HOST");
    const char *index = env_get(envp, "JOB_COMPLETION_INDEX");
    *ret = (struct place_pod){.kind = PLACE_POD_NONE};
    if (service == NULL || service[0] == '\0')
        return;
    ret->kind = PLACE_POD_PLAIN;
    if (index == NULL)
        return;
    if (parse_u32(index, &ret->index) < 0) {
        ret->bad_index = index;
        return;
    }
    ret->kind = PLACE_POD_INDEXED;
    for (const char *line = hosts; line != NULL && *line != '\0'; line = text_next_line(line))
        read_line(ret, line, strcspn(line, "\n"));
}

bool place_pod_is_own(const struct place_pod *p, const char *host) {
    size_t n = strlen(host);
    if (strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
        strcmp(host, "::1") == 0)
        return true;
    bool begins = n > 0 && strncasecmp(p->full_name, host, n) == 0;
    if (begins && (p->full_name[n] == '\0' || p->full_name[n] == '.'))
        return true;
    for (uint32_t i = 0; i < p->n_addrs; i++)
        if (strcasecmp(p->addrs[i], host) == 0)
            return true;
    return false;
}
