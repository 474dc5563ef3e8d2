#include "rendezvous/member/step.h"

struct member_effect *step_emit(const struct step *s, enum member_effect_kind kind) {
    struct member_update *u = s->update;
    if (u->n_effects == u->cap) {
        u->cap = u->cap == 0 ? 8 : u->cap * 2;
        u->effects = xrealloc(u->effects, u->cap * sizeof *u->effects);
    }
    u->effects[u->n_effects] = (struct member_effect){.kind = kind};
    return &u->effects[u->n_effects++];
}

void link_probe(const struct step *s) {
    s->link->probe_ns = TIME_NEVER;
    if (s->link->probing)
        return;
    s->link->probing = true;
    (void)step_emit(s, MEMBER_EFFECT_PROBE);
}
