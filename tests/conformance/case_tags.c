/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about the order of messages and about grouped receives. Contents name the message, so a
 * message in the wrong place shows. Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <string.h>

#define SMALL_BYTES 3000

/* ---- equal tags, in order ---- */

#define ROW 200

static void order_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffers[8];
    xcclNetRequest_t requests[8] = {NULL};

    for (int i = 0; i < 8; i++)
        cf_buffer_make(me, comm, 600, 0, &buffers[i]);
    for (size_t i = 0; i < ROW; i++) {
        size_t at = i % 8;

        if (requests[at])
            cf_wait(me, requests[at], NULL, "the end of a send");
        cf_fill(buffers[at].data, i * 3, i);
        requests[at] = cf_send_post(me, comm, &buffers[at], i * 3, 7);
    }
    for (int i = 0; i < 8; i++)
        cf_wait(me, requests[(ROW + i) % 8], NULL, "the end of a send");
    cf_barrier(me);
    cf_close(me, comm);
}

static void order_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffers[8];
    xcclNetRequest_t requests[8] = {NULL};
    size_t sizes[XCCL_NET_MAX_RECVS];
    char what[80];

    for (int i = 0; i < 8; i++) {
        cf_buffer_make(me, comm, 600, 0, &buffers[i]);
        requests[i] = cf_recv_post(me, comm, &buffers[i], 600, 7);
    }
    for (size_t i = 0; i < ROW; i++) {
        size_t at = i % 8;

        cf_wait(me, requests[at], sizes, "the end of a receive");
        snprintf(what, sizeof(what), "message %zu of a series with equal tags (rule 5: in order)",
                 i);
        if (!cf_size_is(me, sizes[0], i * 3))
            cf_fail(me, "%s has %zu bytes instead of %zu", what, sizes[0], i * 3);
        cf_expect(me, buffers[at].data, i * 3, i, what);
        if (i + 8 < ROW)
            requests[at] = cf_recv_post(me, comm, &buffers[at], 600, 7);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* ---- groups ---- */

/* One grouped receive of a plan: tags per part, and the order in which the sends come. Drawn from
 * the seed, the same at both ends. */
struct group {
    int count;
    uint32_t tags[XCCL_NET_MAX_RECVS];
    int order[XCCL_NET_MAX_RECVS]; /* order[k]: the part that the k-th send is meant for */
    size_t bytes[XCCL_NET_MAX_RECVS]; /* of the part's message */
};

/* Room for each part; most messages are far smaller. */
static size_t part_bytes(const struct cf *me)
{
    return cf_at_most(me, 100000);
}

static void group_draw(struct cf *draw, struct group *group)
{
    memset(group, 0, sizeof(*group));
    group->count = 1 + (int)cf_pick(draw, (size_t)draw->props.maxRecvs);
    for (int i = 0; i < group->count; i++) {
        /* Some tags are equal; equal ones fill their parts in order. */
        group->tags[i] = 100 + (uint32_t)cf_pick(draw, (size_t)group->count + 1);
        group->bytes[i] = cf_pick(draw, 4) ? cf_pick(draw, SMALL_BYTES) : 0;
        if (cf_pick(draw, 8) == 0)
            group->bytes[i] = cf_pick(draw, part_bytes(draw));
        group->order[i] = i;
    }
    for (int i = group->count - 1; i > 0; i--) {
        int k = (int)cf_pick(draw, (size_t)i + 1), part = group->order[i];

        group->order[i] = group->order[k];
        group->order[k] = part;
    }
}

/* The k-th send's part: the first free one with its tag. */
static int group_part(const struct group *group, unsigned *filled, int k)
{
    uint32_t tag = group->tags[group->order[k]];

    for (int i = 0; i < group->count; i++) {
        if (group->tags[i] != tag || *filled & 1u << i)
            continue;
        *filled |= 1u << i;
        return i;
    }
    return -1;
}

#define GROUPS 40

static void need_groups(struct cf *me)
{
    if (me->props.maxRecvs < 2)
        cf_skip(me, "maxRecvs is 1");
}

static void groups_send(struct cf *me)
{
    struct cf draw = cf_share(me, 5);
    struct cf_buffer buffer;
    void *comm;

    need_groups(me);
    comm = cf_open(me);
    cf_buffer_make(me, comm, part_bytes(me), 0, &buffer);
    for (size_t g = 0; g < GROUPS; g++) {
        struct group group;
        unsigned filled = 0;

        group_draw(&draw, &group);
        for (int k = 0; k < group.count; k++) {
            int part = group_part(&group, &filled, k);

            cf_fill(buffer.data, group.bytes[part], g * 8 + (size_t)part);
            cf_wait(me, cf_send_post(me, comm, &buffer, group.bytes[part], group.tags[part]), NULL,
                    "the end of a send into a group");
        }
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void group_check(struct cf *me, const struct group *group, size_t number,
                        const struct cf_buffer *buffers, const size_t *sizes)
{
    char what[120];

    for (int i = 0; i < group->count; i++) {
        snprintf(what, sizeof(what), "group %zu, part %d of %d with tag %u (rule 6)", number, i,
                 group->count, group->tags[i]);
        if (!cf_size_is(me, sizes[i], group->bytes[i]))
            cf_fail(me, "%s: %zu bytes arrived, %zu were sent", what, sizes[i], group->bytes[i]);
        cf_expect(me, buffers[i].data, group->bytes[i], number * 8 + (size_t)i, what);
        cf_expect_guards(me, &buffers[i], part_bytes(me), what);
    }
}

static struct cf_recv group_recv(const struct cf *me, const struct group *group,
                                 const struct cf_buffer *buffers)
{
    struct cf_recv recv = {.count = group->count};

    for (int i = 0; i < group->count; i++) {
        recv.data[i] = buffers[i].data;
        recv.bytes[i] = part_bytes(me);
        recv.tags[i] = group->tags[i];
        recv.mems[i] = buffers[i].mem;
    }
    return recv;
}

/* Two groups are posted at a time, so a send that goes astray has somewhere to go. */
static void groups_recv(struct cf *me)
{
    struct cf draw = cf_share(me, 5);
    struct cf_buffer buffers[2][XCCL_NET_MAX_RECVS];
    struct group groups[2];
    xcclNetRequest_t requests[2];
    void *comm;

    need_groups(me);
    comm = cf_open(me);
    for (int i = 0; i < 2 * XCCL_NET_MAX_RECVS; i++)
        cf_buffer_make(me, comm, part_bytes(me), 0,
                       &buffers[i / XCCL_NET_MAX_RECVS][i % XCCL_NET_MAX_RECVS]);
    for (size_t g = 0; g < GROUPS + 1; g++) {
        size_t now = g % 2, last = 1 - now, sizes[XCCL_NET_MAX_RECVS] = {0};

        if (g < GROUPS) {
            struct cf_recv recv;

            group_draw(&draw, &groups[now]);
            recv = group_recv(me, &groups[now], buffers[now]);
            for (int i = 0; i < groups[now].count; i++)
                cf_wipe(&buffers[now][i]);
            requests[now] = cf_group_post(me, comm, &recv);
            memset(&recv, 0xee, sizeof(recv)); /* the arrays are not looked at after return */
        }
        if (g == 0)
            continue;
        cf_wait(me, requests[last], sizes, "the end of a grouped receive");
        group_check(me, &groups[last], g - 1, buffers[last], sizes);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* One of the group's two sends has come: neither this group nor the next one may be done, and the
 * next one's memory is as it was. */
static void next_group_send(struct cf *me)
{
    static const uint32_t tags[4] = {2, 1, 2, 1};
    struct cf_buffer buffers[4];
    xcclNetRequest_t requests[4];
    void *comm;

    need_groups(me);
    comm = cf_open(me);
    cf_warm(me, comm);
    cf_barrier(me);
    for (int i = 0; i < 4; i++) {
        cf_buffer_make(me, comm, 64, 0, &buffers[i]);
        cf_fill(buffers[i].data, 64, (uint64_t)i + 1);
        requests[i] = cf_send_post(me, comm, &buffers[i], 64, tags[i]);
        if (i > 0)
            continue;
        cf_barrier(me);
        cf_barrier(me);
    }
    for (int i = 0; i < 4; i++)
        cf_wait(me, requests[i], NULL, "the end of a send into a group");
    cf_barrier(me);
    cf_close(me, comm);
}

static void next_group_recv(struct cf *me)
{
    struct cf_buffer buffers[4];
    struct cf_recv recvs[2] = {{.count = 2}, {.count = 2}};
    xcclNetRequest_t requests[2];
    uint64_t end_ns;
    int done = 0;
    void *comm;

    need_groups(me);
    comm = cf_open(me);
    cf_warm(me, comm);
    for (int i = 0; i < 4; i++) {
        cf_buffer_make(me, comm, 64, 0, &buffers[i]);
        recvs[i / 2].data[i % 2] = buffers[i].data;
        recvs[i / 2].bytes[i % 2] = 64;
        recvs[i / 2].tags[i % 2] = (uint32_t)(1 + i % 2);
        recvs[i / 2].mems[i % 2] = buffers[i].mem;
    }
    for (int i = 0; i < 2; i++)
        requests[i] = cf_group_post(me, comm, &recvs[i]);
    cf_barrier(me);
    cf_barrier(me);
    for (end_ns = cf_now() + 20 * CF_MS; cf_now() < end_ns && !done;)
        cf_ok(me, cf_test(me, requests[cf_pick(me, 2)], &done, NULL), "test of a group");
    if (done)
        cf_fail(me, "a group is done although one of its two messages was not sent (rule 6)");
    cf_expect_guards(me, &buffers[2], 0, "the next group, part 1");
    cf_expect_guards(me, &buffers[3], 0, "the next group, part 2");
    cf_barrier(me);
    cf_wait(me, requests[0], NULL, "the end of the first group");
    cf_wait(me, requests[1], NULL, "the end of the second group");
    cf_expect(me, buffers[1].data, 64, 1, "the first message, for the first group's tag 2");
    cf_expect(me, buffers[0].data, 64, 2, "the second message, for the first group's tag 1");
    cf_expect(me, buffers[3].data, 64, 3, "the third message, for the second group's tag 2");
    cf_expect(me, buffers[2].data, 64, 4, "the fourth message, for the second group's tag 1");
    cf_barrier(me);
    cf_close(me, comm);
}

const struct cf_case cf_cases_tags[] = {
    {.name = "messages_keep_their_order",
     .rule = 5,
     .forms = CF_PAIRED,
     .send = order_send,
     .recv = order_recv,
     .text = "messages with equal tags match in the order of posting"},
    {.name = "tags_choose_the_part",
     .rule = 6,
     .forms = CF_PAIRED,
     .send = groups_send,
     .recv = groups_recv,
     .text = "a send goes to the group's first free part with its tag"},
    {.name = "next_group_is_not_touched",
     .rule = 6,
     .forms = CF_PAIRED,
     .send = next_group_send,
     .recv = next_group_recv,
     .text = "a group is filled before the next one is touched"},
    {.name = NULL},
};
