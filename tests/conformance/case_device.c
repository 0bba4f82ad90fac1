/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about devices and their properties, and about the structs that grow: what is not within the
 * size is not written. Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void get(struct cf *me, int dev, xcclNetProperties_v1 *props)
{
    memset(props, 0, sizeof(*props));
    props->size = sizeof(*props);
    cf_ok(me, cf_properties(me, dev, props), "properties");
}

static void look_at(struct cf *me, int dev, const xcclNetProperties_v1 *props)
{
    if (!props->name || !props->name[0])
        cf_fail(me, "device %d has no name", dev);
    if (props->maxRecvs < 1 || props->maxRecvs > XCCL_NET_MAX_RECVS)
        cf_fail(me, "device %d (%s): maxRecvs is %d, allowed is 1 to %d", dev, props->name,
                props->maxRecvs, XCCL_NET_MAX_RECVS);
    if (props->maxBytes == 0)
        cf_fail(me, "device %d (%s): maxBytes is 0", dev, props->name);
    if (!(props->ptrSupport & XCCL_NET_PTR_HOST))
        cf_fail(me, "device %d (%s): ptrSupport 0x%x lacks host memory", dev, props->name,
                props->ptrSupport);
    if (props->maxComms < 0 || props->latencyUs < 0)
        cf_fail(me, "device %d (%s): maxComms or latencyUs is negative", dev, props->name);
    if (props->memberCount < 0 || props->memberCount > XCCL_NET_MAX_MEMBERS)
        cf_fail(me, "device %d (%s): memberCount is %d", dev, props->name, props->memberCount);
    if (props->storeBytes & (props->storeBytes - 1))
        cf_fail(me, "device %d (%s): storeBytes %u is not a power of two", dev, props->name,
                props->storeBytes);
    if (props->sameHost != 0 && props->sameHost != 1)
        cf_fail(me, "device %d (%s): sameHost is %d, neither 0 nor 1", dev, props->name,
                props->sameHost);
    if (props->anyMemory != 0 && props->anyMemory != 1)
        cf_fail(me, "device %d (%s): anyMemory is %d, neither 0 nor 1", dev, props->name,
                props->anyMemory);
    if (props->provider && strpbrk(props->provider, " /\t\n"))
        cf_fail(me, "device %d (%s): provider \"%s\" has a blank or a slash", dev, props->name,
                props->provider);
}

static void properties_sane(struct cf *me)
{
    for (int dev = 0; dev < me->net->device_count; dev++) {
        xcclNetProperties_v1 props;

        get(me, dev, &props);
        look_at(me, dev, &props);
    }
}

static int same_text(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static void properties_stable(struct cf *me)
{
    struct xccl_net *first = me->net, *second = NULL;
    int count = first->device_count;

    if (cf_init(me, &second) != xcclSuccess)
        cf_fail(me, "a second instance does not open");
    if (second->device_count != count)
        cf_fail(me, "%d devices in one instance, %d in another", count, second->device_count);
    for (int dev = 0; dev < count; dev++) {
        xcclNetProperties_v1 a, b;

        me->net = first;
        get(me, dev, &a);
        me->net = second;
        get(me, dev, &b);
        if (!same_text(a.name, b.name) || !same_text(a.pciPath, b.pciPath) ||
            a.maxRecvs != b.maxRecvs || a.maxBytes != b.maxBytes || a.guid != b.guid)
            cf_fail(me,
                    "device %d is %s in one instance and %s in another, or differs in its "
                    "properties; the order must be the same on each call",
                    dev, a.name, b.name);
    }
    me->net = first;
    cf_fini(me, second);
}

static void no_device_twice(struct cf *me)
{
    for (int dev = 0; dev < me->net->device_count; dev++) {
        xcclNetProperties_v1 props, other;

        get(me, dev, &props);
        for (int i = 0; i < dev; i++) {
            get(me, i, &other);
            if (same_text(props.name, other.name) && props.port == other.port &&
                props.guid == other.guid)
                cf_fail(me, "devices %d and %d are both named %s", i, dev, props.name);
        }
    }
}

/* No byte behind the struct's size may change; every older size is given in turn. */
static void only_the_given_size(struct cf *me)
{
    static const size_t sizes[] = {8,
                                   offsetof(xcclNetProperties_v1, guid),
                                   offsetof(xcclNetProperties_v1, ptrSupport),
                                   offsetof(xcclNetProperties_v1, needsProgress),
                                   offsetof(xcclNetProperties_v1, members),
                                   sizeof(xcclNetProperties_v1)};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char room[sizeof(xcclNetProperties_v1) + 64];
        xcclNetProperties_v1 *props = (void *)room;

        memset(room, 0xa5, sizeof(room));
        memset(room, 0, sizes[i]);
        props->size = sizes[i];
        cf_ok(me, cf_properties(me, me->dev, props), "properties with a smaller size");
        for (size_t at = sizes[i]; at < sizeof(room); at++) {
            if (room[at] != 0xa5)
                cf_fail(me,
                        "properties with size %zu writes byte %zu; it must not write a field "
                        "beyond the size",
                        sizes[i], at);
        }
        if (props->size != sizes[i])
            cf_fail(me, "properties changed size from %zu to %zu", sizes[i], props->size);
    }
}

static void only_the_given_size_of_stats(struct cf *me)
{
    unsigned char room[sizeof(xcclNetStats_v1) + 64];
    xcclNetStats_v1 *stats = (void *)room;
    size_t size = offsetof(xcclNetStats_v1, sendCount);

    memset(room, 0xa5, sizeof(room));
    memset(room, 0, size);
    stats->size = size;
    cf_ok(me, me->net->calls.stats(me->net->ctx, me->dev, stats), "stats with a smaller size");
    for (size_t at = size; at < sizeof(room); at++) {
        if (room[at] != 0xa5)
            cf_fail(
                me,
                "stats with size %zu writes byte %zu; it must not write a field beyond the size",
                size, at);
    }
}

static void bad_device(struct cf *me)
{
    int count = me->net->device_count;
    const int bad[] = {count, count + 1000, -1};

    for (int i = 0; i < 3; i++) {
        xcclNetProperties_v1 props, before;
        xcclNetHandle_t handle, kept;
        char mark;
        xcclNetListenComm_t listen = &mark;

        memset(&props, 0, sizeof(props));
        props.size = sizeof(props);
        before = props;
        memset(&handle, 0x5a, sizeof(handle));
        kept = handle;
        if (cf_properties(me, bad[i], &props) == xcclSuccess)
            cf_fail(me, "properties of device %d succeeds, but there are only %d devices", bad[i],
                    count);
        if (memcmp(&props, &before, sizeof(props)) != 0)
            cf_fail(me, "properties of device %d failed, but changed the struct", bad[i]);
        if (cf_listen(me, bad[i], &handle, &listen) == xcclSuccess)
            cf_fail(me, "listen on device %d succeeds, but there are only %d devices", bad[i],
                    count);
        if (listen != &mark || memcmp(&handle, &kept, sizeof(handle)) != 0)
            cf_fail(me, "listen on device %d failed, but changed an output", bad[i]);
    }
}

static void table_and_init(struct cf *me)
{
    const char *name = me->net->calls.name;

    if (!name || !name[0] || strlen(name) > 32)
        cf_fail(me, "the plugin's name is empty or too long");
    for (const char *at = name; *at && me->own_contract; at++) {
        if (!((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '-' || *at == '_'))
            cf_fail(me, "the plugin's name \"%s\" is not lower case", name);
    }
    if (!me->net->calls.lastError(me->net->ctx) || !me->net->calls.lastError(NULL))
        cf_fail(me, "lastError returned NULL; it must return \"\" if there is no error");
}

const struct cf_case cf_cases_device[] = {
    {.name = "name_and_error_text",
     .text = "the name is lower case, and lastError never returns NULL",
     .forms = CF_SINGLE,
     .solo = table_and_init},
    {.name = "properties_are_sane",
     .text = "each field is in its range",
     .forms = CF_SINGLE,
     .solo = properties_sane},
    {.name = "devices_are_stable",
     .text = "the same devices in the same order on each call",
     .forms = CF_SINGLE,
     .solo = properties_stable},
    {.name = "no_device_twice",
     .text = "no device is listed twice",
     .forms = CF_SINGLE,
     .solo = no_device_twice},
    {.name = "properties_keep_to_the_size",
     .flags = CF_OWN,
     .text = "no field beyond props->size is written",
     .forms = CF_SINGLE,
     .solo = only_the_given_size,
     .why = "its structs have no size"},
    {.name = "stats_keep_to_the_size",
     .flags = CF_OWN,
     .text = "no field beyond stats->size is written",
     .forms = CF_SINGLE,
     .solo = only_the_given_size_of_stats,
     .why = "it has no stats"},
    {.name = "bad_device_is_an_error",
     .rule = 4,
     .forms = CF_SINGLE,
     .solo = bad_device,
     .text = "a device that does not exist is an error; outputs do not change"},
    {.name = NULL},
};
