/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the stand-in's devices: anonymous files, so that other processes can map it, and ranges
 * of the host's that are pinned. Results are those of the driver API. Thread: any; a lock. */
#ifndef TESTS_EMU_EMU_MEMORY_H
#define TESTS_EMU_EMU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

int emu_memory_alloc(uint64_t *at, size_t bytes, int device);
int emu_memory_free(uint64_t at);
int emu_host_alloc(void **at, size_t bytes, int device);
int emu_host_free(void *at);
int emu_host_register(void *at, size_t bytes, int device);
int emu_host_unregister(void *at);
/* What the address lies in: 0 nothing, 1 pinned host memory, 2 a device's. */
int emu_memory_kind(uint64_t at, int *device_out);
/* Of what it lies in; never given again. 0: it lies in nothing. */
uint64_t emu_memory_number(uint64_t at);

int emu_memory_any(int device); /* 1: some is the device's, or was pinned with its context */

/* A new descriptor of the file of these bytes. */
int emu_memory_file(int *file_out, uint64_t at, size_t bytes);

/* Allocations by handles, which live until they are released and nothing maps them. */
int emu_handle_create(unsigned long long *handle, size_t bytes, int device, int types);
int emu_handle_release(unsigned long long handle);
int emu_handle_export(int *file_out, unsigned long long handle);
int emu_handle_import(unsigned long long *handle, int file, int device);
/* By 64 bytes that any process may have; of what was created with that type. */
int emu_fabric_export(unsigned char *fabric, unsigned long long handle);
int emu_fabric_import(unsigned long long *handle, const unsigned char *fabric, int device);
int emu_reserve(uint64_t *at, size_t bytes);
int emu_unreserve(uint64_t at, size_t bytes);
int emu_map(uint64_t at, size_t bytes, unsigned long long handle);
int emu_unmap(uint64_t at, size_t bytes);
int emu_set_access(uint64_t at, size_t bytes);

int emu_ipc_get(char *handle, uint64_t at); /* 64 bytes */
int emu_ipc_open(uint64_t *at, const char *handle, int device);
int emu_ipc_close(uint64_t at);

#endif
