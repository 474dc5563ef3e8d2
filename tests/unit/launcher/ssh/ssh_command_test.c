#include "launcher/ssh/ssh_boot.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

/* The words, each in <>. */
static char *joined(char *const *words) {
    struct strbuf s = {0};
    for (; *words != NULL; words++)
        strbuf_printf(&s, "<%s>", *words);
    return strbuf_take(&s);
}

Test(ssh_command, splits_words_as_a_shell) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"ssh", "<ssh>"},
        {"  ssh\t-p 2222 ", "<ssh><-p><2222>"},
        {"ssh -i '/my key' -o \"A b\"c", "<ssh><-i></my key><-o><A bc>"},
        {"a\\ b 'c\\d' \"e\\\"f\" ''", "<a b><c\\d><e\"f><>"},
        {"ssh -o ProxyCommand='nc \"%h\" %p'", "<ssh><-o><ProxyCommand=nc \"%h\" %p>"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char **words = NULL;
        cr_assert_eq(ssh_words(cases[i].text, &words, NULL), 0, "%s", cases[i].text);
        _cleanup_(freep) char *all = joined(words);
        cr_assert_str_eq(all, cases[i].words);
        words_free(words);
    }
}

Test(ssh_command, a_command_that_is_none_is_refused) {
    static const char *const bad[] = {"", "  ", "ssh 'a", "ssh \"a", "ssh -i '"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = {0};
        char **words = NULL;
        cr_assert_eq(ssh_words(bad[i], &words, &err), -EINVAL, "%s", bad[i]);
        cr_assert_eq(strncmp(err.text, "--ssh: ", 7), 0);
    }
}

Test(ssh_command, the_users_words_come_first_and_the_host_is_no_option) {
    char ssh[] = "ssh", v4[] = "-4", name[] = "n1", me[] = "me";
    char *words[] = {ssh, v4, NULL};
    struct host plain = {.name = name}, full = {.name = name, .user = me, .port = 2222};
    char **argv = ssh_command(words, &plain, "exec x ssh-node");
    _cleanup_(freep) char *all = joined(argv);
    cr_assert_str_eq(all, "<ssh><-4><-T><-x><-o><BatchMode=yes><-o><ConnectTimeout=10><-o><ServerAliveInterval=15><-o>"
                          "<ServerAliveCountMax=4><--><n1><exec x ssh-node>");
    words_free(argv);
    argv = ssh_command(words, &full, "exec x ssh-node");
    _cleanup_(freep) char *more = joined(argv);
    cr_assert_eq(strncmp(more, "<ssh><-4><-p><2222><-l><me><-T>", 31), 0, "%s", more);
    words_free(argv);
}

Test(ssh_command, a_batch_system_has_a_command_of_its_own) {
    const struct launcher *by = launcher_by_name("gridengine");
    char **argv = ssh_command_of(by->start, "/sge/bin", "n1", "exec x");
    _cleanup_(freep) char *in_folder = joined(argv);
    cr_assert_str_eq(in_folder, "</sge/bin/qrsh><-inherit><n1><exec x>");
    words_free(argv);
    argv = ssh_command_of(launcher_by_name("lsf")->start, NULL, "n1", "exec x");
    _cleanup_(freep) char *on_path = joined(argv);
    cr_assert_str_eq(on_path, "<blaunch><n1><exec x>");
    words_free(argv);
    argv = ssh_command_of(by->requeue, NULL, "12.3", NULL);
    _cleanup_(freep) char *again = joined(argv);
    cr_assert_str_eq(again, "<qmod><-rj><12.3>");
    words_free(argv);
}

Test(ssh_command, people_get_a_short_line) {
    char name[] = "n1", me[] = "me";
    struct host plain = {.name = name}, full = {.name = name, .user = me, .port = 2222};
    _cleanup_(freep) char *one = ssh_ask_line("ssh", &plain, "/usr/bin/muster");
    _cleanup_(freep) char *other = ssh_ask_line("ssh -F 'my conf'", &full, "muster");
    cr_assert_str_eq(one, "ssh n1 /usr/bin/muster");
    cr_assert_str_eq(other, "ssh -F 'my conf' -p 2222 -l me n1 muster");
}

Test(ssh_command, a_path_is_read_alike_by_all_shells) {
    static const struct {
        const char *path, *command;
    } cases[] = {
        {"/usr/bin/muster", "exec /usr/bin/muster ssh-node"},
        {"/my programs/muster", "exec '/my programs/muster' ssh-node"},
        {"/it's/$a!/m", "exec '/it'\\''s/$a'\\!'/m' ssh-node"},
        {"/a\\b", "exec '/a'\\\\'b' ssh-node"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *command = NULL;
        cr_assert_eq(ssh_remote_command(cases[i].path, &command, NULL), 0);
        cr_assert_str_eq(command, cases[i].command);
    }
    char *none = NULL;
    struct err err = {0};
    cr_assert_eq(ssh_remote_command("/a\nb", &none, &err), -EINVAL);
    cr_assert_neq(err.text[0], '\0');
}
