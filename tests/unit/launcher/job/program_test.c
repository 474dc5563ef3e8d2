#include "launcher/job/job.h"

#include "rig/unit.h"

#define WORDS_MAX 8

struct line {
    const char *words[WORDS_MAX]; /* script and arguments */
    enum job_entry entry;
};

static struct rdzv_program of(const struct line *line) {
    struct job_spec spec = {
        .entry = line->entry == 0 ? JOB_ENTRY_PYTHON : line->entry,
        .script = (char *)(uintptr_t)line->words[0],
        .args = (char **)(uintptr_t)&line->words[1],
        .rdzv.max_restarts = 3,
    };
    struct rdzv_program p;
    program_of(&spec, &p);
    cr_assert_eq(p.max_restarts, 3);
    return p;
}

enum alike { SAME, OTHER_ARGS, OTHER_NAME };

static enum alike compare(const struct line *a, const struct line *b) {
    struct rdzv_program p = of(a), q = of(b);
    if (p.name != q.name)
        return OTHER_NAME;
    return p.args != q.args ? OTHER_ARGS : SAME;
}

Test(program, folders_do_not_count_names_and_arguments_do) {
    static const struct {
        struct line a, b;
        enum alike alike;
    } cases[] = {
        {{{"train.py"}, 0}, {{"./train.py"}, 0}, SAME},
        {{{"/home/a/train.py", "--lr=1"}, 0}, {{"/scratch/node2/train.py", "--lr=1"}, 0}, SAME},
        {{{"train.py"}, 0}, {{"eval.py"}, 0}, OTHER_NAME},
        {{{"train.py"}, 0}, {{"train.py"}, JOB_ENTRY_PROGRAM}, OTHER_NAME},
        {{{"a.train"}, JOB_ENTRY_MODULE}, {{"b.train"}, JOB_ENTRY_MODULE}, OTHER_NAME},
        {{{"a/train"}, JOB_ENTRY_MODULE}, {{"b/train"}, JOB_ENTRY_MODULE}, OTHER_NAME},
        {{{"t", "--node_rank=0"}, 0}, {{"t", "--node_rank=1"}, 0}, OTHER_ARGS},
        {{{"t", "--node_rank", "0"}, 0}, {{"t", "--node_rank", "1"}, 0}, OTHER_ARGS},
        {{{"t", "0"}, 0}, {{"t", "1"}, 0}, OTHER_ARGS},
        {{{"t", "--lr=1"}, 0}, {{"t", "--config=1"}, 0}, OTHER_ARGS},
        {{{"t", "--lr=1"}, 0}, {{"t", "--lr", "1"}, 0}, OTHER_ARGS},
        {{{"t", "--resume"}, 0}, {{"t"}, 0}, OTHER_ARGS},
        {{{"t", "a", "b"}, 0}, {{"t", "ab"}, 0}, OTHER_ARGS},
        {{{"t", "a", "bc"}, 0}, {{"t", "ab", "c"}, 0}, OTHER_ARGS},
        {{{"t", ""}, 0}, {{"t"}, 0}, OTHER_ARGS},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_eq(compare(&cases[i].a, &cases[i].b), cases[i].alike, "case %zu: %u", i,
                     compare(&cases[i].a, &cases[i].b));
}

Test(program, what_is_shown_names_the_program_and_no_value) {
    static const struct {
        struct line line;
        const char *shown;
    } cases[] = {
        {{{"/a/b/train.py"}, 0}, "train.py"},
        {{{"pkg.train", "--lr=1e-4"}, JOB_ENTRY_MODULE}, "-m pkg.train --lr=..."},
        {{{"sh", "-c", "echo secret"}, JOB_ENTRY_PROGRAM}, "sh -c ..."},
        {{{"t", "--token", "hunter2", "x", "--flag", "-psecret", "-v"}, 0}, "t --token ... --flag -p... -v"},
        {{{"t", "trainer.lr=0.1", "c2VjcmV0==", "KEY=secret", "-1"}, 0}, "t trainer.lr=... ..."},
        {{{"t", "--aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, 0}, "t ..."},
        {{{"t", "--\xff\x1b"}, 0}, "t --\xef\xbf\xbd?"},
        {{{NULL}, 0}, "muster check"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        cr_expect_str_eq(of(&cases[i].line).shown, cases[i].shown);
}

/* As two jobs of one script have it, with the same run id and endpoint. */
Test(program, a_step_that_is_all_of_the_group_counts) {
    static const struct {
        uint32_t tasks, min, max;
        enum place_nodes nodes;
        bool counts;
    } cases[] = {
        {2, 2, 2, PLACE_NODES_OF_USER, true},  {4, 2, 2, PLACE_NODES_WHOLE, true},
        {4, 2, 2, PLACE_NODES_OF_USER, false}, {2, 1, 2, PLACE_NODES_OF_USER, false}, /* more can come */
        {2, 4, 4, PLACE_NODES_OF_USER, false},                                        /* a group of two steps */
        {2, 2, 2, PLACE_NODES_STEP, false}, /* its run id is that of the step */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct job_spec spec = {.entry = JOB_ENTRY_PYTHON,
                                .script = (char *)(uintptr_t) "train.py",
                                .endpoint_host = (char *)(uintptr_t) "node1",
                                .nodes = cases[i].nodes,
                                .rdzv = {.min_nodes = cases[i].min, .max_nodes = cases[i].max},
                                .place = {.slurm = PLACE_SLURM_STEP, .n_nodes = 2, .n_tasks = cases[i].tasks}};
        struct rdzv_program a, b;
        strcpy(spec.place.run_id, "c1.28.0");
        program_of(&spec, &a);
        strcpy(spec.place.run_id, "c1.29.0");
        program_of(&spec, &b);
        cr_expect_eq(a.name != b.name, cases[i].counts, "%zu", i);
        cr_expect_str_eq(b.shown, cases[i].counts ? "Slurm's step c1.29.0: train.py" : "train.py");
    }
}

Test(program, a_long_line_is_cut_and_all_of_it_counts) {
    char *many[602] = {NULL}, *more[602] = {NULL};
    char option[] = "--an-option-of-some-length", other[] = "--another";
    for (int i = 0; i < 600; i++)
        many[i] = more[i] = option;
    more[599] = other;
    struct job_spec spec = {.entry = JOB_ENTRY_PYTHON, .script = option, .args = many};
    struct rdzv_program p, q;
    program_of(&spec, &p);
    spec.args = more;
    program_of(&spec, &q);
    cr_assert_eq(strlen(p.shown), sizeof p.shown - 1);
    cr_assert_str_eq(p.shown + sizeof p.shown - 4, "...");
    cr_assert_str_eq(p.shown, q.shown);
    cr_assert_neq(p.args, q.args);
}
