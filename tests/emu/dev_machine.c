/* SPDX-License-Identifier: BSD-3-Clause */
/* The device under test: its context, its kernels, its memory, beside which lies the same memory
 * here. See dev_world.h. Thread: one. */
#include "dev_world.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/param.h"
#include "xt.h"

#define MEMORY_BYTES (64u << 20)
#define TAKE_ALIGN   256u
#define LINES_AGAIN  (1u << 30) /* steps after which lines are written to the end of a slot */

static void check(xccl_cu_result rc, const char *what)
{
    XT_OK(xccl_cuda_result(rc, what));
}

void dev_machine_open(struct dev_machine *machine)
{
    struct dev_memory *memory = &machine->memory;
    const char *library = getenv("XT_CUDA_LIBRARY");
    void *status;

    if (library)
        xt_setenv("XCCL_CUDA_LIBRARY", library);
    XT_OK(xccl_param_load());
    xt_allow_leaks("a driver keeps threads and descriptors");
    if (!xccl_cuda_driver())
        XT_SKIP("no device: %s", xccl_cuda_why_not());
    *machine = (struct dev_machine){.cuda = xccl_cuda_driver()};
    XT_OK(xccl_cuda_device_get(0, &machine->device));
    XT_OK(xccl_cuda_enter(machine->device));
    for (int i = 0; i < DEV_RANKS; i++)
        check(machine->cuda->stream_create(&machine->streams[i], XCCL_CU_STREAM_NON_BLOCKING),
              "a stream");
    memory->bytes = MEMORY_BYTES;
    memory->here = aligned_alloc(TAKE_ALIGN, memory->bytes);
    XT_CHECK(memory->here != NULL);
    XT_OK(xccl_cuda_alloc(machine->device, memory->bytes, &memory->there));
    XT_OK(xccl_cuda_host_alloc(machine->device, DEV_RANKS * sizeof *machine->status, &status,
                               &machine->status_there));
    machine->status = status;
}

void dev_machine_close(struct dev_machine *machine)
{
    for (int i = 0; i < DEV_RANKS; i++)
        check(machine->cuda->stream_destroy(machine->streams[i]), "a stream's end");
    xccl_cuda_host_free(machine->device, machine->status);
    xccl_cuda_free(machine->device, machine->memory.there);
    xccl_cuda_leave(machine->device);
    xccl_cuda_device_put(machine->device);
    free(machine->memory.here);
}

char *dev_take(struct dev_machine *machine, size_t bytes)
{
    struct dev_memory *memory = &machine->memory;
    char *at = memory->here + memory->used;

    bytes = (bytes + TAKE_ALIGN - 1) & ~(size_t)(TAKE_ALIGN - 1);
    XT_CHECK(bytes <= memory->bytes - memory->used);
    memory->used += bytes;
    memset(at, 0, bytes);
    return at;
}

uint64_t dev_address(const struct dev_machine *machine, const void *here)
{
    return machine->memory.there + (uint64_t)((const char *)here - machine->memory.here);
}

void dev_push(struct dev_machine *machine, size_t first)
{
    struct dev_memory *memory = &machine->memory;

    if (memory->used == first)
        return;
    check(machine->cuda->copy_to_device(memory->there + first, memory->here + first,
                                        memory->used - first, machine->streams[0]),
          "a copy to the device");
    check(machine->cuda->stream_sync(machine->streams[0]), "a copy to the device");
}

void dev_pull(struct dev_machine *machine, size_t first)
{
    struct dev_memory *memory = &machine->memory;

    if (memory->used == first)
        return;
    check(machine->cuda->copy_to_host(memory->here + first, memory->there + first,
                                      memory->used - first, machine->streams[0]),
          "a copy from the device");
    check(machine->cuda->stream_sync(machine->streams[0]), "a copy from the device");
}

void dev_launch(struct dev_machine *machine, const char *kernel, uint32_t blocks, void *parameter,
                int stream)
{
    xccl_cu_function function = xccl_cuda_device_function(machine->device, kernel);
    void *parameters[] = {parameter};

    XT_CHECK(function != NULL);
    check(machine->cuda->launch(function, blocks, 1, 1, machine->device->threads, 1, 1, 0,
                                machine->streams[stream], parameters, NULL),
          kernel);
}

uint32_t dev_blocks_max(const struct dev_machine *machine)
{
    return (uint32_t)machine->device->multiprocessors; /* each has room for one, or more */
}

int dev_wait(struct dev_machine *machine, int count, double seconds)
{
    double end = xt_seconds() + seconds;
    int stream = 0;

    while (stream < count) {
        xccl_cu_result rc = machine->cuda->stream_query(machine->streams[stream]);

        if (rc != XCCL_CU_NOT_READY) {
            check(rc, "a kernel");
            stream++;
            continue;
        }
        if (xt_seconds() > end)
            return 0;
        usleep(50);
    }
    return 1;
}

void dev_abort(struct dev_machine *machine, int n)
{
    for (int r = 0; r < n; r++)
        __atomic_store_n(&machine->status[r].abort, 1, __ATOMIC_RELEASE);
}

/* ---- links ---- */

static uint32_t stride_of(enum xccl_dev_proto proto, uint32_t slot_bytes)
{
    switch (proto) {
    case XCCL_DEV_LL:
        return 16 + (2 * slot_bytes + 15) / 16 * 16;
    case XCCL_DEV_LL128:
        return XCCL_DEV_LL128_LINE *
               (1 + (slot_bytes + XCCL_DEV_LL128_DATA - 1) / XCCL_DEV_LL128_DATA);
    default:
        return 64 + (slot_bytes + 15) / 16 * 16;
    }
}

/* Old lines, as such a link would have them, of numbers that come again: behind the next steps in
 * which slots are filled to their ends. Whoever does not fill them takes the old ones for new. */
static void leave_lines(char *slots, enum xccl_dev_proto proto, uint32_t nslots,
                        uint32_t slot_bytes, uint32_t first_step)
{
    uint32_t stride = stride_of(proto, slot_bytes), line = proto == XCCL_DEV_LL ? 8 : 128;
    uint32_t fills = (first_step + LINES_AGAIN - 1) & ~(LINES_AGAIN - 1);

    for (uint32_t step = fills + nslots; step != fills + 2 * nslots; step++) {
        char *slot = slots +
                     (size_t)((first_step % nslots + (step - first_step)) % nslots) * stride;
        const uint64_t word = proto == XCCL_DEV_LL ? (uint64_t)(step + 1) << 32 | 0x5d5d : step + 1;

        for (uint32_t at = line - 8; at < stride; at += line)
            memcpy(slot + at, &word, sizeof word);
    }
}

struct dev_slots dev_slots_take(struct dev_machine *machine, enum xccl_dev_proto proto,
                                uint32_t nslots, uint32_t slot_bytes, uint32_t first_step)
{
    size_t bytes = (size_t)nslots * stride_of(proto, slot_bytes);
    struct dev_slots slots = {.slots = dev_take(machine, bytes),
                              .head = dev_take(machine, XCCL_DEV_HEAD_BYTES)};

    if (first_step)
        memset(slots.slots, 0x5d, bytes);
    if (first_step && proto != XCCL_DEV_SIMPLE)
        leave_lines(slots.slots, proto, nslots, slot_bytes, first_step);
    memcpy(slots.head, &first_step, sizeof first_step);
    return slots;
}

struct xccl_dev_link dev_link_of(const struct dev_machine *machine, const struct dev_slots *slots,
                                 const struct dev_setup *setup, int peer)
{
    uint32_t stride = stride_of(setup->proto, setup->slot_bytes);
    uint64_t at = dev_address(machine, slots->slots);

    return (struct xccl_dev_link){
        .header = setup->proto == XCCL_DEV_SIMPLE ? at : 0,
        .payload = setup->proto == XCCL_DEV_SIMPLE ? at + 64 : at,
        .head = dev_address(machine, slots->head),
        .header_stride = setup->proto == XCCL_DEV_SIMPLE ? stride : 0,
        .payload_stride = stride,
        .nslots = setup->nslots,
        .slot_bytes = setup->slot_bytes,
        .step = setup->first_step,
        .slot = setup->first_step % setup->nslots,
        .limit = setup->first_step + setup->nslots,
        .peer = (uint16_t)peer,
    };
}
