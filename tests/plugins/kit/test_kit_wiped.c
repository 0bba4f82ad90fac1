/* SPDX-License-Identifier: BSD-3-Clause */
/* Tokens of connections after their end: of a connection that came up and was closed, and of one
 * that was given up, nothing of the token is in this process's memory, free blocks included. Over
 * each network plugin, ib by the fixture of verbs. Keys of sessions lie in the same structures.
 * The stack is left out: the next calls write over it.
 *
 * Thread: one. */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "xccl_net.h"
#include "xt.h"

/* The end of a token, in a handle of each of the four plugins: freeing a block writes over its
 * first 32 bytes. */
#define TOKEN_OFFSET (8 + 24)
#define TOKEN_BYTES  8
#define REGION_MAX   (1ul << 30)
#define END_NS       (20 * XCCL_NS_PER_S)

/* A plugin's instance that listens. */
struct plugin {
    const xcclNetPlugin_v1_t *calls;
    xcclNetContext_t ctx;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listener;
};

/* These bytes, each inverted: this program's memory is searched, too. */
static uint8_t inverted[TOKEN_BYTES];

static void plugin_open(struct plugin *plugin, const char *name)
{
    xcclNetInit_v1 init = {
        .size = sizeof(init), .commId = 1, .rank = -1, .commName = "", .trafficClass = -1};
    char path[512];
    void *library;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer's allocator keeps freed memory elsewhere");
    snprintf(path, sizeof(path), "%s/lib/xccl/libxccl-net-%s.so", XT_BUILD_DIR, name);
    library = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
    if (!library)
        XT_SKIP("the %s plugin was not built", name);
    xt_allow_leaks("libraries of others keep threads and memory");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    plugin->calls = dlsym(library, "xcclNetPlugin_v1");
    XT_CHECK(plugin->calls != NULL);
    if (plugin->calls->init(&init, &plugin->ctx) != xcclSuccess)
        XT_SKIP("%s", plugin->calls->lastError(NULL));
    XT_OK(plugin->calls->listen(plugin->ctx, 0, &plugin->handle, &plugin->listener));
    for (int i = 0; i < TOKEN_BYTES; i++)
        inverted[i] = (uint8_t)~plugin->handle.bytes[TOKEN_OFFSET + i];
}

/* A connection comes up and ends, and another one is given up. */
static void connect_and_close(struct plugin *plugin)
{
    const xcclNetPlugin_v1_t *calls = plugin->calls;
    uint64_t end_ns = xccl_clock_ns() + END_NS;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t send = NULL, other = NULL;
    xcclNetRecvComm_t recv = NULL;

    while (!send || !recv) {
        XT_CHECK(xccl_clock_ns() < end_ns);
        if (!send)
            XT_OK(calls->connect(plugin->ctx, 0, &plugin->handle, &state, &send));
        if (!recv)
            XT_OK(calls->accept(plugin->listener, &recv));
    }
    XT_OK(calls->closeSend(send));
    XT_OK(calls->closeRecv(recv));
    state = NULL;
    XT_OK(calls->connect(plugin->ctx, 0, &plugin->handle, &state, &other));
    XT_CHECK(!other && state);
    XT_OK(calls->closeListen(plugin->listener));
    XT_OK(calls->closeConnect(plugin->ctx, state));
    memset(&plugin->handle, 0, sizeof(plugin->handle));
}

/* 1: the token is between two addresses. */
static int is_in(int memory, unsigned long from, unsigned long to)
{
    uint8_t block[16384], token[TOKEN_BYTES];
    int found = 0;

    for (int i = 0; i < TOKEN_BYTES; i++)
        token[i] = (uint8_t)~inverted[i];
    while (!found && from + TOKEN_BYTES <= to) {
        size_t bytes = to - from < sizeof(block) ? to - from : sizeof(block);
        ssize_t got = pread(memory, block, bytes, (off_t)from);

        if (got < TOKEN_BYTES)
            break;
        found = memmem(block, (size_t)got, token, TOKEN_BYTES) != NULL;
        from += (size_t)got - TOKEN_BYTES + 1;
    }
    return found;
}

/* Regions that hold the token: the heap, and all others that can be written and are of no file.
 * Nothing is allocated here, for that would write over freed memory. */
static int find_token(void)
{
    static char text[1 << 18];
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), found = 0, looked = 0;
    char mode[8], path[256], *line, *rest = text;
    unsigned long from, to, inode;
    ssize_t got;

    XT_CHECK(maps >= 0 && memory >= 0);
    for (size_t have = 0; (got = read(maps, text + have, sizeof(text) - 1 - have)) > 0;)
        have += (size_t)got;
    while ((line = strsep(&rest, "\n")) && *line) {
        path[0] = 0;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %255s", &from, &to, mode, &inode, path) < 4 ||
            mode[1] != 'w' || inode || to - from > REGION_MAX ||
            (path[0] == '[' && strcmp(path, "[heap]") != 0))
            continue;
        looked++;
        found += is_in(memory, from, to);
    }
    XT_CHECK(looked > 1);
    close(memory);
    close(maps);
    return found;
}

static void wiped(const char *name)
{
    static struct plugin plugin;

    plugin_open(&plugin, name);
    XT_CHECK(mallopt(M_TRIM_THRESHOLD, INT_MAX) && mallopt(M_MMAP_THRESHOLD, INT_MAX / 64));
    XT_CHECK(find_token() > 0); /* the listener has it, and the handle */
    connect_and_close(&plugin);
    XT_CHECK_INT(find_token(), 0); /* before others use freed memory */
    XT_OK(plugin.calls->finalize(plugin.ctx));
}

XT_TEST(the_socket_plugin_keeps_no_token)
{
    wiped("socket");
}

XT_TEST(the_ib_plugin_keeps_no_token)
{
    xt_setenv("XCCL_IB_LIBRARY", XT_BUILD_DIR "/lib/fixtures/libverbs-fixture.so");
    xt_setenv("VERBS_FIXTURE_CARDS", "1");
    wiped("ib");
}

XT_TEST(the_ofi_plugin_keeps_no_token)
{
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    wiped("ofi");
}

XT_TEST(the_ucx_plugin_keeps_no_token)
{
    xt_setenv("UCX_TLS", "tcp,self");
    wiped("ucx");
}
