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

#define TRACE "Traceback (most recent call last):\n"

#define EXPECT_HEADLINE(f, counts, want)                                             \
    do {                                                                             \
        _cleanup_(strbuf_fini) struct strbuf got_ = {0};                             \
        failure_headline((f), (counts), &got_);                                      \
        cr_assert_str_eq(strbuf_text(&got_), (want), "got: %s", strbuf_text(&got_)); \
    } while (0)

Test(failure_text, the_first_line_says_who_why_and_what_follows) {
    struct failure f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    struct failure_counts c = {.stopping = 3, .will_restart = true, .restarts_used = 1, .max_restarts = 3};
    EXPECT_HEADLINE(&f, &c, "failed: rank 3 (node b): died of SIGSEGV after 41 s; stopping 3 others; restart 1 of 3");
    f = failure_of(FAILURE_EXIT, 1);
    failure_set_text(&f, TRACE "  File \"x.py\", line 1\nValueError: bad\n", false);
    EXPECT_HEADLINE(
        &f, &c, "failed: rank 3 (node b): ValueError: bad (exit code 1 after 41 s); stopping 3 others; restart 1 of 3");
    f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    f.core_dumped = true;
    c.stopping = 1;
    EXPECT_HEADLINE(&f, &c,
                    "failed: rank 3 (node b): died of SIGSEGV (core dumped) after 41 s; stopping 1 other; "
                    "restart 1 of 3");
}

/* line: failure_line(); last: failure_last_line() behind "failed: " (NULL: the same). */
Test(failure_text, one_line_has_the_rank_and_the_exception) {
    static const struct {
        enum failure_kind kind;
        int32_t code;
        bool is_traceback; /* it is from the error file */
        const char *text, *line, *last;
    } cases[] = {
        {FAILURE_EXIT, 1, true, TRACE "  File \"x.py\", line 1\nValueError: no such file\n\n",
         "rank 3 (node b) ended with exit code 1: ValueError: no such file",
         "rank 3 (node b): ValueError: no such file"},
        {FAILURE_EXIT, 1, true, "ValueError: bad", "rank 3 (node b) ended with exit code 1: ValueError: bad",
         "rank 3 (node b): ValueError: bad"},
        /* PyTorch's prefix, a line of another process, and what PyTorch prints at the end */
        {FAILURE_EXIT, 1, false,
         "[rank3]: " TRACE "[rank3]:   File \"x.py\", line 1, in f\nstep 4\n[rank3]:     f(1,\n[rank3]:       ^\n"
         "[rank3]: ValueError: bad\n[rank3]:[W12 ProcessGroupNCCL.cpp:1] Warning: destroy_process_group() was not "
         "called\n",
         "rank 3 (node b) ended with exit code 1: ValueError: bad", "rank 3 (node b): ValueError: bad"},
        {FAILURE_EXIT, 1, false, "  File \"x.py\", line 1\n    f(\n     ^\nSyntaxError: '(' was never closed\n",
         "rank 3 (node b) ended with exit code 1: SyntaxError: '(' was never closed",
         "rank 3 (node b): SyntaxError: '(' was never closed"},
        {FAILURE_EXIT, 1, false,
         "  + Exception Group " TRACE
         "  |   File \"x.py\", line 1\n  | ExceptionGroup: g (1 sub-exception)\n  +-+---- 1 ----\n"
         "    | " TRACE "    |   File \"x.py\", line 2\n    | KeyError: 'a'\n    +------\n",
         "rank 3 (node b) ended with exit code 1: KeyError: 'a'", "rank 3 (node b): KeyError: 'a'"},
        {FAILURE_EXIT, 1, false,
         TRACE "  File \"x.py\", line 1\nModuleNotFoundError: No module named 'x'\nThe interpreter was "
               "/usr/bin/python3 (PYTHON_EXEC)",
         "rank 3 (node b) ended with exit code 1: ModuleNotFoundError: No module named 'x'",
         "rank 3 (node b): ModuleNotFoundError: No module named 'x'"},
        /* cut in the middle of a traceback */
        {FAILURE_EXIT, 1, false, TRACE "  File \"x.py\", line 1",
         "rank 3 (node b) ended with exit code 1: File \"x.py\", line 1",
         "rank 3 (node b): ended with exit code 1 after 41 s"},
        {FAILURE_EXIT, 3, false, "one\nno space on /data\n\n",
         "rank 3 (node b) ended with exit code 3: no space on /data",
         "rank 3 (node b): ended with exit code 3 after 41 s"},
        {FAILURE_EXIT, 3, false, "", "rank 3 (node b) ended with exit code 3",
         "rank 3 (node b): ended with exit code 3 after 41 s"},
        {FAILURE_EXIT, 3, false, " \n\n", "rank 3 (node b) ended with exit code 3",
         "rank 3 (node b): ended with exit code 3 after 41 s"},
        /* old lines do not explain a signal */
        {FAILURE_SIGNAL, SIGKILL, false, "WARNING: old\n", "rank 3 (node b) died of SIGKILL",
         "rank 3 (node b): died of SIGKILL after 41 s"},
        {FAILURE_SIGNAL, SIGSEGV, false, TRACE "  File \"x.py\", line 1\nValueError: was caught\n",
         "rank 3 (node b) died of SIGSEGV", "rank 3 (node b): died of SIGSEGV after 41 s"},
        {FAILURE_SIGNAL, SIGTERM, true, "ValueError: bad", "rank 3 (node b) died of SIGTERM",
         "rank 3 (node b): died of SIGTERM after 41 s"},
        {FAILURE_SIGNAL, SIGABRT, false, "old\n", "rank 3 (node b) died of SIGABRT",
         "rank 3 (node b): died of SIGABRT after 41 s"},
        {FAILURE_SIGNAL, SIGABRT, false,
         "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no peer\nFatal Python error: "
         "Aborted\n",
         "rank 3 (node b) died of SIGABRT: no peer", "rank 3 (node b): died of SIGABRT after 41 s: no peer"},
        {FAILURE_OOM, 9, false, "epoch 4\n", "rank 3 (node b) ran out of memory (SIGKILL from the kernel)",
         "rank 3 (node b): ran out of memory (SIGKILL from the kernel) after 41 s"},
        {FAILURE_SPAWN, ENOENT, false, "exec /x: No such file or directory",
         "rank 3 (node b) could not be started: exec /x: No such file or directory",
         "rank 3 (node b): could not be started: exec /x: No such file or directory"},
        {FAILURE_NODE, 0, false, "no message within the lease", "node b: no message within the lease", NULL},
        {FAILURE_HANG, 0, false, "ranks 0-2 wait; rank 3 (node b, pid 12): stopped",
         "the job hangs: ranks 0-2 wait; rank 3 (node b, pid 12): stopped", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct failure f = failure_of(cases[i].kind, cases[i].code);
        _cleanup_(strbuf_fini) struct strbuf line = {0}, last = {0};
        _cleanup_(freep) char *want = xasprintf("failed: %s", cases[i].last != NULL ? cases[i].last : cases[i].line);
        failure_set_text(&f, cases[i].text, cases[i].is_traceback);
        failure_line(&f, "", &line);
        failure_last_line(&f, &last);
        cr_expect_str_eq(strbuf_text(&line), cases[i].line, "got: %s", strbuf_text(&line));
        cr_expect_str_eq(strbuf_text(&last), want, "got: %s", strbuf_text(&last));
    }
}

Test(failure_text, words_about_a_failure_precede_what_the_worker_wrote) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
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
    struct failure f = failure_of(FAILURE_HANG, 0);
    char text[320];
    (void)strcpy(f.text, "rank 3 is stopped");
    for (int rank = 0; rank < 9; rank++)
        (void)snprintf(f.text + strlen(f.text), 60, "; rank %d (node a): all_reduce() in f (train.py:9)", rank);
    failure_copy_line(&f, "", text, sizeof text);
    cr_assert(strlen(text) > 250 && text_ends(text, " (train.py:9)"), "%s", text);
    failure_copy_line(&f, ", and the node is not fit", text, sizeof text);
    cr_assert(strlen(text) > 250 && text_ends(text, " (train.py:9), and the node is not fit"), "%s", text);
}

/* text: standard error; want: what failure_last_line() has after the rank. */
Test(failure_text, the_exception_is_the_one_that_ended_the_worker) {
    static const struct {
        int32_t code;
        const char *text, *want;
    } cases[] = {
        /* frames in the message */
        {1,
         TRACE "  File \"x.py\", line 6\nUnsupported: no print\n\nfrom user code:\n   File \"x.py\", line 4\n"
               "    print(a)\n\nSet TORCHDYNAMO_VERBOSE=1\n\n",
         "Unsupported: no print"},
        /* what Python prints at its end */
        {1,
         TRACE "  File \"x.py\", line 6\nValueError: bad\nException ignored in: <function A.__del__ at 0x7f>\n" TRACE
               "  File \"x.py\", line 2\nZeroDivisionError: division by zero\n",
         "ValueError: bad"},
        {1,
         "no data\nException ignored in: <function A.__del__ at 0x7f>\n" TRACE "  File \"x.py\", line 2\nKeyError: 1\n",
         "ended with exit code 1 after 41 s"},
        {1, TRACE "  File \"x.py\", line 6\nValueError: \n\n  two\nthree\n", "ValueError: two"},
        {1, TRACE "  File \"x.py\", line 6\nValueError: 1%\r2%\n", "ValueError: 1%"},
        {1, "Exception in thread T-1 (f):\n" TRACE "  File \"x.py\", line 6\nValueError: bad\n",
         "Exception in thread T-1 (f): ValueError: bad"},
        /* printed and ended by the worker itself */
        {3, TRACE "  File \"x.py\", line 1\nValueError: bad\n", "ValueError: bad"},
        {3, TRACE "  File \"x.py\", line 1\nValueError: was caught\ndisk is full\n",
         "ended with exit code 3 after 41 s"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct failure f = failure_of(FAILURE_EXIT, cases[i].code);
        _cleanup_(strbuf_fini) struct strbuf last = {0};
        _cleanup_(freep) char *want = xasprintf("failed: rank 3 (node b): %s", cases[i].want);
        failure_set_text(&f, cases[i].text, false);
        failure_last_line(&f, &last);
        cr_expect_str_eq(strbuf_text(&last), want, "got: %s", strbuf_text(&last));
    }
}

Test(failure_text, an_exit_code_is_put_into_words) {
    struct failure_counts c = {.max_restarts = 0};
    struct failure f = failure_of(FAILURE_EXIT, 3);
    EXPECT_HEADLINE(&f, &c,
                    "failed: rank 3 (node b): ended with exit code 3 after 41 s; no restarts (--max-restarts=0)");
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
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        f.code = cases[i].code;
        failure_cause_text(&f, &got);
        cr_assert_str_eq(strbuf_text(&got), cases[i].want);
    }
}

Test(failure_text, memory_start_and_lost_nodes_have_words_of_their_own) {
    struct failure_counts c = {.stopping = 2, .restarts_used = 2, .max_restarts = 2};
    struct failure f = failure_of(FAILURE_OOM, SIGKILL);
    EXPECT_HEADLINE(&f, &c,
                    "failed: rank 3 (node b): ran out of memory (SIGKILL from the kernel) after 41 s; "
                    "stopping 2 others; no restarts left (2 used)");
    f = failure_of(FAILURE_SPAWN, ENOENT);
    (void)snprintf(f.text, sizeof f.text, "exec /x: No such file or directory");
    c.max_restarts = 5;
    EXPECT_HEADLINE(&f, &c,
                    "failed: rank 3 (node b): could not be started: exec /x: No such file or directory; "
                    "stopping 2 others; no restart");
    f = failure_of(FAILURE_NODE, 0);
    EXPECT_HEADLINE(&f, &c, "node b was lost; stopping 2 others; the job ends");
    (void)snprintf(f.text, sizeof f.text, "its agent died");
    c.will_restart = true;
    EXPECT_HEADLINE(&f, &c, "node b: its agent died; stopping 2 others; continuing without it");
}

Test(failure_text, exit_codes_are_counted_as_torchrun_does) {
    struct failure f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    cr_assert_eq(failure_exit_code(&f), -11);
    f = failure_of(FAILURE_OOM, SIGKILL);
    cr_assert_eq(failure_exit_code(&f), -9);
    f = failure_of(FAILURE_EXIT, 3);
    cr_assert_eq(failure_exit_code(&f), 3);
    f = failure_of(FAILURE_SPAWN, ENOENT);
    cr_assert_eq(failure_exit_code(&f), 127);
    f = failure_of(FAILURE_SPAWN, EACCES);
    cr_assert_eq(failure_exit_code(&f), 126);
    f = failure_of(FAILURE_NODE, 0);
    cr_assert_eq(failure_exit_code(&f), 1);
}

Test(failure_text, the_status_of_a_shell) {
    struct failure f = failure_of(FAILURE_EXIT, 85);
    cr_expect_eq(failure_shell_status(&f), 85);
    f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    cr_expect_eq(failure_shell_status(&f), 139);
    f = failure_of(FAILURE_OOM, SIGKILL);
    cr_expect_eq(failure_shell_status(&f), 137);
    f = failure_of(FAILURE_SPAWN, ENOENT);
    cr_expect_eq(failure_shell_status(&f), 127);
    f = failure_of(FAILURE_NODE, 0);
    cr_expect_eq(failure_shell_status(&f), 1);
    f = failure_of(FAILURE_EXIT, 300); /* from another node, of which anything is believed */
    cr_expect_eq(failure_shell_status(&f), 1);
}

/* After the traceback's last line, which has a blank at its end. */
#define EXCEPTION "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
#define EXPECT_BLOCK(sheet, want)                                                             \
    do {                                                                                      \
        _cleanup_(strbuf_fini) struct strbuf got_ = {0};                                      \
        failure_report_text((sheet), &got_);                                                  \
        cr_assert_str_eq(strbuf_text(&got_), EXCEPTION want, "got:\n%s", strbuf_text(&got_)); \
    } while (0)

/* These blocks are torchrun 2.13's output, except for host and file names, ranks and pids. */

Test(failure_text, the_block_of_a_signal_is_torchruns) {
    struct failure f = failure_of(FAILURE_SIGNAL, SIGSEGV);
    (void)snprintf(f.node, sizeof f.node, "localhost");
    f.rank = f.local_rank = 0;
    struct failure_report sheet = {.entrypoint = "segv.py", .failure = &f};
    EXPECT_BLOCK(&sheet, "=======================================================\n"
                         "segv.py FAILED\n"
                         "-------------------------------------------------------\n"
                         "Failures:\n"
                         "  <NO_OTHER_FAILURES>\n"
                         "-------------------------------------------------------\n"
                         "Root Cause (first observed failure):\n"
                         "[0]:\n"
                         "  time      : 2026-11-21_13:34:07\n"
                         "  host      : localhost\n"
                         "  rank      : 0 (local_rank: 0)\n"
                         "  exitcode  : -11 (pid: 12533)  (SIGSEGV)\n"
                         "  error_file: <N/A>\n"
                         "  traceback : Signal 11 (SIGSEGV) received by PID 12533\n"
                         "=======================================================\n");
}

Test(failure_text, the_block_of_an_exit_is_torchruns) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
    f.rank = f.local_rank = 1;
    f.pid = 11130;
    struct failure_report sheet = {.entrypoint = "raise.py", .failure = &f, .utc_offset_s = -3600};
    EXPECT_BLOCK(&sheet, "============================================================\n"
                         "raise.py FAILED\n"
                         "------------------------------------------------------------\n"
                         "Failures:\n"
                         "  <NO_OTHER_FAILURES>\n"
                         "------------------------------------------------------------\n"
                         "Root Cause (first observed failure):\n"
                         "[0]:\n"
                         "  time      : 2026-11-21_12:34:07\n"
                         "  host      : b\n"
                         "  rank      : 1 (local_rank: 1)\n"
                         "  exitcode  : 1 (pid: 11130) \n"
                         "  error_file: <N/A>\n"
                         "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
                         "============================================================\n");
}

Test(failure_text, the_block_of_a_traceback_is_torchruns_and_the_last_lines_stand_below) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
    (void)snprintf(f.error_file, sizeof f.error_file, "/logs/error.json");
    failure_set_text(&f, "Traceback (most recent call last):\n  File \"rec.py\"\nValueError: bad\n", true);
    struct failure_report sheet = {.entrypoint = "rec.py", .failure = &f, .stderr_tail = "one\n\ntwo"};
    EXPECT_BLOCK(&sheet, "================================================\n"
                         "rec.py FAILED\n"
                         "------------------------------------------------\n"
                         "Failures:\n"
                         "  <NO_OTHER_FAILURES>\n"
                         "------------------------------------------------\n"
                         "Root Cause (first observed failure):\n"
                         "[0]:\n"
                         "  time      : 2026-11-21_13:34:07\n"
                         "  host      : b\n"
                         "  rank      : 3 (local_rank: 1)\n"
                         "  exitcode  : 1 (pid: 12533) \n"
                         "  error_file: /logs/error.json\n"
                         "  traceback : Traceback (most recent call last):\n"
                         "    File \"rec.py\"\n"
                         "  ValueError: bad\n"
                         "  \n"
                         "================================================\n"
                         "Last lines of rank 3's standard error (node b):\n"
                         "  one\n"
                         "  \n"
                         "  two\n");
}

Test(failure_text, a_traceback_of_stderr_is_in_the_block_if_there_is_no_error_file) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
    static const char *const tails[] = {NULL, "", "old line\n" TRACE "  File \"rec.py\", line 3\nValueError: bad\n"};
    failure_set_text(&f, tails[2], false);
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
        struct failure_report sheet = {.entrypoint = "rec.py", .failure = &f, .stderr_tail = tails[i]};
        EXPECT_BLOCK(&sheet, "================================================\n"
                             "rec.py FAILED\n"
                             "------------------------------------------------\n"
                             "Failures:\n"
                             "  <NO_OTHER_FAILURES>\n"
                             "------------------------------------------------\n"
                             "Root Cause (first observed failure):\n"
                             "[0]:\n"
                             "  time      : 2026-11-21_13:34:07\n"
                             "  host      : b\n"
                             "  rank      : 3 (local_rank: 1)\n"
                             "  exitcode  : 1 (pid: 12533) \n"
                             "  error_file: <N/A>\n"
                             "  traceback : Traceback (most recent call last):\n"
                             "    File \"rec.py\", line 3\n"
                             "  ValueError: bad\n"
                             "================================================\n");
    }
}

Test(failure_text, the_block_has_no_control_characters_and_the_name_of_a_thread) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
    failure_set_text(&f, "Exception in thread T-1 (f):\n" TRACE "  File \"x.py\", line 6\nValueError: \033[31m\tred\n",
                     false);
    struct failure_report sheet = {.entrypoint = "t", .failure = &f};
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    failure_report_text(&sheet, &got);
    assert_has(strbuf_text(&got), "traceback : Exception in thread T-1 (f):\n  " TRACE);
    assert_has(strbuf_text(&got), "  ValueError: ?[31m\tred\n");
}

Test(failure_text, the_last_lines_of_another_nodes_worker_come_with_its_failure) {
    struct failure f = failure_of(FAILURE_SIGNAL, SIGABRT);
    failure_set_text(&f, "assertion failed\n", false);
    struct failure_report sheet = {.entrypoint = "t", .failure = &f};
    _cleanup_(strbuf_fini) struct strbuf got = {0};
    failure_report_text(&sheet, &got);
    assert_has(strbuf_text(&got), "traceback : Signal 6 (SIGABRT) received by PID 12533\n");
    assert_has(strbuf_text(&got), "(node b):\n  assertion failed\n");
    sheet.stderr_tail = "";
    strbuf_clear(&got);
    failure_report_text(&sheet, &got);
    cr_assert_null(strstr(strbuf_text(&got), "Last lines"));
}

Test(failure_text, a_module_that_is_missing_names_the_interpreter_once_on_every_node) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
    failure_set_text(&f, "Traceback:\nModuleNotFoundError: No module named 'torch'\n", false);
    failure_name_interpreter(&f, "/usr/bin/python3");
    struct failure_report sheet = {.entrypoint = "t", .failure = &f};
    static const char *const tails[] = {NULL, "ModuleNotFoundError: No module named 'torch'\n", ""};
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
        _cleanup_(strbuf_fini) struct strbuf got = {0};
        sheet.stderr_tail = tails[i];
        failure_report_text(&sheet, &got);
        const char *line = strstr(strbuf_text(&got), "\nThe interpreter was /usr/bin/python3 (PYTHON_EXEC");
        cr_assert_not_null(line, "%s", strbuf_text(&got));
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
    struct failure f = failure_of(FAILURE_NODE, 0);
    (void)snprintf(f.text, sizeof f.text, "its agent died");
    struct failure_report sheet = {.entrypoint = "train.py", .failure = &f};
    EXPECT_BLOCK(&sheet, "=================================\n"
                         "train.py FAILED\n"
                         "---------------------------------\n"
                         "Failures:\n"
                         "  <NO_OTHER_FAILURES>\n"
                         "---------------------------------\n"
                         "Root Cause (first observed failure):\n"
                         "[0]:\n"
                         "  time      : 2026-11-21_13:34:07\n"
                         "  host      : b\n"
                         "  rank      : <N/A>\n"
                         "  exitcode  : <N/A>\n"
                         "  error_file: <N/A>\n"
                         "  traceback : its agent died\n"
                         "=================================\n");
}

Test(failure_text, of_a_long_text_the_end_is_kept_from_a_line_on) {
    struct failure f = failure_of(FAILURE_EXIT, 1);
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
        struct failure f = failure_of(FAILURE_EXIT, 1);
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
    struct failure f = failure_of(FAILURE_HANG, 0);
    struct failure_counts c = {.stopping = 4, .will_restart = true, .restarts_used = 1, .max_restarts = 3};
    (void)strcpy(f.text, "ranks 0-2 wait; rank 3 (node b, pid 12533) is stopped");
    EXPECT_HEADLINE(&f, &c,
                    "the job hangs: ranks 0-2 wait; rank 3 (node b, pid 12533) is stopped; stopping 4 workers; "
                    "restart 1 of 3");
    _cleanup_(strbuf_fini) struct strbuf cause = {0}, block = {0};
    failure_cause_text(&f, &cause);
    cr_assert_str_eq(strbuf_text(&cause), "kept the others waiting");
    struct failure_report sheet = {.entrypoint = "train.py", .failure = &f};
    failure_report_text(&sheet, &block);
    assert_has(strbuf_text(&block), "traceback : ranks 0-2 wait; rank 3");
    assert_has(strbuf_text(&block), "rank      : 3 (local_rank: 1)");
    f.node[0] = '\0'; /* no rank is suspected */
    strbuf_clear(&block);
    failure_report_text(&sheet, &block);
    assert_has(strbuf_text(&block), "\n  host      : all\n  rank      : all\n");
}
