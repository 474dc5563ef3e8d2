#include "launcher/hosts/hosts.h"

#include "base/text/strbuf.h"
#include "rig/unit.h"

static struct err err;

/* "user@name:slots/port{gpus}", one host after the other. */
static void show(const struct hosts *hosts, struct strbuf *out) {
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];
        strbuf_printf(out, "%s%s%s%s:%u", i > 0 ? " " : "", h->user == NULL ? "" : h->user, h->user == NULL ? "" : "@",
                      h->name, h->slots);
        if (h->port != 0)
            strbuf_printf(out, "/%u", h->port);
        for (uint32_t k = 0; k < h->n_gpus; k++)
            strbuf_printf(out, "%s%u%s", k == 0 ? "{" : ",", h->gpus[k], k + 1 == h->n_gpus ? "}" : "");
        cr_assert_eq(hosts_find(hosts, h->name), h);
    }
}

static int read_into(const struct hosts_input *in, struct strbuf *out) {
    struct hosts hosts = {.n = 4711};
    err = (struct err){0};
    int r = hosts_read(in, &hosts, &err);
    if (r < 0) {
        cr_assert_eq(hosts.n, 4711, "untouched");
        cr_assert_neq(err.text[0], '\0');
        return r;
    }
    cr_assert_str_eq(err.text, "");
    show(&hosts, out);
    hosts_fini(&hosts);
    return 0;
}

static void assert_list(const char *list, const char *hosts) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_eq(read_into(&(struct hosts_input){.list = list}, &out), 0, "%s: %s", list, err.text);
    cr_assert_str_eq(strbuf_text(&out), hosts);
}

static int read_text(const char *text, struct strbuf *out) {
    return read_into(&(struct hosts_input){.file = "hosts.txt", .text = text, .len = strlen(text)}, out);
}

static void assert_file(const char *text, const char *hosts) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_eq(read_text(text, &out), 0, "%s: %s", text, err.text);
    cr_assert_str_eq(strbuf_text(&out), hosts);
}

static void assert_refused(const struct hosts_input *in, int code, const char *begin, const char *reason) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    int r = read_into(in, &out);
    cr_assert_eq(r, code, "%d: %s%s", r, err.text, strbuf_text(&out));
    cr_assert(strncmp(err.text, begin, strlen(begin)) == 0 && strstr(err.text, reason) != NULL, "%s", err.text);
}

Test(hostfile, slots_of_batch_systems_are_cpus) {
    assert_file("b 2 all.q@b UNDEFINED\na 4 all.q@a UNDEFINED\nb 1 x.q@b 0,1\n", "b:0 a:0");
    assert_file("b 8 a 8\n", "b:0 a:0");
    assert_file("b 8\na 8\nb 4\n", "b:0 a:0");
    assert_refused(&(struct hosts_input){.file = "f", .text = "b 8 a\n", .len = 6}, -EINVAL,
                   "f:1: ", "the number of slots is missing behind \"a\"");
    assert_refused(&(struct hosts_input){.file = "f", .text = "b 8 a x\n", .len = 8}, -EINVAL,
                   "f:1: ", "the number of slots is missing behind \"a\"");
}

Test(hostfile, a_list_names_hosts_and_slots) {
    assert_list("a,b:2", "a:0 b:2");
    assert_list("a", "a:0");
    assert_list(" a, b:2\n,c ", "a:0 b:2 c:0");
    assert_list("node[01-03]:8,login", "node01:8 node02:8 node03:8 login:0");
    assert_list("n[1,3]", "n1:0 n3:0");
    assert_list("me@a,you@b:4,DOM\\me@c,me@dom@d", "me@a:0 you@b:4 DOM\\me@c:0 me@dom@d:0");
    assert_list("[fd00::7],[fe80::1%eth0]:4,me@[::1]:2", "fd00::7:0 fe80::1%eth0:4 me@::1:2");
    assert_list("[1-2]:3", "1:3 2:3");
    assert_list("10.0.0.[9-10]", "10.0.0.9:0 10.0.0.10:0");
    assert_list("a:auto,b:*", "a:0 b:0");
    assert_list("a:65536", "a:65536");
}

Test(hostfile, an_address_has_a_limit) {
    char list[80];
    memset(list, 'z', sizeof list);
    memcpy(list, "[fe80::1%", 9); /* and a zone: 56 bytes in brackets */
    memcpy(list + 57, "]", 2);
    assert_list(list, rig_text("%.56s:0", list + 1));
    memcpy(list + 57, "z]", 3);
    assert_refused(&(struct hosts_input){.list = list}, -EINVAL, "-H: ", "not an IPv6 address");
    assert_refused(&(struct hosts_input){.list = "[:]"}, -EINVAL, "-H: ", "not an IPv6 address");
    assert_refused(&(struct hosts_input){.list = "[]"}, -EINVAL, "-H: ", "a number");
    assert_list("[::]", ":::0");
}

Test(hostfile, a_host_that_is_listed_again_gets_more_slots) {
    assert_list("a,a", "a:2");
    assert_list("a:2,b,a:3", "a:5 b:0");
    assert_list("a,a:4", "a:5");
    assert_list("a:4,a", "a:5");
    assert_list("n[1-3],n[2-3]", "n1:0 n2:2 n3:2");
    assert_list("a,a.cluster,A", "a:0 a.cluster:0 A:0");
    assert_list("a,me@a", "me@a:2");
    assert_list("me@a:1,a:1,me@a:1", "me@a:3");
}

Test(hostfile, a_bad_list_is_refused) {
    static const struct {
        const char *list;
        int code;
        const char *reason;
    } cases[] = {
        {"", -EINVAL, "no host is given"},
        {" , ", -EINVAL, "no host is given"},
        {"a:0", -EINVAL, "slots must be a number from 1 to 65536, not \"0\""},
        {"a:", -EINVAL, "not \"\""},
        {"a:x", -EINVAL, "not \"x\""},
        {"a:auta", -EINVAL, "not \"auta\""},
        {"a:-1", -EINVAL, "not \"-1\""},
        {"a:65537", -ERANGE, "not \"65537\""},
        {"a:99999999999999999999", -ERANGE, "65536"},
        {"a:65536,a", -ERANGE, "host a has more than 65536 slots"},
        {":4", -EINVAL, "empty"},
        {"me@", -EINVAL, "empty"},
        {"@a", -EINVAL, "user"},
        {"-oProxyCommand=x@a", -EINVAL, "user"},
        {"m;e@a", -EINVAL, "user"},
        {"-oProxyCommand=x", -EINVAL, "begins with"},
        {"a$b", -EINVAL, "letters"},
        {"n[1-2", -EINVAL, "not closed"},
        {"n[1-2 b", -EINVAL, "\",\" or \"]\""},
        {"fd00::7", -EINVAL, "in brackets, as [fd00::7]:8"},
        {"[fd00::7", -EINVAL, "a number"},
        {"[fd00:7]", -EINVAL, "not an IPv6 address"},
        {"[fd00::x]", -EINVAL, "not an IPv6 address"},
        {"[fd00::7%]", -EINVAL, "not an IPv6 address"},
        {"[-d00::7]", -EINVAL, "not an IPv6 address"},
        {"[fd00::7]x", -EINVAL, ""},
        {"a slots=4", -EINVAL, "letters"},
        {"me@a,you@a", -EINVAL, "host a has two users, me and you"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_refused(&(struct hosts_input){.list = cases[i].list}, cases[i].code, "-H: ", cases[i].reason);
}

Test(hostfile, files_of_other_launchers_are_read) {
    /* Open MPI: docs, "Scheduling processes across hosts"; hostfile_lex.l. */
    assert_file("# a cluster\n"
                "node01  slots=10\n"
                "\n"
                "node13 slots=5 max_slots=8 # small\n"
                "node15\n"
                "me@node16 cpu=4 max-slots=4\n"
                "node17 slots = 3 port=2222\n"
                "node18 max_slots=6\n"
                "node19 count=2 username=you\n",
                "node01:10 node13:5 node15:0 me@node16:4 node17:3/2222 node18:6 you@node19:2");
    /* Hydra */
    assert_file("donner:2\nfoo:3 user=me\n   shakey # slow\nterra:2", "donner:2 me@foo:3 shakey:0 terra:2");
    /* DeepSpeed */
    assert_file("worker-0 slots=4\r\nworker-1 slots=4\r\n", "worker-0:4 worker-1:4");
    /* a machine file of a batch system */
    assert_file("n1\nn1\nn2\nn2\n", "n1:2 n2:2");
    /* Slurm */
    assert_file("gpu[01-02],gpu7\nlogin[1] slots=1\n", "gpu01:0 gpu02:0 gpu7:0 login1:1");
    assert_file("\t[fd00::7]\tport=22\tslots=2\n[fd00::8]:4\n", "fd00::7:2/22 fd00::8:4");
}

Test(hostfile, a_bad_line_is_reported) {
    static const struct {
        const char *text;
        int code;
        const char *begin, *reason;
    } cases[] = {
        {"", -EINVAL, "hosts.txt: ", "no host is given"},
        {"# no one\n\n", -EINVAL, "hosts.txt: ", "no host is given"},
        {"a\nb slots=x\n", -EINVAL, "hosts.txt:2: ", "not \"x\""},
        {"a\n\n\nb slots=0", -EINVAL, "hosts.txt:4: ", "from 1"},
        {"a slots=\n", -EINVAL, "hosts.txt:1: ", "not \"\""},
        {"a slots=65537\n", -ERANGE, "hosts.txt:1: ", "65536"},
        {"a slots 4\n", -EINVAL, "hosts.txt:1: ", "\"slots\" should be a setting"},
        {"a b\n", -EINVAL, "hosts.txt:1: ", "\"b\" should be a setting"},
        {"a =4\n", -EINVAL, "hosts.txt:1: ", "\"\" is not a setting"},
        {"slots=4\n", -EINVAL, "hosts.txt:1: ", "letters"},
        {"a binding=rr\n", -EINVAL, "hosts.txt:1: ", "\"binding\" is not a setting"},
        {"a SLOTS=4\n", -EINVAL, "hosts.txt:1: ", "\"SLOTS\" is not a setting"},
        {"a:2 slots=4\n", -EINVAL, "hosts.txt:1: ", "twice"},
        {"a slots=2 cpu=4\n", -EINVAL, "hosts.txt:1: ", "twice"},
        {"a slots=4 max_slots=2\n", -EINVAL, "hosts.txt:1: ", "max_slots is 2, less than slots, which is 4"},
        {"a:4 max_slots=2\n", -EINVAL, "hosts.txt:1: ", "max_slots is 2"},
        {"a max_slots=0\n", -EINVAL, "hosts.txt:1: ", "max_slots must be"},
        {"a port=0\n", -EINVAL, "hosts.txt:1: ", "port must be a number from 1 to 65535"},
        {"a port=65536\n", -ERANGE, "hosts.txt:1: ", "65535"},
        {"a user=\n", -EINVAL, "hosts.txt:1: ", "user"},
        {"a user=-l\n", -EINVAL, "hosts.txt:1: ", "user"},
        {"me@a user=you\n", -EINVAL, "hosts.txt:1: ", "two users are given, me and you"},
        {"a user=me\na user=you\n", -EINVAL, "hosts.txt:2: ", "two users, me and you"},
        {"a port=1\na port=2\n", -EINVAL, "hosts.txt:2: ", "two ports, 1 and 2"},
        {"a\nn[1-2\n", -EINVAL, "hosts.txt:2: ", "not closed"},
        {"n[1, 2]\n", -EINVAL, "hosts.txt:1: ", ""},
        {"^a\n", -EINVAL, "hosts.txt:1: ", "letters"},
        {",\n", -EINVAL, "hosts.txt:1: ", "no host is given"},
        {"a \x1b[2J\n", -EINVAL, "hosts.txt:1: ", "\"?[2J\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_refused(&(struct hosts_input){.file = "hosts.txt", .text = cases[i].text, .len = strlen(cases[i].text)},
                       cases[i].code, cases[i].begin, cases[i].reason);
    assert_refused(&(struct hosts_input){.file = "hosts.txt", .text = "a\0b", .len = 3}, -EINVAL,
                   "hosts.txt: ", "zero byte");
    assert_refused(&(struct hosts_input){.file = "hosts.txt"}, -EINVAL, "hosts.txt: ", "no host is given");
}

Test(hostfile, users_and_ports_are_kept_when_a_host_is_listed_again) {
    assert_file("a user=me\na port=22\na\n", "me@a:3/22");
    assert_file("a port=22 user=me\nme@a port=22\n", "me@a:2/22");
}

Test(hostfile, inputs_that_do_not_go_together_are_refused) {
    assert_refused(&(struct hosts_input){.list = "a", .file = "f", .text = "a", .len = 1}, -EINVAL,
                   "-H and --hostfile ", "--include");
    assert_refused(&(struct hosts_input){.include = "a"}, -EINVAL, "--include ", "-H or --hostfile");
    assert_refused(&(struct hosts_input){.exclude = "a"}, -EINVAL, "--exclude ", "-H or --hostfile");
    assert_refused(&(struct hosts_input){.list = "a", .include = "a", .exclude = "a"}, -EINVAL,
                   "--include and --exclude ", "cannot be combined");
    assert_refused(&(struct hosts_input){.list = "a", .include = "b"}, -EINVAL, "--include: ", "b is not one");
}

Test(hostfile, nothing_given_is_no_host) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_eq(read_into(&(struct hosts_input){0}, &out), 0);
    cr_assert_str_eq(strbuf_text(&out), "");
}

Test(hostfile, a_filter_applies_to_what_was_read) {
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_eq(read_into(&(struct hosts_input){.list = "n[1-4]:8", .exclude = "n[2-3]"}, &out), 0, "%s", err.text);
    cr_assert_str_eq(strbuf_text(&out), "n1:8 n4:8");
}

static int count_of(const struct hosts_input *in) {
    struct hosts hosts;
    err = (struct err){0};
    int r = hosts_read(in, &hosts, &err);
    if (r < 0)
        return r;
    r = (int)hosts.n;
    hosts_fini(&hosts);
    return r;
}

Test(hostfile, hosts_and_mentions_have_limits) {
    cr_assert_eq(count_of(&(struct hosts_input){.list = "n[1-65536],n[1-65536]"}), 65536, "%s", err.text);
    cr_assert_eq(count_of(&(struct hosts_input){.list = "n[1-65536],a"}), -ERANGE);
    assert_has(err.text, "more than 65536 hosts");
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    for (uint32_t i = 0; i < HOSTFILE_MENTIONS_MAX / HOSTS_MAX; i++)
        strbuf_add(&text, "n[1-65536]\n");
    struct hosts_input in = {.file = "hosts.txt", .text = strbuf_text(&text), .len = text.len};
    cr_assert_eq(count_of(&in), 65536, "%s", err.text);
    strbuf_add(&text, "n1\n");
    in.text = strbuf_text(&text);
    in.len = text.len;
    cr_assert_eq(count_of(&in), -ERANGE);
    cr_assert_str_eq(err.text, "hosts.txt:17: hosts are listed more than 1048576 times");
}

Test(hostfile, a_file_and_a_list_have_a_limit) {
    _cleanup_(freep) char *text = xmalloc(HOSTFILE_BYTES_MAX + 2);
    memset(text, '\n', HOSTFILE_BYTES_MAX + 1);
    text[0] = 'a';
    text[HOSTFILE_BYTES_MAX + 1] = '\0';
    cr_assert_eq(count_of(&(struct hosts_input){.file = "f", .text = text, .len = HOSTFILE_BYTES_MAX}), 1);
    cr_assert_eq(count_of(&(struct hosts_input){.file = "f", .text = text, .len = HOSTFILE_BYTES_MAX + 1}), -ERANGE);
    cr_assert_eq(count_of(&(struct hosts_input){.list = text}), -ERANGE);
    text[HOSTFILE_BYTES_MAX] = '\0';
    cr_assert_eq(count_of(&(struct hosts_input){.list = text}), 1);
}

Test(hostfile, the_text_need_not_end_with_a_nul) {
    char *text = xmalloc(3);
    memcpy(text, "a:2", 3);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_eq(read_into(&(struct hosts_input){.file = "f", .text = text, .len = 3}, &out), 0);
    cr_assert_str_eq(strbuf_text(&out), "a:2");
    free(text);
}

Test(hostfile, a_byte_order_mark_is_no_host) {
    assert_file("\xef\xbb\xbfnode1 slots=2\nnode2\n", "node1:2 node2:0");
    assert_file("\xef\xbb\xbf# hosts\nnode1\n", "node1:0");
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    cr_assert_lt(read_text("node1\n\xef\xbb\xbfnode2\n", &out), 0, "only at the beginning");
}

/* worker-0 to worker-3 with 4 slots, "open" without, "big" with more slots than a node has GPUs. */
static void make(struct hosts *hosts) {
    static const struct {
        const char *name;
        uint32_t slots;
    } rows[] = {{"worker-0", 4}, {"worker-1", 4}, {"worker-2", 4}, {"worker-3", 4},
                {"open", 0},     {"big", 300},    {"fd00::7", 2}};
    *hosts = (struct hosts){0};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        hosts_add(hosts, rows[i].name)->slots = rows[i].slots;
}

static void assert_left(const char *include, const char *exclude, const char *left) {
    struct hosts hosts;
    make(&hosts);
    cr_assert_eq(hosts_filter(&hosts, include, exclude, &err), 0, "%s: %s", include != NULL ? include : exclude,
                 err.text);
    _cleanup_(strbuf_fini) struct strbuf out = {0};
    show(&hosts, &out);
    cr_assert_str_eq(strbuf_text(&out), left);
    hosts_fini(&hosts);
}

#define WHOLE "worker-0:4 worker-1:4 worker-2:4 worker-3:4 open:0 big:300 fd00::7:2"

Test(hostfilter, include_keeps_what_it_names) {
    /* from DeepSpeed's documentation */
    assert_left("worker-0@worker-1:0,2", NULL, "worker-0:4 worker-1:2{0,2}");
    assert_left("worker-1:0,2@worker-0", NULL, "worker-0:4 worker-1:2{0,2}");
    assert_left("worker-2", NULL, "worker-2:4");
    assert_left("worker-1:3,1", NULL, "worker-1:2{3,1}");
    assert_left("worker-1:1,1,0,1", NULL, "worker-1:2{1,0}");
    assert_left("open:255,0", NULL, "open:2{255,0}");
    assert_left("big:7", NULL, "big:1{7}");
    assert_left("worker-[1-2]:0", NULL, "worker-1:1{0} worker-2:1{0}");
    assert_left("worker-0,worker-3@open", NULL, "worker-0:4 worker-3:4 open:0");
    assert_left("[fd00::7]:1", NULL, "fd00::7:1{1}");
    assert_left("worker-0:0,1,2,3", NULL, "worker-0:4{0,1,2,3}");
}

Test(hostfilter, exclude_keeps_what_it_does_not_name) {
    assert_left(NULL, "worker-1:0", "worker-0:4 worker-1:3{1,2,3} worker-2:4 worker-3:4 open:0 big:300 fd00::7:2");
    assert_left(NULL, "worker-[0-2]@open@big", "worker-3:4 fd00::7:2");
    assert_left(NULL, "worker-0:3,0,1,2@worker-1:0,1,2@big@open@[fd00::7]:0",
                "worker-1:1{3} worker-2:4 worker-3:4 fd00::7:1{1}");
}

Test(hostfilter, specs_of_one_host_add_up) {
    assert_left("worker-0:0@worker-0:2", NULL, "worker-0:2{0,2}");
    assert_left("worker-0:0@worker-0", NULL, "worker-0:4");
    assert_left("worker-0@worker-0:0", NULL, "worker-0:4");
    assert_left(NULL, "worker-0:0@worker-0:2@worker-[1-3]@open@big", "worker-0:2{1,3} fd00::7:2");
    assert_left(NULL, "worker-0:0@worker-0@worker-[1-3]@open@big", "fd00::7:2");
}

Test(hostfilter, what_is_left_is_found_by_its_name) {
    struct hosts hosts;
    make(&hosts);
    cr_assert_eq(hosts_filter(&hosts, NULL, "worker-[0,2]@big", &err), 0);
    cr_assert_null(hosts_find(&hosts, "worker-0"));
    cr_assert_null(hosts_find(&hosts, "big"));
    cr_assert_str_eq(hosts_find(&hosts, "fd00::7")->name, "fd00::7");
    cr_assert_eq(hosts_add(&hosts, "big")->slots, 0);
    cr_assert_eq(hosts_find(&hosts, "big"), &hosts.items[hosts.n - 1]);
    hosts_fini(&hosts);
}

Test(hostfilter, no_filter_changes_nothing) { assert_left(NULL, NULL, WHOLE); }

Test(hostfilter, a_bad_filter_is_refused_and_changes_nothing) {
    static const struct {
        const char *include, *exclude;
        int code;
        const char *text;
    } cases[] = {
        {"a", NULL, -EINVAL, "--include: a is not one of the hosts"},
        {NULL, "worker-[0-9]", -EINVAL, "--exclude: worker-4 is not one of the hosts"},
        {"worker-0", "worker-0", -EINVAL, "--include and --exclude cannot be combined"},
        {"worker-0:4", NULL, -EINVAL, "--include: host worker-0 has 4 slots, so there is no GPU 4"},
        {NULL, "worker-0:9", -EINVAL, "--exclude: host worker-0 has 4 slots, so there is no GPU 9"},
        {"open:256", NULL, -ERANGE, "--include: a GPU must be a number from 0 to 255, not \"256\""},
        {"worker-0:", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"\""},
        {"worker-0:0,", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"\""},
        {"worker-0:0-2", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"0-2\""},
        {"worker-0:0:1", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"0:1\""},
        {NULL, "open:0", -EINVAL, "--exclude: cannot tell which GPUs of host open remain; give its slots"},
        {NULL, "big:0", -EINVAL, "--exclude: cannot tell which GPUs of host big remain; give its slots"},
        {"", NULL, -EINVAL, "--include: the host list is empty"},
        {"@worker-0", NULL, -EINVAL, "--include: the host list is empty"},
        {"worker-0@", NULL, -EINVAL, "--include: the host list is empty"},
        {"worker-[0", NULL, -EINVAL, "--include: cannot read the host list"},
        {NULL, "worker-[0-3]@open@big@[fd00::7]", -EINVAL, "--exclude: no host remains"},
        {NULL, "worker-[0-3]@open@big@[fd00::7]:1,0", -EINVAL, "--exclude: no host remains"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hosts hosts;
        make(&hosts);
        err = (struct err){0};
        int r = hosts_filter(&hosts, cases[i].include, cases[i].exclude, &err);
        cr_assert_eq(r, cases[i].code, "%s: %d", cases[i].text, r);
        cr_assert_eq(strncmp(err.text, cases[i].text, strlen(cases[i].text)), 0, "%s", err.text);
        _cleanup_(strbuf_fini) struct strbuf out = {0};
        show(&hosts, &out);
        cr_assert_str_eq(strbuf_text(&out), WHOLE);
        cr_assert_eq(hosts_filter(&hosts, cases[i].include, cases[i].exclude, NULL), r);
        hosts_fini(&hosts);
    }
}

Test(hostfilter, a_node_has_a_limit_of_gpus) {
    struct hosts hosts = {0};
    hosts_add(&hosts, "full")->slots = HOST_GPUS_MAX;
    cr_assert_eq(hosts_filter(&hosts, NULL, "full:255", &err), 0, "%s", err.text);
    cr_assert_eq(hosts.items[0].n_gpus, HOST_GPUS_MAX - 1);
    cr_assert_eq(hosts.items[0].gpus[HOST_GPUS_MAX - 2], 254);
    hosts_fini(&hosts);
}

Test(hostfilter, a_text_has_a_limit) {
    struct hosts hosts;
    make(&hosts);
    char *text = xmalloc(HOSTLIST_TEXT_MAX + 2);
    memset(text, ',', HOSTLIST_TEXT_MAX + 1);
    memcpy(text, "open", 4);
    text[HOSTLIST_TEXT_MAX + 1] = '\0';
    cr_assert_eq(hosts_filter(&hosts, text, NULL, &err), -ERANGE);
    cr_assert(strncmp(err.text, "--include: more than ", 21) == 0, "%s", err.text);
    text[HOSTLIST_TEXT_MAX] = '\0';
    cr_assert_eq(hosts_filter(&hosts, text, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(hosts.n, 1);
    hosts_fini(&hosts);
    free(text);
}

Test(hostfilter, names_have_a_limit) {
    struct hosts hosts = {0};
    for (uint32_t i = 1; i <= HOSTS_MAX; i++)
        hosts_add(&hosts, rig_text("n%u", i))->slots = 2;
    _cleanup_(strbuf_fini) struct strbuf filter = {0};
    for (uint32_t i = 0; i < HOSTFILE_MENTIONS_MAX / HOSTS_MAX; i++)
        strbuf_printf(&filter, "%sn[1-65536]:0", i > 0 ? "@" : "");
    cr_assert_eq(hosts_filter(&hosts, strbuf_text(&filter), NULL, &err), 0, "%s", err.text);
    cr_assert_eq(hosts.n, HOSTS_MAX);
    cr_assert(hosts.items[HOSTS_MAX - 1].n_gpus == 1 && hosts.items[HOSTS_MAX - 1].slots == 1);
    strbuf_add(&filter, "@n1");
    cr_assert_eq(hosts_filter(&hosts, strbuf_text(&filter), NULL, &err), -ERANGE);
    assert_has(err.text, "1048576");
    hosts_fini(&hosts);
}
