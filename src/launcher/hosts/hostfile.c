#include "launcher/hosts/hostfile.h"

#include <errno.h>
#include <string.h>

#include "base/text/utf8.h"
#include "launcher/hosts/hostfilter.h"
#include "launcher/hosts/words.h"

#define BLANKS " \t\r\f\v"
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* some editors begin a UTF-8 text so */

/* What was read so far. */
struct reader {
    struct hosts hosts;
    uint32_t *unsaid; /* owned: for each host, how often it was named without slots */
    size_t unsaid_cap, mentions;
    struct err *err;
};

static void reader_fini(struct reader *r) {
    hosts_fini(&r->hosts);
    free(r->unsaid);
}

/* What is told of one mention; 0 or NULL: not told. */
struct told {
    const char *user;
    uint32_t slots, max_slots, port;
};

/* ---- hosts ---- */

static int set_user(struct host *host, const char *user, struct err *err) {
    if (user == NULL)
        return 0;
    if (host->user != NULL && strcmp(host->user, user) != 0)
        return err_set(err, -EINVAL, "host %s has two users, %.40s and %.40s: give one", host->name,
                       host->user, user);
    if (host->user == NULL)
        host->user = xstrdup(user);
    return 0;
}

static int set_port(struct host *host, uint32_t port, struct err *err) {
    if (port == 0)
        return 0;
    if (host->port != 0 && host->port != port)
        return err_set(err, -EINVAL, "host %s has two ports, %u and %u: give one", host->name,
                       host->port, port);
    host->port = (uint16_t)port;
    return 0;
}

static int mention(struct reader *rd, const char *name, const struct told *told) {
    struct host *host = hosts_find(&rd->hosts, name);
    if (host == NULL) {
        if (rd->hosts.n == HOSTS_MAX)
            return err_set(rd->err, -ERANGE, "there are more than %u hosts", HOSTS_MAX);
        host = hosts_add(&rd->hosts, name);
        if (rd->unsaid_cap < rd->hosts.cap) {
            rd->unsaid_cap = rd->hosts.cap;
            rd->unsaid = xrealloc(rd->unsaid, rd->unsaid_cap * sizeof *rd->unsaid);
        }
        rd->unsaid[rd->hosts.n - 1] = 0;
    }
    uint32_t *unsaid = &rd->unsaid[host - rd->hosts.items];
    int r = set_user(host, told->user, rd->err);
    if (r == 0)
        r = set_port(host, told->port, rd->err);
    if (r < 0)
        return r;
    if (told->slots == 0)
        (*unsaid)++;
    else
        host->slots += told->slots;
    if (host->slots + *unsaid > HOST_SLOTS_MAX)
        return err_set(rd->err, -ERANGE, "host %s has more than %u slots", host->name,
                       HOST_SLOTS_MAX);
    return 0;
}

static int mention_all(struct reader *rd, const struct hostlist *names, const struct told *told) {
    if (names->n > HOSTFILE_MENTIONS_MAX - rd->mentions)
        return err_set(rd->err, -ERANGE, "hosts are named more than %u times",
                       HOSTFILE_MENTIONS_MAX);
    rd->mentions += names->n;
    for (size_t i = 0; i < names->n; i++) {
        int r = mention(rd, names->names[i], told);
        if (r < 0)
            return r;
    }
    return 0;
}

/* One mention without slots leaves them open; of several, each counts as one. */
static void add_up(struct reader *rd) {
    for (size_t i = 0; i < rd->hosts.n; i++)
        if (rd->hosts.items[i].slots > 0 || rd->unsaid[i] > 1)
            rd->hosts.items[i].slots += rd->unsaid[i];
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

static int read_slots(const char *text, size_t len, struct told *told, struct err *err) {
    if (told->slots > 0)
        return err_set(err, -EINVAL, "the slots are told twice: give them once");
    if ((len == 1 && text[0] == '*') || (len == 4 && memcmp(text, "auto", 4) == 0))
        return 0;
    if (memchr(text, ':', len) != NULL)
        return err_set(err, -EINVAL,
                       "there are several colons: an IPv6 address is written in brackets, as "
                       "[fd00::7]:8, and a port as port=22 in a host file");
    return words_number(text, len, "slots", 1, HOST_SLOTS_MAX, &told->slots, err);
}

/* "user@names:slots", and what else is told of it. */
static int read_entry(struct reader *rd, const char *entry, size_t len, struct told told) {
    _cleanup_(freep) char *copy = xstrndup(entry, len), *user = NULL;
    _cleanup_(hostlist_fini) struct hostlist names = {0};
    const char *at = strrchr(copy, '@'), *rest = copy;
    int r = 0;
    if (at != NULL) {
        user = xstrndup(copy, (size_t)(at - copy));
        rest = at + 1;
        r = check_user(user, rd->err);
        if (r == 0 && told.user != NULL && strcmp(told.user, user) != 0)
            r = err_set(rd->err, -EINVAL, "two users are told, %.40s and %.40s: give one", user,
                        told.user);
        told.user = user;
    }
    size_t n = words_span(rest, ":");
    if (r == 0 && rest[n] == ':')
        r = read_slots(rest + n + 1, strlen(rest + n + 1), &told, rd->err);
    if (r == 0 && told.max_slots > 0 && told.max_slots < told.slots)
        r = err_set(rd->err, -EINVAL, "max_slots is %u, less than slots, which is %u",
                    told.max_slots, told.slots);
    if (told.slots == 0)
        told.slots = told.max_slots;
    if (r == 0)
        r = words_names(rest, n, &names, rd->err);
    return r < 0 ? r : mention_all(rd, &names, &told);
}

/* Reads entries up to the end of the text. */
static int read_entries(struct reader *rd, const char *text, const char *separators,
                        const struct told *told) {
    size_t before = rd->mentions;
    for (text += strspn(text, separators); *text != '\0'; text += strspn(text, separators)) {
        size_t n = words_span(text, separators);
        int r = read_entry(rd, text, n, *told);
        if (r < 0)
            return r;
        text += n;
    }
    return rd->mentions > before ? 0 : err_set(rd->err, -EINVAL, "no host is named");
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

static int set(struct told *told, const char *name, const char *value, struct err *err) {
    switch (setting_of(name)) {
    case SETTING_SLOTS: return read_slots(value, strlen(value), told, err);
    case SETTING_MAX_SLOTS:
        return words_number(value, strlen(value), name, 1, HOST_SLOTS_MAX, &told->max_slots, err);
    case SETTING_USER: told->user = value; return check_user(value, err);
    case SETTING_PORT:
        return words_number(value, strlen(value), name, 1, UINT16_MAX, &told->port, err);
    }
    return err_set(err, -EINVAL,
                   "\"%.40s\" is not a setting of a host: these are slots, max_slots, user, port",
                   name);
}

/* Cuts the next word, which ends at a blank or "=", and returns it; *at is then after it and its
 * blanks. */
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

/* Reads "name=value ..."; blanks around "=" are allowed, as Open MPI does. The values stay in
 * `text`, which is cut into words. */
static int read_settings(char *text, struct told *told, struct err *err) {
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
        int r = set(told, name, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads one line without its end, which is changed. */
static int read_line(struct reader *rd, char *line) {
    struct told told = {0};
    line[strcspn(line, "#")] = '\0';
    line += strspn(line, BLANKS);
    size_t n = strcspn(line, BLANKS);
    if (n == 0)
        return 0;
    char *settings = line + n;
    if (*settings != '\0')
        *settings++ = '\0';
    int r = read_settings(settings, &told, rd->err);
    return r < 0 ? r : read_entries(rd, line, ",", &told);
}

/* ---- inputs ---- */

static int read_list(struct reader *rd, const char *list) {
    int r = strnlen(list, HOSTFILE_BYTES_MAX + 1) > HOSTFILE_BYTES_MAX
                ? err_set(rd->err, -ERANGE, "more than %zu bytes", HOSTFILE_BYTES_MAX)
                : read_entries(rd, list, "," BLANKS "\n", &(struct told){0});
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
    return rd->hosts.n > 0 ? 0 : err_set(rd->err, -EINVAL, "%s: no host is named", in->file);
}

int hosts_read(const struct hosts_input *in, struct hosts *ret, struct err *err) {
    _cleanup_(reader_fini) struct reader rd = {.err = err};
    int r = 0;
    if (in->list != NULL && in->file != NULL)
        return err_set(err, -EINVAL,
                       "-H and --hostfile do not go together: to choose some hosts "
                       "of a file, use --include");
    if (in->list == NULL && in->file == NULL && (in->include != NULL || in->exclude != NULL))
        return err_set(err, -EINVAL, "%s chooses among hosts: give them with -H or --hostfile",
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
