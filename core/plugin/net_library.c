/* SPDX-License-Identifier: BSD-3-Clause */
/* One loaded plugin file. Each contract has a symbol of its own, a table, and a file may offer
 * many: the newest whose table is whole is taken, so that one damaged table does not cost a file
 * that has an older good one. Files of the loader's cache are looked at after loading, since only
 * the loader knows where that leads.
 *
 * Thread: any. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/hash.h"
#include "base/os.h"
#include "plugin/net_plugin_int.h"

void (*net_stage_hook)(const char *stage);

static void stage(const char *what)
{
    if (net_stage_hook)
        net_stage_hook(what);
}

int net_is_absent(const char *loader_text)
{
    return loader_text && strstr(loader_text, "cannot open shared object file") != NULL;
}

const char *net_contract_symbol(int contract)
{
    static const char *const nccl[] = {
        "ncclNetPlugin_v6",  "ncclNetPlugin_v7",  "ncclNetPlugin_v8",  "ncclNetPlugin_v9",
        "ncclNetPlugin_v10", "ncclNetPlugin_v11", "ncclNetPlugin_v12",
    };

    return contract == NET_CONTRACT_XCCL ? "xcclNetPlugin_v1" : nccl[contract - NCCL_NET_OLDEST];
}

#define NOTE_NAME "GNU"

/* A hash of the build id among the notes, 0: none is there. */
static uint64_t hash_notes(const char *notes, size_t bytes)
{
    while (bytes >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)notes;
        size_t name = (note->n_namesz + 3u) & ~(size_t)3, text = (note->n_descsz + 3u) & ~(size_t)3;
        const char *first = notes + sizeof(*note);

        if (name > bytes - sizeof(*note) || text > bytes - sizeof(*note) - name)
            return 0;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == sizeof(NOTE_NAME) &&
            memcmp(first, NOTE_NAME, sizeof(NOTE_NAME)) == 0)
            return xccl_hash_bytes(XCCL_HASH_START, first + name, note->n_descsz);
        notes = first + name + text;
        bytes -= sizeof(*note) + name + text;
    }
    return 0;
}

struct build_search {
    const struct link_map *map;
    uint64_t build;
};

/* Is it the object that was loaded? Then its notes have the build id. */
static int find_build(struct dl_phdr_info *object, size_t size, void *user)
{
    struct build_search *search = user;

    (void)size;
    if (object->dlpi_addr != search->map->l_addr || !object->dlpi_name ||
        strcmp(object->dlpi_name, search->map->l_name) != 0)
        return 0;
    for (int i = 0; i < object->dlpi_phnum && !search->build; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];

        if (part->p_type == PT_NOTE)
            search->build = hash_notes((const char *)(uintptr_t)(object->dlpi_addr + part->p_vaddr),
                                       part->p_memsz);
    }
    return 1;
}

/* What the loader tells of a file is freed as it is closed. The loader's own lock keeps that apart
 * from looking at it, but not so that the thread sanitizer could see. */
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER;

/* The loader's description of a file; NULL: it does not say where the file is. With told_lock. */
static const struct link_map *map_of(void *handle)
{
    struct link_map *map = NULL;

    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !map->l_name[0])
        return NULL;
    return map;
}

/* Loads a path or a soname; path NULL: the program itself. */
static void *load(const char *path, struct net_reason *reason)
{
    const char *text = xccl_os_cannot_load();
    void *handle = text ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle)
        return handle;
    text = text ? text : dlerror();
    net_reason_set(reason, "%s", text ? text : "the dynamic loader refuses it");
    return NULL;
}

void *net_file_load(const char *path, const struct xccl_file_id *id, struct net_reason *reason)
{
    const struct link_map *map;
    void *handle;
    int good;

    if (!net_file_is(path, id, "after it was looked at", reason))
        return NULL;
    handle = load(path, reason);
    if (!handle)
        return NULL;
    pthread_mutex_lock(&told_lock);
    map = map_of(handle);
    good = net_file_is(map ? map->l_name : path, id, "while it was loaded", reason);
    pthread_mutex_unlock(&told_lock);
    if (good)
        return handle;
    net_file_close(handle);
    return NULL;
}

void *net_name_load(const char *soname, struct net_reason *reason)
{
    void *handle = load(soname, reason);
    const struct link_map *map;
    struct xccl_file_id id;
    int good;

    if (!handle)
        return NULL;
    pthread_mutex_lock(&told_lock);
    map = map_of(handle);
    good = net_file_trusted(map ? map->l_name : soname, &id, reason);
    pthread_mutex_unlock(&told_lock);
    if (good)
        return handle;
    net_file_close(handle);
    return NULL;
}

void net_file_close(void *handle)
{
    pthread_mutex_lock(&told_lock);
    dlclose(handle);
    pthread_mutex_unlock(&told_lock);
}

/* Where the loader found it, and which build of it this is. With told_lock. */
static void find_path(struct net_library *library, const char *path)
{
    struct build_search search = {map_of(library->handle), 0};

    snprintf(library->path, sizeof(library->path), "%s", search.map ? search.map->l_name : path);
    if (!search.map)
        return;
    dl_iterate_phdr(find_build, &search);
    library->build = search.build;
}

static int bind_xccl(struct net_library *library, const void *table, struct net_reason *reason)
{
    const xcclNetPlugin_v1_t *plugin = table;

    if (!net_contract_check(plugin, reason))
        return 0;
    net_contract_copy(plugin, &library->calls);
    return 1;
}

/* whole 1: a table that init may still fill is refused. */
static int bind_nccl(struct net_library *library, const void *table, int version, int whole,
                     struct net_reason *reason)
{
    library->source = (struct nccl_source){
        .inner = {.size = sizeof(library->source.inner)}, .table = table, .version = version};
    if (whole ? !nccl_check(&library->source, reason) : !nccl_check_init(&library->source, reason))
        return 0;
    net_contract_copy(nccl_adapter(version), &library->calls);
    nccl_name(&library->source, library->name);
    library->calls.name = library->name;
    return 1;
}

/* Looks at one contract: notes that it is there, and takes it if none was taken. whole 1: only if
 * its table is whole already. */
static void look_at(struct net_library *library, int contract, int wanted, int whole,
                    struct net_reason *reason)
{
    const char *symbol = net_contract_symbol(contract);
    const void *table = dlsym(library->handle, symbol);
    struct net_reason why = {""}, line = {""};
    size_t used = strlen(library->contracts);
    int good;

    if (!table)
        return;
    snprintf(library->contracts + used, sizeof(library->contracts) - used, "%s%s", used ? " " : "",
             symbol);
    if (library->contract || (wanted && wanted != contract))
        return;
    if (contract == NET_CONTRACT_XCCL)
        good = bind_xccl(library, table, &why);
    else
        good = bind_nccl(library, table, contract, whole, &why);
    if (good) {
        library->contract = contract;
        return;
    }
    net_reason_set(&line, "%s: %.600s", symbol, why.text);
    net_reason_add(reason, line.text);
}

/* Takes a table that init may still fill. */
static void bind_begun(struct net_library *library, int version, int wanted)
{
    const void *table = dlsym(library->handle, net_contract_symbol(version));
    struct net_reason why = {""};

    if (table && (!wanted || wanted == version) && bind_nccl(library, table, version, 0, &why))
        library->contract = version;
}

/* NCCL's plugins before version 11 have no finalize and may own threads, and a comm that could not
 * be drained outlives its instance: their code stays until the process ends. So does all code where
 * communicators are: while it is unloaded glibc holds a lock that exit() takes, and a child that is
 * forked meanwhile never gets it. */
static void keep_loaded(const struct net_library *library)
{
    void *again = dlopen(library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);

    if (again)
        dlclose(again);
}

static int bind(struct net_library *library, int wanted, struct net_reason *reason)
{
    struct net_reason why = {""};

    nccl_tables_lock();
    look_at(library, NET_CONTRACT_XCCL, wanted, 1, &why);
    for (int version = NCCL_NET_NEWEST; version >= NCCL_NET_OLDEST; version--)
        look_at(library, version, wanted, 1, &why);
    /* A table that only init fills, as nccl-rdma-sharp-plugins have: the newest. */
    for (int version = NCCL_NET_NEWEST; version >= NCCL_NET_OLDEST && !library->contract; version--)
        bind_begun(library, version, wanted);
    nccl_tables_unlock();
    if (library->contract && (library->contract != NET_CONTRACT_XCCL || xccl_fork_is_forbidden()))
        keep_loaded(library);
    if (library->contract)
        return 1;
    if (why.text[0])
        *reason = why;
    else if (wanted)
        net_reason_set(reason, "it has no symbol %s%s%s", net_contract_symbol(wanted),
                       library->contracts[0] ? ", only " : "", library->contracts);
    else
        net_reason_set(reason, "it has no symbol xcclNetPlugin_v1, and none from "
                               "ncclNetPlugin_v12 down to ncclNetPlugin_v6");
    return 0;
}

int net_library_open(struct net_library *library, const char *path, const struct xccl_file_id *id,
                     int contract, struct net_reason *reason)
{
    int in_program = strcmp(path, NET_STATIC) == 0;

    memset(library, 0, sizeof(*library));
    stage("loading it");
    if (id)
        library->handle = net_file_load(path, id, reason);
    else
        library->handle = in_program ? load(NULL, reason) : net_name_load(path, reason);
    if (!library->handle)
        return 0;
    pthread_mutex_lock(&told_lock);
    find_path(library, in_program ? "(this program)" : path);
    pthread_mutex_unlock(&told_lock);
    if (bind(library, contract, reason))
        return 1;
    net_library_close(library);
    return 0;
}

void net_library_close(struct net_library *library)
{
    if (!library->handle)
        return;
    net_file_close(library->handle);
    library->handle = NULL;
}
