/* What the tasks of a process manager publish about themselves, and which nodes follow from it.
 * Each publishes one value, its card: its host's name, and in rank 0 also a key for the job,
 * "HOST,muster-key-1:…". Every task reads all cards. Pure. */
#pragma once

#include "base/text/strbuf.h"
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

/* ==== PMI-1 ====
 *
 * The client's side, as a machine: bytes of the server in, lines to it out. It publishes this
 * task's card and reads those of all tasks.
 *
 * Each line has words NAME=VALUE, separated by blanks; the first is "cmd=". The client sends one
 * line and waits for the answer, in which "rc", if there, is 0.
 *
 *     state      the line sent                                    the answer
 *     INIT       cmd=init pmi_version=1 pmi_subversion=1          response_to_init
 *     NAME       cmd=get_my_kvsname                               my_kvsname kvsname=
 *     PUT        cmd=put kvsname= key=muster-RANK value=CARD      put_result
 *     BARRIER    cmd=barrier_in                                   barrier_out, from all tasks
 *     GET        cmd=get kvsname= key=muster-0, -1, …             get_result value=CARD
 *     FINALIZE   cmd=finalize                                     finalize_ack
 *     DONE
 *
 * After "finalize" the server closes the connection for the life of the task; without it, the end
 * of a task is a crash to Hydra. After an error the machine must not be used again. Sources:
 * flux-core, rfc 13; MPICH, src/pmi (wire protocol 1.1) and hydra's pmip_pmi_v1.c. */

/* Bytes of a line with its newline: what a get_result of a card needs, and the rest of its words.
 * PMIU_MAXLINE of MPICH is 1,024. */
#define PMI1_LINE_MAX 2048

enum pmi1_state {
    PMI1_INIT = 1,
    PMI1_NAME,
    PMI1_PUT,
    PMI1_BARRIER,
    PMI1_GET,
    PMI1_FINALIZE,
    PMI1_DONE,
};

struct pmi1 {
    enum pmi1_state state;
    struct pmi_tasks *tasks; /* borrowed */
    uint32_t next;           /* GET: the task whose card is read */
    size_t len;              /* of a line that has not arrived as a whole */
    char line[PMI1_LINE_MAX];
};

/* tasks: n, rank and own are filled in. Adds the first line to `out`. */
void pmi1_begin(struct pmi1 *pmi, struct pmi_tasks *tasks, struct strbuf *out);
/* Adds the next line to `out`, or nothing while an answer is not complete, and ignores what follows
 * the last. -EPROTO with a sentence: it is not the answer that the state expects. */
_must_use_ int pmi1_receive(struct pmi1 *pmi, const char *bytes, size_t n, struct strbuf *out,
                            struct err *err);
