/* What the arbiter over a directory promises, on real files. Its process: arbiter_dir_child. */
#include "rendezvous/arbiter/dir/arbiter_dir_io.h"

#include "arbiter_dir_rig.h"
#include "rendezvous/arbiter/arbiter_record.h"
#include "rig/unit.h"

#define A 11
#define B 12
#define C 13

static struct arbiter *a, *b;

static void begin(void) {
    rig_begin();
    a = rig_arbiter(0);
    b = rig_arbiter(0);
}
static void finish(void) {
    arbiter_free(a);
    arbiter_free(b);
    rig_finish();
}

static void assert_leads(const struct arbiter_answer *answer, enum arbiter_result result, uint32_t epoch,
                         uint64_t who) {
    cr_assert_eq(answer->result, result, "result %d: %s", answer->result, answer->text);
    cr_assert_eq(answer->record.epoch, epoch, "epoch %u", answer->record.epoch);
    cr_assert_eq(answer->record.leader.incarnation, who);
    cr_assert_not(answer->record.closed);
    struct arbiter_request q = rig_request(ARBITER_READ, 0, who);
    if (who != 0) {
        cr_assert_str_eq(answer->record.leader.addr, q.leader.addr);
        cr_assert_eq(answer->record.leader.port, q.leader.port);
    }
}
#define ASSERT_LEADS(call, result, epoch, who)            \
    do {                                                  \
        struct arbiter_answer answer_ = (call);           \
        assert_leads(&answer_, (result), (epoch), (who)); \
    } while (0)

static void assert_closed(const struct arbiter_answer *answer, enum arbiter_result result, uint32_t epoch,
                          enum outcome outcome) {
    cr_assert_eq(answer->result, result, "result %d: %s", answer->result, answer->text);
    cr_assert(answer->record.closed);
    cr_assert_eq(answer->record.epoch, epoch);
    cr_assert_eq(answer->record.outcome, outcome);
    cr_assert_str_eq(answer->record.reason, "told by \"who\"\n\xef\xbf\xbd");
}
#define ASSERT_CLOSED(call, result, epoch, outcome)            \
    do {                                                       \
        struct arbiter_answer answer_ = (call);                \
        assert_closed(&answer_, (result), (epoch), (outcome)); \
    } while (0)

static void assert_fails(const struct arbiter_answer *answer, enum arbiter_result result, const char *words) {
    cr_assert_eq(answer->result, result, "result %d: %s", answer->result, answer->text);
    cr_assert_not_null(strstr(answer->text, words), "'%s' is not in: %s", words, answer->text);
}
#define ASSERT_FAILS(call, result, words)          \
    do {                                           \
        struct arbiter_answer answer_ = (call);    \
        assert_fails(&answer_, (result), (words)); \
    } while (0)
#define ASSERT_UNREACHABLE(call, words) ASSERT_FAILS(call, ARBITER_UNREACHABLE, words)
#define ASSERT_RUINED(call, words) ASSERT_FAILS(call, ARBITER_RUINED, words)

#define ARBITER_TEST(name) Test(arbiter_dir_io, name, .init = begin, .fini = finish)

ARBITER_TEST(nobody_leads_before_the_first_claim) {
    ASSERT_LEADS(rig_read(a), ARBITER_OK, 0, 0);
    struct stat st;
    cr_assert_eq(stat(rig_path("."), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
    ASSERT_LEADS(rig_read(b), ARBITER_OK, 0, 0);
}

ARBITER_TEST(who_only_looks_makes_nothing) {
    const char *missing = rig_text("%s/missing", rig_dir);
    struct arbiter_dir_config config = {.path = missing, .run_id = RIG_RUN_ID, .read_only = true};
    struct arbiter *looks;
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &looks, NULL), 0);
    ASSERT_UNREACHABLE(rig_read(looks), "missing: No such file or directory");
    cr_assert_lt(access(missing, F_OK), 0);
    arbiter_free(looks);
    config.path = rig_dir;
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &looks, NULL), 0);
    ASSERT_LEADS(rig_read(looks), ARBITER_OK, 0, 0);
    cr_assert_not(rig_there("."));
    ASSERT_UNREACHABLE(rig_claim(looks, 1, C), "may only read it");
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_read(looks), ARBITER_OK, 1, A);
    arbiter_free(looks);
}

ARBITER_TEST(the_first_claim_wins) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_claim(b, 1, B), ARBITER_LOST, 1, A);
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_read(b), ARBITER_OK, 1, A);
}

ARBITER_TEST(the_beat_moves_while_its_leader_moves_it) {
    uint64_t first = rig_claim(a, 1, A).record.beat;
    cr_assert_eq(rig_read(b).record.beat, first);
    cr_assert_eq(rig_read(b).record.beat, first);
    uint64_t second = rig_beat(a, 1, A).record.beat;
    cr_assert_neq(second, first);
    cr_assert_eq(rig_read(b).record.beat, second);
    cr_assert_eq(rig_beat(b, 1, B).record.beat, second, "only the leader moves it");
    cr_assert_neq(rig_beat(a, 1, A).record.beat, second);
}

ARBITER_TEST(the_next_claim_supersedes) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_OK, 2, B);
    uint64_t beat = rig_read(b).record.beat;
    ASSERT_LEADS(rig_beat(a, 1, A), ARBITER_OK, 2, B);
    cr_assert_eq(rig_read(b).record.beat, beat, "the old leader moves no beat");
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_LOST, 2, B);
    ASSERT_LEADS(rig_claim(a, 2, A), ARBITER_LOST, 2, B);
    ASSERT_LEADS(rig_claim(a, 3, A), ARBITER_OK, 3, A);
    _cleanup_(freep) char *text = rig_file_text("epoch-1");
    assert_has(text, "\"superseded\":{\"version\":1,\"epoch\":2,");
}

/* Its name is not known yet on this host, but the old leader's own file tells of it. */
ARBITER_TEST(a_mark_says_all_of_an_epoch_that_can_not_be_seen) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_OK, 2, B);
    cr_assert_eq(rename(rig_path("epoch-2"), rig_path("hidden")), 0);
    ASSERT_LEADS(rig_beat(a, 1, A), ARBITER_OK, 2, B);
    ASSERT_LEADS(rig_read(a), ARBITER_OK, 2, B);
    cr_assert_eq(rename(rig_path("hidden"), rig_path("epoch-2")), 0);
    ASSERT_LEADS(rig_read(a), ARBITER_OK, 2, B);
}

/* As a claimant leaves it that died after its link. */
static void write_epoch(const char *file, uint32_t epoch, uint64_t who) {
    _cleanup_(strbuf_fini) struct strbuf text = {0};
    struct arbiter_request q = rig_request(ARBITER_CLAIM, epoch, who);
    arbiter_record_write(&(struct arbiter_record){.epoch = epoch, .leader = q.leader}, NULL, &text);
    rig_write(file, strbuf_text(&text));
}

ARBITER_TEST(what_a_dead_winner_left_unmarked_is_marked_by_the_next) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    write_epoch("epoch-2", 2, C);
    ASSERT_LEADS(rig_beat(a, 1, A), ARBITER_OK, 2, C);
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_LOST, 2, C);
    ASSERT_LEADS(rig_claim(b, 3, B), ARBITER_OK, 3, B);
    for (int i = 1; i <= 2; i++) {
        _cleanup_(freep) char *text = rig_file_text(rig_text("epoch-%d", i));
        assert_has(text, "\"superseded\":{\"version\":1,\"epoch\":3,");
    }
}

ARBITER_TEST(a_win_whose_answer_was_lost_is_won_when_asked_again) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    /* linked, its temporary file still there, nothing marked */
    write_epoch("claim-2-000000000000000c", 2, B);
    cr_assert_eq(link(rig_path("claim-2-000000000000000c"), rig_path("epoch-2")), 0);
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_OK, 2, B);
    _cleanup_(freep) char *text = rig_file_text("epoch-1");
    assert_has(text, "\"superseded\"");
    ASSERT_LEADS(rig_claim(a, 3, A), ARBITER_OK, 3, A);
    cr_assert_not(rig_there("claim-2-000000000000000c"), "it kept the unmarked text alive");
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_LOST, 3, A);
}

ARBITER_TEST(an_own_leftover_is_never_written_into) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    /* A's claim of epoch 2 has come to be epoch 1's file, as far as names go */
    cr_assert_eq(link(rig_path("epoch-1"), rig_path("claim-2-000000000000000b")), 0);
    ASSERT_LEADS(rig_claim(a, 2, A), ARBITER_OK, 2, A);
    _cleanup_(freep) char *text = rig_file_text("epoch-1");
    assert_has(text, "{\"version\":1,\"epoch\":1,");
}

ARBITER_TEST(epochs_have_no_gaps) {
    ASSERT_UNREACHABLE(rig_claim(a, 2, A), "epoch-2 cannot be created");
    ASSERT_UNREACHABLE(rig_claim(a, 0, A), "epoch\": 0");
    ASSERT_UNREACHABLE(rig_claim(a, UINT32_MAX, A), "epoch\": 4294967295");
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_UNREACHABLE(rig_claim(a, 3, A), "the latest file is epoch-1");
    ASSERT_UNREACHABLE(rig_close(a, 3, A, OUTCOME_FAILED), "the latest file is epoch-1");
    ASSERT_UNREACHABLE(rig_claim(a, 2, 0), "without a leader");
    ASSERT_UNREACHABLE(rig_close(a, 2, A, OUTCOME_NONE), "without an outcome");
}

ARBITER_TEST(a_closed_job_stays_closed_with_one_outcome) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_CLOSED(rig_close(a, 2, A, OUTCOME_SUCCESS), ARBITER_OK, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_close(a, 2, A, OUTCOME_SUCCESS), ARBITER_OK, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_close(b, 2, B, OUTCOME_FAILED), ARBITER_LOST, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_claim(b, 2, B), ARBITER_LOST, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_claim(b, 3, B), ARBITER_LOST, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_claim(b, 9, B), ARBITER_LOST, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_read(b), ARBITER_OK, 2, OUTCOME_SUCCESS);
    ASSERT_CLOSED(rig_beat(a, 1, A), ARBITER_OK, 2, OUTCOME_SUCCESS);
    cr_assert_eq(rename(rig_path("epoch-2"), rig_path("hidden")), 0);
    struct arbiter *late = rig_arbiter(0);
    ASSERT_CLOSED(rig_read(late), ARBITER_OK, 2, OUTCOME_SUCCESS);
    arbiter_free(late);
}

ARBITER_TEST(a_leader_may_close_by_its_own_epochs_number) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_CLOSED(rig_close(a, 1, A, OUTCOME_FAILED), ARBITER_OK, 2, OUTCOME_FAILED);
    ASSERT_CLOSED(rig_close(a, 1, A, OUTCOME_FAILED), ARBITER_OK, 2, OUTCOME_FAILED);
    ASSERT_CLOSED(rig_close(a, 1, A, OUTCOME_SUCCESS), ARBITER_LOST, 2, OUTCOME_FAILED);
}

ARBITER_TEST(a_superseded_leader_can_not_close) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_OK, 2, B);
    ASSERT_LEADS(rig_close(a, 2, A, OUTCOME_SUCCESS), ARBITER_LOST, 2, B);
    ASSERT_LEADS(rig_close(a, 1, A, OUTCOME_SUCCESS), ARBITER_LOST, 2, B);
    ASSERT_CLOSED(rig_close(b, 3, B, OUTCOME_SUCCESS), ARBITER_OK, 3, OUTCOME_SUCCESS);
}

ARBITER_TEST(a_job_may_be_closed_before_anybody_led) {
    ASSERT_CLOSED(rig_close(a, 1, A, OUTCOME_FAILED), ARBITER_OK, 1, OUTCOME_FAILED);
    ASSERT_CLOSED(rig_claim(b, 1, B), ARBITER_LOST, 1, OUTCOME_FAILED);
}

ARBITER_TEST(jobs_do_not_meet) {
    static char long_1[RDZV_RUN_ID_MAX], long_2[RDZV_RUN_ID_MAX], slashes[RDZV_RUN_ID_MAX];
    memset(long_1, 'x', sizeof long_1 - 1);
    memset(long_2, 'x', sizeof long_2 - 1);
    memset(slashes, '/', sizeof slashes - 1);
    long_2[sizeof long_2 - 2] = 'y';
    static const char *const ids[] = {"a", "A", "a/b", "a%2fb", "..", ".", "\xff\n", long_1, long_2, slashes};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct arbiter_dir_config config = {.path = rig_dir, .run_id = ids[i]};
        struct arbiter *one;
        cr_assert_eq(arbiter_dir_new(rig_loop, &config, &one, NULL), 0);
        ASSERT_LEADS(rig_claim(one, 1, 20 + i), ARBITER_OK, 1, 20 + i);
        arbiter_free(one);
    }
}

ARBITER_TEST(what_no_request_could_work_with_is_refused_at_once) {
    struct arbiter *none;
    struct err err = {0};
    static char longest[RDZV_RUN_ID_MAX + 1];
    memset(longest, 'x', sizeof longest - 1);
    struct arbiter_dir_config config = {.path = rig_dir, .run_id = longest};
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &none, &err), -EINVAL);
    config.run_id = "";
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &none, &err), -EINVAL);
    config = (struct arbiter_dir_config){.path = "", .run_id = "r"};
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &none, &err), -EINVAL);
    assert_has(err.text, "path of 0 bytes");
}

ARBITER_TEST(a_damaged_epoch_is_named) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    _cleanup_(freep) char *good = rig_file_text("epoch-1");
    size_t len = strlen(good);
    for (size_t cut = 0; cut < len - 1; cut += 7) { /* without the newline alone it is whole */
        char text[512] = "";
        memcpy(text, good, cut);
        rig_write("epoch-1", text);
        ASSERT_RUINED(rig_read(b), "epoch-1 is damaged");
        ASSERT_RUINED(rig_claim(b, 2, B), "epoch-1 is damaged");
    }
    static const char *const texts[] = {"\xff\xfe",
                                        "[]",
                                        "{}",
                                        "7",
                                        "{\"version\":2,\"epoch\":1}",
                                        "{\"version\":1,\"epoch\":2,\"leader\":\"000000000000000b\","
                                        "\"addr\":\"\",\"port\":1}",
                                        "{\"version\":1,\"epoch\":1,\"leader\":\"000000000000000b\","
                                        "\"addr\":\"\",\"port\":1,\"outcome\":\"maybe\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        rig_write("epoch-1", texts[i]);
        ASSERT_RUINED(rig_read(b), "epoch-1 is damaged");
    }
    rig_write("epoch-1", good);
    rig_write("epoch-2", "7");
    cr_assert_eq(mkdir(rig_path("epoch-98"), 0700), 0);
    ASSERT_RUINED(rig_read(b), "epoch-2 is damaged, use another run id");
    cr_assert_eq(unlink(rig_path("epoch-2")), 0);
    ASSERT_LEADS(rig_read(b), ARBITER_OK, 1, A);
}

ARBITER_TEST(only_plain_files_of_a_sane_size_are_read) {
    ASSERT_LEADS(rig_read(a), ARBITER_OK, 0, 0);
    cr_assert_eq(mkfifo(rig_path("epoch-1"), 0600), 0);
    ASSERT_UNREACHABLE(rig_read(a), "not a file of muster");
    cr_assert_eq(unlink(rig_path("epoch-1")), 0);
    cr_assert_eq(mkdir(rig_path("epoch-1"), 0700), 0);
    ASSERT_UNREACHABLE(rig_read(a), "epoch-1");
    cr_assert_eq(rmdir(rig_path("epoch-1")), 0);
    cr_assert_eq(symlink("/etc/passwd", rig_path("epoch-1")), 0);
    ASSERT_UNREACHABLE(rig_read(a), "epoch-1");
    cr_assert_eq(unlink(rig_path("epoch-1")), 0);
    rig_write("epoch-1", "");
    cr_assert_eq(truncate(rig_path("epoch-1"), 1 << 30), 0);
    ASSERT_UNREACHABLE(rig_read(a), "too long");
    cr_assert_eq(unlink(rig_path("epoch-1")), 0);
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
}

ARBITER_TEST(an_epoch_that_is_left_vacant_is_nobodys_and_the_next_is_claimed) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    struct arbiter_request vacate = rig_request(ARBITER_VACATE, 1, A), others = vacate;
    others.leader.incarnation = B;
    cr_assert_eq(rig_ask(b, &others).result, ARBITER_LOST, "it is not its to leave");
    for (int i = 0; i < 2; i++) { /* asked again, as after a lost answer */
        struct arbiter_answer answer = rig_ask(a, &vacate);
        cr_assert_eq(answer.result, ARBITER_OK, "%s", answer.text);
        cr_assert(answer.record.vacant && answer.record.epoch == 2);
    }
    struct arbiter_answer seen = rig_read(b);
    cr_assert(seen.record.vacant && seen.record.epoch == 2 && !seen.record.closed);
    cr_assert_not(rig_there("beat-2"));
    struct arbiter_answer lost = rig_claim(b, 2, B);
    cr_assert(lost.result == ARBITER_LOST && lost.record.vacant);
    cr_assert(rig_claim(a, 2, A).result == ARBITER_LOST, "nor is it who left it");
    cr_assert_eq(rig_close(a, 2, A, OUTCOME_FAILED).result, ARBITER_LOST);
    ASSERT_LEADS(rig_beat(a, 2, A), ARBITER_OK, 2, A);
    ASSERT_LEADS(rig_claim(b, 3, B), ARBITER_OK, 3, B);
    cr_assert_not(rig_read(a).record.vacant);
    cr_assert_eq(rig_ask(a, &vacate).result, ARBITER_LOST);
    vacate.epoch = 2;
    cr_assert_eq(rig_ask(a, &vacate).result, ARBITER_LOST);
}

static struct arbiter_answer claim_idle(struct arbiter *by, uint32_t epoch, uint64_t who) {
    return rig_ask(by, WITH(rig_request(ARBITER_CLAIM, epoch, who), .idle = true));
}

ARBITER_TEST(an_idle_epoch_is_led_and_told_as_idle_and_the_next_is_what_it_is_claimed_as) {
    struct arbiter_answer won = claim_idle(a, 1, A);
    assert_leads(&won, ARBITER_OK, 1, A);
    cr_assert(won.record.idle && rig_beat(a, 1, A).record.idle && rig_read(b).record.idle);
    ASSERT_LEADS(rig_claim(a, 2, A), ARBITER_OK, 2, A);
    struct arbiter_answer lost = claim_idle(b, 2, B);
    assert_leads(&lost, ARBITER_LOST, 2, A);
    cr_assert_not(lost.record.idle || rig_read(b).record.idle);
    cr_assert(claim_idle(b, 3, B).record.idle);
    cr_assert_eq(rig_claim(a, 3, A).record.idle, true, "that is why it has lost");
    ASSERT_CLOSED(rig_close(b, 3, B, OUTCOME_FAILED), ARBITER_OK, 4, OUTCOME_FAILED);
}

/* Whoever asks again can't make it another: others may have read it. */
ARBITER_TEST(a_claim_asked_again_is_as_it_was_claimed_first) {
    cr_assert(claim_idle(a, 1, A).record.idle);
    struct arbiter_answer again = rig_claim(a, 1, A);
    assert_leads(&again, ARBITER_OK, 1, A);
    cr_assert(again.record.idle);
    ASSERT_LEADS(rig_claim(a, 2, A), ARBITER_OK, 2, A);
    again = claim_idle(a, 2, A);
    assert_leads(&again, ARBITER_OK, 2, A);
    cr_assert_not(again.record.idle);
}

/* Epochs would begin again, and the first of them be won twice. */
ARBITER_TEST(an_emptied_directory_is_noticed) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    cr_assert_eq(unlink(rig_path("epoch-1")), 0);
    ASSERT_RUINED(rig_beat(a, 1, A), "epoch-1 was removed");
    ASSERT_RUINED(rig_read(a), "epoch-1 was removed");
    cr_assert_null(strstr(rig_read(a).text, "run id"), "the same can be used again");
    ASSERT_RUINED(rig_claim(a, 1, A), "epoch-1 was removed");
    ASSERT_RUINED(rig_claim(a, 2, A), "epoch-1 was removed");
    ASSERT_RUINED(rig_close(a, 1, A, OUTCOME_SUCCESS), "epoch-1 was removed");
}

ARBITER_TEST(a_removed_folder_is_noticed_and_not_made_anew) {
    const char *top = rig_text("%s/top", rig_dir);
    struct arbiter_dir_config config = {.path = top, .run_id = RIG_RUN_ID};
    struct arbiter *deep;
    cr_assert_eq(arbiter_dir_new(rig_loop, &config, &deep, NULL), 0);
    cr_assert_eq(rig_claim(deep, 1, A).result, ARBITER_OK);
    _cleanup_(freep) char *away = xasprintf("%s/away", rig_dir);
    for (int whole = 0; whole < 2; whole++) {
        _cleanup_(freep) char *place = xasprintf("%s%s", top, whole ? "" : "/" RIG_FOLDER);
        cr_assert_eq(rename(place, away), 0);
        for (int life = 0; life < 2; life++) { /* a new process knows it too */
            ASSERT_RUINED(rig_beat(deep, 1, A), "epoch-1 was removed");
            ASSERT_RUINED(rig_read(deep), "epoch-1 was removed");
            cr_assert_eq(access(place, F_OK), -1);
            int pidfd = rig_pidfd(arbiter_dir_child_pid(deep));
            cr_assert_eq(kill(arbiter_dir_child_pid(deep), SIGKILL), 0);
            rig_wait_end(pidfd);
            (void)close(pidfd);
        }
        cr_assert_eq(rename(away, place), 0);
        ASSERT_LEADS(rig_beat(deep, 1, A), ARBITER_OK, 1, A);
    }
    arbiter_free(deep);
}

/* What another job has put in its place is told, and nothing of it is ever taken for our own. */
ARBITER_TEST(another_job_in_the_place_of_a_removed_one_is_told_apart) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    cr_assert_eq(unlink(rig_path("epoch-1")), 0);
    struct arbiter *other = rig_arbiter(0);
    ASSERT_LEADS(rig_claim(other, 1, B), ARBITER_OK, 1, B);
    struct arbiter_request questions[] = {rig_request(ARBITER_READ, 0, A), rig_request(ARBITER_BEAT, 1, A),
                                          rig_request(ARBITER_CLAIM, 1, A), rig_request(ARBITER_CLAIM, 2, A)};
    for (size_t i = 0; i < ARRAY_SIZE(questions); i++) {
        struct arbiter_answer answer = rig_ask(a, &questions[i]);
        assert_fails(&answer, ARBITER_RUINED, "another job has begun there");
        cr_assert_eq(answer.record.leader.incarnation, B);
    }
    ASSERT_LEADS(rig_claim(other, 2, B), ARBITER_OK, 2, B);
    cr_assert_eq(unlink(rig_path("epoch-2")), 0);
    ASSERT_RUINED(rig_beat(other, 2, B), "epoch-2 was removed");
    arbiter_free(other);
}

ARBITER_TEST(a_lost_beat_file_is_made_again) {
    ASSERT_LEADS(rig_claim(a, 1, A), ARBITER_OK, 1, A);
    cr_assert_eq(unlink(rig_path("beat-1")), 0);
    cr_assert_eq(rig_read(b).record.beat, 0);
    uint64_t beat = rig_beat(a, 1, A).record.beat;
    cr_assert_neq(beat, 0);
    cr_assert_eq(rig_read(b).record.beat, beat);
    rig_write("beat-1", "garbage, and more of it than a beat has");
    ASSERT_LEADS(rig_beat(a, 1, A), ARBITER_OK, 1, A);
    rig_write("beat-2", "00000000000000ff\n"); /* by a node that claims the same epoch, and may win */
    ASSERT_LEADS(rig_claim(b, 2, B), ARBITER_OK, 2, B);
    _cleanup_(freep) char *text = rig_file_text("beat-2");
    cr_assert_str_eq(text, "00000000000000ff\n");
}
