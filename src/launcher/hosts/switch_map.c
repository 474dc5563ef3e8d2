#include "launcher/hosts/switch_map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "launcher/hosts/hosts.h"

/* ---- lines ---- */

struct switch_entry {
    const char *name, *nodes, *switches; /* point into the copy of the text; "" if missing */
    bool is_block;
};

struct map {
    struct switch_entry *entries;
    uint32_t n;
    size_t names; /* read so far */
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

static int list_has(struct map *m, const char *list, const char *name, bool *ret, struct err *err) {
    _cleanup_(hostlist_fini) struct hostlist l = {0};
    *ret = false;
    /* What is no list of names has no node: the file may have forms that only its owner reads. */
    if (list[0] == '\0' || hostlist_expand(list, &l, NULL) < 0)
        return 0;
    for (size_t i = 0; i < l.n && !*ret; i++)
        *ret = strcmp(l.names[i], name) == 0;
    m->names += l.n;
    return m->names > SWITCH_MAP_NAMES_MAX
               ? err_set(err, -E2BIG, "more than %d nodes and switches are listed",
                         SWITCH_MAP_NAMES_MAX)
               : 0;
}

/* *ret: NULL: none. */
static int above(struct map *m, const char *name, bool is_switch, const struct switch_entry **ret,
                 struct err *err) {
    bool has = false;
    int r = 0;
    *ret = NULL;
    for (uint32_t i = 0; i < m->n && r == 0 && !has; i++) {
        const struct switch_entry *e = &m->entries[i];
        r = list_has(m, is_switch ? e->switches : e->nodes, name, &has, err);
        *ret = has ? e : NULL;
    }
    return r;
}

static int climb(struct map *m, const char *host, char *ret, size_t size, struct err *err) {
    const char *way[SWITCH_MAP_DEPTH_MAX];
    const struct switch_entry *e;
    uint32_t n = 0;
    int r = above(m, host, false, &e, err);
    for (; r == 0 && e != NULL; r = above(m, way[n - 1], true, &e, err)) {
        if (n == SWITCH_MAP_DEPTH_MAX)
            return err_set(err, -EINVAL, "more than %d switches are above node %.100s: a circle?",
                           SWITCH_MAP_DEPTH_MAX, host);
        way[n++] = e->name;
    }
    if (r < 0)
        return r;
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

static int find(struct map *m, const char *host, char *ret, char *ret_block, size_t size,
                struct err *err) {
    for (uint32_t i = m->n; i > 0; i--) {
        const struct switch_entry *e = &m->entries[i - 1];
        bool has = false;
        int r = e->is_block ? list_has(m, e->nodes, host, &has, err) : 0;
        if (r < 0)
            return r;
        if (has)
            (void)snprintf(ret_block, size, "%s", e->name);
    }
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
