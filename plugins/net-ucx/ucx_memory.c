/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations: ucp_mem_map, once for each range that is registered at a time; one that lies
 * inside of another is that one again. With its last user a registration goes: what the memory
 * becomes afterwards is not ours to know. UCX keeps the pages of networks that pin them in a cache
 * of its own, which sees munmap.
 *
 * Thread: any; the home's mutex guards its list. */
#include "base/alloc.h"
#include "ucx_int.h"

static struct ucx_mem *find(const struct ucx_home *home, const char *data, size_t bytes)
{
    uintptr_t first = (uintptr_t)data;

    for (struct ucx_mem *mem = home->mems; mem; mem = mem->next) {
        uintptr_t base = (uintptr_t)mem->data;

        if (base <= first && first - base <= mem->bytes && bytes <= mem->bytes - (first - base))
            return mem;
    }
    return NULL;
}

static xcclResult_t map(struct ucx_mem *mem)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address = mem->data,
                                   .length = mem->bytes,
                                   .memory_type = UCS_MEMORY_TYPE_HOST};
    ucs_status_t status = UCS_OK;

    if (mem->bytes > 0) {
        ucx_library_enter(NULL);
        status = ucx.mem_map(mem->home->context, &params, &mem->memh);
        ucx_library_leave();
    }
    if (status == UCS_OK)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, "raise ulimit -l",
                             "UCX cannot register %zu bytes: %s", mem->bytes,
                             ucx.status_string(status));
}

static xcclResult_t add(struct ucx_home *home, void *data, size_t bytes, struct ucx_mem **mem_out)
{
    struct ucx_mem *mem = xccl_calloc(1, sizeof(*mem));
    xcclResult_t rc;

    if (!mem)
        return xcclSystemError;
    mem->home = home;
    mem->data = data;
    mem->bytes = bytes;
    rc = map(mem);
    if (rc != xcclSuccess) {
        xccl_free(mem);
        return rc;
    }
    mem->next = home->mems;
    home->mems = mem;
    *mem_out = mem;
    return xcclSuccess;
}

xcclResult_t ucx_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out)
{
    struct ucx_home *home = ((struct ucx_comm *)comm)->home;
    struct ucx_mem *mem;
    xcclResult_t rc = xcclSuccess;

    if (type != XCCL_NET_PTR_HOST)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "copy to host memory first",
                                 "the ucx plugin accepts only host memory, not type %#x", type);
    if (!data && bytes)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "cannot register %zu bytes at NULL",
                                 bytes);
    pthread_mutex_lock(&home->lock);
    mem = find(home, data, bytes);
    if (!mem)
        rc = add(home, data, bytes, &mem);
    if (rc == xcclSuccess)
        mem->refs++;
    pthread_mutex_unlock(&home->lock);
    if (rc == xcclSuccess)
        *mem_out = mem;
    return rc;
}

xcclResult_t ucx_dereg_mr(void *comm, xcclNetMem_t mem_)
{
    struct ucx_mem *mem = mem_, **at;
    struct ucx_home *home = mem->home;
    ucs_status_t status = UCS_OK;

    (void)comm;
    pthread_mutex_lock(&home->lock);
    if (--mem->refs == 0) {
        for (at = &home->mems; *at != mem;)
            at = &(*at)->next;
        *at = mem->next;
        ucx_library_enter(NULL);
        if (mem->memh)
            status = ucx.mem_unmap(home->context, mem->memh);
        ucx_library_leave();
        xccl_free(mem);
    }
    pthread_mutex_unlock(&home->lock);
    if (status == UCS_OK)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, NULL, "UCX cannot deregister memory: %s",
                             ucx.status_string(status));
}
