#include "launcher/preflight/switch_map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NUMBER_DIGITS_MAX 15

/* ---- host lists ---- */

/* Reads a run of digits as a number; false if there is none, or if it is too long. */
static bool read_digits(const char **s, uint64_t *ret, size_t *ret_width) {
    size_t n = strspn(*s, "0123456789");
    if (n == 0 || n > NUMBER_DIGITS_MAX)
        return false;
    *ret = strtoull(*s, NULL, 10);
    *ret_width = n;
    *s += n;
    return true;
}

/* Whether one of "1-4,7,010-020]" matches, up to the bracket. */
static bool ranges_have(const char *ranges, const char *digits, size_t width) {
    uint64_t v, lo, hi;
    size_t wide, ignored;
    const char *d = digits;
    if (!read_digits(&d, &v, &ignored))
        return false;
    while (*ranges != ']' && *ranges != '\0') {
        if (!read_digits(&ranges, &lo, &wide))
            return false;
        hi = lo;
        if (*ranges == '-') {
            ranges++;
            if (!read_digits(&ranges, &hi, &ignored))
                return false;
        }
        /* "08": numbers with at least two digits; "8": no leading zero */
        bool fits = width == wide || (width > wide && digits[0] != '0');
        if (v >= lo && v <= hi && fits)
            return true;
        ranges += *ranges == ',';
    }
    return false;
}

/* Matches one name or expression, up to `end`. The bracket gets all digits at its place. */
static bool item_has(const char *item, const char *end, const char *name) {
    while (item < end) {
        if (*item != '[') {
            if (*item++ != *name++)
                return false;
            continue;
        }
        const char *close = memchr(item, ']', (size_t)(end - item));
        size_t width = strspn(name, "0123456789");
        if (close == NULL || !ranges_have(item + 1, name, width))
            return false;
        name += width;
        item = close + 1;
    }
    return *name == '\0';
}

static bool separates(char c) { return c == ',' || c == ' ' || c == '\t'; }

static bool list_has(const char *list, const char *name) {
    while (*list != '\0') {
        while (separates(*list))
            list++;
        const char *end = list;
        bool inside = false;
        for (; *end != '\0' && (inside || !separates(*end)); end++)
            inside = *end == '[' ? true : *end == ']' ? false : inside;
        if (end > list && item_has(list, end, name))
            return true;
        list = end;
    }
    return false;
}

/* ---- lines ---- */

struct switch_entry {
    const char *name, *nodes, *switches; /* point into the copy of the text; "" if missing */
    bool is_block;
};

struct map {
    struct switch_entry *entries;
    uint32_t n;
};

static char *skip_blanks(char *s) { return s + strspn(s, " \t\r"); }

/* The value of "KEY=value" among the words of a line, which is cut there; NULL: no such word. */
static char *take_value(char *line, const char *key) {
    size_t n = strlen(key);
    for (char *at = line; (at = strcasestr(at, key)) != NULL; at += n) {
        if (at[n] != '=' || (at > line && at[-1] != ' ' && at[-1] != '\t' && at[-1] != '\0'))
            continue;
        return at + n + 1;
    }
    return NULL;
}

static void end_word(char *s) {
    if (s != NULL)
        s[strcspn(s, " \t\r")] = '\0';
}

/* Finds all values before it cuts the line at the first one. */
static int read_slurm(char *line, struct switch_entry *ret) {
    char *name = take_value(line, "SwitchName"), *block = take_value(line, "BlockName");
    if (name == NULL)
        name = block;
    char *nodes = take_value(line, "Nodes"), *switches = take_value(line, "Switches");
    end_word(name);
    end_word(nodes);
    end_word(switches);
    if (name == NULL || name[0] == '\0')
        return -EINVAL;
    *ret = (struct switch_entry){.name = name,
                                 .nodes = nodes == NULL ? "" : nodes,
                                 .switches = switches == NULL ? "" : switches,
                                 .is_block = name == block};
    return 0;
}

static int read_plain(char *line, char *colon, struct switch_entry *ret) {
    *colon = '\0';
    end_word(line);
    if (line[0] == '\0' || skip_blanks(colon + 1)[0] == '\0')
        return -EINVAL;
    *ret = (struct switch_entry){.name = line, .nodes = colon + 1, .switches = colon + 1};
    return 0;
}

static int read_line(char *line, struct switch_entry *ret) {
    char *colon = strchr(line, ':');
    bool slurm =
        strncasecmp(line, "SwitchName=", 11) == 0 || strncasecmp(line, "BlockName=", 10) == 0;
    if (slurm)
        return read_slurm(line, ret);
    return colon == NULL ? -EINVAL : read_plain(line, colon, ret);
}

/* Whether a line has no place; AggregatedBlock is of `scontrol show topology`. */
static bool is_ignored(const char *line) {
    return line[0] == '\0' || strcmp(line, "---") == 0 ||
           strncasecmp(line, "BlockSizes=", 11) == 0 ||
           strncasecmp(line, "AggregatedBlock=", 16) == 0;
}

/* Ends the line, without its comment and blanks at both ends; *next: what follows. */
static char *cut_line(char *text, char **next) {
    char *end = text + strcspn(text, "\n");
    *next = *end == '\n' ? end + 1 : end;
    *end = '\0';
    text[strcspn(text, "#")] = '\0';
    text = skip_blanks(text);
    for (end = text + strlen(text); end > text && strchr(" \t\r", end[-1]) != NULL;)
        *--end = '\0';
    return text;
}

/* ---- topology.yaml ---- */

static char *unquote(char *s) {
    size_t n = strlen(s);
    if (n < 2 || (s[0] != '"' && s[0] != '\'') || s[n - 1] != s[0])
        return s;
    s[n - 1] = '\0';
    return s + 1;
}

/* One key of a switch or block, or of something else, which is ignored. */
static int read_yaml(char *line, struct switch_entry *e) {
    static const char *const keys[] = {"nodes", "children", "switch", "block"};
    const char **const to[] = {&e->nodes, &e->switches, &e->name, &e->name};
    char *value = strchr(line, ':');
    if (value == NULL || strpbrk(line, "{}") != NULL)
        return strpbrk(line, "[{}],") == NULL ? 0 : -EINVAL;
    *value = '\0';
    value = unquote(skip_blanks(value + 1));
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        if (strcmp(line, keys[i]) != 0)
            continue;
        if (strcmp(line, "block") == 0 && value[0] == '\0')
            return 0; /* the blocks follow */
        if (value[0] == '\0' || strchr("[&*|>!", value[0]) != NULL)
            return -EINVAL;
        *to[i] = value;
        e->is_block |= strcmp(line, "block") == 0;
    }
    return 0;
}

/* A file that begins with an item of a list is YAML. */
static int read_map(char *text, struct map *ret, struct err *err) {
    static const char slurm[] = "neither \"SwitchName=… Nodes=…\" nor \"SWITCH: NODE …\"",
                      yaml[] = "not one key of topology.yaml, as \"nodes: n[1-18]\"";
    const char *form = slurm;
    uint32_t number = 0;
    while (*text != '\0') {
        char *line = cut_line(text, &text);
        number++;
        if (is_ignored(line))
            continue;
        if (ret->n == SWITCH_MAP_SWITCHES_MAX)
            return err_set(err, -E2BIG, "more than %d switches", SWITCH_MAP_SWITCHES_MAX);
        bool item = line[0] == '-' && (line[1] == ' ' || line[1] == '\0');
        if (item && ret->n == 0)
            form = yaml;
        if (item || form == slurm) {
            ret->entries = xgrow(ret->entries, ret->n, sizeof *ret->entries);
            ret->entries[ret->n++] = (struct switch_entry){"", "", "", false};
        }
        struct switch_entry *e = &ret->entries[ret->n - 1];
        if ((form == slurm ? read_line(line, e) : read_yaml(skip_blanks(line + item), e)) < 0)
            return err_set(err, -EINVAL, "line %u is %s: %.100s", number, form, line);
    }
    return 0;
}

/* ---- the switches above a node ---- */

static const struct switch_entry *above(const struct map *m, const char *name, bool is_switch) {
    for (uint32_t i = 0; i < m->n; i++)
        if (list_has(is_switch ? m->entries[i].switches : m->entries[i].nodes, name))
            return &m->entries[i];
    return NULL;
}

static int climb(const struct map *m, const char *host, char *ret, size_t size, struct err *err) {
    const char *way[SWITCH_MAP_DEPTH_MAX];
    uint32_t n = 0;
    for (const struct switch_entry *e = above(m, host, false); e != NULL;
         e = above(m, e->name, true)) {
        if (n == SWITCH_MAP_DEPTH_MAX)
            return err_set(err, -EINVAL, "more than %d switches are above node %.100s: a circle?",
                           SWITCH_MAP_DEPTH_MAX, host);
        way[n++] = e->name;
    }
    if (n == 0)
        return SWITCH_MAP_E_ABSENT;
    size_t len = 0;
    for (uint32_t i = n; i > 0 && len < size; i--)
        len += (size_t)snprintf(ret + len, size - len, "%s.", way[i - 1]);
    if (len < size)
        len += (size_t)snprintf(ret + len, size - len, "%s", host);
    return len < size ? 0
                      : err_set(err, -E2BIG, "the place of node %.100s is longer than %zu bytes",
                                host, size - 1);
}

static int find(const struct map *m, const char *host, char *ret, char *ret_block, size_t size,
                struct err *err) {
    for (uint32_t i = m->n; i > 0; i--)
        if (m->entries[i - 1].is_block && list_has(m->entries[i - 1].nodes, host))
            (void)snprintf(ret_block, size, "%s", m->entries[i - 1].name);
    return climb(m, host, ret, size, err);
}

int switch_map_find(const char *text, size_t len, const char *host, char *ret, char *ret_block,
                    size_t size, struct err *err) {
    if (len > SWITCH_MAP_MAX_BYTES)
        return err_set(err, -E2BIG, "larger than %zu bytes", SWITCH_MAP_MAX_BYTES);
    _cleanup_(freep) char *copy = xstrndup(text, len);
    for (char *p = copy; (p = strchr(p, '\\')) != NULL; p++)
        if (p[1] == '\n')
            p[0] = p[1] = ' ';
    struct map m = {0};
    ret_block[0] = '\0';
    _cleanup_(freep) char *brief = xstrndup(host, strcspn(host, "."));
    int r = read_map(copy, &m, err);
    if (r == 0)
        r = find(&m, host, ret, ret_block, size, err);
    if (r == SWITCH_MAP_E_ABSENT && strcmp(brief, host) != 0)
        r = find(&m, brief, ret, ret_block, size, err);
    free(m.entries);
    return r;
}
