#include "watchdog/look/pystack_layout.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define SECTIONS_MAX 512
#define SEGMENTS_MAX 128
#define SYMBOLS_MAX (1u << 20)
#define PAGE UINT64_C(4096)
#define NAME_MAX_ 20 /* longer than any that is looked for */

static const struct {
    const char *name;
    size_t field;
} names[] = {
    {"_PyRuntime", offsetof(struct python_elf, runtime)},
    {"Py_Version", offsetof(struct python_elf, version)},
    {"PyCode_Type", offsetof(struct python_elf, code_type)},
    {"PyUnicode_Type", offsetof(struct python_elf, text_type)},
    {"PyBytes_Type", offsetof(struct python_elf, bytes_type)},
};

static uint64_t *field_of(struct python_elf *e, size_t i) {
    return (uint64_t *)(void *)((char *)e + names[i].field);
}

/* A part of the file that is read in pieces, because names are all over it. */
struct window {
    uint64_t at;
    size_t n;
    char bytes[4096];
};

static bool name_at(const struct pystack_memory *file, struct window *w, uint64_t at,
                    char out[NAME_MAX_]) {
    /* No sum: an offset in the file can be at the end of all numbers. */
    if (at < w->at || at - w->at > w->n || w->n - (at - w->at) < NAME_MAX_) {
        ssize_t got = file->read(file->arg, at, w->bytes, sizeof w->bytes);
        w->at = at;
        w->n = got > 0 ? (size_t)got : 0;
    }
    size_t n = MIN2(w->n - (at - w->at), NAME_MAX_);
    memcpy(out, w->bytes + (at - w->at), n);
    return memchr(out, '\0', n) != NULL;
}

static void read_symbols(const struct pystack_memory *file, const Elf64_Shdr *symbols,
                         const Elf64_Shdr *strings, struct python_elf *ret) {
    Elf64_Sym some[128];
    struct window w = {0};
    uint64_t n = MIN2(symbols->sh_size / sizeof some[0], SYMBOLS_MAX);
    for (uint64_t i = 0; i < n; i++) {
        size_t k = i % ARRAY_SIZE(some);
        size_t many = MIN2(n - i, ARRAY_SIZE(some)) * sizeof some[0];
        if (k == 0 && !pystack_get(file, symbols->sh_offset + i * sizeof some[0], some, many))
            return;
        const Elf64_Sym *s = &some[k];
        char name[NAME_MAX_];
        if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT || s->st_shndx == SHN_UNDEF ||
            s->st_name >= strings->sh_size ||
            !name_at(file, &w, strings->sh_offset + s->st_name, name))
            continue;
        for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
            if (strcmp(name, names[j].name) == 0)
                *field_of(ret, j) = s->st_value;
        }
    }
}

/* From 3.13 on, _PyRuntime has a section of its own, which a stripped file keeps. */
static bool is_runtime(const struct pystack_memory *file, const Elf64_Shdr *names_of,
                       const Elf64_Shdr *s) {
    struct window w = {0};
    char name[NAME_MAX_];
    return s->sh_name < names_of->sh_size &&
           name_at(file, &w, names_of->sh_offset + s->sh_name, name) &&
           strcmp(name, ".PyRuntime") == 0;
}

static bool first_page(const struct pystack_memory *file, const Elf64_Ehdr *head, uint64_t *ret) {
    for (unsigned i = 0; i < MIN2(head->e_phnum, SEGMENTS_MAX); i++) {
        Elf64_Phdr segment;
        if (!pystack_get(file, head->e_phoff + i * sizeof segment, &segment, sizeof segment))
            return false;
        if (segment.p_type == PT_LOAD && segment.p_offset < PAGE) {
            *ret = segment.p_vaddr & ~(PAGE - 1);
            return true;
        }
    }
    return false;
}

int python_elf_read(const struct pystack_memory *file, struct python_elf *ret) {
    *ret = (struct python_elf){0};
    const uint16_t probe = 1;
    const uint8_t order = *(const uint8_t *)&probe == 1 ? ELFDATA2LSB : ELFDATA2MSB;
    Elf64_Ehdr head;
    if (!pystack_get(file, 0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != order ||
        head.e_phentsize != sizeof(Elf64_Phdr) || !first_page(file, &head, &ret->first))
        return -ENOEXEC;
    if (head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum > SECTIONS_MAX)
        return -ENOENT;
    static const Elf64_Word kinds[] = {SHT_DYNSYM, SHT_SYMTAB};
    Elf64_Shdr sections[SECTIONS_MAX];
    unsigned n = head.e_shnum;
    if (!pystack_get(file, head.e_shoff, sections, n * sizeof sections[0]))
        return -ENOENT;
    for (size_t k = 0; k < ARRAY_SIZE(kinds) && ret->runtime == 0; k++) {
        for (unsigned i = 0; i < n && ret->runtime == 0; i++) {
            if (sections[i].sh_type == kinds[k] && sections[i].sh_link < n)
                read_symbols(file, &sections[i], &sections[sections[i].sh_link], ret);
        }
    }
    for (unsigned i = 0; i < n && ret->runtime == 0 && head.e_shstrndx < n; i++) {
        if (is_runtime(file, &sections[head.e_shstrndx], &sections[i]))
            ret->runtime = sections[i].sh_addr;
    }
    return ret->runtime != 0 ? 0 : -ENOENT;
}
