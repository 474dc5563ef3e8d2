#include "base/util.h"

#include "rig/unit.h"

Test(util, memory_of_size_zero_is_a_pointer_that_can_be_freed) {
    void *a = xmalloc(0), *b = xcalloc(0, 8), *c = xcalloc(8, 0), *d = xrealloc(NULL, 0);
    cr_assert(a != NULL && b != NULL && c != NULL && d != NULL);
    free(a);
    free(b);
    free(c);
    free(d);
}

Test(util, calloc_of_a_product_that_overflows_aborts, .signal = SIGABRT) { free(xcalloc(SIZE_MAX / 2, 4)); }

Test(util, more_memory_than_there_is_aborts, .signal = SIGABRT) {
    volatile size_t size = SIZE_MAX / 2;
    free(xmalloc(size));
}

Test(util, texts_are_copied_whole_or_to_the_length_given) {
    char *a = xstrdup("abc"), *b = xstrndup("abcdef", 2), *c = xstrndup("a", 9);
    char *d = xasprintf("%s-%d", "n", 7);
    cr_assert_str_eq(a, "abc");
    cr_assert_str_eq(b, "ab");
    cr_assert_str_eq(c, "a");
    cr_assert_str_eq(d, "n-7");
    free(a);
    free(b);
    free(c);
    free(d);
}

Test(util, code_that_cannot_be_reached_aborts, .signal = SIGABRT) { assert_not_reached(); }

Test(util, texts_are_compared_with_lists_of_words) {
    static const char *const words[] = {"pt_", "NCCL "};
    cr_assert(text_has_any("a pt_gloo", words, ARRAY_SIZE(words)) && !text_has_any("NCCL", words, ARRAY_SIZE(words)));
    cr_assert(text_begins_with_any("NCCL 1", words, ARRAY_SIZE(words)));
    cr_assert(!text_begins_with_any("a pt_", words, ARRAY_SIZE(words)) && !text_begins_with_any("", words, 2));
    cr_assert(text_is_any("pt_", words, ARRAY_SIZE(words)) && !text_is_any("pt_x", words, ARRAY_SIZE(words)));
}

Test(util, a_list_of_words_grows_and_always_ends) {
    char **words = NULL;
    size_t n = 0;
    while (n < 9) {
        words_add(&words, &n, xasprintf("%zu", n));
        cr_assert_null(words[n]);
    }
    cr_assert(strcmp(words[0], "0") == 0 && strcmp(words[8], "8") == 0);
    words_free(words);
}
