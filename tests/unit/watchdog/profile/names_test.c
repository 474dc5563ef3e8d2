#include "watchdog/profile/infer.h"

#include "rig/unit.h"

Test(names, frames_are_recognized_by_file_and_function) {
    static const struct {
        const char *function, *file;
        unsigned names;
    } cases[] = {
        {"step", "/u/train.py", 0},
        {"_validate", "/u/train.py", 1u << PROFILE_EVAL},
        {"validate", "/u/train.py", 1u << PROFILE_EVAL},
        {"validates", "/u/train.py", 0},
        {"_maybe_save_now", "/u/train.py", 1u << PROFILE_CHECKPOINT},
        {"f", "/x/site-packages/torch/_dynamo/convert_frame.py", 1u << PROFILE_COMPILE | NAME_LIBRARY},
        {"f", "/x/site-packages/torch/_dynamo/eval_frame.py", NAME_TRANSPARENT | NAME_COMPILED | NAME_LIBRARY},
        {"f", "/x/dist-packages/torch/distributed/fsdp/a.py", NAME_COMM | NAME_OVERLAPS | NAME_LIBRARY},
        {"f", "<frozen importlib._bootstrap>", 1u << PROFILE_IMPORT | NAME_LIBRARY},
        {"item", "/u/train.py", NAME_DEVICE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct profile_frame f = {(char *)(uintptr_t)cases[i].function, (char *)(uintptr_t)cases[i].file, 1, 0};
        cr_assert_eq(profile_names_of(&f), cases[i].names, "%s %s: %x", f.function, f.file, profile_names_of(&f));
    }
}

Test(names, calls_of_a_source_line) {
    cr_assert_eq(profile_calls_of("    x = loss.item()"), PROFILE_CALLS_DEVICE);
    cr_assert_eq(profile_calls_of("work.wait()"), PROFILE_CALLS_WAIT);
    cr_assert_eq(profile_calls_of("torch.cuda.synchronize()"), PROFILE_CALLS_WAIT | PROFILE_CALLS_DEVICE);
    cr_assert_eq(profile_calls_of("items = wait"), 0);
}

Test(names, threads_that_move_data_for_others) {
    cr_assert(profile_is_transport_thread("pt_nccl_watchdg") && profile_is_transport_thread("gloo_transport"));
    cr_assert_not(profile_is_transport_thread("pt_autograd_0"));
}
