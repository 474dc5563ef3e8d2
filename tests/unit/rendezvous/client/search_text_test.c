#include "rendezvous/client/search.h"
#include "rig/unit.h"

static struct search s;
static char text[SEARCH_TEXT_MAX];

static const char *described(void) {
    search_describe_ports(&s, "", "10.0.0.1", text);
    return text;
}

static void found(unsigned i, enum search_found what, const char *detail) {
    s.ports[i].found = what;
    (void)snprintf(s.ports[i].detail, sizeof s.ports[i].detail, "%s", detail);
}

static void begin(void) {
    static const uint16_t ports[] = {5, 6, 7};
    s = (struct search){.config.n_ports = 3};
    memcpy(s.config.ports, ports, sizeof ports);
}

Test(search_text, tells_what_each_port_answered, .init = begin) {
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: nothing listens at ports 5-7 yet");
    found(0, FOUND_SILENT, "");
    found(1, FOUND_OTHER_RUN, "night-2");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: no answer (not muster, or a firewall); "
                                  "port 6: an agent of the run 'night-2'; nothing listens at port 7 yet");
    found(0, FOUND_HANGS_UP, "");
    found(1, FOUND_NOT_MUSTER, "");
    found(2, FOUND_ERROR, "No route to host");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: hung up (not muster?); port 6: not muster; "
                                  "port 7: No route to host");
    found(0, FOUND_OTHER_VERSION, "");
    cr_assert(strstr(described(), "port 5: muster of another version") != NULL, "%s", text);
}

Test(search_text, tells_why_an_agent_may_not_be_talked_to, .init = begin) {
    found(0, FOUND_OTHER_KEY, "the agent there has another key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; "
                                  "nothing listens at ports 6,7 yet");
    found(2, FOUND_OTHER_KEY, "the agent there has a third key: copy it");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 5: the agent there has another key: copy it; port 7: an "
                                  "agent without this node's key; nothing listens at port 6 yet");
}

Test(search_text, the_longest_text_fits, .init = begin) {
    char name[RDZV_RUN_ID_MAX];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    s.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++) {
        s.config.ports[i] = (uint16_t)(65535 - 2 * i);
        name[0] = (char)('a' + i);
        found(i, FOUND_OTHER_RUN, name);
    }
    search_describe_ports(&s, "", "fe80::1234:5678:9abc:def0", text);
    cr_assert_lt(strlen(text), sizeof text - 1);
    assert_has(text, "port 65505: an agent of the run 'pxxx");
}

Test(search_text, ports_that_are_alike_are_together, .init = begin) {
    found(0, FOUND_HANGS_UP, "");
    found(2, FOUND_HANGS_UP, "");
    cr_assert_str_eq(described(),
                     "no leader at 10.0.0.1: ports 5,7: hung up (not muster?); nothing listens at port 6 yet");
    found(1, FOUND_HANGS_UP, "");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: ports 5-7: hung up (not muster?)");
}

Test(search_text, a_long_list_where_nothing_listens_is_counted, .init = begin) {
    s.config.n_ports = RDZV_ENDPOINT_PORTS_MAX;
    for (unsigned i = 0; i < RDZV_ENDPOINT_PORTS_MAX; i++)
        s.config.ports[i] = (uint16_t)(20001 + 7 * i);
    found(1, FOUND_SILENT, "");
    s.welcomed_ns = 1;
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: port 20008: no answer (not muster, or a firewall); nothing "
                                  "listens at 15 ports (20001, ...) any more");
}

Test(search_text, a_host_that_is_silent_at_all_ports_is_named_once, .init = begin) {
    for (unsigned i = 0; i < 3; i++)
        found(i, FOUND_SILENT, "");
    search_describe_ports(&s, "node1", "10.0.0.1", text);
    cr_assert_str_eq(text, "no leader at node1 (10.0.0.1): no answer at any of its 3 ports; it is down, or a "
                           "firewall is in the way");
    found(0, FOUND_ERROR, "No route to host");
    cr_assert_str_eq(described(), "no leader at 10.0.0.1: cannot connect to any of its 3 ports: No route to host");
    found(1, FOUND_NOT_MUSTER, "");
    cr_assert(strstr(described(), "port 6: not muster") != NULL, "%s", text);
}
