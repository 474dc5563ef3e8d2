#include "launcher/report/failure_text.h"

#include "base/text/parse.h"
#include "rig/unit.h"

static struct failure failure_of(enum failure_kind kind, int32_t code) {
    return (struct failure){
        .kind = kind,
        .code = code,
        .rank = 3,
        .local_rank = 1,
        .node_rank = 1,
        .pid = 12533,
        .wall_ns = UINT64_C(1795268047) * NS_PER_S + 999,
        .ran_ns = 41 * NS_PER_S,
        .node = "b",
        .role = "default",
    };
}

static struct failure f;
static void begin(void) { f = failure_of(FAILURE_EXIT, 1); }
TestSuite(failure_text, .init = begin);

#define TRACE "Traceback (most recent call last):\n"

Test(failure_text, the_first_line_says_who_why_and_what_follows) {
    static const struct failure_counts
        again = {.stopping = 3, .will_restart = true, .restarts_used = 1, .max_restarts = 3},
        once = {.stopping = 1, .will_restart = true, .restarts_used = 1, .max_restarts = 3},
        never = {.max_restarts = 0}, spent = {.stopping = 2, .restarts_used = 2, .max_restarts = 2},
        rest = {.stopping = 2, .restarts_used = 2, .max_restarts = 5},
        without = {.stopping = 2, .will_restart = true, .max_restarts = 5};
    static const struct {
        enum failure_kind kind;
        int32_t code;
        const char *text;
        bool core_dumped;
        const struct failure_counts *counts;
        const char *want;
    } cases[] = {
        {FAILURE_SIGNAL, SIGSEGV, "", false, &again,
         "failed: rank 3 (node b): died of SIGSEGV after 41 s; stopping 3 others; restart 1 of 3"},
        {FAILURE_SIGNAL, SIGSEGV, "", true, &once,
         "failed: rank 3 (node b): died of SIGSEGV (core dumped) after 41 s; stopping 1 other; restart 1 of 3"},
        {FAILURE_EXIT, 1, TRACE "  File \"x.py\", line 1\nValueError: bad\n", false, &again,
         "failed: rank 3 (node b): ValueError: bad (exit code 1 after 41 s); stopping 3 others; restart 1 of 3"},
        {FAILURE_EXIT, 3, "", false, &never,
         "failed: rank 3 (node b): ended with exit code 3 after 41 s; no restarts (--max-restarts=0)"},
        {FAILURE_OOM, SIGKILL, "", false, &spent,
         "failed: rank 3 (node b): ran out of memory (SIGKILL from the kernel) after 41 s; stopping 2 others; no "
         "restarts left (2 used)"},
        {FAILURE_SPAWN, ENOENT, "exec /x: No such file or directory", false, &rest,
         "failed: rank 3 (node b): could not be started: exec /x: No such file or directory; stopping 2 others; no "
         "restart"},
        {FAILURE_NODE, 0, "", false, &rest, "node b was lost; stopping 2 others; the job ends"},
        {FAILURE_NODE, 0, "its agent died", false, &without,
         "node b: its agent died; stopping 2 others; continuing without it"},
        {FAILURE_HANG, 0, "ranks 0-2 wait; rank 3 (node b, pid 12533) is stopped", false, &again,
         "the job hangs: ranks 0-2 wait; rank 3 (node b, pid 12533) is stopped; stopping 3 workers; restart 1 of 3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        f = failure_of(cases[i].kind, cases[i].code);
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        failure_set_text(&f, cases[i].text, false);
        f.core_dumped = cases[i].core_dumped;
        failure_headline(&f, cases[i].counts, &got);
        cr_expect_str_eq(strbuf_text(&got), cases[i].want, "got: %s", strbuf_text(&got));
    }
}

/* line: failure_line(), NULL: not checked; last: failure_last_line() behind the rank, NULL: it is "failed: " and line. */
static const struct {
    enum failure_kind kind;
    int32_t code;
    bool is_traceback; /* it is from the error file */
    const char *text, *line, *last;
} endings[] = {
    {FAILURE_EXIT, 1, true, TRACE "  File \"x.py\", line 1\nValueError: no such file\n\n",
     "rank 3 (node b) ended with exit code 1: ValueError: no such file", "ValueError: no such file"},
    {FAILURE_EXIT, 1, true, "ValueError: bad", "rank 3 (node b) ended with exit code 1: ValueError: bad",
     "ValueError: bad"},
    /* PyTorch's prefix, a line of another process, and what PyTorch prints at the end */
    {FAILURE_EXIT, 1, false,
     "[rank3]: " TRACE "[rank3]:   File \"x.py\", line 1, in f\nstep 4\n[rank3]:     f(1,\n[rank3]:       ^\n"
     "[rank3]: ValueError: bad\n[rank3]:[W12 ProcessGroupNCCL.cpp:1] Warning: destroy_process_group() was not "
     "called\n",
     "rank 3 (node b) ended with exit code 1: ValueError: bad", "ValueError: bad"},
    {FAILURE_EXIT, 1, false, "  File \"x.py\", line 1\n    f(\n     ^\nSyntaxError: '(' was never closed\n",
     "rank 3 (node b) ended with exit code 1: SyntaxError: '(' was never closed", "SyntaxError: '(' was never closed"},
    {FAILURE_EXIT, 1, false,
     "  + Exception Group " TRACE
     "  |   File \"x.py\", line 1\n  | ExceptionGroup: g (1 sub-exception)\n  +-+---- 1 ----\n"
     "    | " TRACE "    |   File \"x.py\", line 2\n    | KeyError: 'a'\n    +------\n",
     "rank 3 (node b) ended with exit code 1: KeyError: 'a'", "KeyError: 'a'"},
    {FAILURE_EXIT, 1, false,
     TRACE "  File \"x.py\", line 1\nModuleNotFoundError: No module named 'x'\nThe interpreter was "
           "/usr/bin/python3 (PYTHON_EXEC)",
     "rank 3 (node b) ended with exit code 1: ModuleNotFoundError: No module named 'x'",
     "ModuleNotFoundError: No module named 'x'"},
    /* cut in the middle of a traceback */
    {FAILURE_EXIT, 1, false, TRACE "  File \"x.py\", line 1",
     "rank 3 (node b) ended with exit code 1: File \"x.py\", line 1", "ended with exit code 1 after 41 s"},
    {FAILURE_EXIT, 3, false, "one\nno space on /data\n\n", "rank 3 (node b) ended with exit code 3: no space on /data",
     "ended with exit code 3 after 41 s"},
    {FAILURE_EXIT, 3, false, "", "rank 3 (node b) ended with exit code 3", "ended with exit code 3 after 41 s"},
    {FAILURE_EXIT, 3, false, " \n\n", "rank 3 (node b) ended with exit code 3", "ended with exit code 3 after 41 s"},
    /* old lines do not explain a signal */
    {FAILURE_SIGNAL, SIGKILL, false, "WARNING: old\n", "rank 3 (node b) died of SIGKILL", "died of SIGKILL after 41 s"},
    {FAILURE_SIGNAL, SIGSEGV, false, TRACE "  File \"x.py\", line 1\nValueError: was caught\n",
     "rank 3 (node b) died of SIGSEGV", "died of SIGSEGV after 41 s"},
    {FAILURE_SIGNAL, SIGTERM, true, "ValueError: bad", "rank 3 (node b) died of SIGTERM", "died of SIGTERM after 41 s"},
    {FAILURE_SIGNAL, SIGABRT, false, "old\n", "rank 3 (node b) died of SIGABRT", "died of SIGABRT after 41 s"},
    {FAILURE_SIGNAL, SIGABRT, false,
     "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no peer\nFatal Python error: "
     "Aborted\n",
     "rank 3 (node b) died of SIGABRT: no peer", "died of SIGABRT after 41 s: no peer"},
    {FAILURE_OOM, 9, false, "epoch 4\n", "rank 3 (node b) ran out of memory (SIGKILL from the kernel)",
     "ran out of memory (SIGKILL from the kernel) after 41 s"},
    {FAILURE_SPAWN, ENOENT, false, "exec /x: No such file or directory",
     "rank 3 (node b) could not be started: exec /x: No such file or directory",
     "could not be started: exec /x: No such file or directory"},
    {FAILURE_NODE, 0, false, "no message within the lease", "node b: no message within the lease", NULL},
    {FAILURE_HANG, 0, false, "ranks 0-2 wait; rank 3 (node b, pid 12): stopped",
     "the job hangs: ranks 0-2 wait; rank 3 (node b, pid 12): stopped", NULL},
    /* frames in the message */
    {FAILURE_EXIT, 1, false,
     TRACE "  File \"x.py\", line 6\nUnsupported: no print\n\nfrom user code:\n   File \"x.py\", line 4\n"
           "    print(a)\n\nSet TORCHDYNAMO_VERBOSE=1\n\n",
     NULL, "Unsupported: no print"},
    /* what Python prints at its end */
    {FAILURE_EXIT, 1, false,
     TRACE "  File \"x.py\", line 6\nValueError: bad\nException ignored in: <function A.__del__ at 0x7f>\n" TRACE
           "  File \"x.py\", line 2\nZeroDivisionError: division by zero\n",
     NULL, "ValueError: bad"},
    {FAILURE_EXIT, 1, false,
     "no data\nException ignored in: <function A.__del__ at 0x7f>\n" TRACE "  File \"x.py\", line 2\nKeyError: 1\n",
     NULL, "ended with exit code 1 after 41 s"},
    {FAILURE_EXIT, 1, false, TRACE "  File \"x.py\", line 6\nValueError: \n\n  two\nthree\n", NULL, "ValueError: two"},
    {FAILURE_EXIT, 1, false, TRACE "  File \"x.py\", line 6\nValueError: 1%\r2%\n", NULL, "ValueError: 1%"},
    {FAILURE_EXIT, 1, false, "Exception in thread T-1 (f):\n" TRACE "  File \"x.py\", line 6\nValueError: bad\n", NULL,
     "Exception in thread T-1 (f): ValueError: bad"},
    /* printed and ended by the worker itself */
    {FAILURE_EXIT, 3, false, TRACE "  File \"x.py\", line 1\nValueError: bad\n", NULL, "ValueError: bad"},
    {FAILURE_EXIT, 3, false, TRACE "  File \"x.py\", line 1\nValueError: was caught\ndisk is full\n", NULL,
     "ended with exit code 3 after 41 s"},
};

Test(failure_text, one_line_has_the_rank_and_the_exception_that_ended_the_worker) {
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        f = failure_of(endings[i].kind, endings[i].code);
        _cleanup_(strbuf_fini) struct strbuf line = {0}, last = {0};
        _cleanup_(freep) char *want = endings[i].last != NULL
                                          ? xasprintf("failed: rank 3 (node b): %s", endings[i].last)
                                          : xasprintf("failed: %s", endings[i].line);
        failure_set_text(&f, endings[i].text, endings[i].is_traceback);
        failure_line(&f, "", &line);
        failure_last_line(&f, &last);
        if (endings[i].line != NULL)
            cr_expect_str_eq(strbuf_text(&line), endings[i].line, "got: %s", strbuf_text(&line));
        cr_expect_str_eq(strbuf_text(&last), want, "got: %s", strbuf_text(&last));
    }
}

Test(failure_text, words_about_a_failure_precede_what_the_worker_wrote) {
    char text[64];
    failure_set_text(&f, "Cuda\x1b failed", true);
    failure_copy_line(&f, ", 80 ms after Xid 79", text, sizeof text);
    cr_assert_str_eq(text, "rank 3 (node b) ended with exit code 1, 80 ms after Xid 79: Cud");
    f = failure_of(FAILURE_HANG, 0);
    (void)strcpy(f.text, "ranks 0-2 wait");
    failure_copy_line(&f, ", and the node is not fit", text, sizeof text);
    cr_assert_str_eq(text, "the job hangs: ranks 0-2 wait, and the node is not fit");
}

Test(failure_text, a_hang_that_names_many_ranks_is_cut_between_them) {
    f = failure_of(FAILURE_HANG, 0);
    char text[320];
    (void)strcpy(f.text, "rank 3 is stopped");
    for (int rank = 0; rank < 9; rank++)
        (void)snprintf(f.text + strlen(f.text), 60, "; rank %d (node a): all_reduce() in f (train.py:9)", rank);
    failure_copy_line(&f, "", text, sizeof text);
    cr_assert(strlen(text) > 250 && text_ends(text, " (train.py:9)"), "%s", text);
    failure_copy_line(&f, ", and the node is not fit", text, sizeof text);
    cr_assert(strlen(text) > 250 && text_ends(text, " (train.py:9), and the node is not fit"), "%s", text);
}

Test(failure_text, an_exit_code_is_put_into_words) {
    static const struct {
        int code;
        const char *want;
    } cases[] = {
        {1, "ended with exit code 1"},
        {126, "ended with exit code 126 (found, but not executable)"},
        {127, "ended with exit code 127 (program or library not found)"},
        {128, "ended with exit code 128"},
        {137, "ended with exit code 137 (SIGKILL of a process below it)"},
        {192, "ended with exit code 192 (SIGRTMIN+30 of a process below it)"},
        {193, "ended with exit code 193"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        f = failure_of(FAILURE_EXIT, cases[i].code);
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        failure_cause_text(&f, &got);
        cr_assert_str_eq(strbuf_text(&got), cases[i].want);
    }
}

Test(failure_text, exit_codes_are_torchruns_and_statuses_those_of_a_shell) {
    static const struct {
        enum failure_kind kind;
        int32_t code, exit_code, status;
    } cases[] = {
        {FAILURE_SIGNAL, SIGSEGV, -11, 139}, {FAILURE_OOM, SIGKILL, -9, 137},   {FAILURE_EXIT, 3, 3, 3},
        {FAILURE_SPAWN, ENOENT, 127, 127},   {FAILURE_SPAWN, EACCES, 126, 126}, {FAILURE_NODE, 0, 1, 1},
        {FAILURE_EXIT, 300, 300, 1}, /* from another node, of which anything is believed */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        f = failure_of(cases[i].kind, cases[i].code);
        cr_expect_eq(failure_exit_code(&f), cases[i].exit_code, "case %zu", i);
        cr_expect_eq(failure_shell_status(&f), cases[i].status, "case %zu", i);
    }
}

static const char *block_of(const struct failure_report *sheet) {
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    failure_report_text(sheet, &got);
    return rig_text("%s", strbuf_text(&got));
}

/* The block between its rules, which are so long. After the exception's name the first line has a blank at its end. */
static void expect_block(const struct failure_report *sheet, int width, const char *entry, const char *tail) {
    char rule[64] = "", line[64] = "";
    memset(rule, '=', (size_t)width);
    memset(line, '-', (size_t)width);
    _cleanup_(freep) char *want = xasprintf("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
                                            "%s\n%s FAILED\n%s\nFailures:\n  <NO_OTHER_FAILURES>\n%s\n"
                                            "Root Cause (first observed failure):\n[0]:\n%s%s\n%s",
                                            rule, sheet->entrypoint, line, line, entry, rule, tail);
    cr_assert_str_eq(block_of(sheet), want, "got:\n%s", block_of(sheet));
}

/* These blocks are torchrun 2.13's output, except for host and file names, ranks and pids. */

Test(failure_text, the_block_of_a_signal_is_torchruns) {
    f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    (void)snprintf(f.node, sizeof f.node, "localhost");
    f.rank = f.local_rank = 0;
    expect_block(&(struct failure_report){.entrypoint = "segv.py", .failure = &f}, 55,
                 "  time      : 2026-11-21_13:34:07\n"
                 "  host      : localhost\n"
                 "  rank      : 0 (local_rank: 0)\n"
                 "  exitcode  : -11 (pid: 12533)  (SIGSEGV)\n"
                 "  error_file: <N/A>\n"
                 "  traceback : Signal 11 (SIGSEGV) received by PID 12533\n",
                 "");
}

Test(failure_text, the_block_of_an_exit_is_torchruns) {
    f.rank = f.local_rank = 1;
    f.pid = 11130;
    expect_block(&(struct failure_report){.entrypoint = "raise.py", .failure = &f, .utc_offset_s = -3600}, 60,
                 "  time      : 2026-11-21_12:34:07\n"
                 "  host      : b\n"
                 "  rank      : 1 (local_rank: 1)\n"
                 "  exitcode  : 1 (pid: 11130) \n"
                 "  error_file: <N/A>\n"
                 "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n",
                 "");
}

#define ENTRY_OF_RANK_3(file)             \
    "  time      : 2026-11-21_13:34:07\n" \
    "  host      : b\n"                   \
    "  rank      : 3 (local_rank: 1)\n"   \
    "  exitcode  : 1 (pid: 12533) \n"     \
    "  error_file: " file "\n"            \
    "  traceback : Traceback (most recent call last):\n"

Test(failure_text, the_block_of_a_traceback_is_torchruns_and_the_last_lines_stand_below) {
    (void)snprintf(f.error_file, sizeof f.error_file, "/logs/error.json");
    failure_set_text(&f, TRACE "  File \"rec.py\"\nValueError: bad\n", true);
    expect_block(&(struct failure_report){.entrypoint = "rec.py", .failure = &f, .stderr_tail = "one\n\ntwo"}, 48,
                 ENTRY_OF_RANK_3("/logs/error.json") "    File \"rec.py\"\n  ValueError: bad\n  \n",
                 "Last lines of rank 3's standard error (node b):\n  one\n  \n  two\n");
}

Test(failure_text, a_traceback_of_stderr_is_in_the_block_if_there_is_no_error_file) {
    static const char *const tails[] = {NULL, "", "old line\n" TRACE "  File \"rec.py\", line 3\nValueError: bad\n"};
    failure_set_text(&f, tails[2], false);
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++)
        expect_block(&(struct failure_report){.entrypoint = "rec.py", .failure = &f, .stderr_tail = tails[i]}, 48,
                     ENTRY_OF_RANK_3("<N/A>") "    File \"rec.py\", line 3\n  ValueError: bad\n", "");
}

Test(failure_text, the_block_has_no_control_characters_and_the_name_of_a_thread) {
    failure_set_text(&f, "Exception in thread T-1 (f):\n" TRACE "  File \"x.py\", line 6\nValueError: \033[31m\tred\n",
                     false);
    const char *got = block_of(&(struct failure_report){.entrypoint = "t", .failure = &f});
    assert_has(got, "traceback : Exception in thread T-1 (f):\n  " TRACE);
    assert_has(got, "  ValueError: ?[31m\tred\n");
}

Test(failure_text, the_last_lines_of_another_nodes_worker_come_with_its_failure) {
    f = failure_of(FAILURE_SIGNAL, SIGABRT);
    failure_set_text(&f, "assertion failed\n", false);
    struct failure_report sheet = {.entrypoint = "t", .failure = &f};
    assert_has(block_of(&sheet), "traceback : Signal 6 (SIGABRT) received by PID 12533\n");
    assert_has(block_of(&sheet), "(node b):\n  assertion failed\n");
    sheet.stderr_tail = "";
    cr_assert_null(strstr(block_of(&sheet), "Last lines"));
}

Test(failure_text, a_module_that_is_missing_names_the_interpreter_once_on_every_node) {
    failure_set_text(&f, "Traceback:\nModuleNotFoundError: No module named 'torch'\n", false);
    failure_name_interpreter(&f, "/usr/bin/python3");
    struct failure_report sheet = {.entrypoint = "t", .failure = &f};
    static const char *const tails[] = {NULL, "ModuleNotFoundError: No module named 'torch'\n", ""};
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
        sheet.stderr_tail = tails[i];
        const char *line = strstr(block_of(&sheet), "\nThe interpreter was /usr/bin/python3 (PYTHON_EXEC");
        cr_assert_not_null(line, "%s", block_of(&sheet));
        cr_assert_null(strstr(line + 2, "The interpreter"));
    }
    failure_set_text(&f, "/usr/bin/python3: No module named train\n", false);
    failure_name_interpreter(&f, "/usr/bin/python3");
    assert_has(f.text, "train\nThe interpreter was /usr/bin/python3");
    failure_set_text(&f, "ValueError: torch\n", false);
    failure_name_interpreter(&f, "/usr/bin/python3");
    cr_assert_str_eq(f.text, "ValueError: torch\n");
}

Test(failure_text, a_lost_node_has_no_rank_code_or_pid) {
    f = failure_of(FAILURE_NODE, 0);
    (void)snprintf(f.text, sizeof f.text, "its agent died");
    expect_block(&(struct failure_report){.entrypoint = "train.py", .failure = &f}, 33,
                 "  time      : 2026-11-21_13:34:07\n"
                 "  host      : b\n"
                 "  rank      : <N/A>\n"
                 "  exitcode  : <N/A>\n"
                 "  error_file: <N/A>\n"
                 "  traceback : its agent died\n",
                 "");
}

Test(failure_text, of_a_long_text_the_end_is_kept_from_a_line_on) {
    char text[3 * FAILURE_TEXT_MAX];
    memset(text, 'x', sizeof text);
    text[FAILURE_TEXT_MAX - 1] = '\0';
    failure_set_text(&f, text, true);
    cr_assert_eq(strlen(f.text), FAILURE_TEXT_MAX - 1, "at the limit");
    cr_assert(f.text_is_traceback);
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof text - 20, "\nline one\nline two\n", 20);
    failure_set_text(&f, text, false);
    cr_assert_str_eq(f.text, "line one\nline two\n");
    cr_assert_not(f.text_is_traceback);
    failure_set_text(&f, "", true);
    cr_assert_not(f.text_is_traceback);
}

/* Characters of four bytes, and the limit after each of their bytes. */
Test(failure_text, of_a_long_text_no_part_of_a_character_is_kept) {
    for (size_t past = 0; past < 4; past++) {
        begin();
        char text[2 * FAILURE_TEXT_MAX + 4];
        size_t len = 2 * FAILURE_TEXT_MAX + past;
        memset(text, 'z', len);
        text[len] = '\0';
        for (size_t i = 0; i < 2 * FAILURE_TEXT_MAX; i++)
            text[i] = "\xf0\x9f\x90\x8e"[i % 4];
        failure_set_text(&f, text, false);
        size_t cut = (len - (FAILURE_TEXT_MAX - 1)) % 4;
        cr_assert_eq((uint8_t)f.text[0], 0xf0, "%zu z behind", past);
        cr_assert_eq(strlen(f.text), FAILURE_TEXT_MAX - 1 - (4 - cut) % 4, "%zu z behind", past);
        cr_assert_str_eq(f.text, text + len - strlen(f.text));
    }
}

Test(failure_text, a_hang_is_of_the_job_and_its_text_names_who) {
    f = failure_of(FAILURE_HANG, 0);
    (void)strcpy(f.text, "ranks 0-2 wait; rank 3 (node b, pid 12533) is stopped");
    _cleanup_(strbuf_fini) struct strbuf cause = {0};
    failure_cause_text(&f, &cause);
    cr_assert_str_eq(strbuf_text(&cause), "kept the others waiting");
    struct failure_report sheet = {.entrypoint = "train.py", .failure = &f};
    assert_has(block_of(&sheet), "traceback : ranks 0-2 wait; rank 3");
    assert_has(block_of(&sheet), "rank      : 3 (local_rank: 1)");
    f.node[0] = '\0'; /* no rank is suspected */
    assert_has(block_of(&sheet), "\n  host      : all\n  rank      : all\n");
}

static void expect_json(struct failure of, const char *text, const char *want) {
    f = of;
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    (void)strcpy(f.node, "b");
    (void)strcpy(f.text, text);
    failure_json("train.py", &f, &got);
    cr_assert_str_eq(strbuf_text(&got), want);
}

Test(failure_text, json_has_what_torchs_exception_needs_and_of_a_lost_node_no_rank) {
    expect_json((struct failure){.kind = FAILURE_SIGNAL, .code = SIGSEGV, .rank = 3, .local_rank = 1, .pid = 77},
                "a \"b\"\n",
                "{\"entrypoint\":\"train.py\",\"node\":\"b\",\"cause\":\"died of SIGSEGV\",\"rank\":3,"
                "\"local_rank\":1,\"pid\":77,\"exitcode\":-11,\"error_file\":\"\",\"text\":\"a \\\"b\\\"\\n\"}\n");
    expect_json(
        (struct failure){.kind = FAILURE_NODE}, "",
        "{\"entrypoint\":\"train.py\",\"node\":\"b\",\"cause\":\"was lost\",\"error_file\":\"\",\"text\":\"\"}\n");
}
