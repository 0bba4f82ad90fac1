/* SPDX-License-Identifier: BSD-3-Clause */
/* Encoders and decoders of the bootstrap's messages; the layouts are in README.md. Text from a peer
 * is cut and made printable here, so that it can go into a log line.
 *
 * Thread: any; no state. */
#include "bootstrap/message.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/wire.h"

static_assert(XCCL_HOST_TEXT_BYTES - 1 <= 255, "a host name's length is one byte");

/* The decoders' cursor works on writable memory, but never writes when it gets. */
static struct xccl_wire wire_in(const uint8_t *in, size_t bytes)
{
    return xccl_wire_over((void *)(uintptr_t)in, bytes);
}

/* Copies bytes as text: what is not printable ASCII becomes '?'. */
static void text_take(struct xccl_wire *wire, size_t bytes, char *text_out)
{
    const uint8_t *at = xccl_wire_take(wire, bytes);

    for (size_t i = 0; at && i < bytes; i++)
        text_out[i] = at[i] >= ' ' && at[i] <= '~' ? (char)at[i] : '?';
    text_out[at ? bytes : 0] = '\0';
}

size_t xccl_boot_report_encode(const struct xccl_boot_report *report,
                               uint8_t out[XCCL_BOOT_REPORT_MAX])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_BOOT_REPORT_MAX);
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];
    size_t host_bytes = strnlen(report->host, XCCL_HOST_TEXT_BYTES - 1);

    xccl_addr_encode(&report->addr, addr);
    xccl_wire_put_u32(&wire, report->xccl_version);
    xccl_wire_put_u32(&wire, report->timeout_ms);
    xccl_wire_put(&wire, addr, sizeof(addr));
    xccl_wire_put_u8(&wire, (uint8_t)host_bytes);
    xccl_wire_put(&wire, report->host, host_bytes);
    assert(!wire.bad);
    return (size_t)(wire.at - out);
}

int xccl_boot_report_decode(const uint8_t *in, size_t bytes, struct xccl_boot_report *report_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    struct xccl_boot_report report = {0};
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];
    size_t host_bytes;

    report.xccl_version = xccl_wire_get_u32(&wire);
    report.timeout_ms = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, addr, sizeof(addr));
    host_bytes = xccl_wire_get_u8(&wire);
    if (wire.bad || host_bytes >= XCCL_HOST_TEXT_BYTES || host_bytes != xccl_wire_left(&wire))
        return -1;
    text_take(&wire, host_bytes, report.host);
    if (xccl_addr_decode(addr, &report.addr) != xcclSuccess || !report.addr.bytes ||
        !xccl_addr_port(&report.addr))
        return -1;
    *report_out = report;
    return 0;
}

int xccl_boot_next_decode(const uint8_t *in, size_t bytes, struct xccl_addr *addr_out)
{
    struct xccl_addr addr = {0};

    if (bytes != XCCL_ADDR_WIRE_BYTES || xccl_addr_decode(in, &addr) != xcclSuccess ||
        !addr.bytes || !xccl_addr_port(&addr))
        return -1;
    *addr_out = addr;
    return 0;
}

size_t xccl_boot_error_encode(xcclResult_t rc, const char *text, uint8_t out[XCCL_BOOT_ERROR_MAX])
{
    size_t text_bytes = strnlen(text, XCCL_BOOT_ERROR_TEXT_MAX);

    out[0] = (uint8_t)rc;
    memcpy(out + 1, text, text_bytes);
    return 1 + text_bytes;
}

int xccl_boot_error_decode(const uint8_t *in, size_t bytes, struct xccl_boot_error *error_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    uint8_t rc = xccl_wire_get_u8(&wire);

    if (wire.bad || rc == xcclSuccess || rc >= xcclNumResults ||
        xccl_wire_left(&wire) > XCCL_BOOT_ERROR_TEXT_MAX)
        return -1;
    error_out->rc = (xcclResult_t)rc;
    text_take(&wire, xccl_wire_left(&wire), error_out->text);
    return 0;
}

void xccl_boot_data_encode(const struct xccl_boot_data *data, uint8_t out[XCCL_BOOT_DATA_HEAD])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_BOOT_DATA_HEAD);

    xccl_wire_put_u32(&wire, data->seq);
    xccl_wire_put_u32(&wire, data->part_bytes);
    xccl_wire_put_u64(&wire, data->offset);
}

int xccl_boot_data_decode(const uint8_t *in, size_t bytes, struct xccl_boot_data *data_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    struct xccl_boot_data data;

    data.seq = xccl_wire_get_u32(&wire);
    data.part_bytes = xccl_wire_get_u32(&wire);
    data.offset = xccl_wire_get_u64(&wire);
    if (wire.bad)
        return -1;
    *data_out = data;
    return 0;
}

void xccl_boot_missing_text(const void *const *seen, uint32_t nranks, char *text_out,
                            size_t text_bytes)
{
    size_t used = 0;
    uint32_t more = 0;

    text_out[0] = '\0';
    for (uint32_t first = 0, last; first < nranks; first = last + 1) {
        char item[32];
        size_t item_bytes;

        last = first;
        if (seen[first])
            continue;
        while (last + 1 < nranks && !seen[last + 1])
            last++;
        if (last == first)
            snprintf(item, sizeof(item), "%s%u", used ? ", " : "", first);
        else
            snprintf(item, sizeof(item), "%s%u..%u", used ? ", " : "", first, last);
        item_bytes = strlen(item);
        /* 24 bytes stay free for the words at the end. */
        if (more || used + item_bytes + 24 > text_bytes) {
            more += last - first + 1;
            continue;
        }
        memcpy(text_out + used, item, item_bytes + 1);
        used += item_bytes;
    }
    if (more)
        snprintf(text_out + used, text_bytes - used, " and %u more", more);
}
