#include "cli/jobs/shell_words.h"

#include <string.h>

/* POSIX 2017, Shell Command Language, 2.2: none of these has a meaning for the shell. */
#define SAFE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+@%="

void shell_add_word(struct strbuf *out, const char *word) {
    if (word[0] != '\0' && word[strspn(word, SAFE)] == '\0') {
        strbuf_add(out, word);
        return;
    }
    strbuf_add_char(out, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            strbuf_add(out, "'\\''");
        else
            strbuf_add_char(out, *word);
    }
    strbuf_add_char(out, '\'');
}

void shell_add_line(struct strbuf *out, int argc, char *const *argv, const char *from,
                    const char *to) {
    strbuf_add(out, "muster");
    for (int i = 0; i < argc; i++) {
        bool here = from != NULL && from >= argv[i] && from <= argv[i] + strlen(argv[i]);
        _cleanup_(freep) char *word =
            here ? xasprintf("%.*s%s", (int)(from - argv[i]), argv[i], to) : xstrdup(argv[i]);
        strbuf_add_char(out, ' ');
        shell_add_word(out, word);
    }
    if (from != NULL)
        return;
    strbuf_add_char(out, ' ');
    shell_add_word(out, to);
}

void shell_add_assignment(struct strbuf *out, const char *text) {
    size_t n = strcspn(text, "=");
    strbuf_add_bytes(out, text, n);
    if (text[n] == '\0')
        return;
    strbuf_add_char(out, '=');
    if (text[n + 1] != '\0') /* NAME= is an empty value already */
        shell_add_word(out, text + n + 1);
}
