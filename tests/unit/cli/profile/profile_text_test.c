/* The text and the JSON of findings that are made by hand. */
#include "cli/profile/profile_view.h"

#include <math.h>

#include "base/json/json.h"
#include "profile_rig.h"
#include "rig/unit.h"

TestSuite(profile_text, .init = setup, .fini = teardown);

static const char *text(void) {
    strbuf_clear(&out);
    profile_text(&rig.view, &out);
    return strbuf_text(&out);
}

static void expect(const char *part) { cr_expect(strstr(text(), part) != NULL, "\"%s\" is not in\n%s", part, text()); }
static void refuse(const char *part) { cr_expect(strstr(text(), part) == NULL, "\"%s\" is in\n%s", part, text()); }

Test(profile_text, is_one_page) {
    const char *want = "job r<&>1: 4 ranks on 1 node, 20 samples a second for 10 s\n"
                       "\n"
                       "where the time goes, for the average rank\n"
                       "  waits for a late rank       30 %  ████████████\n"
                       "  backward                    30 %  ████████████\n"
                       "  forward                     20 %  ████████\n"
                       "  data loading                10 %  ████\n";
    cr_expect(strncmp(text(), want, strlen(want)) == 0, "%s", text());
    expect(
        "\n\nparallel efficiency 60 % = load balance 67 % x communication 90 %\n"
        "rank 2 is late: the others wait for it 40 % of the time\n"
        "  it spends more time in data loading (+40 %), __getitem__ (loader.py:41)\n"
        "\n"
        "rank  works  waits  mostly\n"
        "   0   50 %   50 %  backward 30 %, main (train.py:70); forward 20 %, <lambda> & \"forward\" (<model>.py:12)\n"
        "   1   50 %");
    expect("\n   2   90 %   10 %  data loading 40 %, __getitem__ (loader.py:41); backward 30 %");
    refuse("missing");
}

Test(profile_text, each_kind_of_late_rank) {
    struct profile_late *l = rig.findings.late;
    l->how = PROFILE_PAUSES;
    l->n_pauses = 13;
    l->pause_s = 0.52;
    expect("rank 2 makes the others wait 13 times, 0.5 s each: 40 % of the time\n");
    l->how = PROFILE_MOST_WORK;
    expect("rank 2 has the most to do: it works 90 % of the time, the others 50 %; evenly divided, a step would take "
           "33 % less\n");
}

Test(profile_text, no_rank_is_late) {
    rig.findings.n_late = 0;
    expect("\nno rank is late\n");
    rig.findings.span_ns = 2 * NS_PER_S;
    expect("\ntoo short to find late ranks: this needs more than 3 s\n");
    rig.findings.n_ranks = 1;
    expect("\none rank alone is never late\n");
}

Test(profile_text, limits) {
    static const char *const want[] = {
        "data loading limits the job: 64 % of the time, in the worker's main process (num_workers=0)\n  in f "
        "(a.py:1)\n",
        ("data loading limits the job: 64 % of the time; its processes are always busy (2 for each rank)\n"
         "  in f (a.py:1)\n"),
        "data loading limits the job: 64 % of the time; its processes are not always busy\n  in f (a.py:1)\n",
        "too few CPUs: main threads are ready to run, but find no CPU 64 % of the time\n",
        "the network limits the job: all ranks wait at once 64 % of the time\n",
        "hosts wait for their GPUs 64 % of the time; which GPU is slow cannot be seen from the host\n",
    };
    rig.profile.ranks[3].n_children = 2;
    rig.findings.n_limits = 1;
    rig.findings.limits[0].share = 0.64;
    for (unsigned i = 0; i < ARRAY_SIZE(want); i++) {
        rig.findings.limits[0].what = (enum profile_limit)(PROFILE_LIMIT_DATA_HERE + i);
        (void)strcpy(rig.findings.limits[0].place, rig.findings.limits[0].what < PROFILE_LIMIT_CPU ? "f (a.py:1)" : "");
        expect(want[i]);
    }
}

Test(profile_text, ranks_that_only_wait_or_have_no_samples) {
    rig.findings.communication = 0;
    rig.findings.load_balance = NAN;
    expect("parallel efficiency 0 %: all ranks only wait\n");
    rig.findings.n_ticks = 0;
    rig.findings.rows[1] = (struct profile_row){.rank = 1, .gap = "Python 3.8 is not known"};
    expect(
        "job r<&>1: 4 ranks on 1 node; no sample has stacks of all ranks\n\nrank  works  waits  mostly\n   0   50 %");
    expect("\n   1      -      -  (Python 3.8 is not known)\n");
}

Test(profile_text, what_is_missing) {
    struct profile_missing missing = {.node = "b", .why = "no answer\033 in time"};
    rig.view.n_missing = 1;
    rig.view.missing = &missing;
    rig.view.n_nodes = 2;
    rig.findings.rows[3] = (struct profile_row){.rank = 3, .gap = "it ended"};
    expect(" ranks on 2 nodes, ");
    expect("\n   3      -      -  (it ended)\n\nnode b is missing: no answer? in time\n");
}

Test(profile_text, only_some_ranks) {
    struct err err = {0};
    cr_assert_eq(rank_set_parse("1,3", &rig.ranks, &err), 0);
    expect("rank 2 is late");
    refuse("\n   0 ");
    expect("\n   1   50 %");
    refuse("\n   2 ");
}

Test(profile_text, many_ranks_share_rows) {
    rig_fini(&rig);
    rig_setup(&rig, 1000, 10);
    rig.findings.rows[7].mostly[1].cls = PROFILE_OTHER_WORK; /* only the first reason counts */
    expect("\n     rank  works  waits  mostly\n"
           "0-1,3-999   50 %   50 %  backward 30 %, main (train.py:70)\n"
           "        2   90 %   10 %  data loading 40 %");
    for (uint32_t i = 0; i < 1000; i++)
        (void)snprintf(rig.findings.rows[i].mostly[0].place, PROFILE_PLACE_MAX, "f (a.py:%u)", i);
    expect("\n952 more ranks, which differ; --rank shows them\n");
}

Test(profile_text, json_is_one_object) {
    struct profile_missing missing = {.node = "b", .why = "no answer in time"};
    struct json *doc = NULL;
    struct err err = {0};
    rig.view.n_missing = 1;
    rig.view.missing = &missing;
    rig.findings.load_balance = NAN;
    rig.findings.n_limits = 1;
    rig.findings.limits[0].what = PROFILE_LIMIT_CPU;
    rig.findings.rows[0].gap = "it ended";
    profile_json(&rig.view, &out);
    cr_assert_eq(json_parse(out.data, out.len, &JSON_LIMITS_DEFAULT, &doc, &err), 0, "%s", err.text);
    json_free(doc);
    static const char *const parts[] = {
        "{\"job\":\"r<&>1\",\"ranks\":4,\"nodes\":1,\"period_s\":0.05,\"seconds\":10,\"shares\":{",
        "\"data\":0.1,",
        "\"samples\":200,\"load_balance\":0,\"communication\":0.9,",
        "\"late\":[{\"rank\":2,\"how\":\"late\",\"share\":0.4,\"works\":0.9,\"others_work\":0.5,\"pauses\":0,\"pause_"
        "s\":0,"
        "\"reasons\":[{\"class\":\"data\",\"share\":0.4,\"place\":\"__getitem__ (loader.py:41)\"}]}]",
        "\"limits\":[{\"what\":\"cpu\",\"share\":0,\"place\":\"\"}]",
        "\"missing\":\"it ended\"}",
        "\"missing\":null}",
        "\"missing_nodes\":[{\"node\":\"b\",\"missing\":\"no answer in time\"}]}\n"};
    for (unsigned i = 0; i < ARRAY_SIZE(parts); i++)
        cr_expect(strstr(out.data, parts[i]) != NULL, "%s is not in\n%s", parts[i], out.data);
}
