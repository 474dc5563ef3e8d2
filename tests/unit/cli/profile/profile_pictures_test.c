/* The pictures of a job that is made by hand. tests/e2e/test_profile_pictures.py draws those of a real one. */
#include "cli/profile/profile_view.h"

#include "base/json/json.h"
#include "profile_rig.h"
#include "rig/unit.h"

TestSuite(profile_pictures, .init = setup, .fini = teardown);

static uint32_t count(const char *part) {
    uint32_t n = 0;
    for (const char *at = strbuf_text(&out); (at = strstr(at, part)) != NULL; at += strlen(part))
        n++;
    return n;
}
static void draw(const char *file) {
    strbuf_clear(&out);
    profile_form_of(file)->write(&rig.view, &out);
}
static void expect(const char *part) { cr_expect_neq(count(part), 0, "%s is not in\n%s", part, strbuf_text(&out)); }
static void refuse(const char *part) { cr_expect_eq(count(part), 0, "%s is in\n%s", part, strbuf_text(&out)); }
static void choose(const char *ranks) {
    struct err err = {0};
    cr_assert_eq(rank_set_parse(ranks, &rig.ranks, &err), 0);
}

Test(profile_pictures, the_end_of_the_name_is_the_form) {
    cr_expect_str_eq(profile_form_of("a.svg")->suffix, ".svg");
    cr_expect_str_eq(profile_form_of("/x/a.strip.svg")->suffix, ".strip.svg");
    cr_expect_str_eq(profile_form_of(".speedscope.json")->suffix, ".speedscope.json");
    cr_expect(profile_form_of("a.svg.txt")->write == profile_text);
    cr_expect_null(profile_form_of("a.png"));
    cr_expect_null(profile_form_of("svg"));
}

Test(profile_pictures, a_flame_marks_the_time_of_the_late_rank) {
    draw("a.svg");
    expect("job r&#60;&#38;&#62;1: what 4 ranks did in 10 s</text>");
    expect("<text class=\"late\" x=\"0.0\" y=\"46.0\">rank 2 is late: the others wait for it 40 % of the time; more "
           "data loading (+40 %), __getitem__ (loader.py:41)</text>");
    /* 40 % of the time of one of 4 ranks; the first of its siblings, below main() */
    expect("<title>__getitem__ (/home/u/loader.py:41): 10 % of the time; rank 2 40 %, the others 0 %</title>"
           "<rect class=\"c6 hot\" x=\"0.0\" y=\"144.0\" width=\"119.4\" height=\"18.0\"/>");
    cr_expect_eq(count(" hot\""), 1);
    expect(">rank 2: +40 %</text>");
    cr_expect_eq(count("class=\"tag\""), 1);
    expect(">waits for a late rank 30 %</text>");
    expect("<title>network (all ranks wait): 10 % of the time</title>");
    expect("<title>&#60;lambda&#62; &#38; &#34;forward&#34; (/home/u/&#60;model&#62;.py:12): 20 % of the time</title>");
    expect("prefers-color-scheme:dark");
    refuse("<script");
}

Test(profile_pictures, a_flame_of_some_ranks_has_only_their_frames) {
    choose("0-1");
    draw("a.svg");
    expect("rank 2 is late");
    refuse(" hot\"");
    refuse("__getitem__ (/home");
    expect(">waits for a late rank</text>"); /* its colour in the legend */
    expect(">waits for a late rank 40 %</text>");
}

Test(profile_pictures, a_flame_without_a_late_rank) {
    rig.findings.n_late = 0;
    draw("a.svg");
    expect("<text class=\"dim\" x=\"0.0\" y=\"46.0\">no rank is late: ");
    refuse(" hot\"");
}

Test(profile_pictures, wrappers_are_left_out_and_samples_without_a_stack_are_shown) {
    static char wrapper[] = "/x/torch/nn/modules/module.py";
    rig.profile.frames[1].file = wrapper;
    for (uint32_t t = 0; t < 100; t++) {
        rig.profile.ranks[0].samples[t].stack = PROFILE_NOT_READ;
        rig.profile.ranks[1].samples[t].stack = PROFILE_ABSENT;
        rig.findings.classes[t] = PROFILE_START;
    }
    draw("a.svg");
    refuse(">main (module.py:70)");
    expect(": 14 % of the time</title><rect class=\"c13\""); /* 100 of 700 */
}

Test(profile_pictures, a_strip_has_a_row_for_each_rank) {
    draw("a.strip.svg");
    expect(">rank 0</text>");
    expect("<text class=\"end late\" x=\"100.0\" y=\"207.0\">rank 2</text>\n<text class=\"late\" x=\"1078.0\" "
           "y=\"207.0\">10 %</text>");
    cr_expect_eq(count("<rect class=\"none hot\""), 1);
    cr_expect_eq(count("<title>data loading: 40 %</title>"), 1);
    cr_expect_eq(count("<title>waits for a late rank: 40 %</title>"), 3);
    expect(">10 s</text>");
    rig.findings.classes[0] = PROFILE_OPTIMIZER;
    rig.findings.rows[0].waits = 0.005;
    draw("a.strip.svg");
    expect("<title>optimizer: &#60;1 %</title>");
    expect(">&#60;1 %</text>");
    choose("3");
    draw("a.strip.svg");
    expect(">rank 3</text>");
    refuse(">rank 2</text>");
}

Test(profile_pictures, a_strip_of_many_ranks_has_groups_and_the_late_rank_alone) {
    rig_fini(&rig);
    rig_setup(&rig, 1000, 1000);
    draw("a.strip.svg");
    expect(">ranks 0-1</text>");
    expect(">rank 2</text>");
    expect(">ranks 3-18</text>");
    expect("-999</text>");
    cr_expect_leq(count("class=\"end "), 66);
    cr_expect_leq(out.len, 1u << 20);
    draw("a.svg");
    expect(">rank 2: +40 %</text>"); /* although its frame is too narrow */
}

Test(profile_pictures, speedscope_has_a_profile_for_each_rank) {
    struct json *doc = NULL;
    struct err err = {0};
    rig.profile.ranks[3].samples[0].stack = PROFILE_ABSENT;
    choose("2-3");
    draw("a.speedscope.json");
    cr_assert_eq(json_parse(out.data, out.len, &JSON_LIMITS_DEFAULT, &doc, &err), 0, "%s", err.text);
    json_free(doc);
    expect("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",");
    expect("{\"name\":\"__getitem__\",\"file\":\"/home/u/loader.py\",\"line\":41}");
    expect("{\"type\":\"sampled\",\"name\":\"rank "
           "2\",\"unit\":\"seconds\",\"startValue\":0,\"endValue\":10,\"samples\":[[0,1,2],[0,1,3],[0,1,4,5],"
           "[0,1,4,5,21],[0,1,2],");
    expect("\"name\":\"rank 3\",\"unit\":\"seconds\",\"startValue\":0,\"endValue\":10,\"samples\":[[],[0,1,4,5,20],");
    expect("\"weights\":[0.05,0.15,0.1,0.15,0.05,0.2,");
    refuse("\"rank 0\"");
}

Test(profile_pictures, without_samples) {
    rig.profile.n_ticks = rig.findings.n_ticks = 0;
    draw("a.svg");
    draw("a.strip.svg");
    draw("a.speedscope.json");
    expect("\"samples\":[],\"weights\":[]");
}
