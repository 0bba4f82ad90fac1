/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the driver's library once a process, looks up every function of the table, and keeps the
 * reason where something is missing. The library stays open: the driver has threads of its own. In
 * a child of fork() the driver of the parent does not work, and says so only by failing calls; so
 * it is refused there. Thread: any. */
#include "base/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "base/param.h"

#define VERSION_LEAST 11040 /* handles of memory between processes count their openings */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct xccl_cuda_driver driver;
static char why_not[256];
static int is_forked;

static void refuse(const char *what, const char *detail)
{
    snprintf(why_not, sizeof why_not, "%s%s", what, detail);
}

static void in_child(void)
{
    is_forked = 1;
    refuse("CUDA cannot be used in a process that was forked after CUDA was opened", "");
}

static const char *name_of(xccl_cu_result rc)
{
    const char *name = NULL;

    return driver.error_name && driver.error_name(rc, &name) == 0 && name ? name
                                                                          : "an unknown error";
}

/* 1: all functions are there. */
static int find_functions(void *library)
{
    static const struct {
        const char *symbol;
        size_t offset;
        int is_later;
    } functions[] = {
#define XCCL_CUDA_ROW(name, symbol, args) {#symbol, offsetof(struct xccl_cuda_driver, name), 0},
#define XCCL_CUDA_LATER_ROW(name, symbol, args)                                                    \
    {#symbol, offsetof(struct xccl_cuda_driver, name), 1},
        XCCL_CUDA_FUNCTIONS(XCCL_CUDA_ROW) XCCL_CUDA_LATER_FUNCTIONS(XCCL_CUDA_LATER_ROW)
#undef XCCL_CUDA_ROW
#undef XCCL_CUDA_LATER_ROW
    };

    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].symbol);

        if (!found && functions[i].is_later)
            continue;
        if (!found) {
            refuse("the CUDA driver is too old: it lacks ", functions[i].symbol);
            return 0;
        }
        memcpy((char *)&driver + functions[i].offset, &found, sizeof found);
    }
    return 1;
}

static void start(void)
{
    xccl_cu_result rc = driver.init(0);
    char detail[64];

    if (rc) {
        refuse("cuInit failed: ", name_of(rc));
        return;
    }
    rc = driver.driver_version(&driver.version);
    if (rc || driver.version < VERSION_LEAST) {
        snprintf(detail, sizeof detail, "%d.%d; version %d.%d or later is needed",
                 driver.version / 1000, driver.version % 1000 / 10, VERSION_LEAST / 1000,
                 VERSION_LEAST % 1000 / 10);
        refuse("the CUDA driver has version ", detail);
        return;
    }
    rc = driver.device_count(&driver.devices);
    if (rc || driver.devices < 1)
        refuse("there is no CUDA device: ", rc ? name_of(rc) : "the driver reports none");
}

static void open_driver(void)
{
    const char *path = xccl_param_string(XCCL_P_CUDA_LIBRARY);
    const char *cannot = xccl_os_cannot_load();
    void *library = cannot ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        refuse("there is no CUDA driver: ", cannot ? cannot : dlerror());
        return;
    }
    (void)pthread_atfork(NULL, NULL, in_child);
    if (find_functions(library))
        start();
}

const struct xccl_cuda_driver *xccl_cuda_driver(void)
{
    pthread_once(&once, open_driver);
    return why_not[0] ? NULL : &driver;
}

const char *xccl_cuda_why_not(void)
{
    return why_not;
}

static const char *text_of(xccl_cu_result rc)
{
    const char *text = NULL;

    if (!driver.error_string || driver.error_string(rc, &text) || !text)
        return "the driver gives no details";
    return text;
}

xcclResult_t xccl_cuda_result(xccl_cu_result rc, const char *what)
{
    return rc ? xccl_fail(xcclUnhandledCudaError, 0, NULL, "%s: %s (%s)", what, name_of(rc),
                          text_of(rc))
              : xcclSuccess;
}

xcclResult_t xccl_cuda_result_quietly(xccl_cu_result rc, const char *what)
{
    return rc ? xccl_fail_quietly(xcclUnhandledCudaError, 0, NULL, "%s: %s (%s)", what, name_of(rc),
                                  text_of(rc))
              : xcclSuccess;
}
