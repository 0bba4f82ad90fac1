/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin as stock NCCL uses it: by each of the tables that the export shim offers, with
 * the habits that NCCL has and no header tells (the same handle memory at each retry, a hint in
 * *request, no finalize before version 11). */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/nccl_net_abi.h"
#include "base/netaddr.h"
#include "xccl_net.h"
#include "xt.h"

#define TURNS_MAX   2000000 /* asked again; the deadline of the test is shorter */
#define ADDR_OFFSET 44 /* in the socket plugin's handle: 4 bytes, then those behind the zone */

/* One table, and what all of them have alike. */
struct user {
    int version;
    void *library;
    const struct nccl_net_v8 *v8;
    const struct nccl_net_v9 *v9;
    const struct nccl_net_v10 *v10;
    const struct nccl_net_v11 *v11; /* and 12 */
    int (*devices)(int *ndev);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
};

struct pair {
    void *ctx, *listener, *send, *recv, *send_mem, *recv_mem;
    char handle[NCCL_NET_HANDLE_BYTES];
    char out[4096], in[4096];
};

static int warnings;
static char warning[512];

__attribute__((format(printf, 5, 6))) static void
nccl_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    (void)line;
    XT_CHECK_INT(flags, NCCL_LOG_NET);
    XT_CHECK_TEXT(file, "socket");
    if (level != NCCL_LOG_WARN)
        return;
    warnings++;
    va_start(args, fmt);
    vsnprintf(warning, sizeof(warning), fmt, args);
    va_end(args);
}

#define TAKE(user, table)                                                                          \
    ((user)->devices = (table)->devices, (user)->accept = (table)->accept,                         \
     (user)->reg_mr = (table)->reg_mr, (user)->dereg_mr = (table)->dereg_mr,                       \
     (user)->iflush = (table)->iflush, (user)->test = (table)->test,                               \
     (user)->close_send = (table)->close_send, (user)->close_recv = (table)->close_recv,           \
     (user)->close_listen = (table)->close_listen)

/* What NCCL does before its first init. */
static void user_load(struct user *user, int version)
{
    char symbol[32];
    const char *path = XT_BUILD_DIR "/lib/xccl/libxccl-net-socket.so";
    const void *table;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    memset(user, 0, sizeof(*user));
    user->version = version;
    user->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!user->library)
        XT_FAIL("%s", dlerror());
    snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
    table = dlsym(user->library, symbol);
    XT_CHECK(table != NULL);
    XT_CHECK_TEXT(*(const char *const *)table, "socket");
    if (version == 8)
        TAKE(user, user->v8 = table);
    else if (version == 9)
        TAKE(user, user->v9 = table);
    else if (version == 10)
        TAKE(user, user->v10 = table);
    else
        TAKE(user, user->v11 = table);
}

static void user_unload(struct user *user)
{
    XT_CHECK_INT(dlclose(user->library), 0);
}

/* A communicator: before version 11 there is no instance to hold. */
static void *user_init(const struct user *user)
{
    struct nccl_net_config config = {.traffic_class = -1};
    void *ctx = NULL;

    if (user->v8)
        XT_OK(user->v8->init(nccl_log));
    else if (user->v9)
        XT_OK(user->v9->init(nccl_log));
    else if (user->v10)
        XT_OK(user->v10->init(nccl_log, NULL));
    else
        XT_OK(user->v11->init(&ctx, 0x1234, &config, nccl_log, NULL));
    return ctx;
}

static void user_fini(const struct user *user, void *ctx)
{
    if (user->v11)
        XT_OK(user->v11->finalize(ctx));
}

static int user_listen(const struct user *user, void *ctx, void *handle, void **listener)
{
    if (user->v8)
        return user->v8->listen(0, handle, listener);
    if (user->v9)
        return user->v9->listen(0, handle, listener);
    if (user->v10)
        return user->v10->listen(0, handle, listener);
    return user->v11->listen(ctx, 0, handle, listener);
}

static int user_connect(const struct user *user, void *ctx, void *handle, void **comm)
{
    struct nccl_net_config config = {.traffic_class = -1};
    void *device = handle; /* NCCL does not say what is there on entry */
    int rc;

    if (user->v8)
        rc = user->v8->connect(0, handle, comm, &device);
    else if (user->v9)
        rc = user->v9->connect(0, handle, comm, &device);
    else if (user->v10)
        rc = user->v10->connect(0, &config, handle, comm, &device);
    else
        rc = user->v11->connect(ctx, 0, handle, comm, &device);
    XT_CHECK(device == NULL);
    return rc;
}

static int user_isend(const struct user *user, struct pair *pair, size_t bytes, void **request)
{
    if (user->v8)
        return user->v8->isend(pair->send, pair->out, (int)bytes, 5, pair->send_mem, request);
    if (user->v9)
        return user->v9->isend(pair->send, pair->out, bytes, 5, pair->send_mem, request);
    if (user->v10)
        return user->v10->isend(pair->send, pair->out, bytes, 5, pair->send_mem, NULL, request);
    return user->v11->isend(pair->send, pair->out, bytes, 5, pair->send_mem, NULL, request);
}

static int user_irecv(const struct user *user, struct pair *pair, size_t bytes, void **request)
{
    void *data = pair->in;
    int tag = 5, small = (int)bytes;

    if (user->v8)
        return user->v8->irecv(pair->recv, 1, &data, &small, &tag, &pair->recv_mem, request);
    if (user->v9)
        return user->v9->irecv(pair->recv, 1, &data, &bytes, &tag, &pair->recv_mem, request);
    if (user->v10)
        return user->v10->irecv(pair->recv, 1, &data, &bytes, &tag, &pair->recv_mem, NULL, request);
    return user->v11->irecv(pair->recv, 1, &data, &bytes, &tag, &pair->recv_mem, NULL, request);
}

static int tail_is_zero(const char *handle)
{
    static const char zero[NCCL_NET_HANDLE_BYTES - XCCL_NET_HANDLE_USED];

    return memcmp(handle + XCCL_NET_HANDLE_USED, zero, sizeof(zero)) == 0;
}

static void pair_open(const struct user *user, struct pair *pair, void *ctx)
{
    memset(pair, 0, sizeof(*pair));
    memset(pair->handle, 0x77, sizeof(pair->handle));
    pair->ctx = ctx;
    XT_OK(user_listen(user, ctx, pair->handle, &pair->listener));
    XT_CHECK(tail_is_zero(pair->handle));
    for (int i = 0; i < TURNS_MAX && !(pair->send && pair->recv); i++) {
        void *device = pair;

        if (!pair->send)
            XT_OK(user_connect(user, ctx, pair->handle, &pair->send));
        if (pair->recv)
            continue;
        XT_OK(user->accept(pair->listener, &pair->recv, &device));
        XT_CHECK(device == NULL);
    }
    XT_CHECK(pair->send && pair->recv);
    XT_CHECK(tail_is_zero(pair->handle));
    XT_OK(user->reg_mr(pair->send, pair->out, sizeof(pair->out), NCCL_PTR_HOST, &pair->send_mem));
    XT_OK(user->reg_mr(pair->recv, pair->in, sizeof(pair->in), NCCL_PTR_HOST, &pair->recv_mem));
}

static void pair_close(const struct user *user, struct pair *pair)
{
    XT_OK(user->dereg_mr(pair->send, pair->send_mem));
    XT_OK(user->dereg_mr(pair->recv, pair->recv_mem));
    XT_OK(user->close_send(pair->send));
    XT_OK(user->close_recv(pair->recv));
    XT_OK(user->close_listen(pair->listener));
}

/* Sends out, receives into room bytes of in, with the size that test tells both. */
static void transfer(const struct user *user, struct pair *pair, size_t bytes, size_t room)
{
    void *send = NULL, *recv = (void *)1; /* NCCL's hint that it will look at the memory itself */
    int sizes[2] = {-7, -7}, sent = -7, done = 0;

    memset(pair->in, 0, sizeof(pair->in));
    for (size_t i = 0; i < bytes; i++)
        pair->out[i] = (char)(i * 3 + bytes);
    XT_OK(user_irecv(user, pair, room, &recv));
    XT_CHECK(recv && recv != (void *)1);
    XT_OK(user_isend(user, pair, bytes, &send));
    XT_CHECK(send != NULL);
    for (int i = 0; i < TURNS_MAX && !done; i++)
        XT_OK(user->test(send, &done, &sent));
    XT_CHECK_INT(sent, bytes);
    done = 0;
    for (int i = 0; i < TURNS_MAX && !done; i++)
        XT_OK(user->test(recv, &done, sizes));
    XT_CHECK(done);
    XT_CHECK_INT(sizes[0], bytes);
    XT_CHECK_INT(sizes[1], -7); /* one part, one size */
    XT_CHECK(memcmp(pair->in, pair->out, bytes) == 0);
}

static void check_messages(int version)
{
    struct user user;
    struct pair pair;
    void *ctx, *request = &pair, *data = pair.in;
    int size = 16;

    user_load(&user, version);
    ctx = user_init(&user);
    pair_open(&user, &pair, ctx);
    transfer(&user, &pair, 1000, 1000);
    transfer(&user, &pair, 0, 100);
    transfer(&user, &pair, 17, 4096);
    XT_OK(user.iflush(pair.recv, 1, &data, &size, &pair.recv_mem, &request));
    XT_CHECK(request == NULL);
    pair_close(&user, &pair);
    user_fini(&user, ctx);
    user_unload(&user);
    XT_CHECK_INT(warnings, 0);
}

XT_TEST(version_8_carries_messages)
{
    check_messages(8);
}
XT_TEST(version_9_carries_messages)
{
    check_messages(9);
}
XT_TEST(version_10_carries_messages)
{
    check_messages(10);
}
XT_TEST(version_11_carries_messages)
{
    check_messages(11);
}
XT_TEST(version_12_carries_messages)
{
    check_messages(12);
}

XT_TEST(two_communicators_do_not_disturb_each_other)
{
    for (int version = 8; version <= 12; version++) {
        struct user user;
        struct pair first, second;
        void *one, *two;

        user_load(&user, version);
        one = user_init(&user);
        two = user_init(&user);
        XT_CHECK(version < 11 ? !one && !two : one != two);
        pair_open(&user, &first, one);
        pair_open(&user, &second, two);
        transfer(&user, &first, 100, 100);
        transfer(&user, &second, 200, 200);
        pair_close(&user, &first);
        user_fini(&user, one);
        transfer(&user, &second, 300, 300);
        pair_close(&user, &second);
        user_fini(&user, two);
        user_unload(&user);
    }
    XT_CHECK_INT(warnings, 0);
}

/* What versions 9 to 12 begin with, at the same offsets. */
static void check_props(const struct nccl_net_props_v9 *props, size_t max_p2p_bytes)
{
    XT_CHECK_TEXT(props->name, "lo");
    XT_CHECK(props->pci_path == NULL);
    XT_CHECK_INT(props->ptr_support, NCCL_PTR_HOST);
    XT_CHECK_INT(props->reg_is_global, 1);
    XT_CHECK_INT(props->speed, 10000); /* lo does not tell: what NCCL takes then */
    XT_CHECK(props->max_comms > 1000);
    XT_CHECK_INT(props->max_recvs, 8);
    XT_CHECK_INT(props->device_type, 0);
    XT_CHECK_INT(props->members.ndevs, 1);
    XT_CHECK_INT(props->members.devs[0], 0);
    XT_CHECK(max_p2p_bytes >= 1u << 30 && max_p2p_bytes <= INT_MAX);
}

XT_TEST(properties_have_the_layout_of_their_version)
{
    union {
        struct nccl_net_props_v8 v8;
        struct nccl_net_props_v9 v9;
        struct nccl_net_props_v11 v11;
        struct nccl_net_props_v12 v12;
        char bytes[sizeof(struct nccl_net_props_v12) + 8];
    } props;
    static const size_t sizes[] = {64, 104, 104, 112, 128};

    for (int version = 8; version <= 12; version++) {
        struct user user;
        void *ctx;
        int count = 0;

        memset(&props, 0x5a, sizeof(props));
        user_load(&user, version);
        ctx = user_init(&user);
        XT_OK(user.devices(&count));
        XT_CHECK_INT(count, 1);
        if (user.v8) {
            XT_OK(user.v8->get_properties(0, &props.v8));
            XT_CHECK_TEXT(props.v8.name, "lo");
            XT_CHECK_INT(props.v8.max_recvs, 8);
            XT_CHECK_INT(props.v8.device_type, 0);
        } else if (version <= 10) {
            XT_OK((user.v9 ? user.v9->get_properties : user.v10->get_properties)(0, &props.v9));
            check_props(&props.v9, props.v9.max_p2p_bytes);
        } else {
            XT_OK(user.v11->get_properties(0, &props));
            check_props(&props.v9,
                        version == 11 ? props.v11.max_p2p_bytes : props.v12.max_p2p_bytes);
        }
        if (version == 12)
            XT_CHECK_INT(props.v12.rail_id, NCCL_NET_UNDEFINED_ID);
        for (size_t i = sizes[version - 8]; i < sizeof(props); i++)
            XT_CHECK(props.bytes[i] == 0x5a);
        user_fini(&user, ctx);
        user_unload(&user);
    }
}

XT_TEST(optional_entries_that_the_plugin_lacks_are_absent)
{
    struct user user;

    user_load(&user, 12);
    XT_CHECK(!user.v11->reg_mr_dmabuf && !user.v11->make_vdevice && !user.v11->set_net_attr);
    XT_CHECK(!user.v11->get_device_mr && !user.v11->irecv_consumed);
    user_unload(&user);
    user_load(&user, 8);
    XT_CHECK(!user.v8->reg_mr_dmabuf && !user.v8->get_device_mr && !user.v8->irecv_consumed);
    user_unload(&user);
}

XT_TEST(a_size_that_its_version_cannot_carry_is_refused_with_one_warning)
{
    for (int version = 8; version <= 12; version++) {
        struct user user;
        struct pair pair;
        void *ctx, *request = NULL;

        user_load(&user, version);
        ctx = user_init(&user);
        pair_open(&user, &pair, ctx);
        warnings = 0;
        for (int i = 0; i < 3; i++)
            XT_CHECK_RC(user_isend(&user, &pair, (size_t)INT_MAX + 1, &request),
                        xcclInvalidArgument);
        XT_CHECK_INT(warnings, 1);
        transfer(&user, &pair, 100, 100); /* and harms nothing */
        pair_close(&user, &pair);
        user_fini(&user, ctx);
        user_unload(&user);
    }
}

XT_TEST(an_error_of_the_plugin_is_one_warning_with_its_text)
{
    struct user user;
    struct pair pair;
    void *ctx, *request = NULL;
    int rc = 0, done = 0;

    user_load(&user, 12);
    ctx = user_init(&user);
    pair_open(&user, &pair, ctx);
    XT_OK(user_irecv(&user, &pair, 100, &request));
    XT_OK(user.close_send(pair.send));
    for (int i = 0; i < TURNS_MAX && rc == 0; i++)
        rc = user.test(request, &done, NULL);
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_INT(user.test(request, &done, NULL), xcclRemoteError);
    XT_CHECK_INT(warnings, 1);
    XT_CHECK_HAS(warning, "closed the connection");
    XT_OK(user.close_recv(pair.recv));
    XT_OK(user.close_listen(pair.listener));
    user_fini(&user, ctx);
    user_unload(&user);
}

/* A listening socket that takes nobody any more: who connects stays under way. */
static void full_port(int fds[8], struct xccl_addr *addr_out)
{
    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->bytes = sizeof(addr_out->sa.in4);
    addr_out->sa.in4.sin_family = AF_INET;
    addr_out->sa.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        XT_CHECK(fds[i] >= 0);
        if (i > 0) {
            (void)connect(fds[i], &addr_out->sa.any, addr_out->bytes);
            continue;
        }
        XT_CHECK(bind(fds[0], &addr_out->sa.any, addr_out->bytes) == 0);
        XT_CHECK(listen(fds[0], 0) == 0);
        XT_CHECK(getsockname(fds[0], &addr_out->sa.any, &addr_out->bytes) == 0);
    }
}

static void check_abandoned(int version)
{
    struct user user;
    struct pair pair;
    struct xccl_addr addr;
    char handle[NCCL_NET_HANDLE_BYTES], copy[NCCL_NET_HANDLE_BYTES];
    uint8_t wire[XCCL_ADDR_WIRE_BYTES];
    void *ctx, *comm = NULL;
    int fds[8];

    full_port(fds, &addr);
    user_load(&user, version);
    ctx = user_init(&user);
    pair_open(&user, &pair, ctx);
    memcpy(handle, pair.handle, sizeof(handle));
    xccl_addr_encode(&addr, wire);
    memcpy(handle + ADDR_OFFSET, wire, 4);
    memcpy(handle + ADDR_OFFSET + 4, wire + 8, 16);
    for (int i = 0; i < 3; i++) {
        XT_OK(user_connect(&user, ctx, handle, &comm));
        XT_CHECK(comm == NULL);
    }
    XT_CHECK(!tail_is_zero(handle)); /* its state is kept there */
    /* What only looks like a state is refused, and the true one goes on. */
    memset(copy, 0x41, sizeof(copy));
    memcpy(copy, handle, XCCL_NET_HANDLE_USED);
    XT_CHECK_RC(user_connect(&user, ctx, copy, &comm), xcclInvalidArgument);
    memcpy(copy, handle, sizeof(copy));
    copy[XCCL_NET_HANDLE_USED + 8] ^= 1;
    XT_CHECK_RC(user_connect(&user, ctx, copy, &comm), xcclInvalidArgument);
    XT_CHECK_HAS(warning, "handle is damaged");
    XT_OK(user_connect(&user, ctx, handle, &comm));
    transfer(&user, &pair, 100, 100);
    pair_close(&user, &pair);
    /* NCCL forgets it; the harness looks for its descriptor. */
    user_fini(&user, ctx);
    user_unload(&user);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
}

XT_TEST(a_connect_given_up_is_freed_when_the_file_is_unloaded)
{
    for (int version = 8; version <= 10; version++)
        check_abandoned(version);
}

XT_TEST(a_connect_given_up_is_freed_by_finalize)
{
    for (int version = 11; version <= 12; version++)
        check_abandoned(version);
}

XT_TEST(a_connect_that_fails_leaves_the_handle_as_it_came)
{
    struct user user;
    char handle[NCCL_NET_HANDLE_BYTES], before[NCCL_NET_HANDLE_BYTES];
    void *ctx, *listener = NULL, *comm = NULL;
    int rc = 0;

    user_load(&user, 12);
    ctx = user_init(&user);
    XT_OK(user_listen(&user, ctx, handle, &listener));
    memcpy(before, handle, sizeof(handle));
    XT_OK(user.close_listen(listener));
    for (int i = 0; i < TURNS_MAX && rc == 0; i++)
        rc = user_connect(&user, ctx, handle, &comm);
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK(memcmp(handle, before, sizeof(handle)) == 0);
    XT_CHECK_INT(warnings, 1);
    user_fini(&user, ctx);
    user_unload(&user);
}

static void one_of_many(int rank, int nranks, void *arg)
{
    const struct user *user = arg;
    struct pair *pair = malloc(sizeof(*pair));
    void *ctx = user_init(user);

    (void)rank, (void)nranks;
    XT_CHECK(pair != NULL);
    for (int i = 0; i < 20; i++) {
        pair_open(user, pair, ctx);
        transfer(user, pair, 1000, 2000);
        pair_close(user, pair);
    }
    user_fini(user, ctx);
    free(pair);
}

XT_TEST_DEADLINE(threads_come_and_go_side_by_side, 60)
{
    static const int versions[] = {8, 12};

    for (int i = 0; i < 2; i++) {
        struct user user;

        user_load(&user, versions[i]);
        xt_threads_run(4, one_of_many, &user);
        user_unload(&user);
    }
    XT_CHECK_INT(warnings, 0);
}
