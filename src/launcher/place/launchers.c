#include "launcher/place/launchers.h"

#include <signal.h>
#include <string.h>

#include "base/util.h"

const struct launcher launchers[] = {
    /* ---- inside: a process manager has started several tasks ---- */
    /* Open MPI 4: man/man1/orterun.1; 5: PRRTE. Seen with 4.1.4 and 5.0.11. */
    {.name = "openmpi",
     .title = "Open MPI",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "orted prted mpirun prterun",
     .proof = "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMIX_NAMESPACE",
     .sizes = LAUNCHER_BY_PMIX,
     .tasks = "OMPI_COMM_WORLD_SIZE",
     .task = "OMPI_COMM_WORLD_RANK",
     .run_id = "PMIX_NAMESPACE",
     .hidden = "OMPI_ PRTE_"},
    /* MPICH, MVAPICH, Intel MPI: src/pm/hydra. Seen with MPICH 4.0.2, 5 and Intel MPI 2021.18. */
    {.name = "hydra",
     .title = "Hydra (MPICH, Intel MPI)",
     .kind = LAUNCHER_INSIDE,
     .ancestors = "hydra_pmi_proxy",
     .proof = "PMI_FD PMI_RANK PMI_SIZE",
     .sizes = LAUNCHER_BY_PMI1,
     .tasks = "PMI_SIZE",
     .task = "PMI_RANK",
     .hidden = "MPI_LOCAL HYDI_"},
};
const size_t n_launchers = ARRAY_SIZE(launchers);

const struct launcher *launcher_by_name(const char *name) {
    for (size_t i = 0; i < n_launchers; i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    return NULL;
}

const struct launcher *launcher_by_ancestor(const char *program) {
    for (size_t i = 0; i < n_launchers; i++)
        if (launcher_has_word(launchers[i].ancestors, program))
            return &launchers[i];
    return NULL;
}

bool launcher_has_word(const char *list, const char *word) {
    const size_t len = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (n == len && memcmp(at, word, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}
