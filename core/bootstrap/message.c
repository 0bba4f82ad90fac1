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

static void text_put(struct xccl_wire *wire, const char *text, size_t room)
{
    size_t bytes = strnlen(text, room - 1);

    xccl_wire_put_u8(wire, (uint8_t)bytes);
    xccl_wire_put(wire, text, bytes);
}

/* A text of fewer than room bytes; else the cursor is bad. */
static void text_get(struct xccl_wire *wire, char *text_out, size_t room)
{
    size_t bytes = xccl_wire_get_u8(wire);

    if (bytes >= room)
        wire->bad = 1;
    text_take(wire, wire->bad ? 0 : bytes, text_out);
}

size_t xccl_boot_report_encode(const struct xccl_boot_report *report,
                               uint8_t out[XCCL_BOOT_REPORT_MAX])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_BOOT_REPORT_MAX);
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    xccl_addr_encode(&report->addr, addr);
    xccl_wire_put_u32(&wire, report->timeout_ms);
    xccl_wire_put_u32(&wire, report->meeting_idx);
    xccl_wire_put_u32(&wire, report->meeting_count);
    xccl_wire_put(&wire, report->job_id, sizeof(report->job_id));
    xccl_wire_put(&wire, addr, sizeof(addr));
    text_put(&wire, report->host, sizeof(report->host));
    text_put(&wire, report->settings, sizeof(report->settings));
    assert(!wire.bad);
    return (size_t)(wire.at - out);
}

int xccl_boot_report_decode(const uint8_t *in, size_t bytes, struct xccl_boot_report *report_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    struct xccl_boot_report report = {0};
    uint8_t addr[XCCL_ADDR_WIRE_BYTES];

    report.timeout_ms = xccl_wire_get_u32(&wire);
    report.meeting_idx = xccl_wire_get_u32(&wire);
    report.meeting_count = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, report.job_id, sizeof(report.job_id));
    xccl_wire_get(&wire, addr, sizeof(addr));
    text_get(&wire, report.host, sizeof(report.host));
    text_get(&wire, report.settings, sizeof(report.settings));
    if (wire.bad || xccl_wire_left(&wire) || report.meeting_idx >= report.meeting_count)
        return -1;
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

size_t xccl_boot_alive_encode(const struct xccl_boot_who *who, uint8_t out[XCCL_BOOT_ALIVE_MAX])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_BOOT_ALIVE_MAX);

    xccl_wire_put_u64(&wire, who->process_id);
    xccl_wire_put_u64(&wire, who->host_hash);
    xccl_wire_put_u32(&wire, who->pid);
    xccl_wire_put_u32(&wire, who->rank);
    xccl_wire_put_u32(&wire, who->beat_ms);
    text_put(&wire, who->host, sizeof(who->host));
    assert(!wire.bad);
    return (size_t)(wire.at - out);
}

int xccl_boot_alive_decode(const uint8_t *in, size_t bytes, struct xccl_boot_who *who_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    struct xccl_boot_who who = {0};

    who.process_id = xccl_wire_get_u64(&wire);
    who.host_hash = xccl_wire_get_u64(&wire);
    who.pid = xccl_wire_get_u32(&wire);
    who.rank = xccl_wire_get_u32(&wire);
    who.beat_ms = xccl_wire_get_u32(&wire);
    text_get(&wire, who.host, sizeof(who.host));
    if (wire.bad || xccl_wire_left(&wire))
        return -1;
    *who_out = who;
    return 0;
}

void xccl_boot_mail_encode(const struct xccl_boot_mail *mail, uint8_t out[XCCL_BOOT_MAIL_HEAD])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_BOOT_MAIL_HEAD);

    xccl_wire_put_u8(&wire, mail->kind);
    xccl_wire_put_u8(&wire, mail->round);
    xccl_wire_put_u16(&wire, 0);
    xccl_wire_put_u32(&wire, mail->tag);
    xccl_wire_put_u32(&wire, mail->total);
    xccl_wire_put_u32(&wire, mail->offset);
    assert(!wire.bad && wire.at == wire.end);
}

int xccl_boot_mail_decode(const uint8_t *in, size_t bytes, struct xccl_boot_mail *mail_out)
{
    struct xccl_wire wire = wire_in(in, bytes);
    struct xccl_boot_mail mail;
    uint16_t zero;

    mail.kind = xccl_wire_get_u8(&wire);
    mail.round = xccl_wire_get_u8(&wire);
    zero = xccl_wire_get_u16(&wire);
    mail.tag = xccl_wire_get_u32(&wire);
    mail.total = xccl_wire_get_u32(&wire);
    mail.offset = xccl_wire_get_u32(&wire);
    if (wire.bad || zero || mail.kind == 0 || mail.kind >= XCCL_MAIL_KIND_END)
        return -1;
    /* A piece is inside its message; only a message without bytes has an empty one. */
    if (mail.offset > mail.total || xccl_wire_left(&wire) > mail.total - mail.offset ||
        (!xccl_wire_left(&wire) && mail.total))
        return -1;
    *mail_out = mail;
    return 0;
}

void xccl_boot_missing_text(const void *const *seen, uint32_t count, uint32_t first, char *text_out,
                            size_t text_bytes)
{
    size_t used = 0;
    uint32_t more = 0;

    text_out[0] = '\0';
    for (uint32_t from = 0, last; from < count; from = last + 1) {
        char item[32];
        size_t item_bytes;

        last = from;
        if (seen[from])
            continue;
        while (last + 1 < count && !seen[last + 1])
            last++;
        if (last == from)
            snprintf(item, sizeof(item), "%s%u", used ? ", " : "", first + from);
        else
            snprintf(item, sizeof(item), "%s%u..%u", used ? ", " : "", first + from, first + last);
        item_bytes = strlen(item);
        /* 24 bytes stay free for the words at the end. */
        if (more || used + item_bytes + 24 > text_bytes) {
            more += last - from + 1;
            continue;
        }
        memcpy(text_out + used, item, item_bytes + 1);
        used += item_bytes;
    }
    if (more)
        snprintf(text_out + used, text_bytes - used, " and %u more", more);
}
