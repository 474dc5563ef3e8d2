#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/log.h"
#include "base/text/utf8.h"
#include "cli/help/help.h"
#include "cli/jobs/screen_io.h"
#include "cli/options/commands.h"
#include "io/file.h"
#include "topology/discover/discovery_io.h"
#include "topology/json/topology_json.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/render/render.h"

enum topo_option {
    TOPO_OPT_JSON,
    TOPO_OPT_TREE,
    TOPO_OPT_SVG,
    TOPO_OPT_NCCL_XML,
    TOPO_OPT_CHECK,
    TOPO_OPT_FROM,
    TOPO_OPT_SYSROOT
};

static const struct option_def defs[] = {
    [TOPO_OPT_JSON] = {"json", NULL, OPTION_SHORT,
                       "print one JSON object, for programs and for --from",
                       .brief = "print one JSON object"},
    [TOPO_OPT_TREE] = {"tree", NULL, OPTION_SHORT,
                       "print a tree of NUMA nodes, switches and devices",
                       .brief = "print NUMA nodes, switches and devices as a tree"},
    [TOPO_OPT_SVG] = {"svg", "FILE", OPTION_SHORT,
                      "write a picture (SVG); - means standard output"},
    [TOPO_OPT_NCCL_XML] = {"nccl-xml", "FILE", OPTION_SHORT,
                           "write NCCL's topology file (NCCL_TOPO_FILE); - means standard output",
                           .brief = "write NCCL's topology file; - means standard output"},
    [TOPO_OPT_CHECK] = {"check-nccl-xml", "FILE", OPTION_SHORT,
                        "check an NCCL topology file against NCCL's rules; nothing else is shown",
                        .brief = "check an NCCL topology file"},
    [TOPO_OPT_FROM] = {"from", "FILE", OPTION_SHORT,
                       "read this file instead of this machine: the JSON of --json, an hwloc XML, "
                       "or an NCCL topology file",
                       .brief = "read this file instead of this machine"},
    [TOPO_OPT_SYSROOT] = {"sysroot", "DIR", OPTION_SHORT,
                          "read sys and proc of another machine, copied into this folder",
                          .brief = "read sys and proc of another machine from DIR"},
    HELP_ROW(),
    HELP_ALL_ROW,
};

const struct option_set topo_options = {
    .command = "topo",
    .operands = "",
    .about = "Shows the GPUs and NICs of this node, how far apart they are, and which NIC NCCL "
             "takes for each GPU. Without options it prints a matrix, as nvidia-smi topo -m does.",
    .example = "--tree",
    OPTION_DEFS(defs),
};

/* ---- files and the terminal ---- */

/* "-" is standard output. */
static int write_file(const char *path, const struct strbuf *text, struct err *err) {
    if (strcmp(path, "-") == 0) {
        (void)fputs(strbuf_text(text), stdout); /* finish_stdout() reports errors */
        return 0;
    }
    int r = file_write_atomic(path, strbuf_text(text), text->len);
    return r < 0 ? err_set(err, r, "can't write %s: %s", path, strerror(-r)) : 0;
}

static int read_file(const char *path, size_t max, char **ret_text, size_t *ret_len,
                     struct err *err) {
    struct stat st;
    int r = file_read_text(path, max, ret_text, ret_len);
    if (r == -EINVAL)
        return err_set(err, r, "can't read %s: it is %s", path,
                       stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "a folder"
                                                                   : "no regular file");
    return r < 0 ? err_set(err, r, "can't read %s: %s", path, strerror(-r)) : 0;
}

/* Whether standard output can show lines and arrows: UTF-8, and not a dumb terminal. */
static bool shows_utf8(void) {
    const char *term = getenv("TERM");
    if (isatty(STDOUT_FILENO) == 1 && (term == NULL || strcmp(term, "dumb") == 0))
        return false;
    locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    if (locale == (locale_t)0)
        return false;
    bool utf8 = strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;
    freelocale(locale);
    return utf8;
}

/* ---- the command line ---- */

static bool is_stdout(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

/* Returns -1, or the exit status. */
static int check_words(const struct option_value *v) {
    const char *const files[] = {v[TOPO_OPT_SVG].text, v[TOPO_OPT_NCCL_XML].text,
                                 v[TOPO_OPT_CHECK].text, v[TOPO_OPT_FROM].text,
                                 v[TOPO_OPT_SYSROOT].text};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (files[i] != NULL && files[i][0] == '\0')
            return usage_error("topo", "an empty file name");
    bool json = v[TOPO_OPT_JSON].times > 0, tree = v[TOPO_OPT_TREE].times > 0;
    bool svg = v[TOPO_OPT_SVG].text != NULL, xml = v[TOPO_OPT_NCCL_XML].text != NULL;
    if (v[TOPO_OPT_CHECK].text != NULL && (json || tree || svg || xml))
        return usage_error("topo", "--check-nccl-xml prints nothing else: leave out --json, "
                                   "--tree, --svg and --nccl-xml");
    if (v[TOPO_OPT_FROM].text != NULL && v[TOPO_OPT_SYSROOT].text != NULL)
        return usage_error("topo", "either --from or --sysroot");
    if (json + tree + is_stdout(v[TOPO_OPT_SVG].text) + is_stdout(v[TOPO_OPT_NCCL_XML].text) > 1)
        return usage_error("topo", "only one of --json, --tree, --svg=- and --nccl-xml=- can have "
                                   "standard output");
    return -1;
}

/* ---- reading the topology ---- */

static int load(const struct option_value *v, struct topology *ret, struct err *err) {
    if (v[TOPO_OPT_FROM].text != NULL)
        return topology_load(v[TOPO_OPT_FROM].text, ret, err);
    struct discovery_config config = {.what = DISCOVER_ALL, .sysroot = v[TOPO_OPT_SYSROOT].text};
    return topology_discover(&config, ret, err);
}

/* Texts from files and devices must be cleaned before they are shown on a terminal. */
static void warn(char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        utf8_clean(texts[i], false);
        log_warning("%s", texts[i]);
    }
}

/* Warns of variables here that would change NCCL's choice: the output describes the node. */
static void warn_of_variables(void) {
    static const char *const names[] = {
        "NCCL_IB_HCA",    "NCCL_NET_GDR_LEVEL",  "NCCL_P2P_LEVEL",    "NCCL_PXN_DISABLE",
        "NCCL_TOPO_FILE", "NCCL_NETDEVS_POLICY", "NCCL_SOCKET_IFNAME"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (getenv(names[i]) != NULL)
            log_warning("%s is set: the NICs shown are those that NCCL would take without it",
                        names[i]);
}

/* ---- --check-nccl-xml ---- */

#define CHECK_BYTES_MAX ((size_t)16 << 20)

struct xml_finding {
    uint32_t line;
    enum nccl_xml_level level;
    char *text; /* owned */
};

struct xml_findings {
    struct xml_finding *list; /* by line */
    uint32_t n;
};

static void add_finding(void *arg, enum nccl_xml_level level, uint32_t line, const char *text) {
    struct xml_findings *f = arg;
    f->list = xrealloc(f->list, ((size_t)f->n + 1) * sizeof *f->list);
    uint32_t i = f->n++;
    for (; i > 0 && f->list[i - 1].line > line; i--)
        f->list[i] = f->list[i - 1];
    f->list[i] = (struct xml_finding){line, level, xstrdup(text)};
}

/* Prints the findings in the form with which editors jump to it; frees them. */
static void print_findings(struct xml_findings *f, const char *path) {
    static const char *const levels[] = {
        [NCCL_XML_NOTICE] = "note", [NCCL_XML_WARNING] = "warning", [NCCL_XML_ERROR] = "error"};
    for (uint32_t i = 0; i < f->n; i++) {
        printf("%s:", path);
        if (f->list[i].line > 0)
            printf("%u:", f->list[i].line);
        printf(" %s: ", levels[f->list[i].level]);
        utf8_clean(f->list[i].text, false);
        printf("%s\n", f->list[i].text);
        free(f->list[i].text);
    }
    if (f->n == 0)
        printf("%s: no problems found\n", path);
    free(f->list);
}

static int check(const struct option_value *v) {
    const char *path = v[TOPO_OPT_CHECK].text;
    _cleanup_(topology_fini) struct topology machine = {0};
    _cleanup_(freep) char *text = NULL;
    size_t len;
    struct err err = {0};
    bool other = v[TOPO_OPT_FROM].text != NULL || v[TOPO_OPT_SYSROOT].text != NULL;
    /* Without GPUs, this is not the machine for which the file was made. */
    bool compare = other || discover_has_gpus();
    if (read_file(path, CHECK_BYTES_MAX, &text, &len, &err) < 0 ||
        (compare && load(v, &machine, &err) < 0))
        return print_failure(&err);
    struct xml_findings found = {0};
    unsigned errors = nccl_xml_check(text, len, compare ? &machine : NULL, add_finding, &found);
    print_findings(&found, path);
    int status = finish_stdout();
    return errors > 0 ? EXIT_JOB_FAILED : status;
}

/* ---- output ---- */

static void print(const struct option_value *v, const struct topology *t,
                  const struct nccl_graph *g) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    if (v[TOPO_OPT_JSON].times > 0)
        topology_json_write(t, &text);
    else if (v[TOPO_OPT_TREE].times > 0)
        render_tree(t, g, screen_columns(), shows_utf8(), &text);
    else if (v[TOPO_OPT_SVG].text == NULL && v[TOPO_OPT_NCCL_XML].text == NULL)
        render_matrix(t, g, &text);
    (void)fputs(strbuf_text(&text), stdout);
}

static int show(const struct option_value *v) {
    _cleanup_(topology_fini) struct topology t = {0};
    _cleanup_(nccl_graph_freep) struct nccl_graph *g = NULL;
    _cleanup_(strbuf_fini) struct strbuf svg = {0}, xml = {0};
    struct words of_nccl = {0};
    struct err err = {0};
    if (load(v, &t, &err) < 0)
        return print_failure(&err);
    if (nccl_graph_new(&t, &g, &err) < 0)
        log_warning("can't determine which NIC NCCL takes: %s", err.text);
    print(v, &t, g);
    int r = 0;
    err = (struct err){0};
    if (v[TOPO_OPT_SVG].text != NULL) {
        render_svg(&t, g, &svg);
        r = write_file(v[TOPO_OPT_SVG].text, &svg, &err);
    }
    if (r == 0 && v[TOPO_OPT_NCCL_XML].text != NULL)
        r = nccl_xml_write(&t, &xml, &err);
    if (r == 0 && v[TOPO_OPT_NCCL_XML].text != NULL)
        r = write_file(v[TOPO_OPT_NCCL_XML].text, &xml, &err);
    int status = finish_stdout();
    warn(t.warnings, t.n_warnings);
    /* Without GPUs no NIC is chosen, so warnings about the speed of NICs are of no use. */
    if (g != NULL && t.n_gpus > 0)
        nccl_graph_warnings(g, &of_nccl);
    warn(of_nccl.list, of_nccl.n);
    words_free(of_nccl.list);
    if (t.source == TOPO_LIVE && t.n_gpus > 0)
        warn_of_variables();
    if (r < 0)
        log_error("%s", err.text);
    return r < 0 ? EXIT_JOB_FAILED : status;
}

int cmd_topo(int argc, char **argv) {
    struct options_parsed parsed;
    int status = help_or_parse(&topo_options, argc, argv, NULL, 0, &parsed);
    if (status >= 0)
        return status;
    status = check_words(parsed.values);
    if (status >= 0)
        return status;
    return parsed.values[TOPO_OPT_CHECK].text != NULL ? check(parsed.values) : show(parsed.values);
}
