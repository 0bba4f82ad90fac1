/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric, opened at run time. Symbols are taken in the version for which our headers describe
 * struct fi_info (FABRIC_1.3, the same from libfabric 1.3 to 1.22 at least); a library that has
 * left it out gives its default. It is never unloaded: providers leave threads' and exit handlers
 * behind. Thread: any. */
#include <dlfcn.h>
#include <string.h>

#include "ofi_int.h"

#define SONAME "libfabric.so.1"
#define ADVICE "install libfabric 1.17 or later (libfabric1)"

/* A pointer to a function, which ISO C does not make out of an object's. */
static int take(void *library, const char *name, const char *version, void *pointer_out)
{
    void *symbol = dlvsym(library, name, version);

    if (!symbol)
        symbol = dlsym(library, name);
    memcpy(pointer_out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static xcclResult_t check_version(uint32_t version)
{
    if (FI_VERSION_GE(version, OFI_API_VERSION))
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, ADVICE, "%s is libfabric %u.%u, which is too old",
                             SONAME, FI_MAJOR(version), FI_MINOR(version));
}

xcclResult_t ofi_library_open(struct ofi_library *library_out)
{
    void *library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    int all;

    if (!library) {
        const char *why = dlerror();

        return xccl_fail_quietly(xcclSystemError, 0, ADVICE, "cannot open %s: %s", SONAME,
                                 why ? why : "no reason given");
    }
    all = take(library, "fi_version", "FABRIC_1.0", &library_out->version) &&
          take(library, "fi_getinfo", "FABRIC_1.3", &library_out->getinfo) &&
          take(library, "fi_freeinfo", "FABRIC_1.3", &library_out->freeinfo) &&
          take(library, "fi_dupinfo", "FABRIC_1.3", &library_out->dupinfo) &&
          take(library, "fi_fabric", "FABRIC_1.1", &library_out->fabric) &&
          take(library, "fi_strerror", "FABRIC_1.0", &library_out->strerror);
    dlclose(library);
    if (all)
        return check_version(library_out->version());
    return xccl_fail_quietly(xcclSystemError, 0, ADVICE,
                             "%s lacks a function that every libfabric has", SONAME);
}
