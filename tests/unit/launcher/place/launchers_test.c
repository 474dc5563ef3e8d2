#include "launcher/place/launchers.h"

#include "rig/unit.h"

/* /proc/PID/stat has at most 15 bytes of a name. */
#define PROGRAM_MAX 15u

static void check_words(const char *name, const char *const list[], size_t n, size_t most) {
    for (size_t i = 0; i < n && list[i] != NULL; i++)
        cr_expect(list[i][0] != '\0' && strlen(list[i]) <= most, "%s: \"%s\"", name, list[i]);
}

Test(launchers, every_row_can_be_used) {
    for (size_t i = 0; i < n_launchers; i++) {
        const struct launcher *l = &launchers[i];
        cr_expect_eq(launcher_by_name(l->name), l, "%s is there twice", l->name);
        cr_expect(l->title != NULL && l->proof[0] != NULL && l->kind != 0, "%s", l->name);
        cr_expect_eq(l->part == NULL, l->whole == NULL, "%s", l->name);
        check_words(l->name, l->ancestors, LAUNCHER_ANCESTORS_MAX, PROGRAM_MAX);
        check_words(l->name, l->proof, LAUNCHER_PROOF_MAX, 64);
        check_words(l->name, l->hidden, ARRAY_SIZE(l->hidden), 64);
        switch (l->kind) {
        case LAUNCHER_NODES: cr_expect(l->nodes[0] != NULL || l->hosts != NULL, "%s", l->name); break;
        case LAUNCHER_ALLOC: cr_expect(l->hosts != NULL, "%s", l->name); break;
        case LAUNCHER_INSIDE: cr_expect(l->tasks != NULL && l->task != NULL, "%s", l->name); break;
        }
    }
}

Test(launchers, rows_are_found_by_whole_words) {
    cr_expect_str_eq(launcher_by_ancestor("orted")->name, "openmpi");
    cr_expect_str_eq(launcher_by_ancestor("mpiexec")->name, "openmpi");
    cr_expect_str_eq(launcher_by_ancestor("hydra_pmi_proxy")->name, "hydra");
    cr_expect_null(launcher_by_ancestor("orte"));
    cr_expect_null(launcher_by_ancestor("bash"));
    cr_expect_null(launcher_by_name("slurm"));
}
