#include "launcher/place/place.h"

#include "rig/unit.h"

#define TEXT(s) ((char *)(uintptr_t)(s))
/* As the kubelet writes it for a pod. */
#define HEAD                                      \
    "# Kubernetes-managed hosts file.\n"          \
    "127.0.0.1\tlocalhost\n"                      \
    "::1\tlocalhost ip6-localhost ip6-loopback\n" \
    "fe00::0\tip6-localnet\n"                     \
    "fe00::2\tip6-allrouters\n"
#define FULL "train-3.mesh.team.svc.cluster.local"

static struct place_pod read_as(const char *service, const char *index, const char *hosts) {
    char *envp[] = {TEXT(service), TEXT(index), NULL};
    struct place_pod p;
    place_read_pod(envp, hosts, &p);
    return p;
}

static struct place_pod read_with(const char *index, const char *hosts) {
    return read_as("KUBERNETES_SERVICE_HOST=10.96.0.1", index, hosts);
}

Test(place_pod, says_what_kind_of_pod_it_is) {
    static const char hosts[] = HEAD "10.244.0.5\t" FULL "\ttrain-3\n";
    cr_expect_eq(read_as("A=1", "JOB_COMPLETION_INDEX=3", hosts).kind, PLACE_POD_NONE);
    cr_expect_eq(read_as("KUBERNETES_SERVICE_HOST=", "JOB_COMPLETION_INDEX=3", hosts).kind, PLACE_POD_NONE);
    cr_expect_eq(read_with("A=1", hosts).kind, PLACE_POD_PLAIN);
    cr_expect_eq(read_with("JOB_COMPLETION_INDEX=", hosts).kind, PLACE_POD_PLAIN);
    cr_expect_eq(read_with("JOB_COMPLETION_INDEX=-1", hosts).kind, PLACE_POD_PLAIN);
    cr_expect_eq(read_with("JOB_COMPLETION_INDEX=3x", hosts).kind, PLACE_POD_PLAIN);
    cr_expect_str_eq(read_with("JOB_COMPLETION_INDEX=3x", hosts).bad_index, "3x");
    cr_expect_null(read_with("A=1", hosts).bad_index);
    cr_expect_eq(read_with("JOB_COMPLETION_INDEX=3", hosts).kind, PLACE_POD_INDEXED);
    cr_expect_eq(read_with("JOB_COMPLETION_INDEX=3", NULL).kind, PLACE_POD_INDEXED);
}

Test(place_pod, finds_the_pod_with_index_0_by_its_own_full_name) {
    static const struct {
        const char *index, *lines, *first, *job;
    } cases[] = {
        {"3", "10.244.0.5\t" FULL "\ttrain-3\n", "train-0.mesh.team.svc.cluster.local", "train"},
        {"3", "10.244.0.5 " FULL "   train-3 # mine", "train-0.mesh.team.svc.cluster.local", "train"},
        {"3", "fd00::5\t" FULL "\ttrain-3\n10.244.0.5\t" FULL "\ttrain-3\n", "train-0.mesh.team.svc.cluster.local",
         "train"},
        /* Job names of JobSet: JOBSET-REPLICATEDJOB-NUMBER */
        {"11", "10.1.2.3\tllm-workers-0-11.llm.ns.svc.k8s\tllm-workers-0-11\n", "llm-workers-0-0.llm.ns.svc.k8s",
         "llm-workers-0"},
        {"0", "10.1.2.3\ta-0.b.c\ta-0\n", "a-0.b.c", "a"},
        /* no subdomain: others can't find this pod */
        {"3", "10.244.0.5\ttrain-3\n", "", ""},
        /* another pod's, another index, or written by the user: hostAliases */
        {"3", "10.244.0.5\ttrain-13.mesh.team\ttrain-13\n", "", ""},
        {"1", "10.244.0.5\ttrain-13.mesh.team\ttrain-13\n", "", ""},
        {"3", "10.244.0.5\ttrain-3\n# Entries added by HostAliases.\n10.9.9.9\tdata-3.lab\tdata\n", "", ""},
        {"3", "10.244.0.5\t" FULL "\ttrain-3\n10.9.9.9\tdata-3.lab\tdata-3\n", "train-0.mesh.team.svc.cluster.local",
         "train"},
        {"3", "#10.244.0.5\t" FULL "\ttrain-3\n", "", ""},
        {"3", "10.244.0.5\t-3.mesh\t-3\n", "", ""},
        {"3", "10.244.0.5\ta\x1b[31m-3.mesh\ta\x1b[31m-3\n", "", ""},
        {"3", "10.244.0.5", "", ""},
        {"3", "", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *index = rig_text("JOB_COMPLETION_INDEX=%s", cases[i].index);
        struct place_pod p = read_with(index, rig_text(HEAD "%s", cases[i].lines));
        cr_expect_str_eq(p.first_host, cases[i].first, "%s", cases[i].lines);
        cr_expect_str_eq(p.job, cases[i].job, "%s", cases[i].lines);
    }
}

Test(place_pod, keeps_within_its_bounds) {
    static char hosts[70000];
    size_t n = 0;
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(hosts + n, sizeof hosts - n, "10.0.0.%d\t" FULL "\ttrain-3\n", i);
    struct place_pod p = read_with("JOB_COMPLETION_INDEX=3", hosts);
    cr_expect_eq(p.n_addrs, PLACE_POD_ADDRS_MAX);
    /* a name longer than any */
    n = (size_t)snprintf(hosts, sizeof hosts, "10.0.0.1\t");
    memset(hosts + n, 'a', 300);
    (void)snprintf(hosts + n + 300, sizeof hosts - n - 300, "-3.b\ta-3\n");
    cr_expect_str_eq(read_with("JOB_COMPLETION_INDEX=3", hosts).full_name, "");
    /* the longest: 253 bytes */
    char label[64], text[512];
    memset(label, 'a', 61);
    label[61] = '\0';
    (void)snprintf(text, sizeof text, "10.0.0.1\t%s-3.", label);
    n = strlen(text);
    size_t more = 253 - (n - strlen("10.0.0.1\t"));
    memset(text + n, 'b', more);
    (void)snprintf(text + n + more, sizeof text - n - more, "\t%s-3\n", label);
    p = read_with("JOB_COMPLETION_INDEX=3", text);
    cr_expect_eq(strlen(p.full_name), 253);
    cr_expect_eq(strlen(p.first_host), 253);
    cr_expect_eq(p.first_host[62], '0');
}

Test(place_pod, knows_its_own_names) {
    struct place_pod p =
        read_with("JOB_COMPLETION_INDEX=3", HEAD "10.244.0.5\t" FULL "\ttrain-3\nfd00::5\t" FULL "\ttrain-3\n");
    static const char *const own[] = {FULL,      "train-3",   "TRAIN-3", "train-3.mesh", "10.244.0.5",
                                      "fd00::5", "localhost", "::1",     "127.0.0.1"};
    static const char *const others[] = {"train-0.mesh", "train-30", "train", "10.244.0.6", "", "train-3.mes"};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        cr_expect(place_pod_is_own(&p, own[i]), "%s", own[i]);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        cr_expect_not(place_pod_is_own(&p, others[i]), "%s", others[i]);
}
