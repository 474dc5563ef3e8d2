#include "base/text/template.h"

#include <ctype.h>
#include <stdbool.h>

#include "base/text/strbuf.h"

static bool name_start(char c) { return c == '_' || (isascii(c) && isalpha((unsigned char)c)); }
static bool name_char(char c) { return name_start(c) || (c >= '0' && c <= '9'); }

/* How many bytes the "$…" at `p` has, if it is a name; else 0. *ret is set to the name. */
static size_t template_name(const char *p, char **ret) {
    bool braced = p[1] == '{';
    const char *name = p + 1 + braced;
    if (!name_start(*name))
        return 0;
    size_t n = 1;
    while (name_char(name[n]))
        n++;
    if (braced && name[n] != '}')
        return 0;
    *ret = xstrndup(name, n);
    return 1 + n + (braced ? 2 : 0);
}

char *template_substitute(const char *text, const char *(*lookup)(void *arg, const char *name),
                          void *arg) {
    struct strbuf out = {0};
    for (const char *p = text; *p != '\0';) {
        _cleanup_(freep) char *name = NULL;
        size_t n = 1;
        const char *value = NULL;
        if (p[0] == '$' && p[1] == '$') {
            n = 2;
            value = "$";
        } else if (p[0] == '$' && (n = template_name(p, &name)) > 0) {
            value = lookup(arg, name);
        }
        n = MAX2(n, (size_t)1);
        if (value != NULL)
            strbuf_add(&out, value);
        else
            strbuf_add_bytes(&out, p, n);
        p += n;
    }
    return strbuf_take(&out);
}
