#include "launcher/hosts/hostlist.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"
#include "base/text/utf8.h"

/* ==== errors ==== */

/* Bytes that are shown before and after the place. */
#define SHOWN_BEFORE ((size_t)40)
#define SHOWN_AFTER ((size_t)40)

#define REASON_MAX 256

/* What is read, for errors. */
struct source {
    const char *list;
    struct err *err;
};

/* Sets an error that quotes the list around this place, and returns `code`. */
static _printf_(4, 5) int bad(const struct source *src, int code, const char *at, const char *fmt,
                              ...) {
    char shown[SHOWN_BEFORE + SHOWN_AFTER + 1], reason[REASON_MAX];
    size_t place = (size_t)(at - src->list);
    const char *begin = place > SHOWN_BEFORE ? at - SHOWN_BEFORE : src->list;
    size_t n = strnlen(begin, sizeof shown - 1);
    memcpy(shown, begin, n);
    shown[n] = '\0';
    utf8_clean(shown, false);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    return err_set(src->err, code, "cannot read the host list \"%s%s%s\": at character %zu %s",
                   begin > src->list ? "..." : "", shown, begin[n] != '\0' ? "..." : "", place + 1,
                   reason);
}

/* ==== lists ==== */

/* Of a number without its leading zeros. */
#define NUMBER_DIGITS_MAX 18

/* One bracket of an item, and the number in it that is the turn of. */
struct bracket {
    const char *begin; /* after "[" */
    const char *next;  /* after the current range: "," or "]" */
    uint64_t value, hi;
    size_t width;
};

/* One item of a list, and the name in it that is the turn of. */
struct item {
    const char *begin, *end;
    struct bracket brackets[HOSTLIST_BRACKETS_MAX];
    uint32_t n;
    size_t hosts;
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool separates(char c) { return c != '\0' && strchr(", \t\r\n", c) != NULL; }

static bool is_of_name(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
}

/* ---- ranges ---- */

static int read_number(const struct source *src, const char **at, uint64_t *ret) {
    const char *p = *at;
    if (!is_digit(*p))
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

/* Reads the range at b->next; b->next is then at what follows. */
static int read_range(const struct source *src, struct bracket *b) {
    const char *begin = b->next, *p = begin;
    int r = read_number(src, &p, &b->value);
    if (r < 0)
        return r;
    b->width = (size_t)(p - begin);
    b->hi = b->value;
    if (*p == '-') {
        p++;
        if (*p != ',' && *p != ']')
            r = read_number(src, &p, &b->hi);
        if (r < 0)
            return r;
    }
    if (b->hi < b->value)
        return bad(src, -EINVAL, begin, "is a range that runs backwards");
    if (b->hi - b->value >= HOSTLIST_HOSTS_MAX)
        return bad(src, -ERANGE, begin, "is a range of more than %u hosts", HOSTLIST_HOSTS_MAX);
    b->next = p;
    return 0;
}

static size_t digits_of(uint64_t v) {
    size_t n = 1;
    for (; v >= 10; v /= 10)
        n++;
    return n;
}

/* Checks a bracket, with *at from "[" to behind "]". *len grows by the longest number. */
static int read_bracket(const struct source *src, const char **at, struct item *it, size_t *len) {
    const char *open = *at;
    if (it->n == HOSTLIST_BRACKETS_MAX)
        return bad(src, -ERANGE, open, "is one bracket more than the %u that a host may have",
                   HOSTLIST_BRACKETS_MAX);
    struct bracket b = {.begin = open + 1, .next = open};
    size_t widest = 0;
    uint64_t count = 0;
    do {
        b.next++;
        int r = read_range(src, &b);
        if (r < 0)
            return r;
        count += b.hi - b.value + 1;
        widest = MAX2(widest, MAX2(b.width, digits_of(b.hi)));
        if (count > HOSTLIST_HOSTS_MAX)
            return bad(src, -ERANGE, open, "is a bracket of more than %u hosts",
                       HOSTLIST_HOSTS_MAX);
    } while (*b.next == ',');
    if (*b.next == '\0')
        return bad(src, -EINVAL, open, "is a bracket that is not closed");
    if (*b.next != ']')
        return bad(src, -EINVAL, b.next, "there should be \",\" or \"]\", as in n[1-3,7]");
    if (count * it->hosts > HOSTLIST_HOSTS_MAX)
        return bad(src, -ERANGE, it->begin, "is a product of more than %u hosts",
                   HOSTLIST_HOSTS_MAX);
    it->hosts *= (size_t)count;
    it->brackets[it->n++] = b;
    *len += widest;
    *at = b.next + 1;
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
static int read_item(const struct source *src, const char **at, struct item *ret) {
    struct item it = {.begin = *at, .hosts = 1};
    const char *p = *at;
    size_t len = 0;
    while (*p != '\0' && !separates(*p)) {
        if (*p == '[') {
            int r = read_bracket(src, &p, &it, &len);
            if (r < 0)
                return r;
            continue;
        }
        if (!is_of_name(*p) || (*p == '-' && p == it.begin))
            return refuse_char(src, p, it.begin);
        p++;
        len++;
    }
    if (len > HOSTLIST_NAME_MAX)
        return bad(src, -ERANGE, it.begin, "is a name of more than %u bytes", HOSTLIST_NAME_MAX);
    it.end = p;
    *at = p;
    *ret = it;
    return 0;
}

static void first_number(struct bracket *b) {
    static const struct source checked = {.list = ""};
    b->next = b->begin;
    int r = read_range(&checked, b);
    assert(r == 0);
}

/* False: the numbers begin again. */
static bool next_number(struct bracket *b) {
    if (b->value < b->hi) {
        b->value++;
        return true;
    }
    if (*b->next == ']') {
        first_number(b);
        return false;
    }
    struct bracket rest = {.begin = b->next + 1};
    first_number(&rest);
    rest.begin = b->begin;
    *b = rest;
    return true;
}

/* The last bracket runs fastest, then the first, the second, ... */
static bool next_name(struct item *it) {
    if (it->n == 0)
        return false;
    if (next_number(&it->brackets[it->n - 1]))
        return true;
    for (uint32_t i = 0; i + 1 < it->n; i++)
        if (next_number(&it->brackets[i]))
            return true;
    return false;
}

static size_t write_name(const struct item *it, char out[HOSTLIST_NAME_MAX + 1]) {
    size_t len = 0;
    uint32_t i = 0;
    for (const char *p = it->begin; p < it->end; p++) {
        if (*p != '[') {
            out[len++] = *p;
            continue;
        }
        const struct bracket *b = &it->brackets[i++];
        size_t digits = digits_of(b->value), width = MAX2(b->width, digits);
        uint64_t v = b->value;
        for (size_t at = width; at > 0; v /= 10)
            out[len + --at] = (char)('0' + v % 10);
        len += width;
        p += strcspn(p, "]");
    }
    out[len] = '\0';
    return len;
}

/* ---- lists ---- */

static const char *to_item(const char *p) {
    while (separates(*p))
        p++;
    return p;
}

/* Adds all names of an item, each with its NUL. */
static void add_names(struct item *it, struct strbuf *text) {
    for (uint32_t i = 0; i < it->n; i++)
        first_number(&it->brackets[i]);
    do {
        char name[HOSTLIST_NAME_MAX + 1];
        strbuf_add_bytes(text, name, write_name(it, name) + 1);
    } while (next_name(it));
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
        if (r < 0)
            return r;
        n += it.hosts;
        if (n > HOSTLIST_HOSTS_MAX)
            return bad(&src, -ERANGE, it.begin, "the list exceeds %u hosts", HOSTLIST_HOSTS_MAX);
        add_names(&it, &text);
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
