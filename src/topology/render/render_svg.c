#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text/parse.h"
#include "topology/render/render_plan.h"

#define WIDTH 1200 /* of the page, in its own units; its height depends on the content */
#define MARGIN 24
#define PAD 12                /* between a box and what is in it */
#define TITLE 84              /* height of everything above all boxes */
#define CHIP 152              /* width of a device */
#define CHIP_ROOM (CHIP - 20) /* for its text */
#define LINE 14               /* height of a device's line of text */
#define LINES_MAX 10

enum { TEXT_TITLE = 20, TEXT_HEAD = 13, TEXT_BODY = 11, TEXT_SMALL = 10 };

/* ---- the text in a device ---- */

struct line {
    char text[RENDER_TEXT_MAX];
    int size;
    bool bold, dim;
};

struct lines {
    struct line list[LINES_MAX];
    unsigned n;
};

/* Long text gets smaller letters or a few lines; even longer text is cut when it is drawn. */
static void add(struct lines *l, int size, bool bold, bool dim, const char *text) {
    while (render_width(text, size, bold) > CHIP_ROOM &&
           render_width(text, TEXT_SMALL, bold) <= CHIP_ROOM)
        size--;
    for (int more = 2; *text != '\0' && l->n < LINES_MAX; more--) {
        struct line *line = &l->list[l->n++];
        size_t len = more > 0 ? render_break(text, size, bold, CHIP_ROOM) : strlen(text);
        *line = (struct line){.size = size, .bold = bold, .dim = dim};
        (void)snprintf(line->text, sizeof line->text, "%.*s", (int)len, text);
        for (size_t end = strlen(line->text); end > 0 && line->text[end - 1] == ' '; end--)
            line->text[end - 1] = '\0';
        text += len;
    }
}

static void add_bus_line(struct lines *l, const struct topology *t, uint32_t pci,
                         const char *more) {
    struct render_text bus = render_bus(t, pci);
    bool both = bus.text[0] != '\0' && *more != '\0';
    add(l, TEXT_SMALL, false, true, render_words("%s%s%s", bus.text, both ? " · " : "", more).text);
}

/* "H100 80GB HBM3" of "NVIDIA H100 80GB HBM3", "Instinct MI300A" of "Aqua Vanjaram [Instinct
 * MI300A]" (the form of chip and product in the PCI ids file). */
static struct render_text model_of(const struct topology *t, uint32_t gpu) {
    struct render_text name = render_gpu_name(t, gpu);
    const char *product = strchr(name.text, '['),
               *end = product == NULL ? NULL : strchr(product, ']');
    if (end != NULL && end > product + 1 && end[1] == '\0')
        return render_words("%.*s", (int)(end - product - 1), product + 1);
    return render_words("%s", name.text + (text_begins(name.text, "NVIDIA ") ? 7 : 0));
}

/* Adds the links if GPUs differ in them: "NV1: GPU 1-2", "NV2: GPU 3,6". */
static void add_nvlinks(struct lines *l, const struct render_plan *p, uint32_t gpu) {
    uint32_t next = render_nvlinks_alike(&p->nvlinks) ? UINT32_MAX : 0, n;
    while (next < UINT32_MAX) {
        struct cpuset peers = {0};
        _cleanup_(strbuf_fini) struct strbuf text = {0};
        n = next;
        next = UINT32_MAX;
        for (uint32_t i = 0; i < p->t->n_gpus; i++) {
            uint32_t links = i == gpu ? 0 : render_nvlinks(p->t, gpu, i);
            if (links == n)
                cpuset_add(&peers, p->t->gpus[i].index);
            else if (links > n)
                next = MIN2(next, links);
        }
        strbuf_printf(&text, "NV%" PRIu32 ": GPU ", n);
        cpuset_write_list(&peers, &text);
        if (n > 0)
            add(l, TEXT_SMALL, false, true, strbuf_text(&text));
    }
}

static void add_net(struct lines *l, const struct nccl_prediction *n) {
    if (n->n_nets == 0) {
        add(l, TEXT_BODY, false, true, "no NIC serves it");
        return;
    }
    struct render_text more = {""}, net = render_clean(n->nets[0], true);
    if (n->n_nets > 1)
        more = render_words(" +%" PRIu32, n->n_nets - 1);
    add(l, TEXT_BODY, true, false, render_words("→ %.199s%s", net.text, more.text).text);
    add(l, TEXT_BODY, true, false,
        render_words("%s · %.1f GB/s", nccl_path_name(n->path), n->bandwidth).text);
}

static void gpu_lines(const struct render_plan *p, uint32_t gpu, struct lines *l) {
    const struct topo_gpu *g = &p->t->gpus[gpu];
    add(l, TEXT_HEAD, true, false, render_gpu_label(p->t, gpu).text);
    add(l, TEXT_BODY, false, true, model_of(p->t, gpu).text);
    add_nvlinks(l, p, gpu);
    if (g->lost)
        add(l, TEXT_BODY, true, false, "LOST");
    else if (g->mig && g->n_mig > 0)
        add(l, TEXT_BODY, true, false,
            render_words("MIG: %" PRIu32 " device%s", g->n_mig, g->n_mig > 1 ? "s" : "").text);
    else if (g->mig)
        add(l, TEXT_BODY, true, false, "MIG");
    if (p->any_net)
        add_net(l, &p->predictions[gpu]);
}

static void nic_lines(const struct render_plan *p, const struct render_shape *s, struct lines *l) {
    const struct topo_nic *nic = &p->t->nics[s->index];
    add(l, TEXT_HEAD, true, false, render_range(p->t, s, " … ").text);
    add(l, TEXT_BODY, false, true, s->count > 1 ? "virtual functions" : render_nic_link(nic).text);
    add_bus_line(l, p->t, nic->pci,
                 strcmp(nic->netdev, nic->name) == 0 ? "" : render_clean(nic->netdev, true).text);
    add(l, TEXT_SMALL, true, true, render_nic_why_not(nic).text);
}

static void netif_lines(const struct render_plan *p, const struct render_shape *s,
                        struct lines *l) {
    const struct topo_netif *n = &p->t->netifs[s->index];
    bool physical = n->kind == TOPO_NETIF_PHYSICAL;
    add(l, TEXT_HEAD, true, false, render_range(p->t, s, " … ").text);
    if (n->speed_mbps > 0)
        add(l, TEXT_BODY, false, true,
            render_words("%.4g Gb/s Ethernet", (double)n->speed_mbps / 1000).text);
    else
        add(l, TEXT_BODY, false, true,
            render_words("interface%s%s", physical ? "" : ", ",
                         physical ? "" : topo_netif_kind_names[n->kind])
                .text);
    add_bus_line(l, p->t, n->pci, render_clean(n->driver, true).text);
}

/* The lines of a device, from the top. Text that is too long for a line continues in the next. */
static void device_lines(const struct render_plan *p, const struct render_shape *s,
                         struct lines *ret) {
    ret->n = 0;
    if (s->kind == RENDER_GPU)
        gpu_lines(p, s->index, ret);
    else if (s->kind == RENDER_NIC)
        nic_lines(p, s, ret);
    else
        netif_lines(p, s, ret);
}

static int device_height(const struct render_plan *p, const struct render_shape *s) {
    struct lines lines;
    device_lines(p, s, &lines);
    return (int)lines.n * LINE + 12;
}

/* ---- the place of everything ---- */

struct box {
    int x, y, w, h;
    int max_w;  /* the part of the page's width that it can use */
    int slot_h; /* h; for a GPU with a partner, the partner's too */
    int head_w; /* of the text on top of it, at least */
};

/* Arrays by shape: [plan->n] */
struct picture {
    const struct render_plan *plan;
    struct box *boxes;
    uint32_t *partners; /* of GPUs and NICs that stand under each other, as a pair of one box that
                         * has several GPUs; else TOPO_NONE */
    bool *has_gpu;      /* in it or below */
    uint32_t *colour;   /* of a device, from 1 on; 0: no GPU's traffic goes through it */
    struct strbuf *to;
};

/* The two lines on top of a box. */
struct head {
    struct render_text first, second;
};

#define GAP 12         /* between devices side by side, and rows */
#define GAP_WIRES 26   /* above a row of NICs below GPUs, where lines are visible */
#define CPUS_MAX_W 200 /* how much a list of CPUs can add to a box's width */

/* The order inside a box, from top to bottom, so that a GPU's line to a NIC goes down. */
enum { BAND_GPUS, BAND_GPU_BOXES, BAND_BOXES, BAND_NICS, BAND_NETIFS, BANDS };

static bool is_device(enum render_kind kind) {
    return kind == RENDER_GPU || kind == RENDER_NIC || kind == RENDER_NETIF;
}

/* Packages and nodes keep their order. */
static int band_of(const struct picture *l, uint32_t i) {
    enum render_kind kind = l->plan->shapes[i].kind;
    if (is_device(kind))
        return kind == RENDER_GPU ? BAND_GPUS : kind == RENDER_NIC ? BAND_NICS : BAND_NETIFS;
    bool bridge = kind == RENDER_HOST || kind == RENDER_SWITCH;
    return bridge && l->has_gpu[i] ? BAND_GPU_BOXES : BAND_BOXES;
}

static bool is_shown(const struct render_plan *p, uint32_t shape) {
    const struct render_shape *s = &p->shapes[shape];
    return !(s->kind == RENDER_HOST && s->children == 1);
}

static int head_height(enum render_kind kind) {
    switch (kind) {
    case RENDER_MACHINE: return TITLE;
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
    if (list.len + 8 < RENDER_TEXT_MAX && render_width(whole.text, TEXT_SMALL, false) <= room)
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

static struct head numa_words(const struct topology *t, const struct topo_numa *n, int room) {
    struct head head = {{""}, {""}};
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

static struct head head_of(const struct render_plan *p, const struct render_shape *s, int room) {
    const struct topology *t = p->t;
    struct head head = {{""}, {""}};
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
    struct head head = head_of(p, s, CPUS_MAX_W);
    int first = render_width(head.first.text, TEXT_HEAD, true);
    return MAX2(first, render_width(head.second.text, TEXT_SMALL, false)) + 2 * PAD;
}

struct pairing {
    struct picture *l;
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

static void find_partners(struct picture *l) {
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

static bool stands_below_its_gpu(const struct picture *l, uint32_t i) {
    return l->plan->shapes[i].kind != RENDER_GPU && l->partners[i] != TOPO_NONE;
}

/* The gap between packages and between nodes has room for lines. */
static int gap_in(const struct picture *l, uint32_t parent) {
    enum render_kind kind = l->plan->shapes[parent].kind;
    return kind == RENDER_MACHINE ? 24 : kind == RENDER_PACKAGE ? 18 : GAP;
}

struct row {
    uint32_t first, n; /* children of the band, from `first` on */
    int w, h;
};

/* Takes as many of a band's boxes as fit side by side. *at: where to continue; false: there are no
 * more. */
static bool next_row(const struct picture *l, int band, int room, uint32_t *at, struct row *ret) {
    const struct render_shape *shapes = l->plan->shapes;
    int gap = *at == TOPO_NONE ? 0 : gap_in(l, shapes[*at].parent);
    *ret = (struct row){.first = TOPO_NONE};
    for (; *at != TOPO_NONE; *at = shapes[*at].next) {
        const struct box *b = &l->boxes[*at];
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
static int even_room(const struct picture *l, uint32_t parent, int band, int room) {
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

static int inset(const struct picture *l, uint32_t i) {
    return l->plan->shapes[i].kind == RENDER_MACHINE ? 0 : PAD;
}

static int gap_above(const struct picture *l, uint32_t parent, int band, int rows_of_band,
                     int rows_before) {
    bool wires = band >= BAND_BOXES && rows_of_band == 0;
    return rows_before == 0 ? 0 : wires ? GAP_WIRES : gap_in(l, parent);
}

static void measure(struct picture *l, uint32_t i) {
    const struct render_shape *s = &l->plan->shapes[i];
    struct box *b = &l->boxes[i];
    if (is_device(s->kind)) {
        b->w = CHIP;
        b->slot_h = b->h = device_height(l->plan, s);
        /* The NIC can be before or after its GPU in the plan, so its box may not be measured yet.
         * But its height depends only on its lines of text. */
        if (s->kind == RENDER_GPU && l->partners[i] != TOPO_NONE)
            b->slot_h += GAP_WIRES + device_height(l->plan, &l->plan->shapes[l->partners[i]]);
        return;
    }
    int rows = 0, pad = inset(l, i);
    b->w = MIN2(least_width(l->plan, s), b->max_w);
    b->head_w = b->w - 2 * PAD;
    b->h = head_height(s->kind);
    for (int band = 0; band < BANDS; band++) {
        uint32_t at = s->first;
        struct row row;
        int room = even_room(l, i, band, b->max_w - 2 * pad);
        for (int of_band = 0; next_row(l, band, room, &at, &row); of_band++) {
            b->w = MAX2(b->w, row.w + 2 * pad);
            b->h += row.h + gap_above(l, i, band, of_band, rows++);
        }
    }
    b->h += rows > 0 ? PAD : 0;
    b->slot_h = b->h;
}

/* Nodes and packages share the remaining width. most: how many boxes a row above has, which is of
 * the same kind; a row with fewer boxes is not stretched beyond columns of that width. */
static void place_row(struct picture *l, uint32_t parent, int band, const struct row *row,
                      uint32_t most, int y) {
    const struct render_shape *shapes = l->plan->shapes;
    const struct box *in = &l->boxes[parent];
    bool in_columns = band == BAND_BOXES && (shapes[parent].kind == RENDER_MACHINE ||
                                             shapes[parent].kind == RENDER_PACKAGE);
    bool share = in_columns && row->n >= most;
    int room = in->w - 2 * inset(l, parent), left = room - row->w, gap = gap_in(l, parent);
    int column = in_columns && !share ? (room - (int)(most - 1) * gap) / (int)most : 0;
    int x = in->x + inset(l, parent) + (in_columns ? 0 : left / 2);
    uint32_t n = 0;
    for (uint32_t i = row->first; n < row->n; i = shapes[i].next) {
        struct box *b = &l->boxes[i];
        if (band_of(l, i) != band || stands_below_its_gpu(l, i))
            continue;
        b->x = x;
        b->y = y;
        if (l->partners[i] != TOPO_NONE) {
            l->boxes[l->partners[i]].x = x;
            l->boxes[l->partners[i]].y = y + b->h + GAP_WIRES;
        }
        if (!is_device(shapes[i].kind))
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

static void place_children(struct picture *l, uint32_t parent) {
    const struct render_shape *shapes = l->plan->shapes;
    const struct box *in = &l->boxes[parent];
    int y = in->y + head_height(l->plan->shapes[parent].kind), rows = 0;
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
static int most_width(const struct picture *l, uint32_t i) {
    const struct render_shape *s = &l->plan->shapes[i], *above = &l->plan->shapes[s->parent];
    int room = l->boxes[s->parent].max_w - 2 * inset(l, s->parent);
    return above->kind == RENDER_MACHINE && above->children > 1 ? (room - gap_in(l, s->parent)) / 2
                                                                : room;
}

/* Boxes are as wide as their content; in a row of nodes they share the remaining width. */
static void lay_out(struct picture *l) {
    const struct render_plan *p = l->plan;
    for (uint32_t i = p->n; i-- > 1;)
        if (p->shapes[i].kind == RENDER_GPU || l->has_gpu[i])
            l->has_gpu[i] = l->has_gpu[p->shapes[i].parent] = true;
    find_partners(l);
    l->boxes[0].max_w = WIDTH - 2 * MARGIN;
    /* Parents come before their children in the plan: widths are passed down, sizes are computed
     * upwards. */
    for (uint32_t i = 1; i < p->n; i++)
        l->boxes[i].max_w =
            is_shown(p, i) ? MAX2(most_width(l, i), CHIP) : l->boxes[p->shapes[i].parent].max_w;
    for (uint32_t i = p->n; i-- > 0;)
        measure(l, i);
    l->boxes[0].x = MARGIN;
    l->boxes[0].w = l->boxes[0].max_w;
    for (uint32_t i = 0; i < p->n; i++)
        if (is_shown(p, i) && !is_device(p->shapes[i].kind))
            place_children(l, i);
}

/* ---- the picture ---- */

#define COLOURS 8
#define NETS_DRAWN_MAX 4 /* if a GPU has more, the first is drawn, and the others are counted */

/* Classes, not CSS variables, and colours as RRGGBB, for renderers other than browsers. t: text, d:
 * dim text; sN and fN: stroke and fill of a chosen pair. Those eight colours differ by 25 or more
 * (CIE 1976), for people without red or green cones, too, and have a contrast of 3 with what is
 * below. */
static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif}\n"
    ".bold{font-weight:600}.w{fill:none;stroke-width:3;stroke-linecap:round}\n"
    ".more{stroke-width:1.5;stroke-dasharray:5 4}\n"
    ".off{stroke-dasharray:4 3}.on{paint-order:stroke;stroke-width:5;stroke-linejoin:round}\n"
    ".on-package{stroke:#f3f5f7}.on-numa,.on-host{stroke:#ffffff}.on-switch{stroke:#eaeef3}\n"
    ".page{fill:#ffffff}.t{fill:#1f2328}.d{fill:#59636e}.g{fill:#6e7781}\n"
    ".package{fill:#f3f5f7;stroke:#c4ccd4}.numa{fill:#ffffff;stroke:#c4ccd4}\n"
    ".host{fill:none;stroke:#a9b4bf;stroke-dasharray:2 3}.switch{fill:#eaeef3;stroke:#95a3b1}\n"
    ".gpu{fill:#eaf5e0;stroke:#7aab4d}.nic{fill:#e6effb;stroke:#6b95c7}\n"
    ".netif{fill:#f7f0e0;stroke:#bfa15c}.off{fill:#f2f2f2;stroke:#b5b5b5}\n"
    ".s1{stroke:#1f78ff}.s2{stroke:#f50000}.s3{stroke:#10935f}.s4{stroke:#cd51b4}\n"
    ".s5{stroke:#25257e}.s6{stroke:#730d0d}.s7{stroke:#3100f5}.s8{stroke:#631d47}\n"
    ".f1{fill:#1f78ff}.f2{fill:#f50000}.f3{fill:#10935f}.f4{fill:#cd51b4}\n"
    ".f5{fill:#25257e}.f6{fill:#730d0d}.f7{fill:#3100f5}.f8{fill:#631d47}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".on-package{stroke:#151b23}.on-numa,.on-host{stroke:#0d1117}.on-switch{stroke:#1d2530}\n"
    ".page{fill:#0d1117}.t{fill:#e6edf3}.d{fill:#9aa4af}.g{fill:#848d97}\n"
    ".package{fill:#151b23;stroke:#3d444d}.numa{fill:#0d1117;stroke:#3d444d}\n"
    ".host{fill:none;stroke:#565f69}.switch{fill:#1d2530;stroke:#566575}\n"
    ".gpu{fill:#1c2a14;stroke:#5b8a35}.nic{fill:#14233a;stroke:#4a75a8}\n"
    ".netif{fill:#2b2414;stroke:#8a7237}.off{fill:#1b1f24;stroke:#4b525a}\n"
    ".s1{stroke:#7eacf1}.s2{stroke:#cc5200}.s3{stroke:#5aed77}.s4{stroke:#b647ff}\n"
    ".s5{stroke:#ffd21f}.s6{stroke:#f50062}.s7{stroke:#b0e8c6}.s8{stroke:#cd519b}\n"
    ".f1{fill:#7eacf1}.f2{fill:#cc5200}.f3{fill:#5aed77}.f4{fill:#b647ff}\n"
    ".f5{fill:#ffd21f}.f6{fill:#f50062}.f7{fill:#b0e8c6}.f8{fill:#cd519b}\n"
    "}\n"
    "</style>\n";

static void add_text(struct strbuf *to, const char *class, int x, int y, int size, bool bold,
                     int max_w, const char *text) {
    if (*text == '\0')
        return;
    strbuf_printf(to, "<text class=\"%s%s\" x=\"%d\" y=\"%d\" font-size=\"%d\">", class,
                  bold ? " bold" : "", x, y, size);
    strbuf_add_xml(to, render_fit(text, size, bold, max_w).text, SIZE_MAX);
    strbuf_add(to, "</text>\n");
}

/* A tooltip, which shows text that was cut. */
static void add_tip(struct strbuf *to, const char *text) {
    strbuf_add(to, "<title>");
    strbuf_add_xml(to, text, SIZE_MAX);
    strbuf_add(to, "</title>");
}

static void add_rect(struct strbuf *to, const char *class, bool off, const struct box *b,
                     int radius) {
    strbuf_printf(to,
                  "<rect class=\"%s%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>\n",
                  class, off ? " off" : "", b->x, b->y, b->w, b->h, radius);
}

static const char *const classes[] = {
    [RENDER_MACHINE] = "page", [RENDER_PACKAGE] = "package", [RENDER_NUMA] = "numa",
    [RENDER_HOST] = "host",    [RENDER_SWITCH] = "switch",   [RENDER_GPU] = "gpu",
    [RENDER_NIC] = "nic",      [RENDER_NETIF] = "netif",
};

static bool is_off(const struct render_plan *p, const struct render_shape *s) {
    return (s->kind == RENDER_NIC && render_nic_why_not(&p->t->nics[s->index]).text[0] != '\0') ||
           (s->kind == RENDER_GPU && p->t->gpus[s->index].lost);
}

/* Adds the boxes, then (over the lines) their titles. */
static void add_boxes(const struct picture *x, bool heads) {
    const struct render_plan *p = x->plan;
    for (uint32_t i = 1; i < p->n; i++) {
        const struct render_shape *s = &p->shapes[i];
        const struct box *b = &x->boxes[i];
        if (is_device(s->kind) || !is_shown(p, i))
            continue;
        int room = b->w - 2 * PAD, left = b->x + PAD;
        struct head head = head_of(p, s, room);
        const char *first = head.first.text, *second = head.second.text;
        if (!heads) {
            strbuf_add(x->to, "<g>");
            add_tip(x->to, second[0] != '\0' ? second : first);
            strbuf_add_char(x->to, '\n');
            add_rect(x->to, classes[s->kind], false, b, s->kind == RENDER_PACKAGE ? 10 : 7);
            strbuf_add(x->to, "</g>\n");
            continue;
        }
        bool major = s->kind == RENDER_PACKAGE || s->kind == RENDER_NUMA;
        strbuf_printf(x->to, "<g class=\"on on-%s\">\n", classes[s->kind]);
        add_text(x->to, major ? "t" : "d", left, b->y + (major ? 20 : 17),
                 major ? TEXT_HEAD : TEXT_BODY, major, room, first);
        add_text(x->to, "d", left, b->y + (major ? 36 : 31), TEXT_SMALL, false, room, second);
        strbuf_add(x->to, "</g>\n");
    }
}

static void add_bar(const struct picture *x, uint32_t shape) {
    const struct box *b = &x->boxes[shape];
    if (x->colour[shape] > 0)
        strbuf_printf(x->to,
                      "<rect class=\"f%" PRIu32 "\" x=\"%d\" y=\"%d\" width=\"4\" height=\"%d\" "
                      "rx=\"2\"/>\n",
                      x->colour[shape], b->x + 3, b->y + 4, b->h - 8);
}

static void add_bus(const struct picture *x, const struct box *b, uint32_t gpu,
                    const struct line *label) {
    struct render_text bus = render_bus(x->plan->t, x->plan->t->gpus[gpu].pci);
    int w = render_width(bus.text, TEXT_SMALL, false);
    if (w + 12 + render_width(label->text, label->size, label->bold) <= CHIP_ROOM)
        add_text(x->to, "d", b->x + b->w - 8 - w, b->y + 18, TEXT_SMALL, false, w, bus.text);
}

static void add_device(const struct picture *x, uint32_t i) {
    const struct render_shape *s = &x->plan->shapes[i];
    const struct box *b = &x->boxes[i];
    struct lines lines;
    device_lines(x->plan, s, &lines);
    _cleanup_(strbuf_fini) struct strbuf tip = {0};
    for (unsigned k = 0; k < lines.n; k++)
        strbuf_printf(&tip, "%s%s", k > 0 ? "\n" : "", lines.list[k].text);
    strbuf_add(x->to, "<g>");
    add_tip(x->to, strbuf_text(&tip));
    strbuf_add_char(x->to, '\n');
    bool off = is_off(x->plan, s);
    add_rect(x->to, classes[s->kind], off, b, 5);
    add_bar(x, i);
    if (s->kind == RENDER_GPU)
        add_bus(x, b, s->index, &lines.list[0]);
    for (unsigned k = 0; k < lines.n; k++) {
        const struct line *line = &lines.list[k];
        const char *class = off ? "g" : line->dim ? "d" : "t";
        add_text(x->to, class, b->x + 13, b->y + 18 + (int)k * LINE, line->size, line->bold,
                 CHIP_ROOM, line->text);
    }
    strbuf_add(x->to, "</g>\n");
}

/* ---- chosen pairs ---- */

static uint32_t shape_of_gpu(const struct render_plan *p, uint32_t gpu) {
    for (uint32_t i = 0; i < p->n; i++)
        if (p->shapes[i].kind == RENDER_GPU && p->shapes[i].index == gpu)
            return i;
    assert_not_reached();
}

/* A NIC and the GPUs that use it first have the same colour, so it is visible which GPUs share a
 * NIC. */
struct colouring {
    struct picture *x;
    uint32_t next, found;
};

static void colour_net(void *arg, uint32_t shape) {
    struct colouring *c = arg;
    if (c->x->colour[shape] == 0)
        c->x->colour[shape] = c->found != 0 ? c->found : 1 + c->next++ % COLOURS;
    if (c->found == 0)
        c->found = c->x->colour[shape];
}

static void colour_pairs(struct picture *x) {
    const struct render_plan *p = x->plan;
    struct colouring c = {.x = x};
    for (uint32_t i = 0; i < p->t->n_gpus && p->predictions != NULL; i++) {
        c.found = 0;
        if (p->predictions[i].n_nets > 0)
            render_plan_each_net(p, i, p->predictions[i].nets[0], colour_net, &c);
        x->colour[shape_of_gpu(p, i)] = c.found;
    }
    for (uint32_t i = 0; i < p->t->n_gpus && p->predictions != NULL; i++)
        for (uint32_t n = 1; n < p->predictions[i].n_nets; n++) {
            c.found = x->colour[shape_of_gpu(p, i)];
            render_plan_each_net(p, i, p->predictions[i].nets[n], colour_net, &c);
        }
}

/* A line goes down from the GPU, across, along a lane beside a box, across, and down into the NIC;
 * where that leads through a node of neither, it takes a second lane, and goes from one to the
 * other above or below a node. It uses the lanes that cross the fewest other nodes, then those that
 * run under the fewest devices, then the shortest; a title in the way counts as a detour. Lines of
 * one NIC join; lines of two colours are side by side. */
enum { CORNERS = 8, HEAD = 600, LOOKS_MAX = 32 << 20 };
#define DEVICE (UINT64_C(1) << 32)
#define NODE (UINT64_C(1) << 48)

struct point {
    int x, y;
};

struct elbow {
    struct point at[CORNERS];
    uint64_t cost;
};

struct wire {
    const struct picture *x;
    uint32_t gpu;   /* shape */
    bool first;     /* the NET of the first channel */
    bool below;     /* draw it only if the NIC is directly below; else only if it is not */
    uint64_t *left; /* how many boxes may still be examined, for all lines together */
    struct strbuf *to;
};

/* The distance from the edge of a device or box. */
static int aside(const struct wire *w) { return 2 * (1 + (int)w->x->colour[w->gpu] % 3); }

static bool touches(const struct point *a, const struct point *b, const struct box *in) {
    return MAX2(a->x, b->x) > in->x && MIN2(a->x, b->x) < in->x + in->w &&
           MAX2(a->y, b->y) > in->y && MIN2(a->y, b->y) < in->y + in->h;
}

static uint32_t node_of(const struct render_plan *p, uint32_t i) {
    while (i != TOPO_NONE && p->shapes[i].kind != RENDER_NUMA)
        i = p->shapes[i].parent;
    return i;
}

/* Stops counting where the line costs `most` already. */
static uint64_t cost_of(const struct wire *w, uint32_t nic, const struct point at[CORNERS],
                        uint64_t most) {
    const struct picture *l = w->x;
    uint32_t from = node_of(l->plan, w->gpu), to = node_of(l->plan, nic);
    uint64_t cost = 0;
    for (int k = 1; k < CORNERS && cost < most; k++) {
        const struct point *a = &at[k - 1], *b = &at[k];
        cost += (uint64_t)(abs(a->x - b->x) + abs(a->y - b->y));
        if (a->x == b->x && a->y == b->y)
            continue;
        *w->left -= MIN2(*w->left, l->plan->n);
        for (uint32_t i = 1; i < l->plan->n; i++) {
            const struct box *box = &l->boxes[i];
            struct box head = {box->x + PAD - 4, box->y + 4, box->head_w + 8,
                               head_height(l->plan->shapes[i].kind) - 8};
            if (is_device(l->plan->shapes[i].kind))
                cost += touches(a, b, box) ? DEVICE : 0;
            else if (is_shown(l->plan, i) && touches(a, b, &head))
                cost += HEAD;
            bool node = l->plan->shapes[i].kind == RENDER_NUMA && i != from && i != to;
            cost += node && touches(a, b, box) ? NODE : 0;
        }
    }
    return cost;
}

/* Down to `across`, from one lane to the other, which can be the same. */
static void try_lanes(const struct wire *w, uint32_t nic, int lane, int across, int other,
                      struct elbow *best) {
    const struct picture *l = w->x;
    const struct box *a = &l->boxes[w->gpu], *b = &l->boxes[nic];
    int from = a->x + a->w / 2, to = b->x + b->w / 2;
    int below = a->y + a->h + aside(w), above = b->y - aside(w);
    struct elbow e = {.at = {{from, a->y + a->h},
                             {from, below},
                             {lane, below},
                             {lane, across},
                             {other, across},
                             {other, above},
                             {to, above},
                             {to, b->y}}};
    e.cost = cost_of(w, nic, e.at, best->cost);
    if (e.cost < best->cost)
        *best = e;
}

static void try_lane(const struct wire *w, uint32_t nic, int lane, struct elbow *best) {
    int above = w->x->boxes[nic].y - aside(w);
    try_lanes(w, nic, lane, above, lane, best);
}

/* From a lane beside the GPU's node, or the NIC's, along the edge of a node to any lane. */
static void try_two_lanes(const struct wire *w, uint32_t nic, struct elbow *best) {
    const struct picture *l = w->x;
    const struct render_shape *shapes = l->plan->shapes;
    int d = aside(w);
    for (uint32_t i = 1; i < l->plan->n; i++) {
        const struct box *first = &l->boxes[i];
        if (i != node_of(l->plan, w->gpu) && i != node_of(l->plan, nic))
            continue;
        for (uint32_t k = 1; k < l->plan->n; k++)
            for (uint32_t m = 1; m<l->plan->n && * w->left> 0; m++) {
                const struct box *row = &l->boxes[k], *second = &l->boxes[m];
                if (shapes[k].kind != RENDER_NUMA ||
                    (shapes[m].kind != RENDER_NUMA && shapes[m].kind != RENDER_PACKAGE))
                    continue;
                for (int side = 0; side < 8; side++)
                    try_lanes(w, nic, (side & 1) != 0 ? first->x - d : first->x + first->w + d,
                              (side & 2) != 0 ? row->y - d : row->y + row->h + d,
                              (side & 4) != 0 ? second->x - d : second->x + second->w + d, best);
            }
    }
}

static void add_wire(void *arg, uint32_t nic) {
    const struct wire *w = arg;
    const struct picture *l = w->x;
    if (w->below != (l->partners[w->gpu] == nic && w->first))
        return;
    struct elbow best = {.cost = UINT64_MAX};
    try_lane(w, nic, l->boxes[nic].x + l->boxes[nic].w / 2, &best);
    try_lane(w, nic, l->boxes[w->gpu].x + l->boxes[w->gpu].w / 2, &best);
    uint32_t n = l->plan->n;
    for (uint32_t i = 0; i<n && * w->left> 0; i++)
        if (is_shown(l->plan, i)) {
            try_lane(w, nic, l->boxes[i].x - aside(w), &best);
            try_lane(w, nic, l->boxes[i].x + l->boxes[i].w + aside(w), &best);
        }
    if (best.cost >= NODE)
        try_two_lanes(w, nic, &best);
    strbuf_printf(w->to, "<path class=\"w s%" PRIu32 "%s\" d=\"M%d %d",
                  MAX2(w->x->colour[w->gpu], 1), w->first ? "" : " more", best.at[0].x,
                  best.at[0].y);
    for (int k = 1; k < CORNERS; k++)
        if (best.at[k].x != best.at[k - 1].x || best.at[k].y != best.at[k - 1].y)
            strbuf_printf(w->to, "L%d %d", best.at[k].x, best.at[k].y);
    strbuf_add(w->to, "\"/>\n");
}

/* Adds the lines that go straight down first, then those of the first channel, which are drawn on
 * top. */
static void add_wires(const struct picture *x) {
    const struct render_plan *p = x->plan;
    uint64_t left = LOOKS_MAX;
    _cleanup_(strbuf_fini) struct strbuf first = {0}, more = {0};
    for (int pass = 0; pass < 3 && p->predictions != NULL; pass++)
        for (uint32_t i = 0; i < p->t->n_gpus; i++) {
            const struct nccl_prediction *d = &p->predictions[i];
            struct wire w = {x,     shape_of_gpu(p, i),       pass < 2, pass == 0,
                             &left, pass < 2 ? &first : &more};
            uint32_t end = pass < 2                     ? MIN2(d->n_nets, 1)
                           : d->n_nets > NETS_DRAWN_MAX ? 0
                                                        : d->n_nets;
            for (uint32_t n = pass < 2 ? 0 : 1; n < end; n++)
                render_plan_each_net(p, i, d->nets[n], add_wire, &w);
        }
    strbuf_add(x->to, strbuf_text(&more));
    strbuf_add(x->to, strbuf_text(&first));
}

static void describe_nvlinks(const struct render_plan *p, struct strbuf *to) {
    const struct render_nvlinks *s = &p->nvlinks;
    if (s->pairs == 0 || (s->joined == 0 && !p->t->nvlinks_known))
        return;
    strbuf_add(to, " · NVLink: ");
    if (s->joined == 0)
        strbuf_add(to, "none");
    else if (render_nvlinks_alike(s))
        strbuf_printf(to, "NV%" PRIu32 " between all GPUs", s->most);
    else if (s->least == s->most)
        strbuf_printf(to, "NV%" PRIu32 " between %" PRIu32 " of %" PRIu32 " pairs", s->most,
                      s->joined, s->pairs);
    else
        strbuf_printf(to, "NV%" PRIu32 " to NV%" PRIu32 " between %" PRIu32 " of %" PRIu32 " pairs",
                      s->least, s->most, s->joined, s->pairs);
}

static void add_title(const struct picture *x) {
    const struct topology *t = x->plan->t;
    struct render_text host = render_clean(t->host, false);
    struct render_text none = render_no_devices(t);
    _cleanup_(strbuf_fini) struct strbuf line = {0}, counts = {0};
    int room = WIDTH - 2 * MARGIN;
    add_text(x->to, "t", MARGIN, 36, TEXT_TITLE, true, room,
             *host.text != '\0' ? host.text : "A node");
    render_count(&counts, t->n_gpus, "GPU");
    render_count(&counts, t->n_nics, "NIC");
    if (counts.len == 0 && *none.text == '\0')
        strbuf_add(&counts, "no GPUs, no RDMA NICs");
    render_count(&counts, t->packages, "package");
    render_count(&counts, t->n_numa, "NUMA node");
    render_count(&counts, cpuset_count(&t->allowed), "CPU");
    strbuf_printf(&line, "%s%s%s", strbuf_text(&counts),
                  counts.len > 0 && *none.text != '\0' ? " · " : "", none.text);
    describe_nvlinks(x->plan, &line);
    if (t->driver[0] != '\0')
        strbuf_printf(&line, " · driver %s", render_clean(t->driver, false).text);
    if (path_name(t->from)[0] != '\0')
        strbuf_printf(&line, " · %s", render_clean(path_name(t->from), false).text);
    add_text(x->to, "d", MARGIN, 60, 12, false, room, strbuf_text(&line));
}

static bool has_off(const struct render_plan *p) {
    bool off = false;
    for (uint32_t i = 1; i < p->n; i++)
        off = off || is_off(p, &p->shapes[i]);
    return off;
}

static void paths_words(const struct render_plan *p, struct strbuf *to) {
    static const struct {
        enum nccl_path path;
        const char *text;
    } words[] = {{NCCL_PATH_PIX, "PIX: one switch"},
                 {NCCL_PATH_PXB, "PXB: several switches"},
                 {NCCL_PATH_P2C, "P2C: through the CPU, by C2C"},
                 {NCCL_PATH_PXN, "PXN: through another GPU, by NVLink"},
                 {NCCL_PATH_PHB, "PHB: through the CPU"},
                 {NCCL_PATH_SYS, "SYS: from one NUMA node to another"}};
    for (size_t k = 0; k < ARRAY_SIZE(words); k++)
        for (uint32_t i = 0; i < p->t->n_gpus; i++)
            if (p->predictions[i].n_nets > 0 && p->predictions[i].path == words[k].path) {
                strbuf_printf(to, "%s%s", to->len > 0 ? " · " : "", words[k].text);
                break;
            }
}

static bool has_nets(const struct render_plan *p, uint32_t least, uint32_t most) {
    bool has = false;
    for (uint32_t i = 0; i < p->t->n_gpus && p->predictions != NULL; i++)
        has = has || (p->predictions[i].n_nets >= least && p->predictions[i].n_nets <= most);
    return has;
}

static int legend_height(const struct render_plan *p) {
    return p->any_net ? 64 : has_off(p) ? 44 : MARGIN;
}

/* Adds a sample line with its words; returns the place of the next one. */
static int add_sample(const struct picture *x, int at, int y, const char *class,
                      const char *words) {
    strbuf_printf(x->to, "<path class=\"%s\" d=\"M%d %dh28\"/>\n", class, at, y - 4);
    add_text(x->to, "d", at + 36, y, TEXT_BODY, false, 500, words);
    return at + 36 + render_width(words, TEXT_BODY, false) + 24;
}

static void add_legend(const struct picture *x, int y) {
    int at = MARGIN;
    if (x->plan->any_net)
        at = add_sample(x, at, y, "w s1", "the NIC that NCCL 2.30.7 takes for the GPU");
    if (has_nets(x->plan, 2, NETS_DRAWN_MAX))
        at = add_sample(x, at, y, "w s1 more", "that of another channel");
    if (has_off(x->plan)) {
        add_rect(x->to, classes[RENDER_NIC], true, &(struct box){at, y - 11, 28, 14}, 4);
        add_text(x->to, "d", at + 36, y, TEXT_BODY, false, 260, "not used: the reason is in it");
    }
    if (!x->plan->any_net)
        return;
    _cleanup_(strbuf_fini) struct strbuf paths = {0};
    paths_words(x->plan, &paths);
    if (has_nets(x->plan, 2, UINT32_MAX))
        strbuf_add(&paths, " · +n after a name: n more in other channels");
    add_text(x->to, "d", MARGIN, y + 22, TEXT_BODY, false, WIDTH - 2 * MARGIN, strbuf_text(&paths));
}

void render_svg(const struct topology *t, const struct nccl_graph *g, struct strbuf *to) {
    _cleanup_(render_plan_fini) struct render_plan plan;
    render_plan_init(t, g, &plan);
    struct picture x = {.plan = &plan,
                        .boxes = xcalloc(plan.n, sizeof *x.boxes),
                        .partners = xcalloc(plan.n, sizeof *x.partners),
                        .has_gpu = xcalloc(plan.n, sizeof *x.has_gpu),
                        .colour = xcalloc(plan.n, sizeof *x.colour),
                        .to = to};
    lay_out(&x);
    colour_pairs(&x);
    int height = x.boxes[0].h + legend_height(&plan);
    strbuf_printf(to,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\">\n",
                  WIDTH, height, WIDTH, height);
    strbuf_add(to, style);
    strbuf_printf(to, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", WIDTH, height);
    add_title(&x);
    add_boxes(&x, false);
    add_wires(&x);
    add_boxes(&x, true);
    for (uint32_t i = 1; i < plan.n; i++)
        if (is_device(plan.shapes[i].kind))
            add_device(&x, i);
    add_legend(&x, x.boxes[0].h + 28);
    strbuf_add(to, "</svg>\n");
    free(x.boxes);
    free(x.partners);
    free(x.has_gpu);
    free(x.colour);
}
