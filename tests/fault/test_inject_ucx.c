/* SPDX-License-Identifier: BSD-3-Clause */
/* Blind injection over UCX: a stranger with a worker of his own sends messages with tags that he
 * makes up to the workers of a job. UCX gives no way to reach a worker but its address, which holds
 * a random number; but over tcp it is enough to know the port: the stranger takes the address of
 * another worker of his own and puts that port into it. He has no secret and reads no wire. No
 * element may be wrong and no rank may hang; see inject_town.h. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "base/wire.h"
#include "inject_town.h"
#include "xt.h"

#define LIBRARY     XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so"
#define SHOT_BYTES  (128 << 10)
#define IN_FLIGHT   64u /* to a port */
#define ADDRESS_MAX 4096

/* Functions of UCX, whose library is opened at run time. */
static struct {
    ucs_status_t (*config_read)(const char *, const char *, ucp_config_t **);
    ucs_status_t (*init_version)(unsigned, unsigned, const ucp_params_t *, const ucp_config_t *,
                                 ucp_context_h *);
    ucs_status_t (*worker_create)(ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *);
    ucs_status_t (*get_address)(ucp_worker_h, ucp_address_t **, size_t *);
    unsigned (*progress)(ucp_worker_h);
    ucs_status_t (*ep_create)(ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *);
    void *(*tag_send)(ucp_ep_h, const void *, size_t, ucp_tag_t, const ucp_request_param_t *);
    void (*request_free)(void *);
} ucx;

struct gun {
    ucp_worker_h worker;
    ucp_ep_h targets[TOWN_PORTS_MAX];
    uint8_t dead[TOWN_PORTS_MAX];
    int target_count;
    uint32_t under_way[TOWN_PORTS_MAX];
    uint64_t dice;
    uint8_t bytes[SHOT_BYTES];
};

static int symbol(void *library, const char *name, void *found_out)
{
    void *found = dlsym(library, name);

    memcpy(found_out, &found, sizeof(found));
    return found != NULL;
}

static int library_open(void)
{
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);

    return library && symbol(library, "ucp_config_read", &ucx.config_read) &&
           symbol(library, "ucp_init_version", &ucx.init_version) &&
           symbol(library, "ucp_worker_create", &ucx.worker_create) &&
           symbol(library, "ucp_worker_get_address", &ucx.get_address) &&
           symbol(library, "ucp_worker_progress", &ucx.progress) &&
           symbol(library, "ucp_ep_create", &ucx.ep_create) &&
           symbol(library, "ucp_tag_send_nbx", &ucx.tag_send) &&
           symbol(library, "ucp_request_free", &ucx.request_free);
}

/* Where this process listens: the port of the worker that was made last. */
static uint16_t own_port(const uint16_t *before, int before_count, uint16_t *ports, int *count)
{
    *count = town_ports(getpid(), ports);
    for (int i = 0; i < *count; i++) {
        int is_new = 1;

        for (int k = 0; k < before_count; k++)
            is_new &= ports[i] != before[k];
        if (is_new)
            return ports[i];
    }
    return 0;
}

static void on_error(void *dead, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep, (void)status;
    *(uint8_t *)dead = 1;
}

/* An address of a worker that does not move, with another port. */
static void aim(struct gun *gun, const uint8_t *address, size_t bytes, uint16_t from, uint16_t port)
{
    uint8_t forged[ADDRESS_MAX], old[2] = {(uint8_t)(from >> 8), (uint8_t)from};
    int found = 0;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)forged,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = &gun->dead[gun->target_count]}};

    memcpy(forged, address, bytes);
    for (size_t i = 0; i + 2 <= bytes; i++) {
        if (memcmp(forged + i, old, 2) != 0)
            continue;
        forged[i] = (uint8_t)(port >> 8);
        forged[i + 1] = (uint8_t)port;
        found = 1;
    }
    if (found && ucx.ep_create(gun->worker, &params, &gun->targets[gun->target_count]) == UCS_OK)
        gun->target_count++;
}

/* The interface that the plugin takes as well: the first one that is not loopback, if any is up. */
static void choose_interface(void)
{
    struct ifaddrs *all = NULL;
    const char *name = "lo";

    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && at->ifa_flags & IFF_UP &&
            !(at->ifa_flags & IFF_LOOPBACK)) {
            name = at->ifa_name;
            break;
        }
    }
    setenv("UCX_NET_DEVICES", name, 1);
    freeifaddrs(all);
}

static int gun_open(struct gun *gun, const uint16_t *ports, int port_count)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    uint16_t before[TOWN_PORTS_MAX], now[TOWN_PORTS_MAX], from;
    ucp_worker_h still;
    ucp_config_t *config;
    ucp_context_h context;
    ucp_address_t *address;
    size_t bytes = 0;
    int count = 0;

    choose_interface();
    if (!library_open() || ucx.config_read(NULL, NULL, &config) != UCS_OK ||
        ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context) != UCS_OK ||
        ucx.worker_create(context, &worker_params, &gun->worker) != UCS_OK)
        return 0;
    count = town_ports(getpid(), before);
    if (ucx.worker_create(context, &worker_params, &still) != UCS_OK ||
        ucx.get_address(still, &address, &bytes) != UCS_OK || bytes > ADDRESS_MAX)
        return 0;
    from = own_port(before, count, now, &count);
    for (int i = 0; i < port_count && from; i++)
        aim(gun, (const uint8_t *)address, bytes, from, ports[i]);
    for (size_t i = 0; i < SHOT_BYTES; i++)
        gun->bytes[i] = (uint8_t)xt_random(&gun->dice);
    return gun->target_count > 0;
}

static void on_sent(void *request, ucs_status_t status, void *under_way)
{
    (void)status;
    (*(uint32_t *)under_way)--;
    ucx.request_free(request);
}

/* The job's own tags, as they would be without a secret; tags as they were when half of them was
 * open; and any. */
static ucp_tag_t some_tag(struct gun *gun)
{
    uint64_t dice = xt_random(&gun->dice);

    if (dice % 4 == 0)
        return dice >> 8 & 3;
    return dice & 1 ? dice << 32 : dice;
}

static void shoot(struct gun *gun, struct town *town, int target)
{
    static const size_t sizes[] = {SHOT_BYTES, 64 << 10, 4096, 32, 24, 16, 8, 0};
    /* Large ones that nobody takes stay under way; small ones go all the same. */
    int first = gun->under_way[target] >= IN_FLIGHT ? 4 : 0;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb = {.send = on_sent},
                                 .user_data = &gun->under_way[target]};
    void *sending = ucx.tag_send(gun->targets[target], gun->bytes,
                                 sizes[first + xt_random(&gun->dice) % 4], some_tag(gun), &param);

    if (UCS_PTR_IS_ERR(sending))
        gun->dead[target] = 1;
    else
        atomic_fetch_add_explicit(&town->shots, 1, memory_order_relaxed);
    gun->under_way[target] += UCS_PTR_IS_PTR(sending) != 0;
}

static void attack(struct town *town, const uint16_t *ports, int port_count, uint64_t seed)
{
    static struct gun gun;

    gun.dice = seed;
    if (!gun_open(&gun, ports, port_count))
        _exit(2);
    for (uint32_t i = 0; !town_is_over(town); i++) {
        int target = (int)(i % (uint32_t)gun.target_count);

        (void)ucx.progress(gun.worker);
        if (!gun.dead[target] && gun.under_way[target] < 2 * IN_FLIGHT)
            shoot(&gun, town, target);
    }
}

static const size_t counts[3] = {300000, 2, 20000};

XT_TEST_DEADLINE(blind_shots_over_ucx_change_nothing, 60)
{
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    struct town_sum sum;

    if (access(LIBRARY, R_OK) != 0 || !library)
        XT_SKIP("the plugin was not built, or libucx0 is not installed");
    dlclose(library);
    xt_allow_leaks("UCX keeps threads and memory");
    xt_setenv("XCCL_NET_PLUGIN", LIBRARY);
    xt_setenv("UCX_TLS", "tcp,self");
    town_run_seeds("ucx over tcp", 2, counts, attack, 3, 0.5, &sum);
    XT_CHECK(sum.jobs > 0 && sum.shots > 0);
    XT_CHECK_INT(sum.wrong, 0);
    XT_CHECK_INT(sum.hung, 0);
    /* UCX 1.13 aborts when a connection that was not up yet breaks (plugins/net-ucx/README.md). */
    XT_CHECK(sum.lost <= sum.died);
}
