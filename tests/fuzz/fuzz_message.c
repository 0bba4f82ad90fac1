/* SPDX-License-Identifier: BSD-3-Clause */
/* Bodies of bootstrap frames from a proven but broken peer. What is accepted has ended texts and
 * comes back unchanged from its own encoding.
 * Thread: one. */
#include "bootstrap/message.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_report(const uint8_t *data, size_t size)
{
    struct xccl_boot_report report, again;
    uint8_t wire[XCCL_BOOT_REPORT_MAX];
    size_t bytes;

    if (xccl_boot_report_decode(data, size, &report) != 0)
        return;
    if (strnlen(report.host, sizeof(report.host)) == sizeof(report.host))
        abort();
    bytes = xccl_boot_report_encode(&report, wire);
    if (xccl_boot_report_decode(wire, bytes, &again) != 0 || strcmp(report.host, again.host) != 0 ||
        strcmp(report.settings, again.settings) != 0)
        abort();
}

static void check_alive(const uint8_t *data, size_t size)
{
    struct xccl_boot_who who, again;
    uint8_t wire[XCCL_BOOT_ALIVE_MAX];
    size_t bytes;

    if (xccl_boot_alive_decode(data, size, &who) != 0)
        return;
    if (strnlen(who.host, sizeof(who.host)) == sizeof(who.host))
        abort();
    bytes = xccl_boot_alive_encode(&who, wire);
    if (xccl_boot_alive_decode(wire, bytes, &again) != 0 || strcmp(who.host, again.host) != 0 ||
        who.process_id != again.process_id || who.host_hash != again.host_hash ||
        who.pid != again.pid || who.rank != again.rank || who.beat_ms != again.beat_ms)
        abort();
}

static void check_mail(const uint8_t *data, size_t size)
{
    struct xccl_boot_mail head;
    uint8_t wire[XCCL_BOOT_MAIL_HEAD];

    if (xccl_boot_mail_decode(data, size, &head) != 0)
        return;
    if (head.offset + (size - sizeof(wire)) > head.total)
        abort();
    xccl_boot_mail_encode(&head, wire);
    if (memcmp(wire, data, sizeof(wire)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xccl_boot_error error;
    struct xccl_addr addr;

    check_report(data, size);
    check_alive(data, size);
    check_mail(data, size);
    (void)xccl_boot_next_decode(data, size, &addr);
    if (xccl_boot_error_decode(data, size, &error) == 0 &&
        strnlen(error.text, sizeof(error.text)) == sizeof(error.text))
        abort();
    return 0;
}
