/* Tests of the leader's machine, without clock or network: a leader (node 1) with nodes 1, 2, …
 * whose words the test says, and whose time it makes pass. */
#pragma once

#include "rendezvous/leader/group.h"

#define S(x) ((uint64_t)(int64_t)((x)*1e9)) /* also before the clock began */

extern struct rig {
    struct group *g;
    struct group_update u; /* of the last step */
    uint64_t now_ns;
    size_t seen[GROUP_EFFECT_KIND_COUNT];              /* effects since the beginning */
    void (*after)(void);                               /* what others do about each step; NULL: nothing */
    char domains[64];                                  /* of each node, one letter; 0: none */
    bool (*words)(const char *word, const char *rest); /* a file's own ones of its stories; NULL: none */
} rig;

struct group_config config_of(uint32_t min, uint32_t max); /* the leader's node is 1 */
void begin(const struct group_config *c);
void end(void);
/* A group of nodes 1 … n in this state. */
void bring_to(const struct group_config *c, uint64_t n, enum group_state state);

/* Now. */
void step(struct group_event e);
/* Time passes while these nodes (a mask of 1 << node, below 8) stay alive. */
void pass(double seconds, unsigned alive);

struct node_info info_of(uint64_t node); /* on host "h2", one worker, no rank of its own */
void join_info(const struct node_info *info);
void join_as(uint64_t node, int32_t node_rank, const struct report *report);
void join(uint64_t node);
void report(uint64_t node, struct report rep);
void say(uint64_t node, enum node_state state); /* about the newest group */
void fails(uint64_t node, enum failure_kind kind, double at);
struct failure failure_at(uint64_t node, enum failure_kind kind, double at);
void renew(uint64_t node);
void open_store(void);
void probe(uint64_t node, enum probe_result result);
void disconnect(uint64_t node);
/* Probed, and found gone. */
void lose(uint64_t node);
/* All members of a group that forms are ready, and it runs. */
void start(void);
/* All members have stopped. */
void stopped(void);

void is_killed(uint64_t node, int signo); /* one of its workers */

/* A story: steps, separated by ';', each a word and what belongs to it. It is what happens, or is so after the last
 * step: group_rig.c has the words. */
void play(const char *story);
unsigned story_nodes(const char *nodes); /* a mask of nodes "12", or "all" */
#define STORY_WORD(w, act)      \
    if (strcmp(word, w) == 0) { \
        act;                    \
        return true;            \
    }

/* Of the last step; node 0: any. */
size_t count(enum group_effect_kind kind, uint64_t node);
const struct group_effect *effect(enum group_effect_kind kind); /* NULL */
const struct timeline_entry *entry(enum timeline_kind kind);    /* NULL */
/* The first of the last step, which has to be there. */
const struct lease *lease(void);
struct desired told(uint64_t node);
/* In rank order, written "1 3 2"; valid until the next call. */
const char *members(void);

#define assert_state(s) cr_assert_eq(group_state(rig.g), (s), "it is %s", group_state_names[group_state(rig.g)])
