#include "launcher/hosts/hosts.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text/parse.h"
#include "base/text/strbuf.h"
#include "base/text/utf8.h"

/* ==== host lists ==== */

#define SHOWN_BEFORE ((size_t)40)
#define SHOWN_AFTER ((size_t)40)

/* What is read, for errors. */
struct source {
    const char *list;
    struct err *err;
};

/* Sets an error that quotes the list around this place, and returns `code`. */
#define bad(src, code, at, ...) bad_for(src, code, at, xasprintf(__VA_ARGS__))
static int bad_for(const struct source *src, int code, const char *at, char *reason) {
    char shown[SHOWN_BEFORE + SHOWN_AFTER + 1];
    size_t place = (size_t)(at - src->list);
    const char *begin = place > SHOWN_BEFORE ? at - SHOWN_BEFORE : src->list;
    size_t n = strnlen(begin, sizeof shown - 1);
    memcpy(shown, begin, n);
    shown[n] = '\0';
    utf8_clean(shown, false);
    (void)err_set(src->err, code, "cannot read the host list \"%s%s%s\": at character %zu %s",
                  begin > src->list ? "..." : "", shown, begin[n] != '\0' ? "..." : "", place + 1,
                  reason);
    free(reason);
    return code;
}

/* Of a number without its leading zeros. */
#define NUMBER_DIGITS_MAX 18

struct number {
    uint64_t value;
    size_t width; /* with leading zeros */
};

/* One item of a list. The numbers of all its brackets stand one after the other. */
struct item {
    const char *begin, *end;
    struct {
        size_t first, n; /* in `numbers` */
    } brackets[HOSTLIST_BRACKETS_MAX];
    uint32_t n;
    size_t hosts;
    struct number *numbers; /* owned */
    size_t n_numbers;
};

static bool separates(char c) { return c != '\0' && strchr(", \t\r\n", c) != NULL; }

static bool is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* ---- ranges ---- */

static int read_digits(const struct source *src, const char **at, uint64_t *ret) {
    const char *p = *at;
    if (!isdigit((unsigned char)*p))
        return bad(src, -EINVAL, p, "there should be a number, as in n[1-3,7]");
    p += strspn(p, "0");
    size_t n = strspn(p, "0123456789");
    if (n > NUMBER_DIGITS_MAX)
        return bad(src, -ERANGE, *at, "is a number of more than %d digits", NUMBER_DIGITS_MAX);
    uint64_t v = 0;
    for (; n > 0; n--)
        v = v * 10 + (uint64_t)(*p++ - '0');
    *at = p;
    *ret = v;
    return 0;
}

static size_t digits_of(uint64_t v) {
    size_t n = 1;
    for (; v >= 10; v /= 10)
        n++;
    return n;
}

/* Reads the range at *at, and adds its numbers; *at is then at what follows. */
static int read_range(const struct source *src, const char **at, struct item *it) {
    const char *begin = *at;
    uint64_t low, high;
    int r = read_digits(src, at, &low);
    if (r < 0)
        return r;
    size_t width = (size_t)(*at - begin);
    high = low;
    if (**at == '-' && *++*at != ',' && **at != ']')
        r = read_digits(src, at, &high);
    if (r < 0)
        return r;
    if (high < low)
        return bad(src, -EINVAL, begin, "is a range that runs backwards");
    if (high - low >= HOSTLIST_HOSTS_MAX)
        return bad(src, -ERANGE, begin, "is a range of more than %u hosts", HOSTLIST_HOSTS_MAX);
    for (uint64_t v = low; v <= high; v++) {
        it->numbers = xgrow(it->numbers, it->n_numbers, sizeof *it->numbers);
        it->numbers[it->n_numbers++] = (struct number){v, MAX2(width, digits_of(v))};
    }
    return 0;
}

/* Reads a bracket, with *at from "[" to behind "]". *len grows by the longest number. */
static int read_bracket(const struct source *src, const char **at, struct item *it, size_t *len) {
    const char *open = *at;
    const size_t first = it->n_numbers;
    size_t widest = 0;
    if (it->n == HOSTLIST_BRACKETS_MAX)
        return bad(src, -ERANGE, open, "is one bracket more than the %u that a host may have",
                   HOSTLIST_BRACKETS_MAX);
    do {
        ++*at;
        int r = read_range(src, at, it);
        if (r < 0)
            return r;
        widest = MAX2(widest, it->numbers[it->n_numbers - 1].width);
        if (it->n_numbers - first > HOSTLIST_HOSTS_MAX)
            return bad(src, -ERANGE, open, "is a bracket of more than %u hosts",
                       HOSTLIST_HOSTS_MAX);
    } while (**at == ',');
    if (**at == '\0')
        return bad(src, -EINVAL, open, "is a bracket that is not closed");
    if (**at != ']')
        return bad(src, -EINVAL, *at, "there should be \",\" or \"]\", as in n[1-3,7]");
    it->hosts *= it->n_numbers - first;
    if (it->hosts > HOSTLIST_HOSTS_MAX)
        return bad(src, -ERANGE, it->begin, "is a product of more than %u hosts",
                   HOSTLIST_HOSTS_MAX);
    it->brackets[it->n].first = first;
    it->brackets[it->n++].n = it->n_numbers - first;
    *len += widest;
    ++*at;
    return 0;
}

/* ---- items ---- */

static int refuse_char(const struct source *src, const char *at, const char *begin) {
    if (*at == ']')
        return bad(src, -EINVAL, at, "a bracket is closed that was not opened");
    if (*at == '{')
        return bad(src, -EINVAL, at, "is a function of Slurm: give the hosts that it stands for");
    if (*at == '-' && at == begin)
        return bad(src, -EINVAL, at, "a name begins with \"-\"");
    return bad(src, -EINVAL, at,
               "there is what no name of a host has: it consists of letters, digits, \"-\", "
               "\"_\" and \".\"");
}

/* Reads and checks the item at *at; *at is then at a separator or at the end. */
static int read_item(const struct source *src, const char **at, struct item *it) {
    const char *p = *at;
    size_t len = 0;
    *it = (struct item){.begin = p, .hosts = 1};
    while (*p != '\0' && !separates(*p)) {
        if (*p == '[') {
            int r = read_bracket(src, &p, it, &len);
            if (r < 0)
                return r;
            continue;
        }
        if (!is_of_name(*p) || (*p == '-' && p == it->begin))
            return refuse_char(src, p, it->begin);
        p++;
        len++;
    }
    if (len > HOSTLIST_NAME_MAX)
        return bad(src, -ERANGE, it->begin, "is a name of more than %u bytes", HOSTLIST_NAME_MAX);
    *at = it->end = p;
    return 0;
}

/* Adds the nth name of an item, with its NUL. The last bracket runs fastest, then the first, the
 * second, ... */
static void add_name(const struct item *it, size_t nth, struct strbuf *text) {
    size_t turns[HOSTLIST_BRACKETS_MAX];
    uint32_t i = 0;
    for (uint32_t k = 0; k < it->n; k++) {
        uint32_t at = (it->n - 1 + k) % it->n;
        turns[at] = nth % it->brackets[at].n;
        nth /= it->brackets[at].n;
    }
    for (const char *p = it->begin; p < it->end; p++) {
        if (*p != '[') {
            strbuf_add_char(text, *p);
            continue;
        }
        const struct number *number = &it->numbers[it->brackets[i].first + turns[i]];
        strbuf_printf(text, "%0*" PRIu64, (int)number->width, number->value);
        p += strcspn(p, "]");
        i++;
    }
    strbuf_add_char(text, '\0');
}

/* ---- lists ---- */

static const char *to_item(const char *p) {
    while (separates(*p))
        p++;
    return p;
}

void hostlist_fini(struct hostlist *l) {
    free(l->names);
    free(l->text);
    *l = (struct hostlist){0};
}

int hostlist_expand(const char *list, struct hostlist *ret, struct err *err) {
    const struct source src = {list, err};
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    size_t n = 0;
    if (strnlen(list, HOSTLIST_TEXT_MAX + 1) > HOSTLIST_TEXT_MAX)
        return err_set(err, -ERANGE, "a host list has more than %zu bytes", HOSTLIST_TEXT_MAX);
    for (const char *p = to_item(list); *p != '\0'; p = to_item(p)) {
        struct item it;
        int r = read_item(&src, &p, &it);
        n += r == 0 ? it.hosts : 0;
        if (n > HOSTLIST_HOSTS_MAX)
            r = bad(&src, -ERANGE, it.begin, "the list exceeds %u hosts", HOSTLIST_HOSTS_MAX);
        for (size_t i = 0; r == 0 && i < it.hosts; i++)
            add_name(&it, i, &text);
        free(it.numbers);
        if (r < 0)
            return r;
    }
    if (n == 0)
        return err_set(err, -EINVAL, "the host list is empty");
    struct hostlist l = {.names = xcalloc(n, sizeof *l.names), .text = strbuf_take(&text), .n = n};
    char *p = l.text;
    for (size_t i = 0; i < n; i++, p += strlen(p) + 1)
        l.names[i] = p;
    *ret = l;
    return 0;
}

/* ==== counts for each node ==== */

static int read_count(const char **at, uint32_t max, uint32_t *ret) {
    const char *p = *at;
    uint32_t v = 0;
    if (*p < '0' || *p > '9')
        return -EINVAL;
    for (; *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (uint32_t)(*p - '0');
        if (v > max)
            return -ERANGE;
    }
    *at = p;
    *ret = v;
    return 0;
}

/* Reads "2(x3)" or "2" at *at; *at is then at what follows. */
static int read_run(const char **at, uint32_t *ret_count, uint32_t *ret_nodes) {
    *ret_nodes = 1;
    int r = read_count(at, TASKS_COUNT_MAX, ret_count);
    if (r == 0 && strncmp(*at, "(x", 2) == 0) {
        *at += 2;
        r = read_count(at, TASKS_NODES_MAX, ret_nodes);
        if (r == 0 && (*ret_nodes == 0 || *(*at)++ != ')'))
            return -EINVAL;
    }
    return r == 0 && **at != ',' && **at != '\0' ? -EINVAL : r;
}

int tasks_read(const char *text, uint32_t node, struct tasks *ret) {
    struct tasks t = {.least = UINT32_MAX};
    for (const char *p = text;; p++) {
        uint32_t count, nodes;
        int r = read_run(&p, &count, &nodes);
        if (r < 0)
            return r;
        if (nodes > TASKS_NODES_MAX - t.nodes)
            return -ERANGE;
        if (node >= t.nodes) /* the last run of which this holds has the node */
            t.of_node = count;
        t.nodes += nodes;
        t.least = MIN2(t.least, count);
        t.most = MAX2(t.most, count);
        if (*p == '\0')
            break;
    }
    *ret = t;
    return 0;
}

/* ==== hosts ==== */

static void host_fini(struct host *host) {
    free(host->name);
    free(host->user);
    free(host->gpus);
    *host = (struct host){0};
}

void hosts_fini(struct hosts *h) {
    for (size_t i = 0; i < h->n; i++)
        host_fini(&h->items[i]);
    free(h->items);
    idmap_fini(&h->by_name);
    *h = (struct hosts){0};
}

/* The values of the map are places in items, counted from 1. */
static size_t place(const struct hosts *h, uint64_t id) {
    return (size_t)(uintptr_t)idmap_get(&h->by_name, id);
}

/* Returns the place of a name and its id; or 0, and a free id for it. Hashes may collide. */
static size_t look_up(const struct hosts *h, const char *name, uint64_t *ret_id) {
    for (uint64_t id = hash_text(HASH_BEGIN, name);; id++) {
        if (id == 0)
            continue;
        size_t at = place(h, id);
        if (at == 0 || strcmp(h->items[at - 1].name, name) == 0) {
            *ret_id = id;
            return at;
        }
    }
}

struct host *hosts_find(const struct hosts *h, const char *name) {
    uint64_t id;
    size_t at = look_up(h, name, &id);
    return at == 0 ? NULL : &h->items[at - 1];
}

static void index_name(struct hosts *h, size_t i) {
    uint64_t id;
    size_t at = look_up(h, h->items[i].name, &id);
    assert(at == 0);
    idmap_put(&h->by_name, id, (void *)(uintptr_t)(i + 1));
}

struct host *hosts_add(struct hosts *h, const char *name) {
    h->items = xgrow(h->items, h->n, sizeof *h->items);
    struct host *host = &h->items[h->n];
    *host = (struct host){.name = xstrdup(name)};
    index_name(h, h->n++);
    return host;
}

void hosts_keep(struct hosts *h, const bool *keep) {
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (keep[i])
            h->items[kept++] = h->items[i];
        else
            host_fini(&h->items[i]);
    }
    h->n = kept;
    idmap_fini(&h->by_name);
    h->by_name = (struct idmap){0};
    for (size_t i = 0; i < h->n; i++)
        index_name(h, i);
}

/* ==== parts of entries ==== */

/* The longest: eight groups of four digits, with a zone ("%eth0", at most 15 bytes). */
#define ADDRESS_MAX 56u

static size_t span_until(const char *text, const char *stops) {
    bool inside = false;
    size_t n = 0;
    for (; text[n] != '\0' && (inside || strchr(stops, text[n]) == NULL); n++)
        inside = text[n] == '[' || (inside && text[n] != ']');
    return n;
}

/* Whether a text is "[", something with a colon, "]". */
static bool is_address(const char *text, size_t len) {
    return len > 2 && text[0] == '[' && memchr(text, ']', len) == text + len - 1 &&
           memchr(text, ':', len) != NULL;
}

/* Hexadecimal groups with colons, and perhaps an IPv4 address and a zone. ssh checks the rest. */
static bool looks_like_address(const char *text) {
    size_t n = strspn(text, "0123456789abcdefABCDEF:.");
    const char *zone = text + n;
    if (*zone == '%' && zone[1] != '\0')
        zone += 1 + strspn(zone + 1, "0123456789abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.");
    size_t colon = strcspn(text, ":");
    return *zone == '\0' && colon < n && memchr(text + colon + 1, ':', n - colon - 1) != NULL;
}

static int read_address(const char *text, size_t len, struct hostlist *ret, struct err *err) {
    _cleanup_(freep) char *address = xstrndup(text + 1, len - 2);
    if (len - 2 > ADDRESS_MAX || !looks_like_address(address)) {
        utf8_clean(address, false);
        return err_set(err, -EINVAL, "\"[%.80s]\" is not an IPv6 address", address);
    }
    *ret = (struct hostlist){.names = xcalloc(1, sizeof *ret->names), .text = address, .n = 1};
    ret->names[0] = TAKE_PTR(address);
    return 0;
}

static int read_names(const char *text, size_t len, struct hostlist *ret, struct err *err) {
    if (is_address(text, len))
        return read_address(text, len, ret, err);
    _cleanup_(freep) char *list = xstrndup(text, len);
    return hostlist_expand(list, ret, err);
}

static int read_number(const char *text, size_t len, const char *what, uint32_t least,
                       uint32_t most, uint32_t *ret, struct err *err) {
    _cleanup_(freep) char *number = xstrndup(text, len);
    uint32_t v = 0;
    int r = parse_u32(number, &v);
    if (r == 0 && v >= least && v <= most) {
        *ret = v;
        return 0;
    }
    utf8_clean(number, false);
    return err_set(err, r == -ERANGE || v > most ? -ERANGE : -EINVAL,
                   "%s must be a number from %" PRIu32 " to %" PRIu32 ", not \"%.40s\"", what,
                   least, most, number);
}

/* ==== reading ==== */

#define BLANKS " \t\r\f\v"
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* some editors begin a UTF-8 text so */

struct reader {
    struct hosts hosts;
    size_t mentions;
    struct err *err;
};

static void reader_fini(struct reader *r) { hosts_fini(&r->hosts); }

/* What one mention specifies; 0 or NULL: not given. */
struct settings {
    const char *user;
    uint32_t slots, max_slots, port;
    bool counts_cpus; /* of a batch system, whose slots are CPUs: how many workers stays open */
};

/* ---- hosts ---- */

static int set_user(struct host *host, const char *user, struct err *err) {
    if (user == NULL)
        return 0;
    if (host->user != NULL && strcmp(host->user, user) != 0)
        return err_set(err, -EINVAL, "host %s has two users, %.40s and %.40s; give one", host->name,
                       host->user, user);
    if (host->user == NULL)
        host->user = xstrdup(user);
    return 0;
}

static int set_port(struct host *host, uint32_t port, struct err *err) {
    if (port == 0)
        return 0;
    if (host->port != 0 && host->port != port)
        return err_set(err, -EINVAL, "host %s has two ports, %u and %u; give one", host->name,
                       host->port, port);
    host->port = (uint16_t)port;
    return 0;
}

static int mention(struct reader *rd, const char *name, const struct settings *settings) {
    struct host *host = hosts_find(&rd->hosts, name);
    if (host == NULL) {
        if (rd->hosts.n == HOSTS_MAX)
            return err_set(rd->err, -ERANGE, "there are more than %u hosts", HOSTS_MAX);
        host = hosts_add(&rd->hosts, name);
    }
    int r = set_user(host, settings->user, rd->err);
    if (r == 0)
        r = set_port(host, settings->port, rd->err);
    if (r < 0)
        return r;
    if (settings->counts_cpus)
        return 0;
    if (settings->slots == 0)
        host->without_slots++;
    else
        host->slots += settings->slots;
    if (host->slots + host->without_slots > HOST_SLOTS_MAX)
        return err_set(rd->err, -ERANGE, "host %s has more than %u slots", host->name,
                       HOST_SLOTS_MAX);
    return 0;
}

static int mention_all(struct reader *rd, const struct hostlist *names,
                       const struct settings *settings) {
    if (names->n > HOSTFILE_MENTIONS_MAX - rd->mentions)
        return err_set(rd->err, -ERANGE, "hosts are listed more than %u times",
                       HOSTFILE_MENTIONS_MAX);
    rd->mentions += names->n;
    for (size_t i = 0; i < names->n; i++) {
        int r = mention(rd, names->names[i], settings);
        if (r < 0)
            return r;
    }
    return 0;
}

/* One mention without slots leaves them open; of several, each counts as one. */
static void add_up(struct reader *rd) {
    for (size_t i = 0; i < rd->hosts.n; i++) {
        struct host *h = &rd->hosts.items[i];
        h->slots += h->slots > 0 || h->without_slots > 1 ? h->without_slots : 0;
    }
}

/* ---- entries ---- */

static int check_user(const char *user, struct err *err) {
    size_t n = strspn(user, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "-_.@+\\");
    if (n > 0 && user[n] == '\0' && user[0] != '-')
        return 0;
    char shown[64];
    utf8_copy_line(shown, sizeof shown, user);
    return err_set(err, -EINVAL,
                   "\"%s\" is not the name of a user: it consists of letters, digits and "
                   "\"-_.+@\\\", and does not begin with \"-\"",
                   shown);
}

static int read_slots(const char *text, size_t len, struct settings *settings, struct err *err) {
    if (settings->slots > 0)
        return err_set(err, -EINVAL, "slots are given twice; give them once");
    if ((len == 1 && text[0] == '*') || (len == 4 && memcmp(text, "auto", 4) == 0))
        return 0;
    if (memchr(text, ':', len) != NULL)
        return err_set(err, -EINVAL,
                       "there are several colons: an IPv6 address is written in brackets, as "
                       "[fd00::7]:8, and a port as port=22 in a host file");
    return read_number(text, len, "slots", 1, HOST_SLOTS_MAX, &settings->slots, err);
}

/* "user@names:slots", with the settings of its line. */
static int read_entry(struct reader *rd, const char *entry, size_t len, struct settings settings) {
    _cleanup_(freep) char *copy = xstrndup(entry, len), *user = NULL;
    _cleanup_(hostlist_fini) struct hostlist names = {0};
    const char *at = strrchr(copy, '@'), *rest = copy;
    int r = 0;
    if (at != NULL) {
        user = xstrndup(copy, (size_t)(at - copy));
        rest = at + 1;
        r = check_user(user, rd->err);
        if (r == 0 && settings.user != NULL && strcmp(settings.user, user) != 0)
            r = err_set(rd->err, -EINVAL, "two users are given, %.40s and %.40s; give one", user,
                        settings.user);
        settings.user = user;
    }
    size_t n = span_until(rest, ":");
    if (r == 0 && rest[n] == ':')
        r = read_slots(rest + n + 1, strlen(rest + n + 1), &settings, rd->err);
    if (r == 0 && settings.max_slots > 0 && settings.max_slots < settings.slots)
        r = err_set(rd->err, -EINVAL, "max_slots is %u, less than slots, which is %u",
                    settings.max_slots, settings.slots);
    if (settings.slots == 0)
        settings.slots = settings.max_slots;
    if (r == 0)
        r = read_names(rest, n, &names, rd->err);
    return r < 0 ? r : mention_all(rd, &names, &settings);
}

/* Reads entries up to the end of the text. */
static int read_entries(struct reader *rd, const char *text, const char *separators,
                        const struct settings *settings) {
    size_t before = rd->mentions;
    for (text += strspn(text, separators); *text != '\0'; text += strspn(text, separators)) {
        size_t n = span_until(text, separators);
        int r = read_entry(rd, text, n, *settings);
        if (r < 0)
            return r;
        text += n;
    }
    return rd->mentions > before ? 0 : err_set(rd->err, -EINVAL, "no host is given");
}

/* ---- lines ---- */

enum setting { SETTING_SLOTS = 1, SETTING_MAX_SLOTS, SETTING_USER, SETTING_PORT };

/* 0: there is none of this name. */
static enum setting setting_of(const char *name) {
    static const struct {
        const char *name;
        enum setting setting;
    } rows[] = {
        {"slots", SETTING_SLOTS},         {"cpu", SETTING_SLOTS},
        {"count", SETTING_SLOTS},         {"max_slots", SETTING_MAX_SLOTS},
        {"slots_max", SETTING_MAX_SLOTS}, {"max_cpu", SETTING_MAX_SLOTS},
        {"cpu_max", SETTING_MAX_SLOTS},   {"max_count", SETTING_MAX_SLOTS},
        {"count_max", SETTING_MAX_SLOTS}, {"user", SETTING_USER},
        {"username", SETTING_USER},       {"user_name", SETTING_USER},
        {"port", SETTING_PORT},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].setting;
    return 0;
}

static int set(struct settings *settings, const char *name, const char *value, struct err *err) {
    switch (setting_of(name)) {
    case SETTING_SLOTS: return read_slots(value, strlen(value), settings, err);
    case SETTING_MAX_SLOTS:
        return read_number(value, strlen(value), name, 1, HOST_SLOTS_MAX, &settings->max_slots,
                           err);
    case SETTING_USER: settings->user = value; return check_user(value, err);
    case SETTING_PORT:
        return read_number(value, strlen(value), name, 1, UINT16_MAX, &settings->port, err);
    }
    return err_set(err, -EINVAL,
                   "\"%.40s\" is not a setting of a host: these are slots, max_slots, user, port",
                   name);
}

/* Cuts and returns the next word, which ends at a blank or "="; *at is then behind its blanks. */
static char *cut_word(char **at, char *ret_end) {
    char *word = *at, *end = word + strcspn(word, BLANKS "=");
    char *next = end + strspn(end, BLANKS);
    *ret_end = *next == '=' ? '=' : *end;
    if (*next == '=')
        next += 1 + strspn(next + 1, BLANKS);
    *end = '\0';
    *at = next;
    return word;
}

/* Reads "name=value ...", with blanks around "=" as Open MPI, and cuts `text` into words. */
static int read_settings(char *text, struct settings *settings, struct err *err) {
    for (text += strspn(text, BLANKS); *text != '\0';) {
        char end;
        char *name = cut_word(&text, &end);
        if (end != '=') {
            utf8_clean(name, false);
            return err_set(err, -EINVAL,
                           "\"%.40s\" should be a setting, such as slots=8: a line has one host, "
                           "or several separated by commas",
                           name);
        }
        for (char *p = name; *p != '\0'; p++)
            *p = *p == '-' ? '_' : *p;
        char *value = text;
        text += strcspn(text, BLANKS);
        if (*text != '\0')
            *text++ = '\0';
        text += strspn(text, BLANKS);
        utf8_clean(name, false);
        int r = set(settings, name, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- lines of batch systems ---- */

/* Cuts the text into words at blanks; returns the next, NULL: there is none. */
static char *next_word(char **at) {
    char *word = *at + strspn(*at, BLANKS);
    size_t n = strcspn(word, BLANKS);
    *at = word + n + (word[n] != '\0');
    word[n] = '\0';
    return n > 0 ? word : NULL;
}

static bool is_number(const char *word) {
    return word != NULL && word[0] != '\0' && word[strspn(word, "0123456789")] == '\0';
}

/* Whether a number follows the first word, as in no line of a host file. */
static bool is_of_batch(const char *rest) {
    rest += strspn(rest, BLANKS);
    size_t n = strspn(rest, "0123456789");
    return n > 0 && (rest[n] == '\0' || strchr(BLANKS, rest[n]) != NULL);
}

/* "host1 2 all.q@host1 UNDEFINED" of Grid Engine, "host1 8 host2 8" of LSF. */
static int read_batch_line(struct reader *rd, const char *name, char *rest) {
    const struct settings settings = {.counts_cpus = true};
    const char *const first = name;
    for (; name != NULL; name = next_word(&rest)) {
        if (name != first && strchr(name, '@') != NULL)
            return 0; /* a queue, and what follows is of it */
        const char *slots = next_word(&rest);
        if (!is_number(slots))
            return err_set(
                rd->err, -EINVAL,
                "the number of slots is missing behind \"%.40s\", as in: host1 8 host2 8", name);
        int r = read_entries(rd, name, ",", &settings);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads one line without its end, which is changed. */
static int read_line(struct reader *rd, char *line) {
    struct settings settings = {0};
    line[strcspn(line, "#")] = '\0';
    line += strspn(line, BLANKS);
    size_t n = strcspn(line, BLANKS);
    if (n == 0)
        return 0;
    char *rest = line + n;
    if (*rest != '\0')
        *rest++ = '\0';
    if (is_of_batch(rest))
        return read_batch_line(rd, line, rest);
    int r = read_settings(rest, &settings, rd->err);
    return r < 0 ? r : read_entries(rd, line, ",", &settings);
}

/* ---- inputs ---- */

static int read_list(struct reader *rd, const char *list) {
    int r = strnlen(list, HOSTFILE_BYTES_MAX + 1) > HOSTFILE_BYTES_MAX
                ? err_set(rd->err, -ERANGE, "more than %zu bytes", HOSTFILE_BYTES_MAX)
                : read_entries(rd, list, "," BLANKS "\n", &(struct settings){0});
    if (r < 0)
        err_prefix(rd->err, "-H");
    return r;
}

static int read_file(struct reader *rd, const struct hosts_input *in) {
    if (in->len > HOSTFILE_BYTES_MAX)
        return err_set(rd->err, -ERANGE, "%s: a host file has at most %zu bytes", in->file,
                       HOSTFILE_BYTES_MAX);
    if (in->len > 0 && memchr(in->text, '\0', in->len) != NULL)
        return err_set(rd->err, -EINVAL, "%s: this is not a text: it has a zero byte", in->file);
    _cleanup_(freep) char *text = xstrndup(in->len > 0 ? in->text : "", in->len);
    size_t number = 0;
    const size_t mark = strlen(BYTE_ORDER_MARK);
    for (char *line = text + (strncmp(text, BYTE_ORDER_MARK, mark) == 0 ? mark : 0);
         line != NULL;) {
        number++;
        char *next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        int r = read_line(rd, line);
        if (r < 0) {
            err_prefix(rd->err, "%s:%zu", in->file, number);
            return r;
        }
        line = next;
    }
    return rd->hosts.n > 0 ? 0 : err_set(rd->err, -EINVAL, "%s: no host is given", in->file);
}

int hosts_read(const struct hosts_input *in, struct hosts *ret, struct err *err) {
    _cleanup_(reader_fini) struct reader rd = {.err = err};
    int r = 0;
    if (in->list != NULL && in->file != NULL)
        return err_set(err, -EINVAL,
                       "-H and --hostfile cannot be combined; to choose some hosts "
                       "of a file, use --include");
    if (in->list == NULL && in->file == NULL && (in->include != NULL || in->exclude != NULL))
        return err_set(err, -EINVAL, "%s chooses among hosts; give them with -H or --hostfile",
                       in->include != NULL ? "--include" : "--exclude");
    if (in->list != NULL)
        r = read_list(&rd, in->list);
    if (in->file != NULL)
        r = read_file(&rd, in);
    add_up(&rd);
    if (r == 0)
        r = hosts_filter(&rd.hosts, in->include, in->exclude, err);
    if (r < 0)
        return r;
    *ret = rd.hosts;
    rd.hosts = (struct hosts){0};
    return 0;
}

/* ==== --include, --exclude ==== */

struct filter {
    bool exclude;
    struct hosts *hosts; /* their GPUs are those that were listed so far */
    bool *whole;         /* owned: for each host, whether it is listed without GPUs */
    bool *keep;          /* owned: one for each host */
    size_t names;        /* listed so far */
    struct err *err;
};

static void filter_fini(struct filter *f) {
    free(f->whole);
    free(f->keep);
}

static bool has_gpu(const struct host *host, uint32_t id) {
    for (uint32_t i = 0; i < host->n_gpus; i++)
        if (host->gpus[i] == id)
            return true;
    return false;
}

static void add_gpu(struct host *host, uint32_t id) {
    if (has_gpu(host, id))
        return;
    host->gpus = xgrow(host->gpus, host->n_gpus, sizeof *host->gpus);
    host->gpus[host->n_gpus++] = id;
}

/* Adds what a spec lists of one of its hosts: GPUs, "0,2"; NULL: the whole host. */
static int pick(struct filter *f, const char *name, const char *gpus) {
    struct host *host = hosts_find(f->hosts, name);
    if (host == NULL)
        return err_set(f->err, -EINVAL, "%s is not one of the hosts", name);
    f->whole[host - f->hosts->items] |= gpus == NULL;
    while (gpus != NULL) {
        uint32_t id;
        size_t n = strcspn(gpus, ",");
        int r = read_number(gpus, n, "a GPU", 0, HOST_GPUS_MAX - 1, &id, f->err);
        if (r < 0)
            return r;
        if (host->slots > 0 && id >= host->slots)
            return err_set(f->err, -EINVAL,
                           "host %s has %" PRIu32 " slots, so there is no GPU %" PRIu32, name,
                           host->slots, id);
        add_gpu(host, id);
        gpus = gpus[n] == ',' ? gpus + n + 1 : NULL;
    }
    return 0;
}

static int read_spec(struct filter *f, const char *spec) {
    _cleanup_(hostlist_fini) struct hostlist names = {0};
    size_t n = span_until(spec, ":");
    int r = read_names(spec, n, &names, f->err);
    if (r < 0)
        return r;
    if (names.n > HOSTFILE_MENTIONS_MAX - f->names)
        return err_set(f->err, -ERANGE, "hosts are listed more than %u times",
                       HOSTFILE_MENTIONS_MAX);
    f->names += names.n;
    for (size_t i = 0; r == 0 && i < names.n; i++)
        r = pick(f, names.names[i], spec[n] == ':' ? spec + n + 1 : NULL);
    return r;
}

static int read_specs(struct filter *f, const char *text) {
    if (strnlen(text, HOSTLIST_TEXT_MAX + 1) > HOSTLIST_TEXT_MAX)
        return err_set(f->err, -ERANGE, "more than %zu bytes", HOSTLIST_TEXT_MAX);
    for (;; text++) {
        size_t n = span_until(text, "@");
        _cleanup_(freep) char *spec = xstrndup(text, n);
        int r = read_spec(f, spec);
        if (r < 0)
            return r;
        text += n;
        if (*text == '\0')
            return 0;
    }
}

/* Whether a host is kept. Turns GPUs to exclude into those that remain; an empty list is all. */
static int decide(struct filter *f, struct host *host, bool whole, bool *ret_keep) {
    struct host left = {0};
    *ret_keep = (whole || host->n_gpus > 0) != f->exclude;
    if (whole)
        host->n_gpus = 0;
    if (!f->exclude || host->n_gpus == 0)
        return 0;
    if (host->slots == 0 || host->slots > HOST_GPUS_MAX)
        return err_set(f->err, -EINVAL,
                       "cannot tell which GPUs of host %s remain; give its slots, at most %u, "
                       "as in -H %s:8, or slots=8 in a host file",
                       host->name, HOST_GPUS_MAX, host->name);
    for (uint32_t id = 0; id < host->slots; id++)
        if (!has_gpu(host, id))
            add_gpu(&left, id);
    free(host->gpus);
    host->gpus = left.gpus;
    host->n_gpus = left.n_gpus;
    *ret_keep = left.n_gpus > 0;
    return 0;
}

int hosts_filter(struct hosts *hosts, const char *include, const char *exclude, struct err *err) {
    if (include != NULL && exclude != NULL)
        return err_set(err, -EINVAL, "--include and --exclude cannot be combined");
    if (include == NULL && exclude == NULL)
        return 0;
    _cleanup_(filter_fini) struct filter f = {
        .exclude = exclude != NULL,
        .hosts = hosts,
        .whole = xcalloc(hosts->n, sizeof *f.whole),
        .keep = xcalloc(hosts->n, sizeof *f.keep),
        .err = err,
    };
    size_t left = 0;
    int r = read_specs(&f, f.exclude ? exclude : include);
    for (size_t i = 0; r == 0 && i < hosts->n; i++) {
        r = decide(&f, &hosts->items[i], f.whole[i], &f.keep[i]);
        left += f.keep[i];
    }
    if (r == 0 && left == 0)
        r = err_set(err, -EINVAL, "no host remains");
    for (size_t i = 0; i < hosts->n; i++) {
        struct host *host = &hosts->items[i];
        host->n_gpus = r < 0 ? 0 : host->n_gpus;
        host->slots = host->n_gpus > 0 ? host->n_gpus : host->slots;
    }
    if (r == 0)
        hosts_keep(hosts, f.keep);
    else
        err_prefix(err, f.exclude ? "--exclude" : "--include");
    return r;
}
