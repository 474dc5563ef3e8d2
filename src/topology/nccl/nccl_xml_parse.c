/* NCCL's grammar (src/graph/xml.cc): no prolog, no text, no entities. Blanks and line ends are
 * allowed only between elements, and attributes are separated by single blanks. An element that it
 * does not know at its place is ignored, with everything below it. */
#include "topology/nccl/nccl_xml_priv.h"

#include <errno.h>
#include <string.h>

struct parser {
    char *text;
    size_t len, at;
    uint32_t line;
    struct nccl_xml_log *log;
};

/* A token: an element's name, or an attribute with its value. */
struct token {
    const char *name, *value;
    char last; /* the character that ended it */
};

const char *nccl_xml_kind_name(enum nccl_xml_kind k) {
    static const char *const names[] = {"",       "system", "cpu", "pci", "gpu",
                                        "nvlink", "c2c",    "nic", "net", "pcilink"};
    return names[k];
}

void nccl_xml_add(struct nccl_xml_log *log, enum nccl_xml_level level, uint32_t line, char *text) {
    log->errors += level == NCCL_XML_ERROR;
    if (log->fn != NULL)
        log->fn(log->arg, level, line, text);
    free(text);
}

static int get_char(struct parser *p, char *ret) {
    if (p->at == p->len)
        return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "the file ends in the middle of an element");
    *ret = p->text[p->at++];
    p->line += *ret == '\n' ? 1 : 0;
    return 0;
}

static int too_long(struct parser *p, const char *what) {
    return NCCL_XML_FAIL(p->log, -E2BIG, p->line,
                         "a %s is longer than the %d bytes that NCCL reads", what,
                         NCCL_XML_TEXT_MAX - 1);
}

static int get_value(struct parser *p, struct token *t) {
    char quote = '\0', c = '\0';
    int r = get_char(p, &quote);
    if (r < 0)
        return r;
    if (quote != '"' && quote != '\'')
        return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "a value stands without quotes");
    size_t begin = p->at;
    do {
        r = get_char(p, &c);
        if (r < 0)
            return r;
        if (p->at - begin == NCCL_XML_TEXT_MAX + 1)
            return too_long(p, "value");
    } while (c != quote);
    p->text[p->at - 1] = '\0';
    t->value = p->text + begin;
    return get_char(p, &t->last);
}

/* with_value: "name=value" is allowed. */
static int get_token(struct parser *p, bool with_value, struct token *ret) {
    size_t begin = p->at;
    char c = '\0';
    *ret = (struct token){.name = p->text + begin, .value = ""};
    do {
        int r = get_char(p, &c);
        if (r < 0)
            return r;
        if (c == '=' && !with_value)
            return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "'=' where a name is expected");
        if (c != '=' && p->at - begin == NCCL_XML_TEXT_MAX + 1)
            return too_long(p, "name");
    } while (c == '\0' || strchr("= >/\n\r", c) == NULL);
    p->text[p->at - 1] = '\0';
    ret->last = c;
    return c == '=' ? get_value(p, ret) : 0;
}

/* Skips a comment, whose first token was read, from its '<' up to the first "-->". */
static int skip_comment(struct parser *p, size_t begin) {
    size_t from = begin + 4; /* after "<!--" */
    for (size_t at = from; at + 2 < p->len; at++)
        if (memcmp(p->text + at, "-->", 3) == 0) {
            for (; p->at < at + 3; p->at++)
                p->line += p->text[p->at] == '\n' ? 1 : 0;
            return 0;
        }
    return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "a comment does not end");
}

enum tag_kind { TAG_NONE = 1, TAG_OPEN, TAG_SINGLE, TAG_CLOSE };
struct tag {
    enum tag_kind kind;
    const char *name;
    struct nccl_xml_element e; /* line and attributes */
};

static int get_attrs(struct parser *p, struct tag *ret, char *last) {
    unsigned ignored = 0;
    while (*last == ' ') {
        struct token t;
        int r = get_token(p, true, &t);
        if (r < 0)
            return r;
        *last = t.last;
        if (ret->e.n_attrs == NCCL_XML_ATTRS_MAX) {
            ignored += *t.name != '\0';
            continue;
        }
        ret->e.keys[ret->e.n_attrs] = t.name; /* a second blank counts as an attribute, too */
        ret->e.values[ret->e.n_attrs++] = t.value;
    }
    if (ignored > 0)
        nccl_xml_report(p->log, NCCL_XML_WARNING, ret->e.line,
                        "%u attributes are ignored: NCCL keeps %d", ignored, NCCL_XML_ATTRS_MAX);
    return 0;
}

static int get_open_tag(struct parser *p, struct token *name, struct tag *ret) {
    char last = name->last;
    if (*name->name == '?' || *name->name == '!')
        return NCCL_XML_FAIL(
            p->log, -EINVAL, ret->e.line,
            "<%.40s is not an element: NCCL reads elements and comments only; leave it out",
            name->name);
    ret->kind = TAG_OPEN;
    int r = get_attrs(p, ret, &last);
    if (r == 0 && last == '/') {
        struct token rest;
        ret->kind = TAG_SINGLE;
        r = get_token(p, false, &rest);
        last = r == 0 ? rest.last : '\0';
    }
    if (r == 0 && last != '>')
        return NCCL_XML_FAIL(p->log, -EINVAL, p->line,
                             "'>' is expected here; NCCL allows single blanks between attributes, "
                             "and no end of a line");
    return r;
}

static int get_tag(struct parser *p, struct tag *ret) {
    for (;;) {
        *ret = (struct tag){.kind = TAG_NONE};
        while (p->at < p->len && strchr(" \n\r", p->text[p->at]) != NULL && p->text[p->at] != '\0')
            p->line += p->text[p->at++] == '\n' ? 1 : 0;
        if (p->at == p->len)
            return 0;
        size_t begin = p->at++;
        ret->e.line = p->line;
        if (p->text[begin] != '<')
            return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "'<' is expected%s",
                                 p->text[begin] == '\t' ? "; NCCL knows no tabs" : "");
        struct token name;
        int r = get_token(p, false, &name);
        if (r < 0)
            return r;
        ret->name = name.name;
        if (strncmp(name.name, "!--", 3) == 0) {
            p->text[p->at - 1] = name.last; /* it can be the end of the comment */
            r = skip_comment(p, begin);
            if (r < 0)
                return r;
            continue;
        }
        if (*name.name != '\0' || name.last != '/')
            return get_open_tag(p, &name, ret);
        ret->kind = TAG_CLOSE;
        r = get_token(p, false, &name);
        ret->name = name.name;
        if (r == 0 && name.last != '>')
            return NCCL_XML_FAIL(p->log, -EINVAL, p->line, "'>' is expected in a closing tag");
        return r;
    }
}

/* Which elements are known below each element; others are ignored. */
static const struct {
    enum nccl_xml_kind parent, kind;
} known[] = {
    {NCCL_XML_SYSTEM, NCCL_XML_CPU},  {NCCL_XML_CPU, NCCL_XML_PCI},    {NCCL_XML_CPU, NCCL_XML_NIC},
    {NCCL_XML_PCI, NCCL_XML_PCI},     {NCCL_XML_PCI, NCCL_XML_GPU},    {NCCL_XML_PCI, NCCL_XML_NIC},
    {NCCL_XML_PCI, NCCL_XML_PCILINK}, {NCCL_XML_GPU, NCCL_XML_NVLINK}, {NCCL_XML_GPU, NCCL_XML_C2C},
    {NCCL_XML_NIC, NCCL_XML_NET},
};

/* 0: NCCL does not know it there. */
static enum nccl_xml_kind kind_of(const struct nccl_xml *x, uint32_t parent, const char *name) {
    if (parent == TOPO_NONE)
        return strcmp(name, "system") == 0 ? NCCL_XML_SYSTEM : 0;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].parent == x->elements[parent].kind &&
            strcmp(name, nccl_xml_kind_name(known[i].kind)) == 0)
            return known[i].kind;
    return 0;
}

static int check_system(struct parser *p, const struct nccl_xml *x, uint32_t i) {
    const char *version = nccl_xml_attr(x, i, "version");
    unsigned line = x->elements[i].line;
    if (version == NULL)
        return NCCL_XML_FAIL(p->log, -EINVAL, line, "system has no version");
    long v = strtol(version, NULL, 0);
    if (v == 2)
        return NCCL_XML_FAIL(p->log, -EINVAL, line,
                             "version 2 is RCCL's, AMD's library; NCCL reads version 1");
    if (v != 1)
        return NCCL_XML_FAIL(p->log, -EINVAL, line, "version %.40s; NCCL reads version 1", version);
    return 0;
}

static int add_element(struct parser *p, struct nccl_xml *x, uint32_t parent,
                       enum nccl_xml_kind kind, const struct tag *tag) {
    uint32_t i = x->n++;
    x->elements[i] = tag->e;
    x->elements[i].kind = kind;
    x->elements[i].parent = parent;
    return kind == NCCL_XML_SYSTEM ? check_system(p, x, i) : 0;
}

static int misplaced_close(struct parser *p, const struct nccl_xml *x, uint32_t open,
                           const struct tag *tag) {
    return NCCL_XML_FAIL(p->log, -EINVAL, tag->e.line, "</%.40s> where %s is open", tag->name,
                         open == TOPO_NONE ? "nothing"
                                           : nccl_xml_kind_name(x->elements[open].kind));
}

/* An element that NCCL does not know here, at the top or below `open`. */
static int ignore_element(struct parser *p, const struct nccl_xml *x, uint32_t open,
                          const struct tag *tag) {
    unsigned line = tag->e.line;
    if (open == TOPO_NONE && strcmp(tag->name, "graphs") == 0)
        return NCCL_XML_FAIL(
            p->log, -EINVAL, line,
            "this is a graph file (NCCL_GRAPH_FILE), no topology: its root is graphs, not system");
    if (open == TOPO_NONE)
        return NCCL_XML_FAIL(p->log, -EINVAL, line,
                             "the root is %.40s, not system: no NCCL topology file", tag->name);
    nccl_xml_report(p->log, NCCL_XML_WARNING, line,
                    "%.40s is ignored: NCCL does not know it below %s", tag->name,
                    nccl_xml_kind_name(x->elements[open].kind));
    return 0;
}

static int take_tag(struct parser *p, struct nccl_xml *x, uint32_t *open, uint32_t *ignored,
                    const struct tag *tag) {
    if (tag->kind == TAG_CLOSE) {
        if (*ignored > 0) { /* inside ignored elements NCCL compares no names */
            --*ignored;
            return 0;
        }
        if (*open == TOPO_NONE ||
            strcmp(tag->name, nccl_xml_kind_name(x->elements[*open].kind)) != 0)
            return misplaced_close(p, x, *open, tag);
        *open = x->elements[*open].parent;
        return 0;
    }
    enum nccl_xml_kind kind = *ignored == 0 ? kind_of(x, *open, tag->name) : 0;
    if (kind != 0) {
        int r = add_element(p, x, *open, kind, tag);
        if (r == 0 && tag->kind == TAG_OPEN)
            *open = x->n - 1;
        return r;
    }
    int r = *ignored == 0 ? ignore_element(p, x, *open, tag) : 0;
    *ignored += tag->kind == TAG_OPEN ? 1 : 0;
    return r;
}

int nccl_xml_parse(const char *text, size_t len, struct nccl_xml *ret, struct nccl_xml_log *log) {
    uint32_t open = TOPO_NONE, ignored = 0;
    if (len > UINT32_MAX / 2)
        return NCCL_XML_FAIL(log, -E2BIG, 0, "the file is too long");
    ret->text = xmalloc(len + 1);
    memcpy(ret->text, text, len);
    struct parser p = {.text = ret->text, .len = len, .line = 1, .log = log};
    for (;;) {
        struct tag tag;
        if (ret->n == NCCL_XML_ELEMENTS_MAX)
            return NCCL_XML_FAIL(log, -E2BIG, p.line, "NCCL's table of %d elements is full",
                                 NCCL_XML_ELEMENTS_MAX);
        int r = get_tag(&p, &tag);
        if (r == 0 && tag.kind == TAG_NONE)
            break;
        r = r < 0 ? r : take_tag(&p, ret, &open, &ignored, &tag);
        if (r < 0)
            return r;
    }
    if (open != TOPO_NONE || ignored > 0)
        return NCCL_XML_FAIL(log, -EINVAL, p.line, "the file ends while %s is open",
                             ignored > 0 ? "an element"
                                         : nccl_xml_kind_name(ret->elements[open].kind));
    if (ret->n == 0)
        return NCCL_XML_FAIL(log, -EINVAL, 0, "there is no element in it: no NCCL topology file");
    return 0;
}

void nccl_xml_freep(struct nccl_xml **x) {
    free((*x)->text);
    free(*x);
}

const char *nccl_xml_attr(const struct nccl_xml *x, uint32_t element, const char *key) {
    const struct nccl_xml_element *e = &x->elements[element];
    for (uint32_t i = 0; i < e->n_attrs; i++)
        if (strcmp(e->keys[i], key) == 0)
            return e->values[i];
    return NULL;
}

const char *nccl_xml_text(const struct nccl_xml *x, uint32_t element, const char *key) {
    const char *value = nccl_xml_attr(x, element, key);
    return value != NULL ? value : "";
}

long nccl_xml_int(const struct nccl_xml *x, uint32_t element, const char *key, long otherwise) {
    const char *value = nccl_xml_attr(x, element, key);
    return value != NULL ? strtol(value, NULL, 0) : otherwise;
}

uint32_t nccl_xml_sub(const struct nccl_xml *x, uint32_t element, enum nccl_xml_kind kind) {
    for (uint32_t i = element + 1; i < x->n; i++)
        if (x->elements[i].parent == element && x->elements[i].kind == kind)
            return i;
    return TOPO_NONE;
}

enum nccl_xml_class nccl_xml_class_of(const char *value) {
    static const struct {
        const char *begin;
        enum nccl_xml_class class;
    } classes[] = {{"0x060400", NCCL_CLASS_PCI}, {"0x080100", NCCL_CLASS_PCI},
                   {"0x068000", NCCL_CLASS_NVS}, {"0x068001", NCCL_CLASS_CPU},
                   {"0x03", NCCL_CLASS_GPU},     {"0x02", NCCL_CLASS_NIC}};
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        if (strncmp(value, classes[i].begin, strlen(classes[i].begin)) == 0)
            return classes[i].class;
    return NCCL_CLASS_PCI;
}

void nccl_xml_find_lost(const struct nccl_xml *x, uint32_t lost[NCCL_XML_ELEMENTS_MAX]) {
    bool nic[NCCL_XML_ELEMENTS_MAX] = {false}, leaf[NCCL_XML_ELEMENTS_MAX] = {false};
    for (uint32_t i = 0; i < x->n; i++) {
        const struct nccl_xml_element *e = &x->elements[i];
        leaf[i] = leaf[i] || (e->kind == NCCL_XML_PCI &&
                              nccl_xml_class_of(nccl_xml_text(x, i, "class")) != NCCL_CLASS_PCI);
        if (e->parent != TOPO_NONE && (e->kind == NCCL_XML_NIC || e->kind == NCCL_XML_GPU)) {
            leaf[e->parent] = true;
            nic[e->parent] = nic[e->parent] || e->kind == NCCL_XML_NIC;
        }
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const struct nccl_xml_element *e = &x->elements[i];
        uint32_t up = e->parent;
        lost[i] = up != TOPO_NONE ? lost[up] : TOPO_NONE;
        if (lost[i] == TOPO_NONE && up != TOPO_NONE && x->elements[up].kind == NCCL_XML_PCI &&
            ((e->kind == NCCL_XML_PCI && leaf[up]) || (e->kind == NCCL_XML_GPU && nic[up])))
            lost[i] = up;
    }
}
