/* What the pictures have in common: SVG without scripts, in colours for light and dark. */
#pragma once

#include "cli/profile/profile_view.h"

#define PICTURE_MIXED PROFILE_CLASS_COUNT /* a colour more: several classes */
struct picture {
    const struct profile_view *view;
    struct strbuf body; /* owned; below the title, from y = picture_top() on */
    double width, height;
    bool used[PICTURE_MIXED + 1]; /* colours, in the legend */
    const char *note;             /* below the legend */
};
#define PICTURE_MARGIN 12  /* left and right of the body */
#define PICTURE_LETTER 6.6 /* mean width */

double picture_top(const struct profile_view *v);
/* The text for XML, cut to so many characters. */
void picture_add_text(struct strbuf *out, const char *text, size_t max);
/* An element with it, which begins at x and whose line is at y. */
void picture_text(struct strbuf *out, const char *class, double x, double y, size_t max,
                  const char *fmt, ...) _printf_(6, 7);
void picture_box(struct strbuf *out, const char *class, double x, double y, double width,
                 double height);
/* Adds title, body and legend to *ret, and frees the body. */
void picture_finish(struct picture *p, struct strbuf *ret);

void profile_flame(const struct profile_view *v, struct strbuf *ret); /* frames of all ranks */
void profile_strip(const struct profile_view *v, struct strbuf *ret); /* ranks by time */
/* For https://www.speedscope.app: one profile for each rank. */
void profile_speedscope(const struct profile_view *v, struct strbuf *ret);
