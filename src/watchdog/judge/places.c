#include "watchdog/judge/places.h"

void places_learn(struct places *p, uint64_t place, uint64_t waited_ns) {
    if (place == 0)
        return;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->known[i].place == place) {
            p->known[i].longest_ns = MAX2(p->known[i].longest_ns, waited_ns);
            return;
        }
        if (p->known[i].longest_ns < p->known[at].longest_ns)
            at = i;
    }
    if (p->n < PLACES_MAX)
        at = p->n++;
    else if (p->known[at].longest_ns >= waited_ns)
        return;
    p->known[at].place = place;
    p->known[at].longest_ns = waited_ns;
}

uint64_t places_longest(const struct places *p, uint64_t place) {
    for (uint32_t i = 0; place != 0 && i < p->n; i++)
        if (p->known[i].place == place)
            return p->known[i].longest_ns;
    return 0;
}
