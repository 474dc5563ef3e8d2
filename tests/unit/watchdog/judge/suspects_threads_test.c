/* Main threads that are all in an event loop: another thread of most ranks waits in torch.distributed. */
#include "rig/unit.h"
#include "suspects_rig.h"

#define LOOP "select /usr/lib/python3.11/selectors.py 468 main /home/u/train.py 9"
#define MEETS                                                                                       \
    "all_reduce /venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py 2991 run " \
    "/usr/lib/python3.11/concurrent/futures/thread.py 58"
#define ELSEWHERE "load /home/u/data.py 20 run /usr/lib/python3.11/concurrent/futures/thread.py 58"

static struct suspects_rig four, *const r = &four;

static void begin(void) {
    suspects_rig_init(r, 4);
    for (uint32_t rank = 0; rank < 4; rank++)
        rig_does(r, rank, 'S', "epoll_wait", "ep_poll", "", LOOP);
}
static void end(void) { suspects_rig_fini(r); }
TestSuite(suspects_threads, .init = begin, .fini = end);

static void find(uint32_t n) {
    rig_find(r);
    cr_assert_eq(r->found.n_all, n, "%s", strbuf_text(&r->line));
}

static void add_thread(uint32_t rank, const char *frames) {
    struct evidence_worker *w = rig_worker(r, rank);
    w->threads = xrealloc(w->threads, (w->n_threads + (size_t)1) * sizeof *w->threads);
    w->threads[w->n_threads++] = (struct evidence_thread){
        .tid = 100 + (int32_t)rank, .state = 'S', .syscall = "read", .stack = rig_stack(r, rank, frames)};
}

Test(suspects_threads, a_rank_whose_thread_does_not_come_is_named) {
    for (uint32_t rank = 0; rank < 4; rank++)
        add_thread(rank, rank == 2 ? ELSEWHERE : MEETS);
    find(1);
    cr_expect_eq(r->found.suspects[0].rank, 2);
    cr_expect_eq(r->found.suspects[0].reason, SUSPECT_THREAD);
    expect_has(strbuf_text(&r->line), "no thread of it waits in torch.distributed as those of others do; "
                                      "its thread 102: read() in load (data.py:20); its main thread: ");
}

Test(suspects_threads, a_rank_without_another_thread_is_named) {
    for (uint32_t rank = 0; rank < 3; rank++)
        add_thread(rank, MEETS);
    find(1);
    cr_expect_eq(r->found.suspects[0].rank, 3);
}

Test(suspects_threads, nobody_is_named_without_a_majority_or_for_other_threads) {
    for (uint32_t rank = 0; rank < 4; rank++) /* each writes a log, at some line of it */
        add_thread(rank, rank % 2 == 0 ? "write /home/u/log.py 5" : "sleep /home/u/log.py 6");
    find(0);
    for (uint32_t rank = 0; rank < 4; rank++) {
        add_thread(rank, MEETS);
        if (rank % 2 == 1) /* two against two; all are there */
            find(0);
    }
}

Test(suspects_threads, nobody_is_named_whose_threads_are_not_all_known) {
    for (uint32_t rank = 0; rank < 4; rank++)
        add_thread(rank, rank == 2 ? ELSEWHERE : MEETS);
    rig_worker(r, 2)->threads_cut = true;
    find(0);
}
