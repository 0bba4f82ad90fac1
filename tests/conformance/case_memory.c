/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about registration: odd, twice, overlapping, large, from a second thread, and of a DMA-BUF.
 * Thread: as each case says. */
#include "cf_int.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Passes bytes at `from` to `to` with these registrations. */
static void pass_with(struct cf *me, struct cf_pair *pair, char *const at[2],
                      const xcclNetMem_t mems[2], size_t bytes)
{
    const struct cf_recv one = {1, {at[1]}, {bytes}, {7}, {mems[1]}};
    const struct cf_buffer from = {.data = at[0], .mem = mems[0]};
    xcclNetRequest_t requests[CF_ROLES];

    cf_fill(at[0], bytes, bytes);
    memset(at[1], 0, bytes);
    cf_pair_post(me, pair, &one, &from, bytes, requests);
    cf_wait_both(me, requests[CF_SENDER], requests[CF_RECEIVER], NULL,
                 "a message between registrations");
    cf_expect(me, at[1], bytes, bytes, "a message between registrations");
}

static xcclNetMem_t reg(struct cf *me, void *comm, char *data, size_t bytes)
{
    xcclNetMem_t mem = NULL;
    char what[80];

    snprintf(what, sizeof(what), "regMr of %zu bytes", bytes);
    cf_ok(me, cf_reg(me, comm, data, bytes, &mem), what);
    return mem;
}

/* Nested and overlapping ranges, the same twice, one byte, odd addresses; let go in another order.
 */
static void ranges(struct cf *me)
{
    static const struct {
        size_t at, bytes;
    } ranges[] = {{0, 65536}, {0, 65536},    {4096, 4096}, {4095, 3}, {1, 1},
                  {777, 50},  {60000, 5536}, {3, 65000},   {65535, 1}};
    enum { RANGES = sizeof(ranges) / sizeof(ranges[0]) };
    struct cf_pair pair;
    struct cf_buffer from, to;
    xcclNetMem_t mems[RANGES][2];

    cf_pair_open(me, &pair);
    cf_buffer_make(me, NULL, 65536, 0, &from);
    cf_buffer_make(me, NULL, 65536, 0, &to);
    for (int i = 0; i < RANGES; i++) {
        mems[i][0] = reg(me, pair.send, from.data + ranges[i].at, ranges[i].bytes);
        mems[i][1] = reg(me, pair.recv, to.data + ranges[i].at, ranges[i].bytes);
    }
    for (int i = 0; i < RANGES; i++) {
        char *at[2] = {from.data + ranges[i].at, to.data + ranges[i].at};

        pass_with(me, &pair, at, mems[i], ranges[i].bytes);
    }
    for (int k = 0; k < RANGES; k++) {
        int i = (k * 4 + 1) % RANGES; /* 4 and 9 have no common divisor */
        char *at[2] = {from.data + ranges[i].at, to.data + ranges[i].at};

        pass_with(me, &pair, at, mems[i], ranges[i].bytes);
        cf_ok(me, cf_dereg(me, pair.send, mems[i][0]), "deregMr");
        cf_ok(me, cf_dereg(me, pair.recv, mems[i][1]), "deregMr");
    }
    cf_pair_close(me, &pair);
}

/* Both ends of a pair may register the same memory, and it may be mapped anew afterwards. */
static void mapped_anew(struct cf *me)
{
    struct cf_pair pair;

    cf_pair_open(me, &pair);
    for (size_t i = 1; i <= 5; i++) {
        size_t bytes = i * 13000;
        struct cf_buffer from, to;

        cf_buffer_make(me, pair.send, bytes, 0, &from);
        cf_buffer_make(me, pair.recv, bytes, 0, &to);
        pass_with(me, &pair, (char *[2]){from.data, to.data}, (xcclNetMem_t[2]){from.mem, to.mem},
                  bytes);
        cf_buffer_free(me, &from); /* the next one gets the same addresses */
        cf_buffer_free(me, &to);
    }
    cf_pair_close(me, &pair);
}

static void large(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from, to;
    size_t bytes = (size_t)256 << 20;
    xcclResult_t rc;

    cf_pair_open(me, &pair);
    to = (struct cf_buffer){.bytes = bytes};
    to.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (to.data == MAP_FAILED)
        cf_skip(me, "cannot reserve 256 MiB of address space");
    rc = cf_reg(me, pair.recv, to.data, bytes, &to.mem);
    if (rc == xcclSystemError && me->net->calls.lastError(me->net->ctx)[0])
        cf_skip(me, "the limits of this machine: %.200s", me->net->calls.lastError(me->net->ctx));
    cf_ok(me, rc, "regMr of 256 MiB");
    cf_buffer_make(me, pair.send, 10000, 0, &from);
    pass_with(me, &pair, (char *[2]){from.data, to.data + bytes - 10000},
              (xcclNetMem_t[2]){from.mem, to.mem}, 10000);
    cf_ok(me, cf_dereg(me, pair.recv, to.mem), "deregMr");
    munmap(to.data, bytes);
    cf_pair_close(me, &pair);
}

/* ---- regIsGlobal ---- */

static void global(struct cf *me)
{
    struct cf_pair first, second;
    struct cf_buffer from, to;

    if (!me->props.regIsGlobal)
        cf_skip(me, "regIsGlobal is 0");
    cf_pair_open(me, &first);
    cf_pair_open(me, &second);
    cf_buffer_make(me, first.send, 5000, 0, &from);
    cf_buffer_make(me, first.recv, 5000, 0, &to);
    pass_with(me, &second, (char *[2]){from.data, to.data}, (xcclNetMem_t[2]){from.mem, to.mem},
              5000);
    pass_with(me, &first, (char *[2]){from.data, to.data}, (xcclNetMem_t[2]){from.mem, to.mem},
              5000);
    cf_buffer_free(me, &from);
    cf_buffer_free(me, &to);
    cf_pair_close(me, &first);
    cf_pair_close(me, &second);
}

/* ---- anyMemory ---- */

/* Memory that nobody has registered, with the registration of other memory and with none. */
static void unregistered(struct cf *me)
{
    static const size_t sizes[] = {1, 4096, 100001, 3000000};
    struct cf_pair pair;
    struct cf_buffer other;

    if (!me->props.anyMemory)
        cf_skip(me, "anyMemory is 0");
    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.send, 10, 0, &other);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t bytes = sizes[i] < me->props.maxBytes ? sizes[i] : me->props.maxBytes;
        char *from = malloc(bytes + 3), *to = malloc(bytes + 1);

        if (!from || !to)
            cf_skip(me, "no memory");
        pass_with(me, &pair, (char *[2]){from + 3, to + 1}, (xcclNetMem_t[2]){NULL, NULL}, bytes);
        pass_with(me, &pair, (char *[2]){from, to}, (xcclNetMem_t[2]){other.mem, NULL}, bytes);
        free(from);
        free(to);
    }
    cf_buffer_free(me, &other);
    cf_pair_close(me, &pair);
}

/* ---- a second thread ---- */

struct second {
    struct cf me;
    struct cf_pair *pair;
    _Atomic int stop;
    _Atomic int rounds;
};

static void *second_run(void *arg)
{
    static char memory[2][3][5000];
    struct second *second = arg;

    /* Only ends the loop; nothing else is read by it. */
    while (!atomic_load_explicit(&second->stop, memory_order_relaxed)) {
        for (int i = 0; i < 3; i++) {
            xcclNetMem_t a = reg(&second->me, second->pair->send, memory[0][i], 5000);
            xcclNetMem_t b = reg(&second->me, second->pair->recv, memory[1][i], 4999);

            cf_ok(&second->me, cf_dereg(&second->me, second->pair->send, a), "deregMr");
            cf_ok(&second->me, cf_dereg(&second->me, second->pair->recv, b), "deregMr");
        }
        atomic_fetch_add_explicit(&second->rounds, 1, memory_order_relaxed);
    }
    return NULL;
}

/* The calls of the second thread are not shown as this role's. */
static void beside_transfers(struct cf *me)
{
    struct cf_pair pair;
    struct second second = {.me = cf_share(me, 3), .pair = &pair};
    uint64_t end_ns = cf_now() + (me->quick ? 20 : 200) * CF_MS;
    pthread_t thread;

    cf_pair_open(me, &pair);
    second.me.role = CF_RECEIVER;
    if (pthread_create(&thread, NULL, second_run, &second) != 0)
        cf_skip(me, "cannot start a thread");
    for (uint64_t i = 0;
         cf_now() < end_ns || !atomic_load_explicit(&second.rounds, memory_order_relaxed); i++)
        cf_pair_pass(me, &pair, 1000 * (i % 7), i);
    atomic_store_explicit(&second.stop, 1, memory_order_relaxed);
    pthread_join(thread, NULL);
    cf_pair_close(me, &pair);
}

/* ---- DMA-BUF ---- */

/* A buffer of the kernel that is plain memory: made from sealed shared memory. -1: not here. */
static int make_dmabuf(size_t bytes, char **data_out)
{
    int memory = memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), fd = -1;

    if (memory >= 0 && device >= 0 && ftruncate(memory, (off_t)bytes) == 0 &&
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
        struct udmabuf_create create = {
            .memfd = (unsigned)memory, .flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};

        *data_out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        if (*data_out != MAP_FAILED)
            fd = ioctl(device, UDMABUF_CREATE, &create);
    }
    if (memory >= 0)
        close(memory);
    if (device >= 0)
        close(device);
    return fd;
}

static void dmabuf(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from;
    char *data = NULL;
    xcclNetMem_t mem = NULL;
    int fd;

    if (!(me->props.ptrSupport & XCCL_NET_PTR_DMABUF))
        cf_skip(me, "the device does not claim XCCL_NET_PTR_DMABUF");
    fd = make_dmabuf(65536, &data);
    if (fd < 0)
        cf_skip(me, "this machine has no /dev/udmabuf to create a DMA-BUF");
    cf_pair_open(me, &pair);
    cf_enter(me, "regMrDmaBuf");
    cf_ok(me, me->net->calls.regMrDmaBuf(pair.recv, data, 65536, XCCL_NET_PTR_HOST, 0, fd, &mem),
          "regMrDmaBuf");
    close(fd);
    cf_buffer_make(me, pair.send, 65536, 0, &from);
    pass_with(me, &pair, (char *[2]){from.data, data}, (xcclNetMem_t[2]){from.mem, mem}, 65536);
    cf_ok(me, cf_dereg(me, pair.recv, mem), "deregMr");
    cf_pair_close(me, &pair);
}

/* ---- iflush ---- */

static void flush(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer buffer;
    xcclNetRequest_t request = NULL;
    void *data[1];
    size_t bytes[1] = {1000};
    xcclNetMem_t mems[1];

    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.recv, 1000, 0, &buffer);
    cf_pair_pass(me, &pair, 1000, 1);
    data[0] = buffer.data;
    mems[0] = buffer.mem;
    cf_enter(me, "iflush");
    cf_ok(me, me->net->calls.iflush(pair.recv, 1, data, bytes, mems, &request), "iflush");
    if (request)
        cf_wait(me, request, NULL, "the end of an iflush");
    bytes[0] = 0;
    request = NULL;
    cf_ok(me, me->net->calls.iflush(pair.recv, 1, data, bytes, mems, &request),
          "iflush of 0 bytes");
    if (request)
        cf_wait(me, request, NULL, "the end of an iflush of 0 bytes");
    cf_pair_pass(me, &pair, 1000, 2);
    cf_buffer_free(me, &buffer);
    cf_pair_close(me, &pair);
}

const struct cf_case cf_cases_memory[] = {
    {.name = "registrations_may_overlap",
     .forms = CF_SINGLE,
     .solo = ranges,
     .text = "overlapping, repeated, 1-byte and odd ranges are independent"},
    {.name = "memory_mapped_anew",
     .forms = CF_SINGLE,
     .solo = mapped_anew,
     .text = "after deregMr the same address may hold other memory"},
    {.name = "large_registration",
     .forms = CF_SINGLE,
     .solo = large,
     .text = "256 MiB can be registered, or the error says which limit to raise"},
    {.name = "global_registration",
     .forms = CF_SINGLE,
     .solo = global,
     .text = "with regIsGlobal a registration serves every comm"},
    {.name = "unregistered_memory",
     .forms = CF_SINGLE,
     .solo = unregistered,
     .text = "with anyMemory isend and irecv accept unregistered memory"},
    {.name = "registration_beside_transfers",
     .rule = 3,
     .forms = CF_SINGLE,
     .solo = beside_transfers,
     .text = "regMr and deregMr from a second thread"},
    {.name = "dmabuf", .forms = CF_SINGLE, .solo = dmabuf, .text = "a DMA-BUF is registered"},
    {.name = "flush",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = flush,
     .text = "iflush ends and is harmless on host memory",
     .why = "NCCL flushes only the memory of a GPU"},
    {.name = NULL},
};
