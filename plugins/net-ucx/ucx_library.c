/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens libucp.so.0 and libucs.so.0 and keeps what belongs to the program as it was:
 * - libucs installs handlers for SIGSEGV, SIGHUP and others when it is loaded
 *   (src/ucs/debug/debug.c, ucs_debug_init, a constructor): they are put back at once.
 * - UCX prints to standard output: a log handler takes what comes from calls of ours, in the thread
 *   that calls; what other users of UCX in the process print stays theirs. The handler cannot be
 *   taken out of the middle of UCX's stack again, so this file is never unloaded (-z nodelete).
 * The handlers for signals follow UCX_HANDLE_ERRORS, UCX_ERROR_SIGNALS and UCX_DEBUG_SIGNO (UCX's
 * src/ucs/config/global_opts.c), which are of the whole process: they are read when libucs is
 * loaded, before a context has settings, and only from the environment, which is not ours to change
 * (rule 13). How memory hooks are avoided: ucx_context.c.
 *
 * Thread: any; a mutex guards the opening. */
#include "ucx_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "base/error.h"

#define SIGNALS 32 /* the classic ones; UCX looks at no others by default */
#define TODO_INSTALL                                                                               \
    "install UCX 1.13 or later (Debian: libucx0), or choose another XCCL_NET_PLUGIN"

struct ucx_library ucx;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static int is_open; /* guarded by open_lock */
_Thread_local UCX_TLS_NEAR int ucx_inside;
_Thread_local UCX_TLS_NEAR xcclNetLogger_t ucx_inside_log;

int ucx_version_serves(unsigned major, unsigned minor)
{
    return major == UCX_NEED_MAJOR && minor >= UCX_NEED_MINOR;
}

__attribute__((format(printf, 6, 0))) static ucs_log_func_rc_t
take_line(const char *file, unsigned line, const char *function, ucs_log_level_t level,
          const ucs_log_component_config_t *config, const char *format, va_list values)
{
    char text[400];
    int used;

    (void)line, (void)function, (void)config;
    if (!ucx_inside)
        return UCS_LOG_FUNC_RC_CONTINUE;
    if (!ucx_inside_log || level > UCS_LOG_LEVEL_WARN)
        return UCS_LOG_FUNC_RC_STOP;
    used = snprintf(text, sizeof(text),
                    "ucx, %s: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file);
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, values);
    ucx_inside_log(xcclNetLogDebug, text);
    return UCS_LOG_FUNC_RC_STOP;
}

/* Both libraries; the signal handlers are as before afterwards. */
static void open_files(void **ucp_out, void **ucs_out)
{
    struct sigaction before[SIGNALS];
    int known[SIGNALS] = {0};

    for (int i = 1; i < SIGNALS; i++)
        known[i] = sigaction(i, NULL, &before[i]) == 0;
    *ucs_out = dlopen("libucs.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    *ucp_out = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int i = 1; i < SIGNALS; i++) {
        if (known[i])
            (void)sigaction(i, &before[i], NULL);
    }
}

static xcclResult_t lacks(const char *name)
{
    return xccl_fail_quietly(xcclSystemError, 0, TODO_INSTALL,
                             "UCX of this host is older than needed: it has no %s", name);
}

/* A function pointer out of dlsym's object pointer, as POSIX has it. */
static int look_up(void *library, const char *name, void *function_out)
{
    void *at = dlsym(library, name);

    memcpy(function_out, &at, sizeof(at));
    return at != NULL;
}

static xcclResult_t fill_table(void *ucp, void *ucs)
{
    void (*push)(ucs_log_func_t) = NULL;
    unsigned major = 0, minor = 0, release = 0;

    if (!look_up(ucp, "ucp_get_version", &ucx.get_version))
        return lacks("ucp_get_version");
    ucx.get_version(&major, &minor, &release);
    if (!ucx_version_serves(major, minor))
        return xccl_fail_quietly(xcclSystemError, 0, TODO_INSTALL,
                                 "UCX of this host is %u.%u.%u, %d.%d or a later 1.x is needed",
                                 major, minor, release, UCX_NEED_MAJOR, UCX_NEED_MINOR);
    const struct {
        const char *name;
        void *at;
    } functions[] = {
#define UCX_ROW(name) {"ucp_" #name, &ucx.name},
        UCX_UCP_FUNCTIONS(UCX_ROW)
#undef UCX_ROW
    };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (!look_up(ucp, functions[i].name, functions[i].at))
            return lacks(functions[i].name);
    }
    if (!look_up(ucs, "ucs_status_string", &ucx.status_string))
        return lacks("ucs_status_string");
    if (look_up(ucs, "ucs_log_push_handler", &push))
        push(take_line);
    return xcclSuccess;
}

static xcclResult_t open_once(void)
{
    void *ucp = NULL, *ucs = NULL;
    xcclResult_t rc;

    open_files(&ucp, &ucs);
    if (!ucp || !ucs) {
        const char *why = dlerror();

        return xccl_fail_quietly(xcclSystemError, 0, TODO_INSTALL, "cannot open UCX: %s",
                                 why ? why : "libucp.so.0 or libucs.so.0 is missing");
    }
    rc = fill_table(ucp, ucs);
    is_open = rc == xcclSuccess;
    return rc;
}

xcclResult_t ucx_library_open(void)
{
    xcclResult_t rc = xcclSuccess;

    pthread_mutex_lock(&open_lock);
    if (!is_open)
        rc = open_once();
    pthread_mutex_unlock(&open_lock);
    return rc;
}
