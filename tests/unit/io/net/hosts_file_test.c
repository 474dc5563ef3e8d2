#include "io/net/resolver.h"

#include <netdb.h>

#include "rig/tree.h"

static struct tree etc;

static void begin(void) { tree_new(&etc); }
static void finish(void) { tree_remove(&etc); }

/* What is found; "": a look-up has to ask. */
static const char *found(const char *name) {
    static char out[ADDR_TEXT_MAX];
    struct addr a;
    out[0] = '\0';
    if (hosts_file_find(etc.root, name, 7, &a))
        addr_to_text(&a, out);
    return out;
}

TestSuite(hosts_file, .init = begin, .fini = finish);

Test(hosts_file, a_name_and_its_aliases_are_found_in_any_letter_case) {
    tree_write(&etc, "nsswitch.conf", "passwd: files\nhosts:\t files dns # here\n");
    tree_write(&etc, "hosts",
               "127.0.0.1 localhost\n# 10.0.0.9 node1\n10.0.0.1\tnode1.site  Node1\t# 10.0.0.8 node2\r\n"
               "10.0.0.2 node2 #node3\nfd00::3 node3");
    cr_expect_str_eq(found("node1"), "10.0.0.1:7");
    cr_expect_str_eq(found("NODE1.SITE"), "10.0.0.1:7");
    cr_expect_str_eq(found("node2"), "10.0.0.2:7");
    cr_expect_str_eq(found("node3"), "[fd00::3]:7");
    cr_expect_str_eq(found("node"), "");
    cr_expect_str_eq(found("node4"), "");
    cr_expect_str_eq(found("node1."), "", "asked for as a name of DNS");
    cr_expect_str_eq(found("10.0.0.1"), "", "an address is no name");
    cr_expect_str_eq(found(""), "");
}

Test(hosts_file, it_answers_only_where_it_is_asked_first_and_has_the_last_word) {
    static const char *const conf[] = {
        "",
        "passwd: files\n",
        "hosts: dns files\n",
        "hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns\n",
        "hosts: files [SUCCESS=merge] dns\n",
        "hosts: files[SUCCESS=continue] dns\n",
        "#hosts: files\n",
        "hosts:\n",
    };
    tree_write(&etc, "hosts", "10.0.0.1 node1\n");
    cr_expect_str_eq(found("node1"), "", "without nsswitch.conf");
    for (size_t i = 0; i < sizeof conf / sizeof *conf; i++) {
        tree_write(&etc, "nsswitch.conf", conf[i]);
        cr_expect_str_eq(found("node1"), "", "%s", conf[i]);
    }
    tree_write(&etc, "nsswitch.conf", "hosts: files");
    cr_expect_str_eq(found("node1"), "10.0.0.1:7");
}

Test(hosts_file, lines_that_are_no_addresses_are_passed_over) {
    tree_write(&etc, "nsswitch.conf", "hosts: files dns\n");
    tree_write(&etc, "hosts", "\n \n#\nnode1\n10.0.0 node1\n[::1] node1\n10.0.0.1\n 10.0.0.2 node1\n");
    cr_expect_str_eq(found("node1"), "10.0.0.2:7");
}

Test(hosts_file, several_lines_are_left_to_the_look_up) {
    tree_write(&etc, "nsswitch.conf", "hosts: files dns\n");
    tree_write(&etc, "hosts", "127.0.0.1 node1\n127.0.0.1 node1 again\n");
    cr_expect_str_eq(found("node1"), "");
    tree_write(&etc, "hosts", "10.0.0.1 node1\nfd00::1 node1\n");
    cr_expect_str_eq(found("node1"), "");
}

/* What is found here is what getaddrinfo() says, or it is left to it. */
static void agrees(const char *name) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    struct addr a, there = {0};
    if (!hosts_file_find("/etc", name, 0, &a))
        return;
    cr_assert_eq(getaddrinfo(name, NULL, &hints, &all), 0, "%s", name);
    there.len = all->ai_addrlen;
    memcpy(&there.ss, all->ai_addr, all->ai_addrlen);
    cr_expect(addr_same_host(&there, &a), "%s", name);
    cr_expect_null(all->ai_next);
    freeaddrinfo(all);
}

Test(hosts_file, it_says_what_getaddrinfo_says_of_this_machine) {
    char host[256] = "";
    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    agrees(host);
    agrees("localhost");
}
