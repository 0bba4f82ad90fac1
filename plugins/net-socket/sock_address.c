/* SPDX-License-Identifier: BSD-3-Clause */
/* Where connections come to: a TCP port of an interface, or a Unix socket for peers on this host.
 * A Unix socket has an abstract name with 128 random bits: no file is left behind by a process that
 * is killed, but the name ends at the network namespace, so two containers with networks of their
 * own do not reach each other by it. Who may come is the token's business, as with TCP.
 *
 * Thread: any. */
#include "sock_int.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "base/tcp.h"
#include "base/wire.h"

#define PREFIX     "xccl-"
#define WIRE_UNIX  0x5855u /* the family in a handle, "UX"; those of IP are netaddr's */
#define NAME_BYTES 16
/* What a handle leaves out of netaddr's 24 bytes. */
#define ZONE_OFFSET 4
#define ZONE_BYTES  4
#define BACKLOG     128

static_assert(SOCK_ADDRESS_BYTES + ZONE_BYTES == XCCL_ADDR_WIRE_BYTES, "all but the zone");
static_assert(SOCK_ADDRESS_BYTES - ZONE_OFFSET == NAME_BYTES, "a name takes an address's place");

static int is_unix(const struct xccl_addr *addr)
{
    return addr->sa.any.sa_family == AF_UNIX;
}

/* ---- Unix names ---- */

static void unix_address(const uint8_t name[NAME_BYTES], struct xccl_addr *addr_out)
{
    char *at = addr_out->sa.un.sun_path;

    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->sa.un.sun_family = AF_UNIX;
    at += 1 + snprintf(at + 1, sizeof(addr_out->sa.un.sun_path) - 1, PREFIX);
    for (int i = 0; i < NAME_BYTES; i++)
        at += snprintf(at, 3, "%02x", name[i]);
    addr_out->bytes = (socklen_t)(at - (char *)&addr_out->sa.un);
}

/* The name again, out of its address. */
static void unix_name(const struct xccl_addr *addr, uint8_t name_out[NAME_BYTES])
{
    const char *at = addr->sa.un.sun_path + strlen("0" PREFIX);

    for (int i = 0; i < 2 * NAME_BYTES; i++) {
        uint8_t digit = (uint8_t)(at[i] <= '9' ? at[i] - '0' : at[i] - 'a' + 10);

        name_out[i / 2] = (uint8_t)(i % 2 ? name_out[i / 2] << 4 | digit : digit);
    }
}

static int unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static xcclResult_t unix_listen(int *fd_out, struct xccl_addr *addr_out)
{
    uint8_t name[NAME_BYTES];
    int fd, err;
    xcclResult_t rc = xccl_os_random(name, sizeof(name));

    if (rc != xcclSuccess)
        return rc;
    unix_address(name, addr_out);
    fd = unix_socket();
    if (fd < 0)
        return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                                 "cannot make a Unix socket");
    if (bind(fd, &addr_out->sa.any, addr_out->bytes) == 0 && listen(fd, BACKLOG) == 0) {
        *fd_out = fd;
        return xcclSuccess;
    }
    err = errno;
    close(fd);
    return xccl_fail_quietly(xcclSystemError, err, "set XCCL_SOCKET_UNIX=0",
                             "cannot listen on a Unix socket");
}

static xcclResult_t unix_connect(const struct xccl_addr *addr, int *fd_out)
{
    int fd = unix_socket(), err;

    if (fd < 0)
        return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                                 "cannot make a Unix socket");
    err = connect(fd, &addr->sa.any, addr->bytes) == 0 ? 0 : errno;
    if (err)
        close(fd);
    *fd_out = err ? -1 : fd;
    if (!err || err == EAGAIN || err == EINTR)
        return xcclSuccess;
    return xccl_fail_quietly(
        xcclRemoteError, err,
        "the device unix connects only peers on one host and in one network namespace",
        "cannot connect to unix:@%s", addr->sa.un.sun_path + 1);
}

void sock_address_unix(struct xccl_netif *netif_out)
{
    memset(netif_out, 0, sizeof(*netif_out));
    snprintf(netif_out->name, sizeof(netif_out->name), "unix");
    netif_out->addr.sa.any.sa_family = AF_UNIX;
}

/* ---- either ---- */

xcclResult_t sock_address_listen(const struct sock_device *device, int *fd_out,
                                 struct xccl_addr *addr_out)
{
    if (is_unix(&device->netif.addr))
        return unix_listen(fd_out, addr_out);
    return xccl_tcp_listen(&device->netif.addr, fd_out, addr_out);
}

/* To bind to an interface needs no privilege since Linux 5.7. */
xcclResult_t sock_address_connect(const struct sock_ctx *ctx, const struct xccl_addr *addr,
                                  const char *interface, int *fd_out)
{
    xcclResult_t rc;

    if (is_unix(addr))
        return unix_connect(addr, fd_out);
    rc = xccl_tcp_open(addr, fd_out);
    if (rc != xcclSuccess)
        return rc;
    if (interface && setsockopt(*fd_out, SOL_SOCKET, SO_BINDTODEVICE, interface,
                                (socklen_t)strnlen(interface, IFNAMSIZ)) != 0) {
        rc = xccl_fail_quietly(xcclSystemError, errno, NULL, "cannot bind to %s", interface);
        xccl_tcp_close(fd_out);
        return rc;
    }
    sock_tune_congestion_early(ctx, *fd_out);
    return xccl_tcp_connect_on(fd_out, addr);
}

xcclResult_t sock_address_connected(int fd, const struct xccl_addr *addr, int *done_out)
{
    if (!is_unix(addr))
        return xccl_tcp_connect_test(fd, addr, done_out);
    *done_out = 1;
    return xcclSuccess;
}

/* An IP address is as netaddr has it, but for the zone, which means nothing on another host. */
void sock_address_encode(const struct xccl_addr *addr, uint8_t wire_out[SOCK_ADDRESS_BYTES])
{
    uint8_t full[XCCL_ADDR_WIRE_BYTES] = {0};
    struct xccl_wire wire = xccl_wire_over(full, sizeof(full));

    if (is_unix(addr)) {
        xccl_wire_put_u16(&wire, WIRE_UNIX);
        unix_name(addr, full + ZONE_OFFSET + ZONE_BYTES);
    } else {
        xccl_addr_encode(addr, full);
    }
    memcpy(wire_out, full, ZONE_OFFSET);
    memcpy(wire_out + ZONE_OFFSET, full + ZONE_OFFSET + ZONE_BYTES,
           SOCK_ADDRESS_BYTES - ZONE_OFFSET);
}

xcclResult_t sock_address_decode(const uint8_t bytes[SOCK_ADDRESS_BYTES],
                                 struct xccl_addr *addr_out)
{
    uint8_t full[XCCL_ADDR_WIRE_BYTES] = {0};
    struct xccl_wire wire = xccl_wire_over(full, sizeof(full));

    memcpy(full, bytes, ZONE_OFFSET);
    memcpy(full + ZONE_OFFSET + ZONE_BYTES, bytes + ZONE_OFFSET, SOCK_ADDRESS_BYTES - ZONE_OFFSET);
    if (xccl_wire_get_u16(&wire) != WIRE_UNIX)
        return xccl_addr_decode(full, addr_out);
    if (xccl_wire_get_u16(&wire))
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the same build of XCCL on all ranks",
                                 "a connect handle of the socket plugin is damaged");
    unix_address(full + ZONE_OFFSET + ZONE_BYTES, addr_out);
    return xcclSuccess;
}

void sock_address_peer(int fd, const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES])
{
    struct ucred who = {0};
    socklen_t bytes = sizeof(who);

    if (is_unix(addr) && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0)
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "unix:process %d", (int)who.pid);
    else
        xccl_addr_format(addr, text_out);
}
