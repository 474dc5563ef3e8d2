/* hwloc's functions, found when it is first used: with libm and libudev the library costs each
 * process that links it about 1 ms and each fork of it 15 mappings. */
#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <string.h>

#include "topology/discover/hwloc/hwloc_io.h"

#ifdef MUSTER_LINKED

int hwloc_library_load(struct err *err) {
    (void)err;
    return 0;
}

#else

/* The soname of hwloc 2.x. */
#define LIBRARY "libhwloc.so.15"
static_assert(HWLOC_API_VERSION >> 16 == 2, "LIBRARY is that of another version");

/* Return type, name, parameters, arguments; CALL: returns nothing. */
#define CALLS(GET, CALL)                                                                    \
    GET(unsigned, hwloc_get_api_version, (void), ())                                        \
    GET(int, hwloc_topology_init, (hwloc_topology_t * t), (t))                              \
    GET(int, hwloc_topology_load, (hwloc_topology_t t), (t))                                \
    CALL(void, hwloc_topology_destroy, (hwloc_topology_t t), (t))                           \
    GET(int, hwloc_topology_set_components,                                                 \
        (hwloc_topology_t t, unsigned long flags, const char *name), (t, flags, name))      \
    GET(int, hwloc_topology_set_io_types_filter,                                            \
        (hwloc_topology_t t, enum hwloc_type_filter_e filter), (t, filter))                 \
    GET(int, hwloc_topology_set_xmlbuffer, (hwloc_topology_t t, const char *text, int n),   \
        (t, text, n))                                                                       \
    GET(hwloc_const_cpuset_t, hwloc_topology_get_allowed_cpuset, (hwloc_topology_t t), (t)) \
    GET(int, hwloc_get_type_depth, (hwloc_topology_t t, hwloc_obj_type_t type), (t, type))  \
    GET(unsigned, hwloc_get_nbobjs_by_depth, (hwloc_topology_t t, int depth), (t, depth))   \
    GET(hwloc_obj_t, hwloc_get_obj_by_depth, (hwloc_topology_t t, int depth, unsigned i),   \
        (t, depth, i))                                                                      \
    GET(int, hwloc_bitmap_first, (hwloc_const_bitmap_t b), (b))                             \
    GET(int, hwloc_bitmap_next, (hwloc_const_bitmap_t b, int at), (b, at))                  \
    GET(int, hwloc_distances_get_by_name,                                                   \
        (hwloc_topology_t t, const char *name, unsigned *n, struct hwloc_distances_s **d,   \
         unsigned long flags),                                                              \
        (t, name, n, d, flags))                                                             \
    CALL(void, hwloc_distances_release, (hwloc_topology_t t, struct hwloc_distances_s * d), (t, d))

#define POINTER(type, name, parameters, arguments) __typeof__(name) *name;
static struct { CALLS(POINTER, POINTER) } library;

/* The functions of hwloc.h. */
#define GET(type, name, parameters, arguments) \
    type name parameters { return library.name arguments; }
#define CALL(type, name, parameters, arguments) \
    type name parameters { library.name arguments; }
CALLS(GET, CALL)

int hwloc_library_load(struct err *err) {
    static bool loaded;
    void *symbol;
    if (loaded)
        return 0;
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(err, -ELIBACC, "hwloc 2 is required: %s", dlerror());
#define FIND(type, name, parameters, arguments)                              \
    symbol = dlsym(handle, #name);                                           \
    if (symbol == NULL)                                                      \
        return err_set(err, -ELIBACC, LIBRARY " has no function %s", #name); \
    memcpy(&library.name, &symbol, sizeof symbol);
    CALLS(FIND, FIND)
    loaded = true;
    return 0;
}

#endif
