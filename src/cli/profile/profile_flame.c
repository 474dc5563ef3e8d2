/* The flame graph: frames of all ranks merged, as wide as their share of the time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/profile/profile_pictures.h"
#include "watchdog/profile/names.h"

#define WIDTH 1200.0
#define HEIGHT 19
#define NODES_MAX (1u << 18) /* what is beyond counts for its parent */
#define WIDTH_MIN 1.2
#define HOT_SHARE 0.05 /* that a late rank spends more in a frame than the others */
#define ONE_COLOUR 0.85

/* What a node counts: samples of each class and all, of the ranks that are shown; of each late
 * rank, and of the other ranks, shown or not. */
enum { SHOWN = PROFILE_CLASS_COUNT, LATE, OTHERS = LATE + PROFILE_LATE_MAX, COUNTS };

struct node {                /* [0]: all ranks */
    uint32_t parent;         /* its index is smaller */
    uint32_t child, sibling; /* the last child, and the one before it; 0: none */
    uint32_t key;            /* a frame's index, or n_frames + class */
    uint32_t counts[COUNTS];
    enum profile_class top;
};
struct flame {
    struct picture picture;
    const struct profile *profile;
    const struct profile_findings *findings;
    struct node *nodes;
    uint32_t n;
    struct idmap children; /* parent and key -> index */
    struct strbuf tags;    /* above all frames */
};

static uint32_t child(struct flame *g, uint32_t parent, uint32_t key) {
    uint64_t id = (uint64_t)(parent + 1) << 32 | key;
    uint32_t at = (uint32_t)(uintptr_t)idmap_get(&g->children, id);
    if (at != 0 || g->n == NODES_MAX)
        return at != 0 ? at : parent;
    g->nodes = xgrow(g->nodes, g->n, sizeof *g->nodes);
    g->nodes[g->n] = (struct node){.parent = parent, .key = key, .sibling = g->nodes[parent].child};
    g->nodes[parent].child = g->n;
    idmap_put(&g->children, id, (void *)(uintptr_t)g->n);
    return g->n++;
}

/* The nodes of all stacks; wrappers only make the graph deeper. */
static uint32_t *add_stacks(struct flame *g) {
    const struct profile *p = g->profile;
    uint32_t *nodes = xcalloc(p->n_stacks + (size_t)1, sizeof *nodes);
    for (uint32_t i = 0; i < p->n_stacks; i++) {
        const struct profile_stack *s = &p->stacks[i];
        uint32_t outer = s->outer < 0 ? 0 : nodes[s->outer];
        bool wrapper = (profile_names_of(&p->frames[s->frame]) & NAME_TRANSPARENT) != 0;
        nodes[i] = wrapper ? outer : child(g, outer, s->frame);
    }
    return nodes;
}

static void count_samples(struct flame *g) {
    const struct profile *p = g->profile;
    _cleanup_(freep) uint32_t *nodes = add_stacks(g);
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        bool shown = rank_set_has(g->picture.view->ranks, p->ranks[r].rank);
        unsigned own = OTHERS;
        for (uint32_t k = 0; k < g->findings->n_late; k++)
            own = g->findings->late[k].rank == p->ranks[r].rank ? LATE + k : own;
        for (uint32_t t = 0; t < p->n_ticks; t++) {
            int32_t stack = profile_at(p, &p->ranks[r], t).stack;
            unsigned c = g->findings->classes[(size_t)r * p->n_ticks + t];
            if (stack == PROFILE_ABSENT)
                continue;
            uint32_t at = stack < 0 ? 0 : nodes[stack];
            if (stack < 0 || c == PROFILE_LATE || c == PROFILE_NETWORK || c == PROFILE_GC)
                at = child(g, at, p->n_frames + c);
            g->nodes[at].counts[own]++;
            g->nodes[at].counts[c] += shown;
            g->nodes[at].counts[SHOWN] += shown;
        }
    }
}

static void add_up(struct flame *g) {
    for (uint32_t i = g->n; i-- > 0;) {
        struct node *node = &g->nodes[i];
        for (unsigned c = 0; c < COUNTS && i > 0; c++)
            g->nodes[node->parent].counts[c] += node->counts[c];
        for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++)
            if (node->counts[c] > node->counts[node->top])
                node->top = (enum profile_class)c;
    }
}

/* A count's share of that of all frames: of the time of these ranks. */
static double share(const struct flame *g, const struct node *node, unsigned count) {
    return g->nodes->counts[count] == 0 ? 0 : (double)node->counts[count] / g->nodes->counts[count];
}

/* The late rank that spends more time here than the others; -1: none. */
static int hot_rank(const struct flame *g, const struct node *node) {
    for (uint32_t k = 0; k < g->findings->n_late && node != g->nodes; k++)
        if (node->top < PROFILE_FIRST_WAIT &&
            rank_set_has(g->picture.view->ranks, g->findings->late[k].rank) &&
            share(g, node, LATE + k) - share(g, node, OTHERS) >= HOT_SHARE)
            return (int)k;
    return -1;
}

static void add_name(const struct flame *g, const struct node *node, bool whole,
                     struct strbuf *ret) {
    const struct profile *p = g->profile;
    const struct profile_frame *f = node->key < p->n_frames ? &p->frames[node->key] : NULL;
    if (node == g->nodes)
        strbuf_add(ret, "all ranks");
    else if (f == NULL)
        strbuf_add(ret, profile_class_names[node->key - p->n_frames]);
    else
        strbuf_printf(ret, "%s (%s:%" PRIu32 ")", f->function, whole ? f->file : path_name(f->file),
                      f->line);
}

static void add_box(struct flame *g, const struct node *node, double x, double y, int hot) {
    struct strbuf *out = &g->picture.body;
    _cleanup_(strbuf_fini) struct strbuf name = {0}, tip = {0};
    char class[16];
    double width = share(g, node, SHOWN) * WIDTH;
    bool pure = node->counts[node->top] > ONE_COLOUR * node->counts[SHOWN];
    unsigned colour = pure ? (unsigned)node->top : PICTURE_MIXED;
    size_t letters = (size_t)(width / PICTURE_LETTER);
    g->picture.used[colour] = true;
    add_name(g, node, true, &tip);
    strbuf_printf(&tip, ": %s of the time", PERCENT(share(g, node, SHOWN)));
    if (hot >= 0)
        strbuf_printf(&tip, "; rank %" PRIu32 " %s, the others %s", g->findings->late[hot].rank,
                      PERCENT(share(g, node, LATE + (unsigned)hot)),
                      PERCENT(share(g, node, OTHERS)));
    strbuf_add(out, "<g><title>");
    picture_add_text(out, strbuf_text(&tip), SIZE_MAX);
    strbuf_add(out, "</title>");
    (void)snprintf(class, sizeof class, "c%u%s", colour, hot >= 0 ? " hot" : "");
    picture_box(out, class, x, y, MAX2(width - 0.6, 0.6), HEIGHT - 1);
    if (letters >= 3) {
        add_name(g, node, false, &name);
        picture_text(out, "", x + 3, y + 13, letters, "%s %s", strbuf_text(&name),
                     letters > 18 ? PERCENT(share(g, node, SHOWN)) : "");
    }
    strbuf_add(out, "</g>\n");
}

/* "rank 2: +26 %", below the deepest frame of a chain. */
static void add_tag(struct flame *g, const struct node *node, double x, double y, int hot) {
    char text[48];
    double more = share(g, node, LATE + (unsigned)hot) - share(g, node, OTHERS);
    int len = snprintf(text, sizeof text, "rank %" PRIu32 ": +%s", g->findings->late[hot].rank,
                       PERCENT(more));
    double width = 8 + 7.2 * len, left = MIN2(x, WIDTH - width);
    picture_box(&g->tags, "tag", left, y + HEIGHT + 1, width, 16);
    picture_text(&g->tags, "", left + 4, y + HEIGHT + 13, SIZE_MAX, "%s", text);
}

/* Returns whether this chain has a tag. As deep as the deepest stack. Children are in the order of
 * classes. */
static bool draw(struct flame *g, uint32_t at, double x, double y) {
    const struct node *node = &g->nodes[at];
    bool tagged = false;
    int hot = hot_rank(g, node);
    if (share(g, node, SHOWN) * WIDTH < WIDTH_MIN && hot < 0)
        return false;
    add_box(g, node, x, y, hot);
    g->picture.height = MAX2(g->picture.height, y + 2 * HEIGHT);
    double left = x;
    for (unsigned c = 0; c < PROFILE_CLASS_COUNT; c++)
        for (uint32_t i = node->child; i > 0; i = g->nodes[i].sibling) {
            if (g->nodes[i].top != c)
                continue;
            tagged |= draw(g, i, left, y + HEIGHT);
            left += share(g, &g->nodes[i], SHOWN) * WIDTH;
        }
    if (hot >= 0 && !tagged)
        add_tag(g, node, x, y, hot);
    return tagged || hot >= 0;
}

void profile_flame(const struct profile_view *v, struct strbuf *ret) {
    struct flame g = {.picture = {.view = v, .width = WIDTH, .height = picture_top(v)},
                      .profile = v->profile,
                      .findings = v->findings,
                      .n = 1};
    g.picture.note = "Width: share of the time of all ranks. Outlined in red: a late rank spends "
                     "more of its time here than the others do.";
    g.nodes = xcalloc(1, sizeof *g.nodes);
    count_samples(&g);
    add_up(&g);
    (void)draw(&g, 0, 0, picture_top(v));
    strbuf_add(&g.picture.body, strbuf_text(&g.tags));
    picture_finish(&g.picture, ret);
    strbuf_fini(&g.tags);
    idmap_fini(&g.children);
    free(g.nodes);
}
