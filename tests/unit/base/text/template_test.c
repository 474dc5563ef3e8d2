#include "base/text/template.h"

#include "rig/unit.h"

static const char *lookup(void *arg, const char *name) { return strcmp(name, "local_rank") == 0 ? arg : NULL; }

Test(template, substitutes_as_pythons_safe_substitute) {
    static const char *const cases[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"${local_rank}", "3"},
        {"$local_rank", "3"},
        {"a${local_rank}b$local_rank", "a3b3"},
        {"$local_rankx", "$local_rankx"},
        {"$$", "$"},
        {"$$local_rank", "$local_rank"},
        {"$$$local_rank", "$3"},
        {"$", "$"},
        {"a$", "a$"},
        {"${", "${"},
        {"${local_rank", "${local_rank"},
        {"${}", "${}"},
        {"$1", "$1"},
        {"${other}$o", "${other}$o"},
        {"$local_rank.txt", "3.txt"},
        {"${local_rank }", "${local_rank }"},
        {"$-x", "$-x"},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"$\xc3\xa4", "$\xc3\xa4"},
        {"$local_rank\xc3\xa4", "3\xc3\xa4"},
        {"$9$local_rank", "$93"},
        {"${other$local_rank}", "${other3}"},
    };
    char rank[] = "3";
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(freep) char *got = template_substitute(cases[i][0], lookup, rank);
        cr_assert_str_eq(got, cases[i][1], "of \"%s\"", cases[i][0]);
    }
}
