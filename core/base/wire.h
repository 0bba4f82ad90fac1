/* SPDX-License-Identifier: BSD-3-Clause */
/* Little-endian encode and decode with bounds. A cursor that ran over its end is bad and stays bad:
 * further puts do nothing, further gets give zeroes; look at it once, at the end. Header only. */
#ifndef XCCL_BASE_WIRE_H
#define XCCL_BASE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct xccl_wire {
    uint8_t *at, *end;
    int bad;
};

static inline struct xccl_wire xccl_wire_over(void *bytes, size_t count)
{
    uint8_t *first = bytes;

    /* A cursor over nothing may come with NULL, to which not even 0 may be added. */
    return (struct xccl_wire){.at = first, .end = count ? first + count : first};
}

static inline size_t xccl_wire_left(const struct xccl_wire *wire)
{
    return (size_t)(wire->end - wire->at);
}

/* The next count bytes, or NULL when there are fewer: then the cursor is bad. */
static inline uint8_t *xccl_wire_take(struct xccl_wire *wire, size_t count)
{
    uint8_t *at = wire->at;

    if (wire->bad || xccl_wire_left(wire) < count) {
        wire->bad = 1;
        return NULL;
    }
    if (count)
        wire->at += count;
    return at;
}

static inline void xccl_wire_put(struct xccl_wire *wire, const void *bytes, size_t count)
{
    uint8_t *at = xccl_wire_take(wire, count);

    /* gcc 12 loses track of the bound above at -O3 and warns of an overflow that cannot be. */
    __asm__("" : "+r"(at));
    if (at && count)
        memcpy(at, bytes, count);
}

static inline void xccl_wire_get(struct xccl_wire *wire, void *bytes_out, size_t count)
{
    const uint8_t *at = xccl_wire_take(wire, count);

    if (at && count)
        memcpy(bytes_out, at, count);
    else if (count)
        memset(bytes_out, 0, count);
}

static inline void xccl_wire_put_uint(struct xccl_wire *wire, uint64_t value, size_t count)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    xccl_wire_put(wire, bytes, count < sizeof bytes ? count : sizeof bytes);
}

static inline uint64_t xccl_wire_get_uint(struct xccl_wire *wire, size_t count)
{
    const uint8_t *at = xccl_wire_take(wire, count);
    uint64_t value = 0;

    for (size_t i = 0; at && i < count; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline void xccl_wire_put_u8(struct xccl_wire *wire, uint8_t value)
{
    xccl_wire_put_uint(wire, value, 1);
}
static inline void xccl_wire_put_u16(struct xccl_wire *wire, uint16_t value)
{
    xccl_wire_put_uint(wire, value, 2);
}
static inline void xccl_wire_put_u32(struct xccl_wire *wire, uint32_t value)
{
    xccl_wire_put_uint(wire, value, 4);
}
static inline void xccl_wire_put_u64(struct xccl_wire *wire, uint64_t value)
{
    xccl_wire_put_uint(wire, value, 8);
}
static inline uint8_t xccl_wire_get_u8(struct xccl_wire *wire)
{
    return (uint8_t)xccl_wire_get_uint(wire, 1);
}
static inline uint16_t xccl_wire_get_u16(struct xccl_wire *wire)
{
    return (uint16_t)xccl_wire_get_uint(wire, 2);
}
static inline uint32_t xccl_wire_get_u32(struct xccl_wire *wire)
{
    return (uint32_t)xccl_wire_get_uint(wire, 4);
}
static inline uint64_t xccl_wire_get_u64(struct xccl_wire *wire)
{
    return xccl_wire_get_uint(wire, 8);
}

#endif
