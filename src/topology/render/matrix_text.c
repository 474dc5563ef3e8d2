#include "topology/render/matrix_text.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text/strbuf.h"

#define DEVICES_MAX (TOPO_GPUS_MAX + TOPO_NICS_MAX)
/* name, devices, affinities, and columns of newer versions */
#define FIELDS_MAX (DEVICES_MAX + 8)

/* ---- lines and fields ---- */

/* Takes the next line, without the terminal's escape sequences (nvidia-smi underlines its header)
 * and without the carriage return of pasted text. false: there is none. */
static bool next_line(const char **p, const char *end, struct strbuf *to) {
    strbuf_clear(to);
    if (*p == end)
        return false;
    const char *s = *p, *stop = memchr(s, '\n', (size_t)(end - s));
    *p = stop != NULL ? stop + 1 : end;
    if (stop == NULL)
        stop = end;
    while (s < stop) {
        if (*s == '\033' && s + 1 < stop && s[1] == '[') {
            for (s += 2; s < stop && !isalpha((unsigned char)*s);)
                s++;
            s += s < stop;
        } else if (*s == '\r' || *s == '\0') {
            s++;
        } else {
            strbuf_add_char(to, *s++);
        }
    }
    return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Splits the line in place: by tabs if the table has them (then a field can be empty), else by
 * blanks. Fields that do not fit are dropped. */
static uint32_t split(char *line, bool by_tabs, char *fields[FIELDS_MAX]) {
    uint32_t n = 0;
    char *p = line;
    while (n < FIELDS_MAX) {
        while (*p == ' ' || (!by_tabs && *p == '\t'))
            p++;
        if (!by_tabs && *p == '\0')
            break;
        fields[n++] = p;
        p += strcspn(p, by_tabs ? "\t" : " \t");
        char *last = p;
        bool more = *p != '\0';
        while (last > fields[n - 1] && is_blank(last[-1]))
            last--;
        p += more;
        *last = '\0';
        if (!more)
            break;
    }
    return n;
}

/* ---- the table ---- */

struct table {
    struct matrix_text *m;
    bool by_tabs;
    bool *seen; /* [n] rows */
    uint32_t line;
    uint32_t cpus, numa; /* the field of a row with this affinity; 0: none */
};

static uint32_t find_name(const struct matrix_text *m, const char *name) {
    for (uint32_t i = 0; i < m->n; i++)
        if (strcmp(m->names[i], name) == 0)
            return i;
    return m->n;
}

/* The header differs from the rows: it begins with a blank where they have a name. If pasted text
 * has lost that blank, the affinity column identifies the header. */
static bool is_header(const char *line) {
    return (is_blank(line[0]) && line[strspn(line, " \t")] != '\0') ||
           strstr(line, "CPU Affinity") != NULL;
}

static int take_header(struct table *t, char *line, struct err *err) {
    struct matrix_text *m = t->m;
    char *fields[FIELDS_MAX];
    t->by_tabs = strchr(line, '\t') != NULL;
    uint32_t n = split(line, t->by_tabs, fields), i = t->by_tabs && n > 0 && *fields[0] == '\0';
    for (; i < n && *fields[i] != '\0' && strncmp(fields[i], "CPU", 3) != 0 &&
           strncmp(fields[i], "NUMA", 4) != 0;
         i++) {
        if (m->n == DEVICES_MAX)
            return err_set(err, -EINVAL, "line %u: more than %u devices", t->line, DEVICES_MAX);
        if (strlen(fields[i]) >= TOPO_NAME_MAX || find_name(m, fields[i]) < m->n)
            return err_set(err, -EINVAL, "line %u: the header has \"%.40s\" twice, or too long",
                           t->line, fields[i]);
        m->names = xrealloc(m->names, ((size_t)m->n + 1) * sizeof *m->names);
        (void)strcpy(m->names[m->n++], fields[i]);
    }
    if (m->n == 0)
        return err_set(err, -EINVAL, "line %u: the header names no device", t->line);
    /* If split by blanks, "CPU Affinity" is two fields in the header, but one in a row. */
    if (i < n && strncmp(fields[i], "CPU", 3) == 0) {
        t->cpus = m->n + 1;
        i += t->by_tabs ? 1 : 2;
    }
    if (i < n && strncmp(fields[i], "NUMA", 4) == 0)
        t->numa = m->n + 1 + (t->cpus != 0);
    m->cells = xcalloc((size_t)m->n * m->n, sizeof *m->cells);
    m->cpus = xcalloc(m->n, sizeof *m->cpus);
    m->numa = xcalloc(m->n, sizeof *m->numa);
    t->seen = xcalloc(m->n, sizeof *t->seen);
    return 0;
}

static void take_affinity(const char *text, char *out, size_t size) {
    if (strcmp(text, "N/A") != 0 && strlen(text) < size)
        memcpy(out, text, strlen(text) + 1);
}

/* 0; 1: the line is not a row, so the table is over. */
static int take_row(struct table *t, char *line, struct err *err) {
    struct matrix_text *m = t->m;
    char *fields[FIELDS_MAX];
    uint32_t n = split(line, t->by_tabs, fields);
    uint32_t row = n > 0 ? find_name(m, fields[0]) : m->n;
    if (row == m->n)
        return 1;
    if (t->seen[row])
        return err_set(err, -EINVAL, "line %u: a second row of \"%s\"", t->line, fields[0]);
    t->seen[row] = true;
    for (uint32_t c = 0; c < m->n && c + 1 < n; c++) {
        struct topo_link *cell = &m->cells[(size_t)row * m->n + c];
        if (*fields[c + 1] != '\0' && topo_link_parse(fields[c + 1], cell) < 0)
            return err_set(err, -EINVAL, "line %u: \"%.40s\" is no path (X, NV#, PIX, …)", t->line,
                           fields[c + 1]);
    }
    if (t->cpus != 0 && t->cpus < n)
        take_affinity(fields[t->cpus], m->cpus[row], sizeof m->cpus[row]);
    if (t->numa != 0 && t->numa < n)
        take_affinity(fields[t->numa], m->numa[row], sizeof m->numa[row]);
    return 0;
}

static bool is_complete(const struct matrix_text *m) {
    for (uint32_t a = 0; a < m->n; a++)
        for (uint32_t b = 0; b < m->n; b++) {
            const struct topo_link *x = &m->cells[(size_t)a * m->n + b];
            const struct topo_link *y = &m->cells[(size_t)b * m->n + a];
            if (x->path == 0 || x->path != y->path || x->nvlinks != y->nvlinks ||
                (x->path == TOPO_PATH_SELF) != (a == b))
                return false;
        }
    return true;
}

static int parse(struct table *t, const char *text, size_t len, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf line = {0};
    for (const char *p = text; next_line(&p, text + len, &line);) {
        t->line++;
        if (line.len == 0 || line.data[0] == '#')
            continue;
        if (t->m->n == 0) {
            if (is_header(line.data)) {
                int r = take_header(t, line.data, err);
                if (r < 0)
                    return r;
            }
            continue;
        }
        int r = take_row(t, line.data, err);
        if (r < 0)
            return r;
        if (r > 0)
            break;
    }
    if (t->m->n == 0)
        return err_set(err, -EINVAL,
                       "there is no header of devices, as nvidia-smi topo -m prints it");
    return 0;
}

int matrix_text_parse(const char *text, size_t len, struct matrix_text *ret, struct err *err) {
    struct matrix_text m = {0};
    struct table t = {.m = &m};
    int r = parse(&t, text, len, err);
    free(t.seen);
    if (r < 0) {
        matrix_text_fini(&m);
        return r;
    }
    m.complete = is_complete(&m);
    *ret = m;
    return 0;
}

void matrix_text_fini(struct matrix_text *m) {
    free(m->names);
    free(m->cells);
    free(m->cpus);
    free(m->numa);
    *m = (struct matrix_text){0};
}
