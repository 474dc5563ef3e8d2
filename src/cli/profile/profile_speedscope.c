/* The file format of https://www.speedscope.app. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json/json.h"
#include "cli/profile/profile_pictures.h"

static double seconds(const struct profile *p, uint32_t ticks) {
    return ticks * (double)p->period_ns / (double)NS_PER_S;
}

/* The outermost first. */
static void write_frames(struct json_writer *w, const struct profile *p, int32_t stack) {
    if (stack < 0)
        return;
    write_frames(w, p, p->stacks[stack].outer);
    json_write_u64(w, NULL, p->stacks[stack].frame);
}

/* Runs of equal samples are one. A tick without a sample has an empty stack. */
static void write_rank(struct json_writer *w, const struct profile_view *v, uint32_t r) {
    const struct profile *p = v->profile;
    const uint8_t *classes = &v->findings->classes[(size_t)r * p->n_ticks];
    _cleanup_(strbuf_fini) struct strbuf weights = {0};
    char name[32];
    (void)snprintf(name, sizeof name, "rank %" PRIu32, p->ranks[r].rank);
    json_write_object_begin(w, NULL);
    json_write_string(w, "type", "sampled");
    json_write_string(w, "name", name);
    json_write_string(w, "unit", "seconds");
    json_write_u64(w, "startValue", 0);
    json_write_double(w, "endValue", seconds(p, p->n_ticks));
    json_write_array_begin(w, "samples");
    for (uint32_t t = 0, next; t < p->n_ticks; t = next) {
        int32_t stack = profile_at(p, &p->ranks[r], t).stack;
        for (next = t + 1; next < p->n_ticks && classes[next] == classes[t] &&
                           profile_at(p, &p->ranks[r], next).stack == stack;)
            next++;
        strbuf_printf(&weights, "%s%.6g", t == 0 ? "" : ",", seconds(p, next - t));
        json_write_array_begin(w, NULL);
        write_frames(w, p, stack);
        if (stack == PROFILE_NOT_READ || (stack >= 0 && classes[t] >= PROFILE_FIRST_WAIT))
            json_write_u64(w, NULL, p->n_frames + (uint64_t)classes[t]);
        json_write_array_end(w);
    }
    json_write_array_end(w);
    json_write_array_begin(w, "weights");
    strbuf_add(w->out, strbuf_text(&weights));
    json_write_array_end(w);
    json_write_object_end(w);
}

void profile_speedscope(const struct profile_view *v, struct strbuf *ret) {
    const struct profile *p = v->profile;
    struct json_writer w = json_writer_of(ret);
    json_write_object_begin(&w, NULL);
    json_write_string(&w, "$schema", "https://www.speedscope.app/file-format-schema.json");
    json_write_string(&w, "exporter", "muster");
    json_write_string(&w, "name", v->run_id);
    json_write_object_begin(&w, "shared");
    json_write_array_begin(&w, "frames");
    for (uint32_t i = 0; i < p->n_frames + PROFILE_CLASS_COUNT; i++) {
        const struct profile_frame *f = i < p->n_frames ? &p->frames[i] : NULL;
        json_write_object_begin(&w, NULL);
        json_write_string(&w, "name", f ? f->function : profile_class_names[i - p->n_frames]);
        if (f != NULL) {
            json_write_string(&w, "file", f->file);
            json_write_u64(&w, "line", f->line);
        }
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    json_write_array_begin(&w, "profiles");
    for (uint32_t r = 0; r < p->n_ranks; r++)
        if (rank_set_has(v->ranks, p->ranks[r].rank))
            write_rank(&w, v, r);
    json_write_array_end(&w);
    json_write_object_end(&w);
    strbuf_add_char(ret, '\n');
}
