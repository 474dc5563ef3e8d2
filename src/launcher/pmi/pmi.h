/* What the tasks of a process manager publish about themselves, and which nodes follow from it.
 * Each publishes one value, its card: its host's name, and in rank 0 also a key for the job,
 * "HOST,muster-key-1:…". Every task reads all cards. Pure. */
#pragma once

#include "launcher/place/place.h"

#define PMI_TASKS_MAX 65536u
/* Bytes of a card, with the NUL. Values of PMI-1 have more: Hydra's get_maxes returns 1,024. */
#define PMI_CARD_MAX 512
#define PMI_KEY_TEXT_MAX 128 /* bytes, with the NUL */
#define PMI_RUN_ID_MAX 256   /* bytes, with the NUL */

struct pmi_tasks {
    uint32_t n, rank;       /* of all tasks, 1 to PMI_TASKS_MAX; of this one */
    char own[PMI_CARD_MAX]; /* the card of this one */
    char **cards;           /* n, in order of rank; owned; NULL: not known yet */
    char *run_id;           /* what the process manager calls these tasks; owned */
};

/* key: NULL for none. Commas, blanks and control characters of the host become '_'. */
void pmi_card_write(const char *host, const char *key, char ret[PMI_CARD_MAX]);
/* The key in a card; NULL: it has none. Borrowed. */
const char *pmi_card_key(const char *card);

/* Counts nodes by host names, as place_probes.pmi. The name of the run ends with 32 bits of a hash
 * of rank 0's card, whose key differs between runs to which Open MPI 4 gives one name. Copies
 * texts. -EPROTO: no card. */
_must_use_ int pmi_tasks_read(const struct pmi_tasks *tasks, struct place *ret, char **ret_run_id,
                              struct err *err);
/* Wipes the cards. */
void pmi_tasks_fini(struct pmi_tasks *tasks);
