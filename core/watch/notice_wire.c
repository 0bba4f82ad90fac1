/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes and decodes notices; notice_wire.h has the layout. A frame that is too short makes the
 * wire bad; numbers are compared with what this version has before anything is kept. The text is
 * any bytes, and is escaped. Thread: any. */
#include "watch/notice_wire.h"

#include <string.h>

#include "base/log.h"
#include "base/wire.h"

size_t xccl_notice_encode(const struct xccl_notice *notice, uint8_t out[XCCL_NOTICE_FRAME_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(out, XCCL_NOTICE_FRAME_BYTES);
    size_t text_bytes = strnlen(notice->text, XCCL_NOTICE_TEXT_BYTES - 1);

    xccl_wire_put_u32(&wire, notice->kind);
    xccl_wire_put_u32(&wire, notice->rc);
    xccl_wire_put_u32(&wire, (uint32_t)notice->origin);
    xccl_wire_put_u32(&wire, notice->trouble);
    xccl_wire_put_u32(&wire, (uint32_t)notice->culprit);
    xccl_wire_put_u32(&wire, notice->remedy_at);
    xccl_wire_put(&wire, notice->text, text_bytes);
    return XCCL_BOOT_NOTICE_HEAD + text_bytes;
}

static int is_rank(int rank, int nranks)
{
    return rank >= 0 && rank < nranks;
}

int xccl_notice_decode(const uint8_t *in, size_t bytes, int nranks, struct xccl_notice *notice_out)
{
    struct xccl_wire wire = xccl_wire_over((void *)(uintptr_t)in, bytes);
    uint32_t kind = xccl_wire_get_u32(&wire), rc = xccl_wire_get_u32(&wire);
    int origin = (int32_t)xccl_wire_get_u32(&wire);
    uint32_t trouble = xccl_wire_get_u32(&wire);
    int culprit = (int32_t)xccl_wire_get_u32(&wire);
    uint32_t remedy_at = xccl_wire_get_u32(&wire);
    struct xccl_notice notice = {.rc = rc, .origin = origin, .culprit = culprit};

    if (wire.bad || xccl_wire_left(&wire) >= sizeof notice.text || rc == xcclSuccess ||
        rc >= xcclNumResults || kind < XCCL_NOTICE_ERROR || kind >= XCCL_NOTICE_END ||
        trouble >= XCCL_TROUBLE_COUNT || !is_rank(origin, nranks) ||
        (culprit != XCCL_VERDICT_NOBODY && !is_rank(culprit, nranks)))
        return 0;
    notice.kind = (enum xccl_notice_kind)kind;
    notice.trouble = (enum xccl_trouble)trouble;
    xccl_wire_get(&wire, notice.text, xccl_wire_left(&wire));
    xccl_log_escape(notice.text, sizeof notice.text);
    if (remedy_at < strlen(notice.text)) /* else it was cut */
        notice.remedy_at = remedy_at;
    *notice_out = notice;
    return 1;
}
