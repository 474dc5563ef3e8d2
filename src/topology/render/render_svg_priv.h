/* Private to render_svg: the text in a device (device), the place of everything (layout), and text
 * with a known width. */
#pragma once

#include "topology/render/render_plan.h"

#define SVG_WIDTH 1200 /* of the page, in its own units; its height depends on the content */
#define SVG_MARGIN 24
#define SVG_PAD 12   /* between a box and what is in it */
#define SVG_TITLE 84 /* height of everything above all boxes */
#define SVG_CHIP 152 /* width of a device */
#define SVG_LINE 14  /* height of a device's line of text */

enum { SVG_TEXT_TITLE = 20, SVG_TEXT_HEAD = 13, SVG_TEXT_BODY = 11, SVG_TEXT_SMALL = 10 };

struct svg_box {
    int x, y, w, h;
    int max_w;  /* the part of the page's width that it can use */
    int slot_h; /* h; for a GPU with a partner, the partner's too */
    int head_w; /* of the text on top of it, at least */
};

struct svg_point {
    int x, y;
};

struct svg_layout {
    const struct render_plan *plan;
    struct svg_box *boxes; /* [plan->n], by shape */
    uint32_t *partners;    /* [plan->n] of GPUs and NICs that stand under each other, as a pair of
                            * one box that has several GPUs; else TOPO_NONE */
    bool *has_gpu;         /* [plan->n] in it or below */
    int height;            /* of all, from the page's top */
};

/* Boxes are as wide as their content; in a row of nodes they share the remaining width. */
void svg_layout_init(const struct render_plan *plan, struct svg_layout *ret);
void svg_layout_fini(struct svg_layout *l);
bool svg_is_device(enum render_kind kind);
/* False for shapes that drop_lone_hosts() removed. */
bool svg_is_shown(const struct render_plan *p, uint32_t shape);

/* The two lines on top of a box, and the height of both. A list of CPUs that is wider than `room`
 * is shortened. */
struct svg_head {
    struct render_text first, second;
};
struct svg_head svg_head(const struct render_plan *p, const struct render_shape *s, int room);
int svg_head_height(enum render_kind kind);

#define SVG_LINES_MAX 10
#define SVG_CHIP_ROOM (SVG_CHIP - 20) /* for its text */

struct svg_line {
    char text[RENDER_TEXT_MAX];
    int size;
    bool bold, dim;
};
int svg_device_height(const struct render_plan *p, const struct render_shape *s);

/* The text is at most this wide in the usual sans-serif fonts. */
int svg_text_width(const char *text, int size, bool bold);
