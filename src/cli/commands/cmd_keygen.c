/* "muster keygen": makes the key by which the nodes of this user's jobs know each other. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text/log.h"
#include "cli/help/help.h"
#include "cli/jobs/shell_words.h"
#include "cli/options/commands.h"
#include "io/clock.h"
#include "rendezvous/auth/keyring_io.h"

enum { KEYGEN_FORCE };

static const struct option_def defs[] = {
    [KEYGEN_FORCE] = {"force", NULL, OPTION_SHORT,
                      "replace an existing key; running jobs keep the old one", .letter = 'f',
                      .brief = "replace an existing key"},
    HELP_ROW(),
    HELP_ALL_ROW,
};

const struct option_set keygen_options = {
    .command = "keygen",
    .operands = "[FILE]",
    .about = "Makes the key with which the nodes of your jobs authenticate each other and encrypt "
             "their connections, and writes it to FILE, or to ~/.config/muster/key, where all your "
             "jobs find it. One key is enough; copy it to nodes that do not share your home. To "
             "undo it, remove the file.",
    .example = "job7.key",
    OPTION_DEFS(defs),
};

/* What has changed, and how to undo it. has_id: false where OpenSSL is missing. */
static void print_result(const struct keyring *ring, const char *path, bool at_home, bool replaced,
                         bool has_id) {
    char id[AUTH_ID_TEXT_MAX] = "";
    _cleanup_(strbuf_fini) struct strbuf word = {0};
    shell_add_word(&word, path);
    if (has_id)
        auth_id_to_text(&(struct auth_id){.id = keyring_at(ring, 0)->id}, id);
    printf("%s %s (its id: %s)\n", replaced ? "replaced the key in" : "wrote a new key to", path,
           has_id ? id : "not known without OpenSSL");
    if (at_home)
        printf("Your new jobs of several nodes use it: nodes and commands on other machines need "
               "it, too.\n"
               "Machines that share this home have it. To copy it to another:\n"
               "  ssh NODE 'umask 077; mkdir -p ~/.config/muster; cat >~/.config/muster/key' <%s\n",
               strbuf_text(&word));
    else
        printf("Copy it to all nodes of a job (mode 0600), and give each --key-file=%s\n",
               strbuf_text(&word));
    printf(replaced ? "Running jobs keep the old key. To have no key: rm %s\n"
                    : "To undo this: rm %s\n",
           strbuf_text(&word));
}

static int make(const char *path, bool at_home, bool force) {
    _cleanup_(keyring_freep) struct keyring *ring = NULL;
    struct err err = {0}, why = {0};
    uint8_t secret[AUTH_SECRET_BYTES];
    const bool replaces = access(path, F_OK) == 0;
    int r = keyring_new(&ring, &err);
    random_bytes(secret, sizeof secret);
    if (r == 0)
        r = keyring_add(ring, secret, AUTH_FROM_FILE, &err);
    if (r == 0 && at_home)
        r = keyring_make_home(path, &err);
    if (r == 0)
        r = keyring_write_file(path, secret, force, &err);
    explicit_bzero(secret, sizeof secret);
    if (r < 0)
        return print_failure(&err);
    r = keyring_derive(ring, &why);
    if (r < 0)
        log_warning("this key can't be used here: %s", why.text);
    print_result(ring, path, at_home, replaces, r == 0);
    return finish_stdout();
}

int cmd_keygen(int argc, char **argv) {
    struct options_parsed p;
    struct err err = {0};
    const char *file = NULL;
    char home[PATH_MAX];
    int status = help_or_parse(&keygen_options, argc, argv, &file, 1, &p);
    if (status >= 0)
        return status;
    if (file != NULL && *file == '\0')
        return usage_error("keygen", "FILE is empty");
    if (file == NULL && keyring_home_path(home, &err) < 0)
        return usage_error("keygen", "%s", err.text);
    return make(file != NULL ? file : home, file == NULL, p.values[KEYGEN_FORCE].times > 0);
}
