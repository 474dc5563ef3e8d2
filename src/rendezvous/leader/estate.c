#include <string.h>

#include "base/util.h"
#include "rendezvous/protocol/messages.h"

void estate_fini(struct estate *e) {
    free(e->members);
    *e = (struct estate){0};
}

void estate_copy(struct estate *to, const struct estate *from) {
    struct estate copy = *from;
    copy.members = NULL;
    if (from->n_members > 0) {
        copy.members = xcalloc(from->n_members, sizeof *copy.members);
        memcpy(copy.members, from->members, from->n_members * sizeof *copy.members);
    }
    estate_fini(to);
    *to = copy;
}
