#include <string.h>

#include "base/text/parse.h"
#include "watchdog/evidence/disturb.h"

#define THREAD "TID "
#define MORE "more is left out\n"

/* A thread, and how many later ones have the same frames. */
struct stack {
    const char *tid; /* "12:" */
    struct strbuf frames;
    uint32_t more;
};

/* "#0  0x00007fc1871e1dd0 pause - /usr/lib/libc.so.6" becomes "pause  libc.so.6". */
static void add_frame(const char *line, struct strbuf *ret) {
    static const char before[] = " - /"; /* the module that eu-stack -m prints, the last one */
    const char *address = line + strcspn(line, " \n"), *end = line + strcspn(line, "\n");
    address += strspn(address, " ");
    const char *behind = address + strcspn(address, " \n"), *module = NULL, *at = behind;
    while ((at = memmem(at, (size_t)(end - at), before, strlen(before))) != NULL)
        module = at++;
    const char *name = behind + strspn(behind, " "), *stop = module != NULL ? module : end;
    bool named = name < stop;
    size_t n = (size_t)(named ? stop - name : behind - address);
    strbuf_add(ret, "  ");
    strbuf_add_bytes(ret, named ? name : address, MIN2(n, (size_t)NATIVE_NAME_MAX));
    if (module != NULL) {
        const char *file = (const char *)memrchr(module, '/', (size_t)(end - module)) + 1;
        strbuf_add(ret, "  ");
        strbuf_add_bytes(ret, file, MIN2((size_t)(end - file), (size_t)NATIVE_MODULE_MAX));
    }
    strbuf_add_char(ret, '\n');
}

static bool is_thread(const char *line) {
    size_t n = strlen(THREAD);
    return strncmp(line, THREAD, n) == 0 && line[n] != '\n' && line[n] != '\0';
}

/* The frames of a thread, whose first line is *at, up to the next thread. */
static void read_frames(const char **at, struct strbuf *ret) {
    uint32_t n = 0;
    for (*at = text_next_line(*at); **at != '\0' && !is_thread(*at); *at = text_next_line(*at))
        if (**at == '#' && n++ < NATIVE_FRAMES_MAX)
            add_frame(*at, ret);
    if (n > NATIVE_FRAMES_MAX)
        strbuf_add(ret, "  ...\n");
}

static void add_stack(struct stack *stacks, uint32_t *n, struct stack *one) {
    for (uint32_t i = 0; i < *n; i++)
        if (strcmp(strbuf_text(&stacks[i].frames), strbuf_text(&one->frames)) == 0) {
            stacks[i].more++;
            strbuf_fini(&one->frames);
            return;
        }
    stacks[(*n)++] = *one;
}

static bool write_stack(const struct stack *s, size_t max, struct strbuf *ret) {
    _cleanup_(strbuf_fini) struct strbuf part = {0};
    strbuf_printf(&part, "thread %.*s", (int)strcspn(s->tid, ":\n"), s->tid);
    if (s->more > 0)
        strbuf_printf(&part, ", and %u more like it", s->more);
    strbuf_add(&part, ":\n");
    strbuf_add_bytes(&part, strbuf_text(&s->frames), s->frames.len);
    if (ret->len + part.len > max)
        return false;
    strbuf_add_bytes(ret, strbuf_text(&part), part.len);
    return true;
}

void native_shorten(const char *text, size_t max, struct strbuf *ret) {
    _cleanup_(freep) struct stack *stacks = xcalloc(NATIVE_STACKS_MAX, sizeof *stacks);
    size_t limit = ret->len + (max > strlen(MORE) ? max - strlen(MORE) : 0);
    uint32_t n = 0;
    bool all = true;
    while (*text != '\0' && all) {
        struct stack one = {.tid = text + strlen(THREAD)};
        if (!is_thread(text)) {
            text = text_next_line(text);
            continue;
        }
        read_frames(&text, &one.frames);
        add_stack(stacks, &n, &one);
        all = n < NATIVE_STACKS_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        all = write_stack(&stacks[i], limit, ret) && all;
        strbuf_fini(&stacks[i].frames);
    }
    if (!all)
        strbuf_add(ret, MORE);
}
