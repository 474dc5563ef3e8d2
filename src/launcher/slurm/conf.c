#include "launcher/slurm/conf.h"

#include <string.h>
#include <strings.h>

static const char blank[] = " \t\r";

/* Whether the text begins with this name, and no longer one. */
static bool begins_with(const char *text, const char *name) {
    size_t n = strlen(name);
    return strncasecmp(text, name, n) == 0 && strcspn(text + n, " \t\r\n=#") == 0;
}

/* The value of the parameter, if `at` is there: "TaskPlugin = task/none"; else NULL. */
static const char *value_at(const char *at, const char *name) {
    if (!begins_with(at, name))
        return NULL;
    at += strlen(name);
    at += strspn(at, blank);
    if (*at != '=')
        return NULL;
    return at + 1 + strspn(at + 1, blank);
}

bool slurm_conf_binds_nothing(const char *text) {
    bool none = false;
    for (const char *line = text; *line != '\0';) {
        const char *end = line + strcspn(line, "\n"), *at = line + strspn(line, blank);
        if (begins_with(at, "Include"))
            return false;
        while (at < end && *at != '#') { /* a line can have several parameters */
            const char *value = value_at(at, "TaskPlugin");
            if (value != NULL)
                none = begins_with(value, "task/none") || begins_with(value, "none");
            at += strcspn(at, " \t\r\n");
            at += strspn(at, blank);
        }
        line = end + (*end == '\n');
    }
    return none;
}
