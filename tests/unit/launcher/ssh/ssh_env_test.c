#include "launcher/ssh/ssh_boot.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

#define W(text) ((char *)(uintptr_t)(text))

static char *const envp[] = {W("PATH=/bin"),
                             W("HOME=/root"),
                             W("NCCL_DEBUG=INFO"),
                             W("NCCL_IB_HCA=mlx5"),
                             W("SSH_AUTH_SOCK=s"),
                             W("TERM=xterm"),
                             W("SLURM_JOB_ID=1"),
                             W("MUSTER_HEAD_TOKEN=t"),
                             W("MUSTER_KEY_FILE=/home/me/key"),
                             W("_=x"),
                             W("EMPTY="),
                             W("TWICE=1"),
                             W("TWICE=2"),
                             W("nothing"),
                             W("BASH_FUNC_ml%%=() { x\n}"),
                             NULL};

/* "NAME=value NAME=value" of what is sent; "" and the error if there is one. */
static const char *sent(const char *names, struct err *err) {
    static struct strbuf s;
    _cleanup_(envlist_fini) struct envlist env = {0};
    strbuf_clear(&s);
    if (ssh_env(names, envp, &env, err) < 0)
        return "";
    for (char *const *at = envlist_items(&env); *at != NULL; at++)
        strbuf_printf(&s, "%s%s", s.len > 0 ? " " : "", *at);
    return strbuf_text(&s);
}

#define ALL "PATH=/bin NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5 TERM=xterm EMPTY= TWICE=1 BASH_FUNC_ml%%=() { x\n}"

Test(ssh_env, sends_what_is_named) {
    static const struct {
        const char *names, *sent;
    } cases[] = {
        {NULL, ALL},
        {"ALL", ALL},
        {"NONE", ""},
        {"", ""},
        {"PATH", "PATH=/bin"},
        {"PATH,UNSET", "PATH=/bin"},
        {" PATH , ,TERM,", "PATH=/bin TERM=xterm"},
        {"NCCL_*", "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5"},
        {"TWICE", "TWICE=1"},
        {"ALL,HOME", ALL " HOME=/root"},
        {"HOME,ALL", ALL " HOME=/root"},
        {"ALL,NCCL_DEBUG=WARN,X=a=b", "PATH=/bin NCCL_DEBUG=WARN NCCL_IB_HCA=mlx5 TERM=xterm EMPTY= TWICE=1 "
                                      "BASH_FUNC_ml%%=() { x\n} X=a=b"},
        {"NCCL_DEBUG=WARN,ALL,X=", "PATH=/bin NCCL_DEBUG=WARN NCCL_IB_HCA=mlx5 TERM=xterm EMPTY= TWICE=1 "
                                   "BASH_FUNC_ml%%=() { x\n} X="},
        {"SSH_*", "SSH_AUTH_SOCK=s"},
        {"nothing", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = {0};
        cr_assert_str_eq(sent(cases[i].names, &err), cases[i].sent, "%s: %s %s", cases[i].names,
                         sent(cases[i].names, &err), err.text);
    }
}

Test(ssh_env, what_is_no_name_is_refused) {
    static const char *const bad[] = {"*", "=x", "1A", "A B", "A*B", "ALL,NONE", "NONE,A", "A*=1", "-A", "A,ü"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_(envlist_fini) struct envlist env = {0};
        struct err err = {0};
        cr_assert_eq(ssh_env(bad[i], envp, &env, &err), -EINVAL, "%s", bad[i]);
        assert_has(err.text, "--export");
    }
}

Test(ssh_env, an_agent_here_does_not_see_slurm) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    envlist_copy(&env, envp);
    ssh_env_leave_slurm(&env);
    cr_assert_null(envlist_get(&env, "SLURM_JOB_ID"));
    cr_assert_null(envlist_get(&env, "MUSTER_HEAD_TOKEN"));
    cr_assert_str_eq(envlist_get(&env, "HOME"), "/root");
}
