/* SPDX-License-Identifier: BSD-3-Clause */
/* A tool that listens to NVTX, as nsys does: the library that NVTX_INJECTION64_PATH names. At the
 * end of the process it adds a line for each name of a range of the domain XCCL to the file that
 * NVTX_LISTENER_FILE names, "name opened closed", and says what was closed without having been
 * opened in that thread. Thread: any, under one lock. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 64
#define DEEP  16
#define XCCL  ((nvtxDomainHandle_t)(void *)&domain)

static struct name {
    char text[64];
    long opened, closed;
} names[NAMES];
static long lost;
static int domain;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct name *open_ones[DEEP];
static _Thread_local int deep;

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    return strcmp(name, "XCCL") == 0 ? XCCL : NULL;
}

/* With the lock. */
static struct name *find(const char *text)
{
    int i = 0;

    while (i < NAMES - 1 && names[i].text[0] && strcmp(names[i].text, text) != 0)
        i++;
    snprintf(names[i].text, sizeof names[i].text, "%s", text);
    return &names[i];
}

static int NVTX_API push(nvtxDomainHandle_t which, const nvtxEventAttributes_t *range)
{
    if (which != XCCL || deep == DEEP)
        return -1;
    pthread_mutex_lock(&lock);
    open_ones[deep] = find(range->message.ascii);
    open_ones[deep]->opened++;
    pthread_mutex_unlock(&lock);
    return deep++;
}

static int NVTX_API pop(nvtxDomainHandle_t which)
{
    if (which != XCCL)
        return -1;
    pthread_mutex_lock(&lock);
    if (deep)
        open_ones[--deep]->closed++;
    else
        lost++;
    pthread_mutex_unlock(&lock);
    return deep;
}

static void tell(void)
{
    const char *path = getenv("NVTX_LISTENER_FILE");
    FILE *file = path ? fopen(path, "ae") : NULL;

    if (!file)
        return;
    for (int i = 0; i < NAMES && names[i].text[0]; i++)
        fprintf(file, "%s %ld %ld\n", names[i].text, names[i].opened, names[i].closed);
    if (lost)
        fprintf(file, "lost %ld\n", lost);
    fclose(file);
}

__attribute__((visibility("default"))) int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int NVTX_API InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;

    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *(nvtxDomainHandle_t(NVTX_API **)(const char *))table[NVTX_CBID_CORE2_DomainCreateA] = create;
    *(int(NVTX_API **)(nvtxDomainHandle_t, const nvtxEventAttributes_t *))
        table[NVTX_CBID_CORE2_DomainRangePushEx] = push;
    *(int(NVTX_API **)(nvtxDomainHandle_t))table[NVTX_CBID_CORE2_DomainRangePop] = pop;
    atexit(tell);
    return 1;
}
