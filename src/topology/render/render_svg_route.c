/* Lines that go around devices: a grid of the places where a line may run (beside the edges of
 * devices and boxes, and through the middles of devices), and the cheapest way through it. Bends,
 * crossings and the boxes' heads cost; to run upon another GPU's line costs most; lines to one NIC
 * join. */
#include <string.h>

#include "topology/render/render_svg_priv.h"

#define APART 5  /* between lines side by side, at least */
#define BESIDE 6 /* from the edge of a device or box to the line beside it */
/* What a page of any size may cost: nodes of the grid, and those of all routes together. */
#define NODES_MAX (1u << 20)
#define SPENT_MAX (16u << 20)
enum { COST_BEND = 14, COST_CROSSING = 12, COST_HEAD = 160, COST_UPON = 600 };

enum { ALONG_X, ALONG_Y, WAYS };

struct axis {
    int *at; /* growing */
    uint32_t n;
};

struct node {
    bool device, head;
    uint32_t net[WAYS]; /* whose line runs from here to the next node; 0 nobody's */
    struct {
        uint32_t cost, from;
    } reached[WAYS]; /* of this route; from: a node x WAYS + way */
};

struct open {
    uint32_t least, state; /* cost of the whole route, if all goes well from there */
};

struct svg_router {
    const struct svg_layout *layout;
    struct axis axes[WAYS];
    struct node *nodes;
    struct open *heap;
    uint32_t n_heap, heap_room;
    uint64_t spent;
};

/* ---- the grid ---- */

static int compare_ints(const void *a, const void *b) {
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* fixed: places that must be there; lanes: those that would be good. Both are sorted. */
static struct axis make_axis(int *fixed, uint32_t n_fixed, int *lanes, uint32_t n_lanes) {
    struct axis a = {.at = xcalloc((size_t)n_fixed + n_lanes + 1, sizeof *a.at)};
    uint32_t f = 0, l = 0;
    qsort(fixed, n_fixed, sizeof *fixed, compare_ints);
    qsort(lanes, n_lanes, sizeof *lanes, compare_ints);
    while (f < n_fixed || l < n_lanes) {
        bool lane = l < n_lanes && (f == n_fixed || lanes[l] < fixed[f]);
        int at = lane ? lanes[l++] : fixed[f++], before = a.n > 0 ? a.at[a.n - 1] : -APART;
        bool room = at - before >= APART && (f == n_fixed || fixed[f] - at >= APART);
        if (lane ? room : a.n == 0 || at != before)
            a.at[a.n++] = at;
    }
    return a;
}

static struct axis axis_of(const struct svg_layout *l, int way) {
    const struct render_plan *p = l->plan;
    _cleanup_(freep) int *fixed = xcalloc((size_t)p->n * 3 + 1, sizeof *fixed);
    _cleanup_(freep) int *lanes = xcalloc((size_t)p->n * 5 + 1, sizeof *lanes);
    uint32_t n_fixed = 0, n_lanes = 0;
    for (uint32_t i = 1; i < p->n; i++) {
        const struct svg_box *b = &l->boxes[i];
        int low = way == ALONG_X ? b->x : b->y, high = low + (way == ALONG_X ? b->w : b->h);
        if (!svg_is_shown(p, i))
            continue;
        for (int k = 1; k <= (svg_is_device(p->shapes[i].kind) ? 1 : 2); k++) {
            lanes[n_lanes++] = low - k * BESIDE;
            lanes[n_lanes++] = high + k * BESIDE;
        }
        /* Through a head nothing should run: the place must be there to be dear. */
        if (!svg_is_device(p->shapes[i].kind)) {
            if (way == ALONG_Y)
                lanes[n_lanes++] = low + svg_head_height(p->shapes[i].kind) / 2;
            continue;
        }
        fixed[n_fixed++] = low;
        fixed[n_fixed++] = (low + high) / 2;
        fixed[n_fixed++] = high;
    }
    return make_axis(fixed, n_fixed, lanes, n_lanes);
}

static uint32_t first_from(const struct axis *a, int at) {
    uint32_t i = 0;
    while (i < a->n && a->at[i] < at)
        i++;
    return i;
}

static uint32_t node_at(const struct svg_router *r, uint32_t x, uint32_t y) {
    return y * r->axes[ALONG_X].n + x;
}

static void mark(struct svg_router *r, int x, int y, int w, int h, bool device) {
    const struct axis *ax = &r->axes[ALONG_X], *ay = &r->axes[ALONG_Y];
    for (uint32_t j = first_from(ay, y); j < ay->n && ay->at[j] <= y + h; j++)
        for (uint32_t i = first_from(ax, x); i < ax->n && ax->at[i] <= x + w; i++) {
            struct node *n = &r->nodes[node_at(r, i, j)];
            n->device = n->device || device;
            n->head = n->head || !device;
        }
}

struct svg_router *svg_router_new(const struct svg_layout *l) {
    const struct render_plan *p = l->plan;
    struct svg_router *r = xcalloc(1, sizeof *r);
    char head[RENDER_TEXT_MAX], second[RENDER_TEXT_MAX];
    r->layout = l;
    r->axes[ALONG_X] = axis_of(l, ALONG_X);
    r->axes[ALONG_Y] = axis_of(l, ALONG_Y);
    size_t n = (size_t)r->axes[ALONG_X].n * r->axes[ALONG_Y].n;
    if (n > NODES_MAX)
        return r;
    r->nodes = xcalloc(n + 1, sizeof *r->nodes);
    for (uint32_t i = 1; i < p->n; i++) {
        const struct svg_box *b = &l->boxes[i];
        if (svg_is_device(p->shapes[i].kind)) {
            mark(r, b->x - 2, b->y - 2, b->w + 4, b->h + 4, true);
        } else if (svg_is_shown(p, i)) {
            svg_head(p, &p->shapes[i], b->w - 2 * SVG_PAD, head, second);
            int w = MAX2(svg_text_width(head, SVG_TEXT_HEAD, true),
                         svg_text_width(second, SVG_TEXT_SMALL, false));
            mark(r, b->x + SVG_PAD, b->y + 4, w, svg_head_height(p->shapes[i].kind) - 8, false);
        }
    }
    return r;
}

void svg_router_free(struct svg_router *r) {
    free(r->axes[ALONG_X].at);
    free(r->axes[ALONG_Y].at);
    free(r->nodes);
    free(r->heap);
    free(r);
}

/* ---- a heap of what is to be looked at next ---- */

static bool before(struct open a, struct open b) {
    return a.least != b.least ? a.least < b.least : a.state < b.state;
}

static void push(struct svg_router *r, struct open o) {
    if (r->n_heap == r->heap_room) {
        r->heap_room = r->heap_room == 0 ? 256 : r->heap_room * 2;
        r->heap = xrealloc(r->heap, r->heap_room * sizeof *r->heap);
    }
    uint32_t i = r->n_heap++;
    for (; i > 0 && before(o, r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = o;
}

static struct open pop(struct svg_router *r) {
    struct open top = r->heap[0], last = r->heap[--r->n_heap];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < r->n_heap; i = child) {
        if (child + 1 < r->n_heap && before(r->heap[child + 1], r->heap[child]))
            child++;
        if (!before(r->heap[child], last))
            break;
        r->heap[i] = r->heap[child];
    }
    r->heap[i] = last;
    return top;
}

/* ---- ways ---- */

/* Where a line leaves a device or comes in: the middles of its edges. */
struct port {
    uint32_t node;
    int way;
    uint32_t cost;
};

static void ports_of(const struct svg_router *r, const struct svg_box *b, bool gpu,
                     struct port ret[4]) {
    const struct axis *ax = &r->axes[ALONG_X], *ay = &r->axes[ALONG_Y];
    uint32_t x = first_from(ax, (b->x + b->x + b->w) / 2);
    uint32_t y = first_from(ay, (b->y + b->y + b->h) / 2);
    uint32_t top = node_at(r, x, first_from(ay, b->y));
    uint32_t bottom = node_at(r, x, first_from(ay, b->y + b->h));
    ret[0] = (struct port){gpu ? bottom : top, ALONG_Y, 0};
    ret[1] = (struct port){gpu ? top : bottom, ALONG_Y, 90};
    ret[2] = (struct port){node_at(r, first_from(ax, b->x), y), ALONG_X, 40};
    ret[3] = (struct port){node_at(r, first_from(ax, b->x + b->w), y), ALONG_X, 40};
}

static struct svg_point point_of(const struct svg_router *r, uint32_t node) {
    uint32_t w = r->axes[ALONG_X].n;
    return (struct svg_point){r->axes[ALONG_X].at[node % w], r->axes[ALONG_Y].at[node / w]};
}

/* Never more than what is left: half of the distance, as where one's own line runs. */
static uint32_t at_least(const struct svg_router *r, uint32_t node, const struct svg_box *to) {
    struct svg_point p = point_of(r, node);
    int x = MAX2(to->x - p.x, p.x - to->x - to->w), y = MAX2(to->y - p.y, p.y - to->y - to->h);
    return (uint32_t)(MAX2(x, 0) + MAX2(y, 0)) / 2;
}

/* The node next to it; TOPO_NONE: there the grid ends. */
static uint32_t next_node(const struct svg_router *r, uint32_t node, int way, bool on) {
    uint32_t w = r->axes[ALONG_X].n, h = r->axes[ALONG_Y].n, x = node % w, y = node / w;
    if (way == ALONG_X)
        return (on ? x + 1 == w : x == 0) ? TOPO_NONE : on ? node + 1 : node - 1;
    return (on ? y + 1 == h : y == 0) ? TOPO_NONE : on ? node + w : node - w;
}

static bool crosses(const struct svg_router *r, uint32_t node, int way, uint32_t net) {
    uint32_t back = next_node(r, node, !way, false), other = r->nodes[node].net[!way];
    if (other == 0 && back != TOPO_NONE)
        other = r->nodes[back].net[!way];
    return other != 0 && other != net;
}

static uint32_t step_cost(const struct svg_router *r, uint32_t a, uint32_t b, int way,
                          uint32_t net) {
    struct svg_point p = point_of(r, a), q = point_of(r, b);
    uint32_t length = (uint32_t)(abs(p.x - q.x) + abs(p.y - q.y));
    uint32_t runs = r->nodes[MIN2(a, b)].net[way];
    return (runs == net ? (length + 1) / 2 : length) + (runs != 0 && runs != net ? COST_UPON : 0) +
           (crosses(r, b, way, net) ? COST_CROSSING : 0) + (r->nodes[b].head ? COST_HEAD : 0);
}

static void reach(struct svg_router *r, uint32_t node, int way, uint32_t cost, uint32_t from,
                  const struct svg_box *to) {
    struct node *n = &r->nodes[node];
    if (cost >= n->reached[way].cost)
        return;
    n->reached[way].cost = cost;
    n->reached[way].from = from;
    push(r, (struct open){cost + at_least(r, node, to), node * WAYS + (uint32_t)way});
}

static void step_on(struct svg_router *r, uint32_t state, const struct port goals[4], uint32_t net,
                    const struct svg_box *to) {
    uint32_t node = state / WAYS, cost = r->nodes[node].reached[state % WAYS].cost;
    for (int i = 0; i < 4; i++) {
        int way = i / 2;
        uint32_t next = next_node(r, node, way, i % 2 == 0), goal = 0;
        if (next == TOPO_NONE)
            continue;
        while (goal < 4 && (goals[goal].node != next || goals[goal].way != way))
            goal++;
        if (r->nodes[next].device && goal == 4)
            continue;
        reach(r, next, way,
              cost + step_cost(r, node, next, way, net) +
                  (way == (int)(state % WAYS) ? 0 : COST_BEND) + (goal < 4 ? goals[goal].cost : 0),
              state, to);
    }
}

/* The last state of the cheapest way; TOPO_NONE: there is none. */
static uint32_t search(struct svg_router *r, const struct svg_box *from, const struct svg_box *to,
                       uint32_t net) {
    struct port starts[4], goals[4];
    uint32_t n = r->axes[ALONG_X].n * r->axes[ALONG_Y].n;
    for (uint32_t i = 0; i < n; i++)
        for (int way = 0; way < WAYS; way++)
            r->nodes[i].reached[way].cost = UINT32_MAX;
    ports_of(r, from, true, starts);
    ports_of(r, to, false, goals);
    r->n_heap = 0;
    for (int i = 0; i < 4; i++)
        reach(r, starts[i].node, starts[i].way, starts[i].cost, TOPO_NONE, to);
    while (r->n_heap > 0) {
        struct open o = pop(r);
        for (int i = 0; i < 4; i++)
            if (o.state / WAYS == goals[i].node)
                return o.state;
        step_on(r, o.state, goals, net, to);
    }
    return TOPO_NONE;
}

uint32_t svg_route(struct svg_router *r, uint32_t gpu, uint32_t nic, uint32_t net,
                   struct svg_point **ret) {
    const struct svg_layout *l = r->layout;
    r->spent += (uint64_t)r->axes[ALONG_X].n * r->axes[ALONG_Y].n;
    if (r->nodes == NULL || r->spent > SPENT_MAX)
        return 0;
    uint32_t state = search(r, &l->boxes[gpu], &l->boxes[nic], net), n = 0;
    struct svg_point *points = NULL;
    for (uint32_t before; state != TOPO_NONE; state = before) {
        int way = (int)(state % WAYS);
        before = r->nodes[state / WAYS].reached[way].from;
        points = xrealloc(points, ((size_t)n + 1) * sizeof *points);
        points[n++] = point_of(r, state / WAYS);
        if (before != TOPO_NONE) {
            uint32_t low = MIN2(state, before) / WAYS;
            if (r->nodes[low].net[way] == 0)
                r->nodes[low].net[way] = net;
        }
    }
    *ret = points;
    return n;
}
