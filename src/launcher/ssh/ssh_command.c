#include "launcher/ssh/ssh_command.h"

#include <errno.h>
#include <string.h>

#include "base/text/strbuf.h"

/* ---- --ssh ---- */

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
    char **words = NULL;
    size_t n = 0;
    const char *s = text;
    for (;;) {
        _cleanup_(strbuf_fini) struct strbuf word = {0};
        s += strspn(s, BLANKS);
        if (*s == '\0')
            break;
        if (!read_word(&s, &word)) {
            words_free(words);
            return err_set(err, -EINVAL, "--ssh: a quote is not closed in: %.200s", text);
        }
        words_add(&words, &n, strbuf_take(&word));
    }
    if (n == 0)
        return err_set(err, -EINVAL, "--ssh: there is no command; the default is ssh");
    *ret = words;
    return 0;
}

/* ---- the command ---- */

char **ssh_command(char *const *words, const struct host *host, const char *command) {
    static const char *const options[] = {
        "-T",                  /* no terminal: it would merge stdout and stderr */
        "-x",                  /* no X11 */
        "-o", "BatchMode=yes", /* no questions, for which nobody could answer on many hosts at once
                                */
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
