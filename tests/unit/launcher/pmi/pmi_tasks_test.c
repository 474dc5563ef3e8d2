#include "launcher/pmi/pmi.h"

#include "rig/unit.h"

#define N_MAX 8

struct row {
    const char *cards; /* separated by blanks */
    uint32_t rank, n_nodes, node_id, node_tasks, most_tasks, local_id;
};

/* Cards as they arrive: copies. */
static void take_cards(struct pmi_tasks *tasks, const char *text) {
    tasks->cards = xcalloc(N_MAX, sizeof *tasks->cards);
    for (size_t n; *text != '\0'; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        tasks->cards[tasks->n++] = xstrndup(text, n);
    }
}

Test(pmi_tasks, nodes_are_counted_by_host_names_in_the_order_of_ranks) {
    static const struct row rows[] = {
        {"b", 0, 1, 0, 1, 1, 0},
        {"b a", 0, 2, 0, 1, 1, 0}, /* node 0 is that of rank 0, whatever its name */
        {"b a", 1, 2, 1, 1, 1, 0},
        {"b b b b", 2, 1, 0, 4, 4, 2},
        {"c c b b a a", 3, 3, 1, 2, 2, 1},
        {"c b a c b a", 4, 3, 1, 2, 2, 1},
        {"c b a c b a", 2, 3, 2, 2, 2, 0},
        {"a b b b c", 0, 3, 0, 1, 3, 0},
        {"a b b b c", 4, 3, 2, 1, 3, 0},
        {"a1 a a1 a", 3, 2, 1, 2, 2, 1}, /* a name that begins another */
        {"a,muster-key-1:00 a b", 1, 2, 0, 2, 2, 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct pmi_tasks tasks = {.rank = row->rank};
        struct place got = {0};
        char *run_id = NULL;
        take_cards(&tasks, row->cards);
        cr_assert_eq(pmi_tasks_read(&tasks, &got, &run_id, NULL), 0, "row %zu", i);
        const uint32_t found[] = {got.n_nodes, got.node_id, got.node_tasks, got.most_tasks, got.local_id},
                       expected[] = {row->n_nodes, row->node_id, row->node_tasks, row->most_tasks, row->local_id};
        for (size_t k = 0; k < ARRAY_SIZE(found); k++)
            cr_expect_eq(found[k], expected[k], "row %zu, number %zu: %u", i, k, found[k]);
        cr_expect_eq(got.n_tasks, tasks.n);
        cr_expect_eq(got.proc_id, row->rank);
        cr_expect_eq(strlen(got.first_host), strcspn(row->cards, ", "));
        cr_expect_null(run_id);
        free(got.first_host);
        pmi_tasks_fini(&tasks);
    }
}

Test(pmi_tasks, a_run_with_another_key_has_another_name) {
    static const char *const keys[] = {"a,muster-key-1:00 a", "a,muster-key-1:01 a", "a,muster-key-1:00 b"};
    char *names[ARRAY_SIZE(keys)];
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct pmi_tasks tasks = {.run_id = xstrdup("1828454401")};
        struct place got = {0};
        take_cards(&tasks, keys[i]);
        cr_assert_eq(pmi_tasks_read(&tasks, &got, &names[i], NULL), 0);
        free(got.first_host);
        pmi_tasks_fini(&tasks);
    }
    cr_expect_eq(strncmp(names[0], "1828454401.", 11), 0, "%s", names[0]);
    cr_expect_str_neq(names[0], names[1]);
    cr_expect_str_eq(names[0], names[2]);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        free(names[i]);
}

Test(pmi_tasks, a_value_of_another_program_is_refused) {
    char longer[PMI_CARD_MAX + 1];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const char *const values[] = {"", ",muster-key-1:00", "a\tb", "a\x7f", longer};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        char *cards[] = {xstrdup("a"), xstrdup(values[i])};
        const struct pmi_tasks tasks = {.n = 2, .cards = cards};
        struct place got = {0};
        struct err err = {0};
        cr_expect_eq(pmi_tasks_read(&tasks, &got, NULL, &err), -EPROTO, "value %zu", i);
        expect_has(err.text, "task 1 published");
        cr_expect_null(got.first_host);
        free(cards[0]);
        free(cards[1]);
    }
}

Test(pmi_tasks, a_card_has_a_host_and_perhaps_a_key) {
    char card[PMI_CARD_MAX], longer[2 * PMI_CARD_MAX];
    pmi_card_write("node 1,2", NULL, card);
    cr_expect_str_eq(card, "node_1_2");
    cr_expect_null(pmi_card_key(card));
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    const char *const hosts[] = {"node1", longer};
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        pmi_card_write(hosts[i], "muster-key-1:12", card);
        cr_expect_str_eq(pmi_card_key(card), "muster-key-1:12");
    }
}
