/* Files made by hand: what holds for those of real interpreters is in pystack_io_test.c. */
#include "watchdog/look/pystack_layout.h"

#include <elf.h>

#include "rig/unit.h"

#define ROOM 64 /* for names */

struct file {
    Elf64_Ehdr head;
    Elf64_Phdr segments[2];
    Elf64_Shdr sections[4]; /* none; names of sections; symbols; their names, or .PyRuntime */
    Elf64_Sym symbols[6];
    char names[2 * ROOM];
};
enum { SECTION_NAMES = 1, SYMBOLS, LAST };

static ssize_t read_file(void *arg, uint64_t offset, void *buf, size_t n) {
    if (offset >= sizeof(struct file))
        return 0;
    n = MIN2(n, sizeof(struct file) - offset);
    memcpy(buf, (const char *)arg + offset, n);
    return (ssize_t)n;
}

static int read_elf(struct file *f, struct python_elf *ret) {
    return python_elf_read(&(struct pystack_memory){read_file, f}, ret);
}

static void add_symbol(struct file *f, uint32_t *names, unsigned i, const char *name, uint64_t value) {
    strcpy(f->names + ROOM + *names, name);
    f->symbols[i] = (Elf64_Sym){
        .st_name = *names, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = 1, .st_value = value};
    *names += (uint32_t)strlen(name) + 1;
}

static struct file file_of(uint32_t kind) {
    struct file f = {0};
    memcpy(f.head.e_ident, ELFMAG, SELFMAG);
    f.head.e_ident[EI_CLASS] = ELFCLASS64;
    f.head.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    f.head.e_phentsize = sizeof(Elf64_Phdr);
    f.head.e_phoff = offsetof(struct file, segments);
    f.head.e_phnum = ARRAY_SIZE(f.segments);
    f.head.e_shentsize = sizeof(Elf64_Shdr);
    f.head.e_shoff = offsetof(struct file, sections);
    f.head.e_shnum = ARRAY_SIZE(f.sections);
    f.head.e_shstrndx = SECTION_NAMES;
    f.segments[0] = (Elf64_Phdr){.p_type = PT_NOTE};
    f.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = 0x400123};
    f.sections[SECTION_NAMES] = (Elf64_Shdr){.sh_offset = offsetof(struct file, names), .sh_size = ROOM};
    strcpy(f.names, "._PyRuntime");
    strcpy(f.names + 16, ".PyRuntime");
    f.sections[SYMBOLS] = (Elf64_Shdr){
        .sh_type = kind, .sh_offset = offsetof(struct file, symbols), .sh_size = sizeof f.symbols, .sh_link = LAST};
    f.sections[LAST] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct file, names) + ROOM, .sh_size = ROOM};
    uint32_t names = 1;
    add_symbol(&f, &names, 0, "PyCode_Type", 0x30);
    add_symbol(&f, &names, 1, "_PyRuntime", 0x10);
    add_symbol(&f, &names, 2, "Py_Version", 0x20);
    add_symbol(&f, &names, 3, "PyBytes_Type", 0x50);
    add_symbol(&f, &names, 4, "PyUnicode_Type", 0x40);
    return f;
}

Test(python_elf, finds_the_symbols) {
    static const uint32_t kinds[] = {SHT_DYNSYM, SHT_SYMTAB};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct file f = file_of(kinds[i]);
        struct python_elf e;
        cr_assert_eq(read_elf(&f, &e), 0);
        cr_expect(e.runtime == 0x10 && e.version == 0x20 && e.code_type == 0x30 && e.text_type == 0x40 &&
                  e.bytes_type == 0x50);
        cr_expect_eq(e.first, 0x400000, "the page, not the byte in it");
    }
    struct file f = file_of(SHT_STRTAB);
    struct python_elf e;
    cr_expect_eq(read_elf(&f, &e), -ENOENT, "a table that is none of symbols");
}

Test(python_elf, a_symbol_of_another_file_or_kind_does_not_count) {
    struct python_elf e;
    cr_expect_eq(read_elf(WITH(file_of(SHT_DYNSYM), .symbols[1].st_shndx = SHN_UNDEF), &e), -ENOENT);
    cr_expect_eq(read_elf(WITH(file_of(SHT_DYNSYM), .symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)), &e),
                 -ENOENT);
    struct file f = file_of(SHT_DYNSYM);
    f.sections[LAST].sh_size = f.symbols[1].st_name; /* its name is after the table of names */
    cr_expect_eq(read_elf(&f, &e), -ENOENT);
}

Test(python_elf, without_symbols_its_own_section_tells) {
    struct file f = file_of(SHT_NULL);
    struct python_elf e;
    f.sections[LAST] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_name = 16, .sh_addr = 0x7000};
    cr_assert_eq(read_elf(&f, &e), 0);
    cr_expect_eq(e.runtime, 0x7000);
    f.sections[LAST].sh_name = 0; /* of another name */
    cr_expect_eq(read_elf(&f, &e), -ENOENT);
}

Test(python_elf, what_is_no_such_file) {
    struct python_elf e;
    for (int i = 0; i < 5; i++) {
        struct file f = file_of(SHT_DYNSYM);
        switch (i) {
        case 0: f.head.e_ident[EI_MAG1] = 'e'; break;
        case 1: f.head.e_ident[EI_CLASS] = ELFCLASS32; break;
        case 2: f.head.e_ident[EI_DATA] ^= 3; break;
        case 3: f.head.e_phentsize--; break;
        default: f.segments[1].p_offset = 4096; break; /* nothing of its first page is mapped */
        }
        cr_expect_eq(read_elf(&f, &e), -ENOEXEC, "%d", i);
    }
    cr_expect_eq(read_elf(WITH(file_of(SHT_DYNSYM), .head.e_shnum = 513), &e), -ENOENT);
    cr_expect_eq(read_elf(WITH(file_of(SHT_DYNSYM), .head.e_shentsize = sizeof(Elf64_Shdr) + 1), &e), -ENOENT);
    cr_expect_eq(read_elf(WITH(file_of(SHT_DYNSYM), .sections[SYMBOLS].sh_link = LAST + 1), &e), -ENOENT);
}

/* Its names would be at the end of all numbers, where a sum begins at 0 again. */
Test(python_elf, names_that_are_nowhere) {
    static const uint64_t at[] = {sizeof(struct file), INT64_MAX, UINT64_MAX, UINT64_MAX - 15, UINT64_MAX - (1u << 30)};
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        struct file f = file_of(SHT_DYNSYM);
        struct python_elf e;
        f.sections[LAST].sh_offset = at[i] - f.symbols[0].st_name;
        f.sections[LAST].sh_size = UINT64_MAX;
        f.symbols[2].st_name = (1u << 30) - 5;
        f.symbols[1].st_name = 10;
        cr_expect_eq(read_elf(&f, &e), -ENOENT, "%zu", i);
    }
}
