/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX contexts. A first one, made under the user's own settings, tells which transports and devices
 * there are; then one is made with the networks among them and one with those that share memory.
 * They are kept apart because UCX 1.13 gives an endpoint that tells of its peer's end
 * (UCP_ERR_HANDLING_MODE_PEER) no shared memory at all: posix and sysv have no peer failure
 * handler (src/ucp/wireup/select.c). Who shares memory is on one host, where the side socket tells.
 *
 * Transports for device memory are left out: that memory is the core's business.
 *
 * The host program stays as it was (rule 13): the cache of registrations of a context
 * (UCX_RCACHE_ENABLE, in `ucx_info -cf`; src/ucs/memory/rcache.c) starts UCX's thread with its
 * pipes and patches mmap, munmap and others in the program's memory (UCX_MEM_EVENTS,
 * UCX_MEM_MMAP_HOOK_MODE: bistro). Only networks that pin pages gain by it, so without one it is
 * off, unless the user has set UCX_RCACHE_ENABLE.
 *
 * The side socket has a keepalive, so UCX's is off, unless the user has set UCX_KEEPALIVE_INTERVAL:
 * its timer wakes who sleeps and costs a system call at each arming of a worker.
 * Thread: any, one at a time a home. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"
#include "ucx_int.h"

#define TODO_TLS "see `ucx_info -d` for what there is, and XCCL_UCX_TLS, UCX_TLS, UCX_NET_DEVICES"

static xcclResult_t ucx_failed(ucs_status_t status, const char *what)
{
    return xccl_fail_quietly(xcclSystemError, 0, TODO_TLS, "UCX: %s: %s", what,
                             ucx.status_string(status));
}

/* Where the user has not set it himself. A UCX without the setting has nothing to turn off. */
static void prefer(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];

    snprintf(variable, sizeof(variable), "UCX_%s", name);
    if (!getenv(variable))
        (void)ucx.config_modify(config, name, value);
}

/* Whether UCX chooses itself which messages are answered: then small ones are not. */
static int chooses_rendezvous(const ucp_config_t *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    int found = 0;

    if (!file)
        return 0;
    ucx.config_print(config, file, "", UCS_CONFIG_PRINT_CONFIG);
    if (fclose(file) == 0)
        found = strstr(text, "UCX_RNDV_THRESH=auto\n") != NULL;
    free(text);
    return found;
}

/* NULL or "": as the settings of UCX have it. */
static ucs_status_t context_open(const char *tls, const char *device, int cache,
                                 struct ucx_home *home_out)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .mt_workers_shared = 1,
                           .estimated_num_eps = 1};
    ucp_config_t *config = NULL;
    ucs_status_t status = ucx.config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    if (tls && tls[0])
        status = ucx.config_modify(config, "TLS", tls);
    if (status == UCS_OK && device)
        status = ucx.config_modify(config, "NET_DEVICES", device);
    if (status == UCS_OK && !cache)
        prefer(config, "RCACHE_ENABLE", "n");
    if (status == UCS_OK)
        prefer(config, "KEEPALIVE_INTERVAL", "inf");
    if (status == UCS_OK)
        status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                                  &home_out->context);
    home_out->answers_all = !chooses_rendezvous(config);
    ucx.config_release(config);
    return status;
}

static int has_name(const char *list, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = strstr(list, name); at; at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ',') && (at[bytes] == 0 || at[bytes] == ','))
            return 1;
    }
    return 0;
}

static void take_name(char *list, size_t room, const char *name)
{
    size_t used = strlen(list);

    if (!has_name(list, name))
        snprintf(list + used, room - used, "%s%s", used ? "," : "", name);
}

static void take_device(struct ucx_survey *survey, const char *name)
{
    for (int i = 0; i < survey->device_count; i++) {
        if (strcmp(survey->devices[i], name) == 0)
            return;
    }
    if (survey->device_count < UCX_DEVICES_MAX)
        snprintf(survey->devices[survey->device_count++], UCX_NAME_BYTES, "%s", name);
}

static void take_resource(struct ucx_survey *survey, const struct ucx_resource *resource)
{
    int mode = ucx_resource_mode(resource);

    if (mode < 0)
        return;
    take_name(survey->tls[mode], sizeof(survey->tls[mode]), resource->transport);
    if (mode == UCX_NET && strcmp(resource->device, "lo") != 0)
        take_device(survey, resource->device);
}

xcclResult_t ucx_room(void)
{
    if (kit_fds_have_room(UCX_ROOM_FDS))
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, "raise ulimit -n",
                             "fewer than %d more descriptors can be opened, and UCX aborts a "
                             "process when there are none",
                             UCX_ROOM_FDS);
}

/* There is no query for it: the text is what UCX has for people. */
static xcclResult_t read_resources(ucp_context_h context, struct ucx_survey *survey)
{
    struct ucx_resource resource;
    char *text = NULL, *rest = NULL;
    size_t bytes = 0;
    int has_lo = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (!file)
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory to query UCX");
    ucx.context_print_info(context, file);
    if (fclose(file) != 0 || !text) {
        free(text);
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "no memory to query UCX");
    }
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!ucx_resource_parse(line, &resource))
            continue;
        take_resource(survey, &resource);
        has_lo |= strcmp(resource.device, "lo") == 0;
    }
    free(text);
    if (has_lo)
        take_device(survey, "lo");
    return xcclSuccess;
}

xcclResult_t ucx_survey_make(struct ucx_survey *survey_out)
{
    struct ucx_home home = {.context = NULL};
    ucs_status_t status;
    xcclResult_t rc;

    memset(survey_out, 0, sizeof(*survey_out));
    rc = ucx_room();
    if (rc != xcclSuccess)
        return rc;
    status = context_open(xccl_param_string(XCCL_P_UCX_TLS), NULL, 0, &home);
    if (status == UCS_ERR_NO_DEVICE)
        return xcclSuccess;
    if (status != UCS_OK)
        return ucx_failed(status, "cannot make a context");
    rc = read_resources(home.context, survey_out);
    ucx.cleanup(home.context);
    return rc;
}

xcclResult_t ucx_home_open(struct ucx_home *home, enum ucx_mode mode, const char *tls,
                           const char *device)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    ucs_status_t status;

    xcclResult_t rc = ucx_room();

    if (rc != xcclSuccess)
        return rc;
    home->by_hardware = ucx_by_hardware(mode, tls);
    status = context_open(tls, device, home->by_hardware, home);
    if (status != UCS_OK) {
        home->context = NULL;
        return ucx_failed(status, device ? device : tls);
    }
    status = ucx.context_query(home->context, &attr);
    if (status != UCS_OK) {
        ucx.cleanup(home->context);
        home->context = NULL;
        return ucx_failed(status, "cannot query a context");
    }
    home->request_bytes = attr.request_size;
    pthread_mutex_init(&home->lock, NULL);
    return xcclSuccess;
}

void ucx_home_close(struct ucx_home *home)
{
    struct ucx_mem *mem, *next;

    if (!home->context)
        return;
    /* Of comms that were closed without. */
    for (mem = home->mems; mem; mem = next) {
        next = mem->next;
        if (mem->memh)
            (void)ucx.mem_unmap(home->context, mem->memh);
        xccl_free(mem);
    }
    home->mems = NULL;
    ucx.cleanup(home->context);
    pthread_mutex_destroy(&home->lock);
    home->context = NULL;
}
