#include <string.h>

#include "base/util.h"
#include "rendezvous/protocol/messages.h"

void handover_fini(struct handover *e) {
    free(e->members);
    *e = (struct handover){0};
}

void handover_copy(struct handover *to, const struct handover *from) {
    struct handover copy = *from;
    copy.members = NULL;
    if (from->n_members > 0) {
        copy.members = xcalloc(from->n_members, sizeof *copy.members);
        memcpy(copy.members, from->members, from->n_members * sizeof *copy.members);
    }
    handover_fini(to);
    *to = copy;
}
