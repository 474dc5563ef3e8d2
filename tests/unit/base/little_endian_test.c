#include "base/little_endian.h"

#include "base/prng.h"
#include "rig/unit.h"

Test(little_endian, on_every_machine) {
    static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    cr_assert_eq(load_u32le(bytes), 0x04030201);
    cr_assert_eq(load_u64le(bytes), UINT64_C(0x0807060504030201));
}

Test(little_endian, any_number_survives_the_way_there_and_back) {
    struct prng prng = {.state = 7};
    for (int i = 0; i < 2000; i++) {
        uint64_t v = prng_next(&prng) >> prng_below(&prng, 64);
        uint8_t mem[12];
        store_u64le(mem, v);
        store_u32le(mem + 8, (uint32_t)v);
        cr_assert_eq(load_u64le(mem), v);
        cr_assert_eq(load_u32le(mem + 8), (uint32_t)v);
    }
}
