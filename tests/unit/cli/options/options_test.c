#include "cli/help/help.h"

#include "cli/options/options.h"
#include "cli/options/options_table.h"
#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))

struct line {
    struct options_parsed parsed;
    struct err err;
    int r;
    int argc;
    char *argv[16];
};

/* The words of one line, split at blanks; "~" means a blank inside a word. */
static struct line *parse(const char *words) {
    static char text[512];
    static struct line l;
    l = (struct line){.argc = 1, .argv = {TEXT("run")}};
    (void)snprintf(text, sizeof text, "%s", words);
    for (char *w = strtok(text, " "); w != NULL; w = strtok(NULL, " ")) {
        for (char *c = w; *c != '\0'; c++)
            *c = *c == '~' ? ' ' : *c;
        l.argv[l.argc++] = w;
    }
    l.r = options_parse(&run_options, l.argc, l.argv, &l.parsed, &l.err);
    return &l;
}

static size_t row(const char *name) {
    size_t i = 0;
    while (i < run_options.n && strcmp(run_options.defs[i].name, name) != 0)
        i++;
    cr_assert_lt(i, run_options.n, "no option %s", name);
    return i;
}

static const char *text_of(const char *words, const char *name) {
    struct line *l = parse(words);
    cr_assert_eq(l->r, 0, "%s: %s", words, l->err.text);
    return l->parsed.values[row(name)].text;
}

Test(options, takes_every_way_to_write_a_value) {
    static const struct {
        const char *words;
        const char *name;
        const char *value;
    } cases[] = {
        {"--nnodes 2 x", "nnodes", "2"},
        {"--nnodes=2 x", "nnodes", "2"},
        {"--nnodes= x", "nnodes", ""},
        {"--nproc-per-node=4 x", "nproc-per-node", "4"},
        {"--nproc_per_node 4 x", "nproc-per-node", "4"},
        {"--nproc=4 x", "nproc-per-node", "4"},
        {"--nproc_per 4 x", "nproc-per-node", "4"},
        {"--redirect=3 x", "redirects", "3"},
        {"--te 3 x", "tee", "3"},
        {"-r3 x", "redirects", "3"},
        {"-r 3 x", "redirects", "3"},
        {"-r=3 x", "redirects", "3"},
        {"-mr3 x", "redirects", "3"},
        {"-mr 3 x", "redirects", "3"},
        {"-vvr 0:1,1:2 x", "redirects", "0:1,1:2"},
        {"--nnodes=1 --nnodes=2 x", "nnodes", "2"},
        {"--warm=process x", "warm", "process"},
        {"--warm process.py", "warm", "fork"},
        {"--warm x --warm=off", "warm", "fork"},
        {"--warm --warm=off x", "warm", "off"},
        {"--node-rank -1 x", "node-rank", "-1"},
        {"--node-rank -1.5 x", "node-rank", "-1.5"},
        {"--log-dir - x", "log-dir", "-"},
        {"--log-dir -a~b x", "log-dir", "-a b"},
        {"--rdzv-conf a=b,c=d x", "rdzv-conf", "a=b,c=d"},
        {"--rdzv-conf=a=b x", "rdzv-conf", "a=b"},
        {"--start-method=fork x", "start-method", "fork"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *got = text_of(cases[i].words, cases[i].name);
        cr_assert_not_null(got, "%s", cases[i].words);
        cr_assert_str_eq(got, cases[i].value, "%s", cases[i].words);
    }
}

Test(options, refuses_with_a_sentence) {
    static const char *const cases[][2] = {
        {"--nprocs=2 x", "did you mean --nproc-per-node?"},
        {"--max-restart-s=2 x", "did you mean --max-restarts?"},
        {"--stanalone x", "did you mean --standalone?"},
        {"-nnodes=2 x", "did you mean --nnodes?"},
        {"--endpoint=h x", "did you mean --rdzv-endpoint?"},
        {"--backend=c10d x", "did you mean --rdzv-backend?"},
        {"--restarts=2 x", "did you mean --max-restarts?"},
        {"--num_processes=2 x", "unknown option --num_processes; workers of each node: --nproc-per-node"},
        {"--num-nodes 2 x", "nodes of the job: --nnodes"},
        {"-np 2 x", "unknown option -np; workers of each node: --nproc-per-node"},
        {"--use_env x", "leave it out: workers get LOCAL_RANK"},
        {"--hosts=h x", "did you mean --host (-H)?"},
        {"--machinefile=h x", "did you mean --hostfile?"},
        {"--multi_gpu x", "workers of each node: --nproc-per-node"},
        {"--gpu-ids=0 x", "set CUDA_VISIBLE_DEVICES"},
        {"--dist-url=tcp://h:1 x", "did you mean --rdzv-endpoint=HOST:PORT?"},
        {"--main_process_port=1 x", "did you mean --master-port?"},
        {"--warm process x", "--warm process: write --warm=process"},
        {"--zzz x", "unknown option --zzz; see \"muster run --help-all\""},
        {"--zzz x", "unknown option --zzz; see"},
        {"--=3 x", "unknown option --"},
        {"-x x", "unknown option -x"},
        {"-mz x", "there is no option -z"},
        {"--no x", "--no could be any of"},
        {"--d 3 x", "--d could be any of --duplicate-stdout-filters, --duplicate-stderr-filters"},
        {"--nnodes", "--nnodes needs a value: --nnodes=N|MIN:MAX"},
        {"--nnodes -- x", "--nnodes needs a value"},
        {"--nnodes --standalone x", "--nnodes needs a value"},
        {"--log-dir -x x", "--log-dir needs a value"},
        {"-mr", "--redirects needs a value"},
        {"--standalone=1 x", "--standalone takes no value"},
        {"-m=1 x", "-m takes no value"},
        {"--start-method=thread x", "must be one of: spawn fork forkserver"},
        {"--start-method=spaw x", "must be one of"},
        {"--start-method= x", "must be one of"},
        {"--contain=vm x", "must be one of: auto none cgroup pidns"},
        {"--leave=all x", "must be one of: none detached"},
        {"--le=detached x", "--le could be any of --lease, --leave"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct line *l = parse(cases[i][0]);
        cr_assert_eq(l->r, -EINVAL, "%s", cases[i][0]);
        cr_assert_not_null(strstr(l->err.text, cases[i][1]), "%s: %s", cases[i][0], l->err.text);
        cr_assert_null(strchr(l->err.text, '\n'));
    }
}

Test(options, our_options_never_make_torchruns_beginnings_ambiguous) {
    cr_assert_eq(parse("--v x")->parsed.values[row("virtual-local-rank")].times, 1);
    cr_assert_eq(parse("--he x")->parsed.values[row("help")].times, 1);
    cr_assert_eq(parse("--verb x")->parsed.values[row("verbose")].times, 1);
    cr_assert_str_eq(text_of("--heart=2 x", "heartbeat-interval"), "2");
    cr_assert_str_eq(text_of("--leas 2 x", "lease"), "2");
}

Test(options, never_looks_behind_the_script) {
    static const struct {
        const char *words;
        const char *operand;
        const char *rest; /* first word after it; NULL: none */
        int n_rest;
    } cases[] = {
        {"train.py --d 3", "train.py", "--d", 2},
        {"train.py --nproc 3 --help", "train.py", "--nproc", 3},
        {"train.py", "train.py", NULL, 0},
        {"-- train.py a", "train.py", "a", 1},
        {"train.py -- a", "train.py", "a", 1},
        {"train.py a -- b", "train.py", "a", 3},
        {"-- train.py -- a", "train.py", "--", 2},
        {"train.py -- -- a", "train.py", "--", 2},
        {"train.py --", "train.py", NULL, 0},
        {"-- -m", "-m", NULL, 0},
        {"- a", "-", "a", 1},
        {"-1 a", "-1", "a", 1},
        {"-a~b c", "-a b", "c", 1},
        {"-m mod -m", "mod", "-m", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct line *l = parse(cases[i].words);
        cr_assert_eq(l->r, 0, "%s: %s", cases[i].words, l->err.text);
        cr_assert_str_eq(l->argv[l->parsed.operand], cases[i].operand, "%s", cases[i].words);
        cr_assert_eq(l->argc - l->parsed.rest, cases[i].n_rest, "%s", cases[i].words);
        if (cases[i].rest != NULL)
            cr_assert_str_eq(l->argv[l->parsed.rest], cases[i].rest, "%s", cases[i].words);
    }
}

Test(options, says_when_there_is_no_operand) {
    cr_assert_eq(parse("")->parsed.operand, 1);
    cr_assert_eq(parse("--standalone")->parsed.operand, 2);
    cr_assert_eq(parse("--standalone --")->parsed.operand, 3);
    cr_assert_eq(parse("--standalone --")->parsed.rest, 3);
}

Test(options, stops_at_help) {
    struct line *l = parse("--nnodes=2 -h --zzz");
    cr_assert_eq(l->r, 0);
    cr_assert(l->parsed.stopped);
    cr_assert_eq(l->parsed.values[row("help")].times, 1);
    cr_assert_eq(parse("-mhz")->r, 0);
}

Test(options, counts_switches) { cr_assert_eq(parse("-vv -v --verbose x")->parsed.values[row("verbose")].times, 4); }

static struct options_parsed p; /* of the last line with an environment */
static struct err err;

static int with_env(const char *words, const char *variable) {
    struct line *l = parse(words);
    cr_assert_eq(l->r, 0);
    char *envp[] = {TEXT("HOME=/"), TEXT(variable), NULL};
    int r = options_from_env(&run_options, envp, &l->parsed, &err);
    p = l->parsed;
    return r;
}

Test(options, defaults_come_from_the_environment_and_the_command_line_wins) {
    cr_assert_eq(with_env("x", "PET_NPROC_PER_NODE=3"), 0);
    cr_assert_str_eq(p.values[row("nproc-per-node")].text, "3");
    cr_assert(p.values[row("nproc-per-node")].from_env);
    char origin[OPTION_TEXT_MAX];
    cr_assert_str_eq(option_origin(&run_options, &p, row("nproc-per-node"), origin), "PET_NPROC_PER_NODE");
    cr_assert_eq(with_env("--nproc=5 x", "PET_NPROC_PER_NODE=3"), 0);
    cr_assert_str_eq(p.values[row("nproc-per-node")].text, "5");
    cr_assert_str_eq(option_origin(&run_options, &p, row("nproc-per-node"), origin), "--nproc-per-node");
    cr_assert_eq(with_env("x", "PET_NPROC_PER_NODE="), 0);
    cr_assert_str_eq(p.values[row("nproc-per-node")].text, "");
    cr_assert_eq(with_env("x", "A=1"), 0);
    cr_assert_str_eq(p.values[row("nnodes")].text, "1:1");
    cr_assert_eq(with_env("x", "PET_LOGS_SPECS=a"), 0);
    cr_assert_null(p.values[row("logs-specs")].text);
}

Test(options, switches_of_the_environment_are_integers) {
    static const struct {
        const char *variable;
        int r;
        uint32_t times;
    } cases[] = {
        {"PET_STANDALONE=1", 0, 1},   {"PET_STANDALONE=0", 0, 0},          {"PET_STANDALONE=-2", 0, 1},
        {"PET_STANDALONE=007", 0, 1}, {"PET_STANDALONE=true", -EINVAL, 0}, {"PET_STANDALONE=", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cr_assert_eq(with_env("x", cases[i].variable), cases[i].r, "%s", cases[i].variable);
        if (cases[i].r == 0)
            cr_assert_eq(p.values[row("standalone")].times, cases[i].times);
    }
    cr_assert_eq(with_env("--standalone x", "PET_STANDALONE=0"), 0);
    cr_assert_eq(p.values[row("standalone")].times, 1);
    cr_assert_eq(with_env("x", "PET_CONTAIN=zzz"), -EINVAL);
    assert_has(err.text, "PET_CONTAIN=zzz");
}

Test(options, every_row_is_whole) {
    cr_assert_leq(run_options.n, OPTIONS_MAX);
    for (size_t i = 0; i < run_options.n; i++) {
        const struct option_def *def = &run_options.defs[i];
        cr_assert_not_null(def->name, "row %zu", i);
        cr_assert_not_null(def->help, "%s", def->name);
        cr_assert_neq(def->help[strlen(def->help) - 1], '.', "%s", def->name);
        cr_assert_null(strchr(def->name, '_'));
        for (size_t j = 0; j < i; j++) {
            cr_assert_str_neq(def->name, run_options.defs[j].name);
            cr_assert(def->id == 0 || def->id != run_options.defs[j].id, "%s", def->name);
            cr_assert(def->letter == '\0' || def->letter != run_options.defs[j].letter);
        }
    }
}

Test(options, help_names_every_option_in_at_most_80_columns) {
    _cleanup_(strbuf_fini) struct strbuf help = {0};
    help_all(&run_options, &help);
    for (size_t i = 0; i < run_options.n; i++) {
        const char *name = rig_text("--%s", run_options.defs[i].name);
        cr_assert_not_null(strstr(strbuf_text(&help), name), "%s", name);
    }
    for (const char *line = strbuf_text(&help); *line != '\0';) {
        size_t n = strcspn(line, "\n");
        cr_assert_leq(n, 80, "%.*s", (int)n, line);
        cr_assert(n == 0 || line[n - 1] != ' ', "%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

Test(options, a_row_as_one_of_run_takes_what_that_one_takes) {
    static const struct option_def defs[] = {AS_RUN("nccl-env", "how"), AS_RUN("env", "what"),
                                             AS_RUN("nccl-debug", "a switch"), AS_RUN("role", "who")};
    static const struct option_set set = {.command = "c", .operands = "", .about = "a", .defs = defs, .n = 4};
    char *good[] = {TEXT("c"),   TEXT("--nccl-env=off"), TEXT("--env=A=1"), TEXT("--env"),
                    TEXT("B=2"), TEXT("--nccl-debug")};
    char *bad[] = {TEXT("c"), TEXT("--nccl-env=on")};
    char *envp[] = {TEXT("PET_ROLE=r"), TEXT("PET_NCCL_ENV=x"), NULL};
    cr_assert_eq(options_parse(&set, 6, good, &p, &err), 0, "%s", err.text);
    cr_assert_str_eq(p.values[0].text, "off");
    cr_assert_str_eq(option_repeated(&p, 1, 0), "A=1");
    cr_assert_str_eq(option_repeated(&p, 1, 1), "B=2");
    cr_assert_eq(p.values[2].times, 1);
    /* The job's reader reads the environment and has the default. */
    cr_assert_eq(options_from_env(&set, envp, &p, &err), 0, "%s", err.text);
    cr_assert_null(p.values[3].text);
    cr_assert_eq(options_parse(&set, 2, bad, &p, &err), -EINVAL);
    cr_assert_str_eq(err.text, "--nccl-env=on: must be one of: off minimal full");
    _cleanup_(strbuf_fini) struct strbuf help = {0};
    help_all(&set, &help);
    assert_has(strbuf_text(&help), "--nccl-env=off|minimal|full\n          how\n");
    assert_has(strbuf_text(&help), "--env=NAME=VALUE\n          what\n");
}
