#include "launcher/hosts/hostfilter.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text/strbuf.h"

static struct err err;

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

/* "name:slots{gpus}", one host after the other. */
static char *show(const struct hosts *hosts) {
    struct strbuf out = {0};
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *h = &hosts->items[i];
        strbuf_printf(&out, "%s%s:%u", i > 0 ? " " : "", h->name, h->slots);
        for (uint32_t k = 0; k < h->n_gpus; k++)
            strbuf_printf(&out, "%s%u%s", k == 0 ? "{" : ",", h->gpus[k], k + 1 == h->n_gpus ? "}" : "");
        cr_assert_eq(hosts_find(hosts, h->name), h);
    }
    return strbuf_take(&out);
}

static void assert_left(const char *include, const char *exclude, const char *left) {
    struct hosts hosts;
    make(&hosts);
    cr_assert_eq(hosts_filter(&hosts, include, exclude, &err), 0, "%s: %s", include != NULL ? include : exclude,
                 err.text);
    _cleanup_(freep) char *out = show(&hosts);
    cr_assert_str_eq(out, left);
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
        {"worker-0", "worker-0", -EINVAL, "--include and --exclude do not go together: give one"},
        {"worker-0:4", NULL, -EINVAL, "--include: host worker-0 has 4 slots, so there is no GPU 4"},
        {NULL, "worker-0:9", -EINVAL, "--exclude: host worker-0 has 4 slots, so there is no GPU 9"},
        {"open:256", NULL, -ERANGE, "--include: a GPU must be a number from 0 to 255, not \"256\""},
        {"worker-0:", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"\""},
        {"worker-0:0,", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"\""},
        {"worker-0:0-2", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"0-2\""},
        {"worker-0:0:1", NULL, -EINVAL, "--include: a GPU must be a number from 0 to 255, not \"0:1\""},
        {NULL, "open:0", -EINVAL, "--exclude: which GPUs of host open are left is not known: give its slots"},
        {NULL, "big:0", -EINVAL, "--exclude: which GPUs of host big are left is not known: give its slots"},
        {"", NULL, -EINVAL, "--include: the host list is empty"},
        {"@worker-0", NULL, -EINVAL, "--include: the host list is empty"},
        {"worker-0@", NULL, -EINVAL, "--include: the host list is empty"},
        {"worker-[0", NULL, -EINVAL, "--include: cannot read the host list"},
        {NULL, "worker-[0-3]@open@big@[fd00::7]", -EINVAL, "--exclude: no host is left"},
        {NULL, "worker-[0-3]@open@big@[fd00::7]:1,0", -EINVAL, "--exclude: no host is left"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hosts hosts;
        make(&hosts);
        err = (struct err){0};
        int r = hosts_filter(&hosts, cases[i].include, cases[i].exclude, &err);
        cr_assert_eq(r, cases[i].code, "%s: %d", cases[i].text, r);
        cr_assert_eq(strncmp(err.text, cases[i].text, strlen(cases[i].text)), 0, "%s", err.text);
        _cleanup_(freep) char *out = show(&hosts);
        cr_assert_str_eq(out, WHOLE);
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
    for (uint32_t i = 1; i <= HOSTS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i);
        hosts_add(&hosts, name)->slots = 2;
    }
    _cleanup_(strbuf_fini) struct strbuf filter = {0};
    for (uint32_t i = 0; i < HOSTFILTER_NAMES_MAX / HOSTS_MAX; i++)
        strbuf_printf(&filter, "%sn[1-65536]:0", i > 0 ? "@" : "");
    cr_assert_eq(hosts_filter(&hosts, strbuf_text(&filter), NULL, &err), 0, "%s", err.text);
    cr_assert_eq(hosts.n, HOSTS_MAX);
    cr_assert(hosts.items[HOSTS_MAX - 1].n_gpus == 1 && hosts.items[HOSTS_MAX - 1].slots == 1);
    strbuf_add(&filter, "@n1");
    cr_assert_eq(hosts_filter(&hosts, strbuf_text(&filter), NULL, &err), -ERANGE);
    cr_assert(strstr(err.text, "1048576") != NULL, "%s", err.text);
    hosts_fini(&hosts);
}
