#include <inttypes.h>
#include <string.h>

#include "topology/render/render_svg_priv.h"

#define GAP 12         /* between devices side by side, and rows */
#define GAP_WIRES 26   /* above a row of NICs below GPUs, where lines are visible */
#define CPUS_MAX_W 200 /* how much a list of CPUs can add to a box's width */

/* The order inside a box, from top to bottom, so that a GPU's line to a NIC goes down. */
enum { BAND_GPUS, BAND_GPU_BOXES, BAND_BOXES, BAND_NICS, BAND_NETIFS, BANDS };

bool svg_is_device(enum render_kind kind) {
    return kind == RENDER_GPU || kind == RENDER_NIC || kind == RENDER_NETIF;
}

/* Packages and nodes keep their order. */
static int band_of(const struct svg_layout *l, uint32_t i) {
    enum render_kind kind = l->plan->shapes[i].kind;
    if (svg_is_device(kind))
        return kind == RENDER_GPU ? BAND_GPUS : kind == RENDER_NIC ? BAND_NICS : BAND_NETIFS;
    bool bridge = kind == RENDER_HOST || kind == RENDER_SWITCH;
    return bridge && l->has_gpu[i] ? BAND_GPU_BOXES : BAND_BOXES;
}

bool svg_is_shown(const struct render_plan *p, uint32_t shape) {
    const struct render_shape *s = &p->shapes[shape];
    return !(s->kind == RENDER_HOST && s->children == 1);
}

int svg_head_height(enum render_kind kind) {
    switch (kind) {
    case RENDER_MACHINE: return SVG_TITLE;
    case RENDER_PACKAGE: return 30;
    case RENDER_NUMA: return 44;
    case RENDER_HOST: return 26;
    case RENDER_SWITCH: return 40;
    case RENDER_GPU:
    case RENDER_NIC:
    case RENDER_NETIF: return 0;
    }
    assert_not_reached();
}

/* "CPUs 0-3,8-11", shorter "CPUs 0, 2, 4 … 86 (44)" or "CPUs 0-3 … 120-123 (64)". */
static struct render_text cpus_words(const struct cpuset *cpus, int room) {
    _cleanup_(strbuf_fini) struct strbuf list = {0};
    uint32_t n = cpuset_count(cpus), last = 0;
    bool even = n > 3;
    cpuset_write_list(cpus, &list);
    const char *text = strbuf_text(&list), *end = strrchr(text, ',');
    struct render_text whole = render_words("CPUs %s", text);
    if (list.len + 8 < RENDER_TEXT_MAX && svg_text_width(whole.text, SVG_TEXT_SMALL, false) <= room)
        return whole;
    uint32_t first = cpuset_next(cpus, 0), second = cpuset_next(cpus, first + 1);
    uint32_t step = second - first;
    for (uint32_t i = first; i != CPUSET_MAX; last = i, i = cpuset_next(cpus, i + 1))
        even = even && (i == first || i - last == step);
    if (even)
        return render_words("CPUs %" PRIu32 ", %" PRIu32 ", %" PRIu32 " … %" PRIu32 " (%" PRIu32
                            ")",
                            first, second, second + step, last, n);
    return end == NULL ? whole
                       : render_words("CPUs %.*s … %s (%" PRIu32 ")", (int)strcspn(text, ","), text,
                                      end + 1, n);
}

static struct svg_head numa_words(const struct topology *t, const struct topo_numa *n, int room) {
    struct svg_head head = {{""}, {""}};
    head.first = render_words("NUMA node %" PRId32 "%s%s", n->index, n->bytes > 0 ? " · " : "",
                              n->bytes > 0 ? render_bytes(n->bytes).text : "");
    if (n->gpu_memory)
        head.second = render_gpu_memory(t, n->index);
    else if (!cpuset_is_empty(&n->cpus))
        head.second = cpus_words(&n->cpus, room);
    else if (!cpuset_is_empty(&t->allowed)) /* else it is not known */
        head.second = render_words("no CPUs");
    return head;
}

struct svg_head svg_head(const struct render_plan *p, const struct render_shape *s, int room) {
    const struct topology *t = p->t;
    struct svg_head head = {{""}, {""}};
    if (s->kind == RENDER_PACKAGE) {
        head.first = render_words("Package %" PRIu32, s->index);
    } else if (s->kind == RENDER_NUMA && s->index == TOPO_NONE) {
        head.first = render_words("NUMA node not known");
    } else if (s->kind == RENDER_NUMA) {
        head = numa_words(t, &t->numa[s->index], room);
    } else if (s->kind == RENDER_HOST) {
        head.first = render_words("Host bridge %04" PRIx32 ":%02x", s->root.domain, s->root.bus);
    } else if (s->kind == RENDER_SWITCH) {
        struct render_text link = render_pci_link(&t->pci[s->index]);
        head.first = render_words("%s", render_switch_name(&t->pci[s->index]));
        head.second = render_words("%s%s%s", render_bus(t, s->index).text,
                                   link.text[0] != '\0' ? " · " : "", link.text);
    }
    return head;
}

static int least_width(const struct render_plan *p, const struct render_shape *s) {
    struct svg_head head = svg_head(p, s, CPUS_MAX_W);
    int first = svg_text_width(head.first.text, SVG_TEXT_HEAD, true);
    return MAX2(first, svg_text_width(head.second.text, SVG_TEXT_SMALL, false)) + 2 * SVG_PAD;
}

struct pairing {
    struct svg_layout *l;
    uint32_t gpu;
};

static void pair_up(void *arg, uint32_t nic) {
    const struct pairing *p = arg;
    const struct render_shape *shapes = p->l->plan->shapes;
    if (shapes[nic].parent != shapes[p->gpu].parent || p->l->partners[nic] != TOPO_NONE ||
        p->l->partners[p->gpu] != TOPO_NONE)
        return;
    p->l->partners[nic] = p->gpu;
    p->l->partners[p->gpu] = nic;
}

static uint32_t gpus_beside(const struct render_plan *p, uint32_t shape) {
    uint32_t n = 0, i = p->shapes[p->shapes[shape].parent].first;
    for (; i != TOPO_NONE; i = p->shapes[i].next)
        n += p->shapes[i].kind == RENDER_GPU;
    return n;
}

static void find_partners(struct svg_layout *l) {
    const struct render_plan *p = l->plan;
    for (uint32_t i = 0; i < p->n; i++)
        l->partners[i] = TOPO_NONE;
    for (uint32_t i = 0; i < p->n && p->predictions != NULL; i++) {
        struct pairing x = {l, i};
        const struct render_shape *s = &p->shapes[i];
        if (s->kind == RENDER_GPU && p->predictions[s->index].n_nets > 0 && gpus_beside(p, i) > 1)
            render_plan_each_net(p, s->index, p->predictions[s->index].nets[0], pair_up, &x);
    }
}

static bool stands_below_its_gpu(const struct svg_layout *l, uint32_t i) {
    return l->plan->shapes[i].kind != RENDER_GPU && l->partners[i] != TOPO_NONE;
}

/* The gap between packages and between nodes has room for lines. */
static int gap_in(const struct svg_layout *l, uint32_t parent) {
    enum render_kind kind = l->plan->shapes[parent].kind;
    return kind == RENDER_MACHINE ? 24 : kind == RENDER_PACKAGE ? 18 : GAP;
}

struct row {
    uint32_t first, n; /* children of the band, from `first` on */
    int w, h;
};

/* Takes as many of a band's boxes as fit side by side. *at: where to continue; false: there are no
 * more. */
static bool next_row(const struct svg_layout *l, int band, int room, uint32_t *at,
                     struct row *ret) {
    const struct render_shape *shapes = l->plan->shapes;
    int gap = *at == TOPO_NONE ? 0 : gap_in(l, shapes[*at].parent);
    *ret = (struct row){.first = TOPO_NONE};
    for (; *at != TOPO_NONE; *at = shapes[*at].next) {
        const struct svg_box *b = &l->boxes[*at];
        if (band_of(l, *at) != band || stands_below_its_gpu(l, *at))
            continue;
        if (ret->n > 0 && ret->w + gap + b->w > room)
            break;
        if (ret->n == 0)
            ret->first = *at;
        ret->w += (ret->n > 0 ? gap : 0) + b->w;
        ret->h = MAX2(ret->h, b->slot_h);
        ret->n++;
    }
    return ret->n > 0;
}

/* The least width that needs no more rows: if three of four boxes fit, they are placed two by
 * two. */
static int even_room(const struct svg_layout *l, uint32_t parent, int band, int room) {
    int least = 0, rows = 0;
    for (int tried = room; tried > 0; tried -= 10) {
        int n = 0;
        uint32_t at = l->plan->shapes[parent].first;
        struct row row;
        while (next_row(l, band, tried, &at, &row))
            n++;
        if (rows == 0)
            rows = n;
        if (n <= 1 || n > rows)
            break;
        least = tried;
    }
    return least > 0 ? least : room;
}

static int inset(const struct svg_layout *l, uint32_t i) {
    return l->plan->shapes[i].kind == RENDER_MACHINE ? 0 : SVG_PAD;
}

static int gap_above(const struct svg_layout *l, uint32_t parent, int band, int rows_of_band,
                     int rows_before) {
    bool wires = band >= BAND_BOXES && rows_of_band == 0;
    return rows_before == 0 ? 0 : wires ? GAP_WIRES : gap_in(l, parent);
}

static void measure(struct svg_layout *l, uint32_t i) {
    const struct render_shape *s = &l->plan->shapes[i];
    struct svg_box *b = &l->boxes[i];
    if (svg_is_device(s->kind)) {
        b->w = SVG_CHIP;
        b->slot_h = b->h = svg_device_height(l->plan, s);
        /* The NIC can be before or after its GPU in the plan, so its box may not be measured yet.
         * But its height depends only on its lines of text. */
        if (s->kind == RENDER_GPU && l->partners[i] != TOPO_NONE)
            b->slot_h += GAP_WIRES + svg_device_height(l->plan, &l->plan->shapes[l->partners[i]]);
        return;
    }
    int rows = 0, pad = inset(l, i);
    b->w = MIN2(least_width(l->plan, s), b->max_w);
    b->head_w = b->w - 2 * SVG_PAD;
    b->h = svg_head_height(s->kind);
    for (int band = 0; band < BANDS; band++) {
        uint32_t at = s->first;
        struct row row;
        int room = even_room(l, i, band, b->max_w - 2 * pad);
        for (int of_band = 0; next_row(l, band, room, &at, &row); of_band++) {
            b->w = MAX2(b->w, row.w + 2 * pad);
            b->h += row.h + gap_above(l, i, band, of_band, rows++);
        }
    }
    b->h += rows > 0 ? SVG_PAD : 0;
    b->slot_h = b->h;
}

/* Nodes and packages share the remaining width. most: how many boxes a row above has, which is of
 * the same kind; a row with fewer boxes is not stretched beyond columns of that width. */
static void place_row(struct svg_layout *l, uint32_t parent, int band, const struct row *row,
                      uint32_t most, int y) {
    const struct render_shape *shapes = l->plan->shapes;
    const struct svg_box *in = &l->boxes[parent];
    bool in_columns = band == BAND_BOXES && (shapes[parent].kind == RENDER_MACHINE ||
                                             shapes[parent].kind == RENDER_PACKAGE);
    bool share = in_columns && row->n >= most;
    int room = in->w - 2 * inset(l, parent), left = room - row->w, gap = gap_in(l, parent);
    int column = in_columns && !share ? (room - (int)(most - 1) * gap) / (int)most : 0;
    int x = in->x + inset(l, parent) + (in_columns ? 0 : left / 2);
    uint32_t n = 0;
    for (uint32_t i = row->first; n < row->n; i = shapes[i].next) {
        struct svg_box *b = &l->boxes[i];
        if (band_of(l, i) != band || stands_below_its_gpu(l, i))
            continue;
        b->x = x;
        b->y = y;
        if (l->partners[i] != TOPO_NONE) {
            l->boxes[l->partners[i]].x = x;
            l->boxes[l->partners[i]].y = y + b->h + GAP_WIRES;
        }
        if (!svg_is_device(shapes[i].kind))
            b->h = row->h;
        if (share)
            b->w += left / (int)row->n + ((int)n < left % (int)row->n);
        int wider = MAX2(0, MIN2(column - b->w, left));
        b->w += wider;
        left -= wider;
        x += b->w + gap;
        n++;
    }
}

static void place_children(struct svg_layout *l, uint32_t parent) {
    const struct render_shape *shapes = l->plan->shapes;
    const struct svg_box *in = &l->boxes[parent];
    int y = in->y + svg_head_height(l->plan->shapes[parent].kind), rows = 0;
    for (int band = 0; band < BANDS; band++) {
        uint32_t at = l->plan->shapes[parent].first, most = 0, before = TOPO_NONE;
        struct row row;
        int room = even_room(l, parent, band, in->max_w - 2 * inset(l, parent));
        for (int of_band = 0; next_row(l, band, room, &at, &row); of_band++) {
            bool same = before != TOPO_NONE && shapes[before].kind == shapes[row.first].kind;
            most = same ? MAX2(most, row.n) : row.n;
            before = row.first;
            y += gap_above(l, parent, band, of_band, rows++);
            place_row(l, parent, band, &row, most, y);
            y += row.h;
        }
    }
    /* The nodes of an only row extend as far down as the package beside theirs. */
    for (uint32_t i = shapes[parent].first; i != TOPO_NONE && rows == 1; i = shapes[i].next)
        if (shapes[i].kind == RENDER_NUMA && l->boxes[i].y + l->boxes[i].h == y)
            l->boxes[i].h = in->y + in->h - inset(l, parent) - l->boxes[i].y;
}

/* Two packages (or nodes, if there are no packages) are side by side. */
static int most_width(const struct svg_layout *l, uint32_t i) {
    const struct render_shape *s = &l->plan->shapes[i], *above = &l->plan->shapes[s->parent];
    int room = l->boxes[s->parent].max_w - 2 * inset(l, s->parent);
    return above->kind == RENDER_MACHINE && above->children > 1 ? (room - gap_in(l, s->parent)) / 2
                                                                : room;
}

void svg_layout_init(const struct render_plan *plan, struct svg_layout *ret) {
    struct svg_layout l = {.plan = plan};
    l.boxes = xcalloc(plan->n, sizeof *l.boxes);
    l.has_gpu = xcalloc(plan->n, sizeof *l.has_gpu);
    for (uint32_t i = plan->n; i-- > 1;)
        if (plan->shapes[i].kind == RENDER_GPU || l.has_gpu[i])
            l.has_gpu[i] = l.has_gpu[plan->shapes[i].parent] = true;
    l.partners = xcalloc(plan->n, sizeof *l.partners);
    find_partners(&l);
    l.boxes[0].max_w = SVG_WIDTH - 2 * SVG_MARGIN;
    /* Parents come before their children in the plan: widths are passed down, sizes are computed
     * upwards. */
    for (uint32_t i = 1; i < plan->n; i++)
        l.boxes[i].max_w = svg_is_shown(plan, i) ? MAX2(most_width(&l, i), SVG_CHIP)
                                                 : l.boxes[plan->shapes[i].parent].max_w;
    for (uint32_t i = plan->n; i-- > 0;)
        measure(&l, i);
    l.boxes[0].x = SVG_MARGIN;
    l.boxes[0].y = 0;
    l.boxes[0].w = l.boxes[0].max_w;
    for (uint32_t i = 0; i < plan->n; i++)
        if (svg_is_shown(plan, i) && !svg_is_device(plan->shapes[i].kind))
            place_children(&l, i);
    l.height = l.boxes[0].h;
    *ret = l;
}

void svg_layout_fini(struct svg_layout *l) {
    free(l->boxes);
    free(l->partners);
    free(l->has_gpu);
    *l = (struct svg_layout){0};
}
