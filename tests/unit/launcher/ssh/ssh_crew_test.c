#include "launcher/ssh/ssh_boot.h"

#include "rig/unit.h"

/* What happens, and what is to be done then: a letter and a host, or several, as "w1-63".
 *   happens:    h HELLO, w it hangs, e it has ended, f it has failed, x the job stops, p pass over
 *   to be done: C call, L listen, B boot, T too few, . nothing; A: all that are called now, their number
 *   holds:      n node 0, g how many hang, c it is called, k it was not asked to listen; Y, N the first can, can't be
 *               passed over; l it listens, as it was asked to; +, - the crew is, is not over */
static const struct {
    const char *name;
    uint32_t n, min;
    bool meets;
    const char *script;
} cases[] = {
    {"all are called, and none is booted before the first answers", 3, 3, false,
     "C0 C1 C2 h2 . h0 B0 B2 . h1 B1 - e0 f0 - e1 f1 - e2 f2 . +"},
    {"at most so many are in flight", 200, 1, false, "A64 f5 A1 h6-7 A2"},
    {"a login that hangs gives its slot to the next, and holds none later", 200, 1, false,
     "A64 w1-63 w1 c1 A63 h1 f2 A0 h0 B0 B1"},
    {"the next host is node 0 if the first fails", 3, 2, false, "A3 h2 h1 . f0 n1 B1 B2"},
    {"a first host that hangs is passed over, with others before the first that has answered", 4, 2, false,
     "N A4 h3 N h2 Y w0 Y . p g2 N B2 B3 f1 h0 g0 n2 B0"},
    {"a first host is not passed over if all are needed", 3, 3, false, "A3 h1-2 N"},
    {"nor if nobody else is booted", 3, 2, false, "A3 h1-2 x N"},
    {"too few are told once, and those that were never called don't count", 100, 99, false,
     "A64 h0 f1 B0 f2 T h3 . f4 . - f0-63 +"},
    {"a host that was ready and failed is not booted", 2, 1, false, "A2 h1 f1 h0 B0 ."},
    {"a job that stops calls nobody", 100, 100, false, "A64 x f0 ."},
    {"the first host listens before any is booted", 2, 1, true, "C0 C1 h1 . h0 L0 . k1 l0 k0 B0 B1"},
    {"the next host is asked if the first fails before it listens", 2, 1, true, "C0 C1 h0-1 L0 f0 L1 l1 B1"},
};

static uint32_t call_all(struct ssh_crew *c) {
    uint32_t i, n = 0;
    while (ssh_crew_next(c, &i) == SSH_CREW_DO_CALL)
        n++;
    return n;
}

static bool happens(struct ssh_crew *c, char what, uint32_t host) {
    switch (what) {
    case 'h': ssh_crew_hello(c, host); return true;
    case 'w': ssh_crew_hangs(c, host); return true;
    case 'e': ssh_crew_gone(c, host, false); return true;
    case 'f': ssh_crew_gone(c, host, true); return true;
    case 'x': ssh_crew_close(c); return true;
    case 'p': ssh_crew_pass_over(c); return true;
    default: return false;
    }
}

static bool holds(struct ssh_crew *c, char what, uint32_t number) {
    static const char todo[] = ".CLBT"; /* by enum ssh_crew_do */
    uint32_t host = 0;
    switch (what) {
    case 'A': return call_all(c) == number;
    case 'l': return ssh_crew_listens(c, number);
    case 'k': return !ssh_crew_listens(c, number);
    case 'n': return c->leader == number;
    case 'g': return c->n_hanging == number;
    case 'c': return ssh_crew_is_called(c, number);
    case 'Y': return ssh_crew_can_pass_over(c);
    case 'N': return !ssh_crew_can_pass_over(c);
    case '+': return ssh_crew_is_over(c);
    case '-': return !ssh_crew_is_over(c);
    default: return todo[ssh_crew_next(c, &host)] == what && (what == '.' || host == number);
    }
}

Test(ssh_crew, each_host_gets_its_turn) {
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(ssh_crew_fini) struct ssh_crew c;
        ssh_crew_init(&c, cases[i].n, cases[i].min, cases[i].meets);
        for (const char *w = cases[i].script; *w != '\0'; w += strspn(w, " ")) {
            char *end;
            uint32_t first = (uint32_t)strtoul(w + 1, &end, 10), last = first;
            if (*end == '-' && end > w + 1)
                last = (uint32_t)strtoul(end + 1, &end, 10);
            if (happens(&c, *w, first))
                while (first < last)
                    (void)happens(&c, *w, ++first);
            else
                cr_assert(holds(&c, *w, first), "%s: %s", cases[i].name, w);
            w += strcspn(w, " ");
        }
    }
}
