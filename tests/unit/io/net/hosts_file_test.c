#include "io/net/hosts_file.h"

#include <criterion/criterion.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../../topology/discover/net/netns_rig.h"

static char etc[] = "/tmp/hosts-file-test-XXXXXX";
static const char *const files[] = {"nsswitch.conf", "host.conf", "gai.conf", "hosts"};

static void begin(void) { cr_assert_not_null(mkdtemp(etc)); }

static void write_file(const char *name, const char *text) {
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", etc, name);
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    cr_assert(fputs(text, f) >= 0);
    cr_assert_eq(fclose(f), 0);
}

static void finish(void) {
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", etc, files[i]);
        (void)unlink(path);
    }
    cr_assert_eq(rmdir(etc), 0);
}

/* What is found: addresses with blanks between them; "": a look-up has to ask. */
static const char *found(const char *name) {
    static char out[256];
    struct addr a[HOSTS_FILE_ADDRS_MAX];
    size_t n = 0;
    out[0] = '\0';
    if (!hosts_file_find(etc, name, 7, a, &n))
        return out;
    cr_assert(n >= 1 && n <= HOSTS_FILE_ADDRS_MAX);
    for (size_t i = 0; i < n; i++) {
        char text[ADDR_TEXT_MAX];
        addr_to_text(&a[i], text);
        (void)snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i > 0 ? " " : "", text);
    }
    return out;
}

TestSuite(hosts_file, .init = begin, .fini = finish);

Test(hosts_file, a_name_and_its_aliases_are_found_in_any_letter_case) {
    write_file("nsswitch.conf", "passwd: files\nhosts:\t files dns # here\n");
    write_file("hosts", "127.0.0.1 localhost\n# 10.0.0.9 node1\n10.0.0.1\tnode1.site  Node1\t# 10.0.0.8 node2\r\n"
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
    write_file("hosts", "10.0.0.1 node1\n");
    cr_expect_str_eq(found("node1"), "", "without nsswitch.conf");
    for (size_t i = 0; i < sizeof conf / sizeof *conf; i++) {
        write_file("nsswitch.conf", conf[i]);
        cr_expect_str_eq(found("node1"), "", "%s", conf[i]);
    }
    write_file("nsswitch.conf", "hosts: files");
    cr_expect_str_eq(found("node1"), "10.0.0.1:7");
}

Test(hosts_file, lines_that_are_no_addresses_are_passed_over) {
    write_file("nsswitch.conf", "hosts: files dns\n");
    write_file("hosts", "\n \n#\nnode1\n10.0.0 node1\n[::1] node1\n10.0.0.1\n 10.0.0.2 node1\n");
    cr_expect_str_eq(found("node1"), "10.0.0.2:7");
}

Test(hosts_file, several_lines_count_only_if_host_conf_says_so) {
    write_file("nsswitch.conf", "hosts: files dns\n");
    write_file("hosts", "127.0.0.1 node1\n127.0.0.1 node1 again\n");
    cr_expect_str_eq(found("node1"), "");
    write_file("host.conf", "multi off\n");
    cr_expect_str_eq(found("node1"), "");
    write_file("host.conf", "order hosts\nmulti on\n");
    cr_expect_str_eq(found("node1"), "127.0.0.1:7", "once");
    write_file("hosts", "10.0.0.1 node1\n10.0.0.2 node1\n");
    cr_expect_str_eq(found("node1"), "", "which of them is nearer is not known here");
    write_file("hosts", "10.0.0.1 node1\n10.0.0.2 node1\n10.0.0.3 node1\n");
    cr_expect_str_eq(found("node1"), "");
}

/* What is found here is what getaddrinfo() says, or it is left to it. Returns whether it was found. */
static bool agrees(const char *name) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    struct addr a[HOSTS_FILE_ADDRS_MAX];
    size_t n = 0, k = 0;
    if (!hosts_file_find("/etc", name, 0, a, &n))
        return false;
    cr_assert_eq(getaddrinfo(name, NULL, &hints, &all), 0, "%s", name);
    for (const struct addrinfo *at = all; at != NULL; at = at->ai_next, k++) {
        struct addr there = {.len = at->ai_addrlen};
        memcpy(&there.ss, at->ai_addr, at->ai_addrlen);
        cr_assert_lt(k, n, "%s", name);
        cr_expect(addr_same_host(&there, &a[k]), "%s, address %zu", name, k);
    }
    cr_expect_eq(k, n);
    freeaddrinfo(all);
    return true;
}

Test(hosts_file, it_says_what_getaddrinfo_says_of_this_machine) {
    char host[256] = "";
    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    (void)agrees(host);
    (void)agrees("localhost");
}

static void put_over_etc(const char *name, const char *text) {
    char from[128], to[128];
    write_file(name, text);
    (void)snprintf(from, sizeof from, "%s/%s", etc, name);
    (void)snprintf(to, sizeof to, "/etc/%s", name);
    if (mount(from, to, NULL, MS_BIND, NULL) < 0)
        cr_skip_test("no %s of our own", to);
}

Test(hosts_file, it_says_what_getaddrinfo_says_of_hosts_with_addresses_of_both_families) {
    netns_enter(true);
    put_over_etc("nsswitch.conf", "hosts: files dns\n");
    put_over_etc("host.conf", "multi on\n");
    put_over_etc("hosts",
                 "10.9.1.2 both\nfd09::2 both\n10.9.1.2 one\nfd09::2 six\nfd09::3 mixed\n10.9.1.3 mixed\n"
                 "2001:db8::2 wide\n10.9.1.2 wide\nfe80::1 link\n10.9.1.2 link\n2002:a09:102::1 six4\n10.9.1.2 six4\n");
    cr_expect_not(agrees("both"), "there is no route yet");
    IP("link add v0 type veth peer name v1");
    IP("link set v0 up");
    IP("link set v1 up");
    IP("addr add 10.9.1.1/24 dev v0");
    cr_expect(agrees("one"));
    cr_expect(agrees("both"), "IPv4 has a route");
    IP("addr add fd09::1/64 dev v0 nodad");
    cr_expect(agrees("one"));
    cr_expect(agrees("six"));
    cr_expect(agrees("both"));
    cr_expect(agrees("mixed"));
    cr_expect_not(agrees("link"));
    cr_expect_not(agrees("six4"));
    (void)agrees("wide"); /* from a unique local address */
    IP("route add 2001:db8::/64 dev v0");
    (void)agrees("wide");
    IP("addr add 2001:db8::1/64 dev v0 nodad");
    cr_expect(agrees("wide"));
    IP("addr del 10.9.1.1/24 dev v0");
    cr_expect(agrees("both"), "IPv6 alone has a route");
}
