#include "launcher/starter/starter_key_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "launcher/place/place.h"

static const uint8_t given[AUTH_SECRET_BYTES] = {1, 2, [31] = 0xa5};
static struct err err;

static struct starter_key *new_key(enum auth_mode mode, const struct keyring *keys) {
    struct job_spec spec = {.auth = mode};
    struct starter_key *key;
    cr_assert_eq(starter_key_new(&spec, keys, &key, &err), 0, "%s", err.text);
    return key;
}

Test(starter_key_io, a_job_gets_a_key_of_its_own) {
    struct starter_key *a = new_key(AUTH_AUTO, NULL), *b = new_key(AUTH_ON, NULL);
    cr_assert_not_null(a);
    cr_assert_not_null(b);
    cr_assert_arr_neq(starter_key_secret(a), starter_key_secret(b), AUTH_SECRET_BYTES);
    starter_key_free(a);
    starter_key_free(b);
}

Test(starter_key_io, the_users_own_key_is_the_jobs) {
    struct keyring *keys;
    cr_assert_eq(keyring_new(&keys, &err), 0);
    cr_assert_eq(keyring_add(keys, given, AUTH_FROM_FILE, &err), 0);
    struct starter_key *key = new_key(AUTH_AUTO, keys);
    keyring_free(keys); /* it was copied */
    cr_assert_arr_eq(starter_key_secret(key), given, sizeof given);
    starter_key_free(key);
}

Test(starter_key_io, agents_find_it_in_their_environment) {
    struct starter_key *key = new_key(AUTH_AUTO, NULL);
    struct keyring *keys;
    _cleanup_(envlist_fini) struct envlist env = {0};
    envlist_set(&env, STARTER_KEY_ENV, "of somebody else");
    starter_key_to_env(key, &env);
    cr_assert_eq(setenv(STARTER_KEY_ENV, envlist_get(&env, STARTER_KEY_ENV), 1), 0);
    cr_assert_eq(keyring_new(&keys, &err), 0);
    cr_assert_eq(keyring_take_env(keys, STARTER_KEY_ENV, AUTH_FROM_HEAD, &err), 0, "%s", err.text);
    cr_assert_eq(keyring_n(keys), 1);
    cr_assert_arr_eq(keyring_at(keys, 0)->secret, starter_key_secret(key), AUTH_SECRET_BYTES);
    keyring_free(keys);
    starter_key_free(key);
}

Test(starter_key_io, with_auth_none_there_is_no_key) {
    _cleanup_(envlist_fini) struct envlist env = {0};
    cr_assert_null(new_key(AUTH_NONE, NULL));
    envlist_set(&env, STARTER_KEY_ENV, "of somebody else");
    starter_key_to_env(NULL, &env);
    cr_assert_str_eq(envlist_get(&env, STARTER_KEY_ENV), STARTER_NO_KEY);
    cr_assert_null(starter_key_secret(NULL));
    starter_key_free(NULL);
}
