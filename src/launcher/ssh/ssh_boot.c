#include "launcher/ssh/ssh_boot.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/frame.h"
#include "base/text/parse.h"

/* ==== the command ==== */

#define BLANKS " \t\n"

/* Reads one word from *text on, which does not begin with a blank. False: a quote is open. */
static bool read_word(const char **text, struct strbuf *word) {
    char quote = '\0';
    const char *s = *text;
    for (; *s != '\0' && (quote != '\0' || strchr(BLANKS, *s) == NULL); s++) {
        if (quote == '\0' ? *s == '\'' || *s == '"' : *s == quote)
            quote = quote == '\0' ? *s : '\0';
        else if (*s == '\\' && quote != '\'' && s[1] != '\0')
            strbuf_add_char(word, *++s);
        else
            strbuf_add_char(word, *s);
    }
    *text = s;
    return quote == '\0';
}

int ssh_words(const char *text, char ***ret, struct err *err) {
    _cleanup_(words_freep) char **words = NULL;
    size_t n = 0;
    const char *s = text;
    for (;;) {
        _cleanup_(strbuf_fini) struct strbuf word = {0};
        s += strspn(s, BLANKS);
        if (*s == '\0')
            break;
        if (!read_word(&s, &word))
            return err_set(err, -EINVAL, "--ssh: a quote is not closed in: %.200s", text);
        words_add(&words, &n, strbuf_take(&word));
    }
    if (n == 0)
        return err_set(err, -EINVAL, "--ssh: there is no command; the default is ssh");
    *ret = TAKE_PTR(words);
    return 0;
}

/* ---- the command ---- */

char **ssh_command(char *const *words, const struct host *host, const char *command) {
    static const char *const options[] = {
        "-T",                      /* no terminal: it would merge stdout and stderr */
        "-x",                      /* no X11 */
        "-o", "BatchMode=yes",     /* no questions: no one could answer on many hosts at once */
        "-o", "ConnectTimeout=10", /* seconds, until a host that does not answer counts as dead */
        "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4", "--",
    };
    char **argv = NULL;
    size_t n = 0;
    for (; *words != NULL; words++)
        words_add(&argv, &n, xstrdup(*words));
    if (host->port != 0) {
        words_add(&argv, &n, xstrdup("-p"));
        words_add(&argv, &n, xasprintf("%u", host->port));
    }
    if (host->user != NULL) {
        words_add(&argv, &n, xstrdup("-l"));
        words_add(&argv, &n, xstrdup(host->user));
    }
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        words_add(&argv, &n, xstrdup(options[i]));
    words_add(&argv, &n, xstrdup(host->name));
    words_add(&argv, &n, xstrdup(command));
    return argv;
}

char **ssh_command_of(const char *const words[LAUNCHER_WORDS_MAX], const char *folder,
                      const char *object, const char *command) {
    char **argv = NULL;
    size_t n = 0;
    for (size_t i = 0; i < LAUNCHER_WORDS_MAX && words[i] != NULL; i++)
        words_add(&argv, &n,
                  i == 0 && folder != NULL ? xasprintf("%s/%s", folder, words[i])
                                           : xstrdup(words[i]));
    words_add(&argv, &n, xstrdup(object));
    if (command != NULL)
        words_add(&argv, &n, xstrdup(command));
    return argv;
}

/* Characters that no shell takes for anything else. */
static bool is_plain(const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+,:@-";
    return text[strspn(text, plain)] == '\0';
}

int ssh_remote_command(const char *program, char **ret, struct err *err) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    for (const char *s = program; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return err_set(err, -EINVAL,
                           "muster's own path has a control character, which not every shell of "
                           "another host could read: move it to another folder");
    strbuf_add(&out, "exec ");
    if (is_plain(program)) {
        strbuf_printf(&out, "%s ssh-node", program);
        *ret = strbuf_take(&out);
        return 0;
    }
    strbuf_add_char(&out, '\'');
    for (const char *s = program; *s != '\0'; s++) {
        /* fish has escapes within '…', and csh a history: such a character stands outside */
        if (*s == '\'' || *s == '\\' || *s == '!')
            strbuf_printf(&out, "'\\%c'", *s);
        else
            strbuf_add_char(&out, *s);
    }
    strbuf_add(&out, "' ssh-node");
    *ret = strbuf_take(&out);
    return 0;
}

char *ssh_ask_line(const char *ssh, const struct host *host, const char *program) {
    struct strbuf out = {0};
    strbuf_add(&out, ssh);
    if (host->port != 0)
        strbuf_printf(&out, " -p %u", host->port);
    if (host->user != NULL)
        strbuf_printf(&out, " -l %s", host->user);
    strbuf_printf(&out, " %s %s", host->name, program);
    return strbuf_take(&out);
}

/* ==== the environment ==== */

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

/* Those of all variables, each once, that the item names; NULL: those that go with ALL. */
static void add_named(const struct envlist *all, const char *item, size_t len,
                      struct envlist *env) {
    for (char *const *at = envlist_items(all); *at != NULL; at++)
        if (item != NULL ? is_named(*at, item, len) : goes_with_all(*at))
            set_entry(env, *at);
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

static int add_item(const char *item, size_t len, const struct envlist *all, struct envlist *env,
                    struct err *err) {
    const char *equals = memchr(item, '=', len);
    int r = check_name(item, equals != NULL ? (size_t)(equals - item) : len, equals == NULL, err);
    if (r < 0)
        return r;
    if (equals != NULL) {
        _cleanup_(freep) char *entry = xstrndup(item, len);
        set_entry(env, entry);
    } else {
        add_named(all, item, len, env);
    }
    return 0;
}

static bool is_word(const char *item, size_t len, const char *word) {
    return len == strlen(word) && memcmp(item, word, len) == 0;
}

int ssh_env(const char *names, char *const *envp, struct envlist *ret, struct err *err) {
    _cleanup_(envlist_fini) struct envlist all = {0};
    const char *item;
    size_t len, n = 0;
    bool none = false;
    int r = 0;
    envlist_copy(&all, envp);
    if (names == NULL)
        names = "ALL";
    for (size_t i = 0; (item = list_item(names, i, &len)) != NULL; i++) {
        n += len > 0;
        none = none || is_word(item, len, "NONE");
        if (is_word(item, len, "ALL")) /* what is named wins, wherever ALL stands */
            add_named(&all, NULL, 0, ret);
    }
    if (none)
        return n == 1 ? 0 : err_set(err, -EINVAL, "--export: NONE stands alone: \"%.100s\"", names);
    for (size_t i = 0; r == 0 && (item = list_item(names, i, &len)) != NULL; i++)
        if (len > 0 && !is_word(item, len, "ALL"))
            r = add_item(item, len, &all, ret, err);
    return r;
}

void ssh_env_leave_slurm(struct envlist *env) {
    for (size_t i = 0; i < ARRAY_SIZE(of_slurm); i++)
        envlist_unset_prefix(env, of_slurm[i]);
}

/* ==== what a relay gets ==== */

/* ---- the beginning ---- */

int ssh_find_begin(const uint8_t *data, size_t len, size_t *ret_bytes) {
    static const char any[] = "\nMUSTER-SSH ";
    const size_t n_any = sizeof any - 1, n_begin = sizeof SSH_BEGIN - 1;
    const uint8_t *at = memmem(data, len, any, n_any);
    if (at == NULL || (size_t)(at - data) > SSH_NOISE_MAX)
        return len > SSH_NOISE_MAX + n_any ? -EMSGSIZE : FRAME_E_MORE;
    size_t left = len - (size_t)(at - data);
    if (memcmp(at, SSH_BEGIN, MIN2(left, n_begin)) != 0)
        return -EPROTONOSUPPORT;
    if (left < n_begin)
        return FRAME_E_MORE;
    *ret_bytes = (size_t)(at - data) + n_begin;
    return 0;
}

/* ---- BOOT ---- */

#define GRACE_MAX_NS (UINT64_C(1) << 62) /* a clock's time can be added to it */

/* The first byte of each text says what it is. */
enum {
    TEXT_CWD = 'c',
    TEXT_GRACE = 'g',
    TEXT_JOB = 'j',
    TEXT_WORD = 'a',
    TEXT_VARIABLE = 'e',
};

void ssh_boot_fini(struct ssh_boot *boot) {
    free(boot->cwd);
    if (boot->job != NULL)
        explicit_bzero(boot->job, strlen(boot->job)); /* it can have a password */
    free(boot->job);
    words_free(boot->args);
    envlist_fini(&boot->env);
    *boot = (struct ssh_boot){0};
}

static void add_text(struct strbuf *to, char what, const char *text) {
    strbuf_add_char(to, what);
    strbuf_add_bytes(to, text, strlen(text) + 1);
}

int ssh_boot_add(const struct ssh_boot *boot, struct strbuf *to, struct err *err) {
    _cleanup_(strbuf_forget) struct strbuf all = {.is_secret = true};
    char *const *env = envlist_items(&boot->env);
    char grace[32];
    (void)snprintf(grace, sizeof grace, "%" PRIu64, boot->grace_ns);
    add_text(&all, TEXT_CWD, boot->cwd);
    add_text(&all, TEXT_GRACE, grace);
    if (boot->job != NULL)
        add_text(&all, TEXT_JOB, boot->job);
    for (size_t i = 0; i < boot->n_args; i++)
        add_text(&all, TEXT_WORD, boot->args[i]);
    for (size_t i = 0; env[i] != NULL; i++)
        add_text(&all, TEXT_VARIABLE, env[i]);
    if (all.len > SSH_BOOT_MAX)
        return err_set(err, -E2BIG,
                       "the command line and the environment have %zu bytes, and at most %zu can "
                       "be sent to other hosts; send fewer variables: --export",
                       all.len, SSH_BOOT_MAX);
    const char *text = strbuf_text(&all);
    size_t left = all.len;
    for (; left > STARTER_DATA_MAX; left -= STARTER_DATA_MAX, text += STARTER_DATA_MAX)
        starter_add_data(STARTER_BOOT_PART, text, STARTER_DATA_MAX, to);
    starter_add_data(STARTER_BOOT, text, left, to);
    return 0;
}

/* An environment without a name twice takes no search, unlike envlist_set(). */
static int read_text(char what, const char *text, struct ssh_boot *boot, struct envlist *env,
                     struct err *err) {
    switch (what) {
    case TEXT_CWD:
        if (text[0] != '/' || boot->cwd != NULL)
            return err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
        boot->cwd = xstrdup(text);
        return 0;
    case TEXT_GRACE:
        return parse_u64(text, &boot->grace_ns) == 0 && boot->grace_ns < GRACE_MAX_NS
                   ? 0
                   : err_set(err, -EINVAL, "BOOT has a grace that is not a time");
    case TEXT_JOB:
        if (boot->job != NULL)
            return err_set(err, -EINVAL, "BOOT must have one job");
        boot->job = xstrdup(text);
        return 0;
    case TEXT_WORD: words_add(&boot->args, &boot->n_args, xstrdup(text)); return 0;
    case TEXT_VARIABLE:
        if (text[0] == '=' || strchr(text, '=') == NULL)
            return err_set(err, -EINVAL, "BOOT has a variable without a name, or without \"=\"");
        envlist_add(env, xstrdup(text));
        return 0;
    default: return err_set(err, -EINVAL, "BOOT has a text of an unknown kind");
    }
}

static int read_boot(const char *text, size_t len, struct ssh_boot *ret, struct err *err) {
    if (len == 0 || text[len - 1] != '\0')
        return err_set(err, -EINVAL, "BOOT has a text without its end");
    int r = 0;
    for (size_t n; r == 0 && len > 0; text += n, len -= n) {
        n = strlen(text) + 1;
        r = n < 2 ? err_set(err, -EINVAL, "BOOT has an empty text")
                  : read_text(text[0], text + 1, ret, &ret->env, err);
    }
    if (r == 0 && ret->cwd == NULL)
        r = err_set(err, -EINVAL, "BOOT must have one folder, an absolute one");
    return r;
}

int ssh_boot_take(struct strbuf *parts, const struct starter_message *m, struct ssh_boot *ret,
                  struct err *err) {
    assert(m->kind == STARTER_BOOT_PART || m->kind == STARTER_BOOT);
    if (m->data.len > SSH_BOOT_MAX - parts->len)
        return err_set(err, -EMSGSIZE, "BOOT has more than %zu bytes", SSH_BOOT_MAX);
    strbuf_add_bytes(parts, m->data.bytes, m->data.len);
    if (m->kind == STARTER_BOOT_PART)
        return FRAME_E_MORE;
    struct ssh_boot boot = {0};
    int r = read_boot(strbuf_text(parts), parts->len, &boot, err);
    if (r == 0)
        *ret = boot;
    else
        ssh_boot_fini(&boot);
    return r;
}

/* ==== the job of one host ==== */

struct job_spec ssh_job_of(const struct job_spec *spec, size_t host, size_t first, const char *addr,
                           uint16_t port) {
    const struct hosts *hosts = &spec->hosts.list;
    const uint32_t slots = hosts->items[host].slots;
    struct job_spec job = *spec;
    if (!job_is_given(spec, "node-rank"))
        job.node_rank = (int32_t)((host + hosts->n - first) % hosts->n);
    if (!job_is_given(spec, "nproc-per-node") && slots > 0)
        job.nproc = slots;
    if (!job_meets_at_host(spec))
        return job;
    job.endpoint_host = (char *)(uintptr_t)addr;
    job.endpoint_port = port;
    /* two hosts may have one address (names of one machine, NAT), so addresses don't decide */
    if (job.is_host < 0)
        job.is_host = host == first;
    return job;
}

/* Those of this machine itself, or of a link that no other host has. */
static bool is_narrow(const char *addr, size_t len) {
    return strncmp(addr, "127.", 4) == 0 || (len == 3 && strncmp(addr, "::1", 3) == 0) ||
           strncmp(addr, "169.254.", 8) == 0 || strncmp(addr, "fe80:", 5) == 0;
}

char *ssh_meeting_addr(const char *addrs) {
    for (const char *at = addrs; *at != '\0';) {
        size_t n = strcspn(at, ",");
        if (n > 0 && !is_narrow(at, n))
            return xstrndup(at, n);
        at += n + (at[n] == ',');
    }
    size_t n = strcspn(addrs, ",");
    return n > 0 ? xstrndup(addrs, n) : xstrdup("127.0.0.1");
}

/* ==== the crew ==== */

void ssh_crew_init(struct ssh_crew *c, uint32_t n, uint32_t min, bool meets) {
    *c = (struct ssh_crew){.n = n, .min = min};
    c->meeting = meets ? SSH_CREW_MEETS_UNASKED : SSH_CREW_MEETS_ELSEWHERE;
    c->states = xcalloc(n, sizeof *c->states);
    for (uint32_t i = 0; i < n; i++)
        c->states[i] = SSH_CREW_WAITING;
}

void ssh_crew_fini(struct ssh_crew *c) {
    free(c->states);
    *c = (struct ssh_crew){0};
}

static bool leader_answered(const struct ssh_crew *c) {
    return c->leader < c->n && c->states[c->leader] >= SSH_CREW_READY;
}

enum ssh_crew_do ssh_crew_next(struct ssh_crew *c, uint32_t *ret) {
    if (c->n - c->n_failed < c->min && !c->closed) {
        c->closed = true;
        return SSH_CREW_DO_TOO_FEW;
    }
    if (c->closed)
        return SSH_CREW_DO_NOTHING;
    if (leader_answered(c) && c->meeting == SSH_CREW_MEETS_UNASKED) {
        c->meeting = SSH_CREW_MEETS_ASKED;
        *ret = c->leader;
        return SSH_CREW_DO_LISTEN;
    }
    const uint8_t *ready = memchr(c->states, SSH_CREW_READY, c->n);
    if (leader_answered(c) && c->meeting != SSH_CREW_MEETS_ASKED && ready != NULL) {
        *ret = (uint32_t)(ready - c->states);
        c->states[*ret] = SSH_CREW_BOOTED;
        return SSH_CREW_DO_BOOT;
    }
    if (c->next == c->n || c->in_flight == SSH_IN_FLIGHT)
        return SSH_CREW_DO_NOTHING;
    *ret = c->next++;
    c->states[*ret] = SSH_CREW_CALLED;
    c->in_flight++;
    return SSH_CREW_DO_CALL;
}

bool ssh_crew_is_called(const struct ssh_crew *c, uint32_t host) {
    return c->states[host] == SSH_CREW_CALLED || c->states[host] == SSH_CREW_HANGS;
}

void ssh_crew_hangs(struct ssh_crew *c, uint32_t host) {
    if (c->states[host] != SSH_CREW_CALLED)
        return;
    c->in_flight--;
    c->n_hanging++;
    c->states[host] = SSH_CREW_HANGS;
}

static void answered(struct ssh_crew *c, uint32_t host) {
    c->in_flight -= c->states[host] == SSH_CREW_CALLED;
    c->n_hanging -= c->states[host] == SSH_CREW_HANGS;
}

bool ssh_crew_can_pass_over(const struct ssh_crew *c) {
    uint32_t ready = 0;
    if (c->closed || c->leader == c->n || !ssh_crew_is_called(c, c->leader))
        return false;
    for (uint32_t i = c->leader + 1; i < c->next && ready < c->min; i++)
        ready += c->states[i] == SSH_CREW_READY;
    return ready >= c->min;
}

void ssh_crew_pass_over(struct ssh_crew *c) {
    for (; c->leader < c->n && c->states[c->leader] != SSH_CREW_READY; c->leader++)
        ssh_crew_hangs(c, c->leader);
}

void ssh_crew_hello(struct ssh_crew *c, uint32_t host) {
    if (!ssh_crew_is_called(c, host))
        return;
    answered(c, host);
    c->states[host] = SSH_CREW_READY;
}

bool ssh_crew_listens(struct ssh_crew *c, uint32_t host) {
    if (c->meeting != SSH_CREW_MEETS_ASKED || host != c->leader)
        return false;
    c->meeting = SSH_CREW_MEETS_THERE;
    return true;
}

void ssh_crew_gone(struct ssh_crew *c, uint32_t host, bool failed) {
    if (c->states[host] == SSH_CREW_ENDED || c->states[host] == SSH_CREW_FAILED)
        return;
    answered(c, host);
    c->states[host] = failed ? SSH_CREW_FAILED : SSH_CREW_ENDED;
    c->n_gone++;
    c->n_failed += failed;
    if (host == c->leader && c->meeting == SSH_CREW_MEETS_ASKED)
        c->meeting = SSH_CREW_MEETS_UNASKED; /* the next leader is asked */
    while (c->leader < c->n && c->states[c->leader] == SSH_CREW_FAILED)
        c->leader++;
}

void ssh_crew_close(struct ssh_crew *c) { c->closed = true; }

bool ssh_crew_is_over(const struct ssh_crew *c) {
    return c->n_gone == (c->closed ? c->next : c->n);
}
