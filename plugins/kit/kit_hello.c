/* SPDX-License-Identifier: BSD-3-Clause */
/* The first bytes of a side channel, at either end; the header has the rules.
 *
 * Thread: as the header says. */
#include "kit/kit_hello.h"

#include <assert.h>
#include <sodium.h>

#include "base/error.h"
#include "base/os.h"
#include "base/tcp.h"

static_assert(KIT_HEAD_BYTES + KIT_ADDRS_MAX * XCCL_ADDR_WIRE_BYTES <= XCCL_NET_HANDLE_USED,
              "NCCL can carry a handle");

void kit_handle_encode(const struct kit_dialect *dialect, const struct kit_handle *handle,
                       xcclNetHandle_t *bytes_out)
{
    struct xccl_wire wire = xccl_wire_over(bytes_out->bytes, sizeof(bytes_out->bytes));

    memset(bytes_out, 0, sizeof(*bytes_out));
    xccl_wire_put_u32(&wire, dialect->handle_magic);
    xccl_wire_put_u32(&wire, dialect->version);
    xccl_wire_put(&wire, handle->token, KIT_TOKEN_BYTES);
    for (uint32_t i = 0; i < handle->addr_count; i++)
        xccl_addr_encode(&handle->addrs[i],
                         wire.at + dialect->handle_own_bytes + i * XCCL_ADDR_WIRE_BYTES);
}

xcclResult_t kit_handle_decode(const struct kit_dialect *dialect, const xcclNetHandle_t *bytes,
                               struct kit_handle *handle_out)
{
    static const uint8_t none[XCCL_ADDR_WIRE_BYTES];
    xcclNetHandle_t copy = *bytes;
    struct xccl_wire wire = xccl_wire_over(copy.bytes, sizeof(copy.bytes));
    xcclResult_t rc = xcclSuccess;

    if (xccl_wire_get_u32(&wire) != dialect->handle_magic ||
        xccl_wire_get_u32(&wire) != dialect->version)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the same build of XCCL on all ranks",
                                 "a connect handle is not of the %s plugin, wire version %u",
                                 dialect->plugin, dialect->version);
    xccl_wire_get(&wire, handle_out->token, KIT_TOKEN_BYTES);
    (void)xccl_wire_take(&wire, dialect->handle_own_bytes);
    handle_out->addr_count = 0;
    for (int i = 0; i < KIT_ADDRS_MAX && rc == xcclSuccess; i++) {
        const uint8_t *at = xccl_wire_take(&wire, XCCL_ADDR_WIRE_BYTES);

        if (i && memcmp(at, none, sizeof(none)) == 0)
            break;
        rc = xccl_addr_decode(at, &handle_out->addrs[handle_out->addr_count++]);
    }
    return rc;
}

struct xccl_wire kit_hello_begin(const struct kit_dialect *dialect, uint8_t *hello_out)
{
    struct xccl_wire wire = xccl_wire_over(hello_out, dialect->hello_bytes_max);

    xccl_wire_put_u32(&wire, dialect->hello_magic);
    xccl_wire_put_u32(&wire, dialect->version);
    return wire;
}

int kit_hello_read(const struct kit_dialect *dialect, uint8_t *hello, void *content_out)
{
    struct xccl_wire wire = xccl_wire_over(hello, dialect->hello_bytes);
    uint32_t magic = xccl_wire_get_u32(&wire), version = xccl_wire_get_u32(&wire);

    return magic == dialect->hello_magic && version == dialect->version &&
           dialect->decode(&wire, content_out);
}

/* ---- receiver ---- */

xcclResult_t kit_listener_open(struct kit_listener *listener, const struct kit_dialect *dialect,
                               xcclNetLogger_t log, const char *device)
{
    xcclResult_t rc;

    listener->dialect = dialect;
    listener->handle.addr_count = 0;
    for (int i = 0; i < KIT_PORTS_MAX; i++)
        listener->fds[i] = -1;
    listener->step = (struct kit_doorstep){.log = log, .device = device};
    listener->guests.dialect = dialect;
    rc = kit_doorstep_init(&listener->step, KIT_PLACE_BYTES(dialect->hello_bytes_max));
    if (rc == xcclSuccess)
        rc = xccl_os_random(listener->handle.token, sizeof(listener->handle.token));
    if (rc == xcclSuccess)
        memcpy(listener->guests.token, listener->handle.token, KIT_TOKEN_BYTES);
    return rc;
}

xcclResult_t kit_listener_port(struct kit_listener *listener, uint32_t port_idx,
                               const struct xccl_addr *addr)
{
    struct xccl_addr *port = &listener->ports[port_idx];
    struct kit_handle *handle = &listener->handle;
    xcclResult_t rc = xccl_tcp_listen(addr, &listener->fds[port_idx], port);

    if (rc == xcclSuccess && handle->addr_count < KIT_ADDRS_MAX)
        handle->addrs[handle->addr_count++] = *port;
    return rc;
}

void kit_listener_close(struct kit_listener *listener)
{
    kit_doorstep_fini(&listener->step);
    for (int i = 0; listener->dialect && i < KIT_PORTS_MAX; i++)
        xccl_tcp_close(&listener->fds[i]);
    sodium_memzero(&listener->handle, sizeof(listener->handle)); /* token and keys */
    sodium_memzero(&listener->guests, sizeof(listener->guests));
}

xcclResult_t kit_listener_fill(struct kit_listener *listener, uint64_t now_ns)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < KIT_PORTS_MAX && rc == xcclSuccess; i++) {
        if (listener->fds[i] >= 0)
            rc = kit_doorstep_fill(&listener->step, listener->fds[i], now_ns);
    }
    return rc;
}

struct kit_stranger *kit_listener_next(struct kit_listener *listener, int *at_idx, uint64_t now_ns,
                                       void *content_out)
{
    while (*at_idx < KIT_DOORSTEP_PLACES) {
        struct kit_stranger *stranger = &listener->step.places[(*at_idx)++];

        if (stranger->fd < 0 ||
            !kit_guest_prove(&listener->guests, &listener->step, stranger, now_ns))
            continue;
        if (kit_hello_read(listener->dialect, stranger->hello, content_out))
            return stranger;
        kit_doorstep_drop(&listener->step, stranger, listener->dialect->wrong);
    }
    return NULL;
}

/* ---- sender ---- */

xcclResult_t kit_greet(struct kit_greeting *greeting, int fd, const struct xccl_addr *addr,
                       const struct kit_intro *intro, int *done_out)
{
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    if (!greeting->is_reached)
        rc = xccl_tcp_connect_test(fd, addr, &greeting->is_reached);
    if (rc == xcclSuccess && greeting->is_reached)
        rc = kit_prove(greeting, fd, addr, intro, done_out);
    return rc;
}
