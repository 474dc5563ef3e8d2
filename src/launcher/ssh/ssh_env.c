#include "launcher/ssh/ssh_env.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text/parse.h"

/* What ALL leaves out. A '*' at the end stands for any rest. */
static const char *const stays_here[] = {
    /* of the machine, and of the login: the node has its own. environ(7), pam_systemd(8) */
    "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "HOST", "MAIL", "TMPDIR", "SSH_*", "XDG_*",
    "DBUS_*", "KRB5CCNAME",
    /* of the shell. bash(1), "Shell Variables" */
    "PWD", "OLDPWD", "SHLVL", "_",
    /* of the terminal and the screen; the agent has none. TERM says how to write, so it is sent */
    "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "WINDOWID", "TMUX*", "STY",
    /* of the service: systemd.exec(5), "Environment Variables Set or Propagated…" */
    "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS",
    "LISTEN_FDNAMES", "WATCHDOG_*",
    /* of this process's place in Slurm, or of its own head */
    "SLURM_*", "SLURMD_*", "SRUN_*", "PMI_*", "PMIX_*", "MUSTER_HEAD*", "MUSTER_STEP_*",
    /* the head sends the key by itself: starter_io.h */
    "MUSTER_KEY*"};
static const char *const of_slurm[] = {"SLURM_", "SLURMD_",     "SRUN_",       "PMI_",
                                       "PMIX_",  "MUSTER_HEAD", "MUSTER_STEP_"};

/* Whether a variable's entry "NAME=value" is one of these names. */
static bool is_named(const char *entry, const char *pattern, size_t len) {
    size_t n = strcspn(entry, "=");
    if (len > 0 && pattern[len - 1] == '*')
        return n >= len - 1 && memcmp(entry, pattern, len - 1) == 0;
    return n == len && memcmp(entry, pattern, len) == 0;
}

static bool goes_with_all(const char *entry) {
    for (size_t i = 0; i < ARRAY_SIZE(stays_here); i++)
        if (is_named(entry, stays_here[i], strlen(stays_here[i])))
            return false;
    return true;
}

static void set_entry(struct envlist *env, const char *entry) {
    const char *equals = strchr(entry, '=');
    if (equals == NULL || equals == entry)
        return;
    _cleanup_(freep) char *name = xstrndup(entry, (size_t)(equals - entry));
    envlist_set(env, name, equals + 1);
}

/* All that go with ALL; getenv(3)'s rule for a name that occurs twice is envlist_copy()'s. */
static void add_all(char *const *envp, struct envlist *env) {
    _cleanup_(envlist_fini) struct envlist all = {0};
    envlist_copy(&all, envp);
    for (char *const *at = envlist_items(&all); *at != NULL; at++)
        if (goes_with_all(*at))
            set_entry(env, *at);
}

/* The variables that the item names, backwards: of two with a name the first counts. */
static void add_named(char *const *envp, const char *item, size_t len, struct envlist *env) {
    size_t n = 0;
    while (envp != NULL && envp[n] != NULL)
        n++;
    while (n-- > 0)
        if (is_named(envp[n], item, len))
            set_entry(env, envp[n]);
}

static int check_name(const char *item, size_t len, bool may_end_in_star, struct err *err) {
    size_t n = len;
    if (may_end_in_star && n > 1 && item[n - 1] == '*')
        n--;
    bool good = n > 0 && !isdigit((unsigned char)item[0]);
    for (size_t i = 0; i < n && good; i++)
        good = item[i] == '_' || isalnum((unsigned char)item[i]);
    if (good)
        return 0;
    return err_set(err, -EINVAL,
                   "--export: \"%.*s\" is not a variable; give ALL, NONE, or names, "
                   "NAME=VALUE and PREFIX* separated by commas",
                   (int)MIN2(len, (size_t)100), item);
}

static int add_item(const char *item, size_t len, char *const *envp, struct envlist *env,
                    struct err *err) {
    const char *equals = memchr(item, '=', len);
    int r = check_name(item, equals != NULL ? (size_t)(equals - item) : len, equals == NULL, err);
    if (r < 0)
        return r;
    if (equals != NULL) {
        _cleanup_(freep) char *entry = xstrndup(item, len);
        set_entry(env, entry);
    } else {
        add_named(envp, item, len, env);
    }
    return 0;
}

static bool is_word(const char *item, size_t len, const char *word) {
    return len == strlen(word) && memcmp(item, word, len) == 0;
}

int ssh_env(const char *names, char *const *envp, struct envlist *ret, struct err *err) {
    const char *item;
    size_t len, n = 0;
    bool none = false;
    int r = 0;
    if (names == NULL)
        names = "ALL";
    for (size_t i = 0; (item = list_item(names, i, &len)) != NULL; i++) {
        n += len > 0;
        none = none || is_word(item, len, "NONE");
        if (is_word(item, len, "ALL")) /* what is named wins, wherever ALL stands */
            add_all(envp, ret);
    }
    if (none)
        return n == 1 ? 0 : err_set(err, -EINVAL, "--export: NONE stands alone: \"%.100s\"", names);
    for (size_t i = 0; r == 0 && (item = list_item(names, i, &len)) != NULL; i++)
        if (len > 0 && !is_word(item, len, "ALL"))
            r = add_item(item, len, envp, ret, err);
    return r;
}

void ssh_env_leave_slurm(struct envlist *env) {
    for (size_t i = 0; i < ARRAY_SIZE(of_slurm); i++)
        envlist_unset_prefix(env, of_slurm[i]);
}
