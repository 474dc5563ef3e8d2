#include "cli/options/commands.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/text/utf8.h"

int usage_failed(const char *command, char *text) {
    char called[OPTION_TEXT_MAX];
    utf8_clean(text, false); /* it may quote a file or an argument */
    (void)fprintf(stderr, "%s: %s\n", command_called(command, called), text);
    free(text);
    return EXIT_USAGE;
}

int finish_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    if (errno == EPIPE) /* | head, where SIGPIPE is ignored */
        return 128 + SIGPIPE;
    (void)fprintf(stderr, "muster: error: can't write to standard output: %s\n",
                  errno == EBADF ? "it is closed" : strerror(errno));
    return 1;
}

int print_text(const struct strbuf *text) {
    (void)fputs(strbuf_text(text), stdout);
    return finish_stdout();
}
