#include "rendezvous/auth/auth.h"

#include "rig/unit.h"

static const uint8_t secret[AUTH_SECRET_BYTES] = {1, 2, 3, [31] = 4};

static struct auth_munge_decoded decoded(int code, const char *run_id, char payload[AUTH_MUNGE_PAYLOAD_MAX]) {
    return (struct auth_munge_decoded){.code = code,
                                       .text = "words of munge",
                                       .uid = 1000,
                                       .payload = payload,
                                       .len = auth_munge_payload(secret, run_id, payload)};
}

Test(auth_munge, old_and_used_credentials_are_taken) {
    static const int good[] = {MUNGE_E_SUCCESS, MUNGE_E_EXPIRED, MUNGE_E_REPLAYED, MUNGE_E_REWOUND};
    char payload[AUTH_MUNGE_PAYLOAD_MAX], why[AUTH_WHY_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint8_t back[AUTH_SECRET_BYTES] = {0};
        struct auth_munge_decoded d = decoded(good[i], "night-1", payload);
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), 0, "%d", good[i]);
        cr_assert_arr_eq(back, secret, sizeof secret);
        cr_assert_eq(auth_munge_judge(&d, 1000, NULL, back, why), 0, "an operator takes any run's");
    }
}

Test(auth_munge, what_is_not_ours_is_refused) {
    char payload[AUTH_MUNGE_PAYLOAD_MAX], why[AUTH_WHY_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    static const struct {
        int code, outcome;
        const char *why;
    } bad[] = {
        {MUNGE_E_SOCKET, AUTH_MUNGE_E_SILENT, "munged here does not answer"},
        {MUNGE_E_TIMEOUT, AUTH_MUNGE_E_SILENT, "munged here does not answer"},
        {MUNGE_E_INVALID, AUTH_MUNGE_E_UNFIT, "that node has a different munge.key"},
        {MUNGE_E_BAD_REALM, AUTH_MUNGE_E_UNFIT, "that node has a different munge.key"},
        {MUNGE_E_UNAUTHORIZED, AUTH_MUNGE_E_OTHER_USER,
         "its munge credential is for another user than this one (uid 1000)"},
        {8, AUTH_MUNGE_E_UNFIT, "munge reports: words of munge"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct auth_munge_decoded d = decoded(bad[i].code, "night-1", payload);
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), bad[i].outcome);
        cr_assert_str_eq(why, bad[i].why);
    }
    struct auth_munge_decoded d = decoded(MUNGE_E_SUCCESS, "night-1", payload);
    cr_assert_eq(auth_munge_judge(&d, 1001, "night-1", back, why), AUTH_MUNGE_E_OTHER_USER);
    cr_assert_str_eq(why, "its munge credential was made by another user (uid 1000)");
    cr_assert_eq(auth_munge_judge(&d, 1000, "night-2", back, why), AUTH_MUNGE_E_OTHER_RUN);
    cr_assert_str_eq(why, "the agent there is of the job 'night-1'");
    cr_assert_eq(auth_munge_judge(&d, 1000, "night", back, why), AUTH_MUNGE_E_OTHER_RUN, "nor a beginning of it");
}

Test(auth_munge, a_payload_of_others_is_no_key) {
    char why[AUTH_WHY_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    static const char *const payloads[] = {"", "\n", "hello", "muster-key-1:00\nnight-1"};
    for (size_t i = 0; i < ARRAY_SIZE(payloads); i++) {
        struct auth_munge_decoded d = {.uid = 1000, .payload = payloads[i], .len = strlen(payloads[i])};
        cr_assert_eq(auth_munge_judge(&d, 1000, "night-1", back, why), AUTH_MUNGE_E_UNFIT);
        cr_assert_str_eq(why, "its munge credential holds no key of muster's");
    }
    struct auth_munge_decoded none = {.uid = 1000};
    cr_assert_eq(auth_munge_judge(&none, 1000, NULL, back, why), AUTH_MUNGE_E_UNFIT);
}

Test(auth_munge, the_longest_run_id_fits) {
    char run_id[AUTH_RUN_ID_MAX], payload[AUTH_MUNGE_PAYLOAD_MAX], why[AUTH_WHY_MAX];
    uint8_t back[AUTH_SECRET_BYTES];
    memset(run_id, 'r', sizeof run_id - 1);
    run_id[sizeof run_id - 1] = '\0';
    cr_assert_eq(auth_munge_judge(AT(decoded(MUNGE_E_SUCCESS, run_id, payload)), 1000, run_id, back, why), 0);
}
