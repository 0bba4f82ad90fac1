/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL: collective communication between processes, on plain host memory and CUDA devices.
 *
 * A program makes one unique id, hands its 128 bytes to every rank (a file, MPI, a launcher; they
 * hold a secret), and each rank joins with xcclCommInitRank. After that all ranks make the same
 * collective calls in the same order. Every call returns xcclSuccess or an error whose text
 * xcclGetLastError() holds: what failed, on which rank and host, and what to do about it.
 *
 * A communicator serves one thread at a time, whichever it is; a second one meanwhile gets
 * xcclInvalidUsage. xcclCommAbort and xcclCommGetAsyncError may come from any thread at any time,
 * and so may calls without a communicator, where nothing else is said. A thread that owns several
 * ranks of one communicator calls for them inside groups only.
 *
 * What is wrong with a call itself is refused before anything has happened, and the communicator
 * stays good: xcclInvalidArgument, or xcclInvalidUsage for a call that is not allowed now. Every
 * other error of an operation is the communicator's: on each rank every further call on it returns
 * that error; destroy it, or abort it. Outputs mean something on success only. A child of fork()
 * may use the library only if its parent has not begun to join before; else all but the calls about
 * versions and error texts are xcclInvalidUsage there.
 *
 * Each call xcclX has a twin pxcclX of the same meaning, so that a tool may interpose xcclX. */
#ifndef XCCL_H
#define XCCL_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

#define XCCL_MAJOR                        0
#define XCCL_MINOR                        1
#define XCCL_PATCH                        0
#define XCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define XCCL_VERSION_CODE                 XCCL_VERSION(XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH)
#define XCCL_UNIQUE_ID_BYTES              128

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct xcclComm *xcclComm_t;
typedef struct {
    char internal[XCCL_UNIQUE_ID_BYTES];
} xcclUniqueId;

/* NULL: the operation is complete when the call (or the outermost group) returns; the calling
 * thread does it. Or what xcclStreamCreate gave, see there. */
typedef void *xcclStream_t;

/* The version of the loaded library, as XCCL_VERSION_CODE. */
xcclResult_t xcclGetVersion(int *version);

/* Makes the id of a new communicator. This process becomes its meeting point and must live until
 * every rank has joined. The id contains the job's secret: pass it on by means that others cannot
 * read. Under `xccl run` every process may call it and all get the same id. */
xcclResult_t xcclGetUniqueId(xcclUniqueId *id);

/* Makes a program independent of what starts it: tells which rank of how many this process is, and
 * with id not NULL makes a new id that is the same on all ranks; then all ranks must call it, and
 * the k-th call on one belongs to the k-th on the others. It knows `xccl run` and XCCL_RANK,
 * XCCL_NRANKS and XCCL_COMM_ID set by hand; torchrun; PMIx, PMI-1 and PMI-2 (Open MPI's and MPICH's
 * mpirun, Slurm); Slurm without them. A process that nothing started is rank 0 of 1. Waits at most
 * XCCL_TIMEOUT_INIT_S. A program that uses MPICH's MPI gets an error: the launcher speaks with one
 * party of a process only; take rank and size from MPI there, and pass an id by MPI_Bcast. One
 * thread at a time. */
xcclResult_t xcclGetLaunch(xcclUniqueId *id, int *nranks, int *rank);

/* Which rank of how many this process is among those of its host, to choose a device for instance.
 * 0 ranks and rank -1 when the launcher does not tell. One thread at a time. */
xcclResult_t xcclGetLaunchLocal(int *local_nranks, int *local_rank);

/* Joins as one of nranks ranks (1 to 65535); blocks until all have joined or XCCL_TIMEOUT_INIT_S
 * has passed. An error leaves nothing behind, and the other ranks are told why. Inside a group it
 * takes effect at xcclGroupEnd, which is how one thread joins as several ranks and communicators:
 * side by side, in any order, all of them or none. Any number of threads may join at a time. */
xcclResult_t xcclCommInitRank(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank);

/* Settings of a communicator. Begin with XCCL_CONFIG_INITIALIZER: it notes which xccl.h a program
 * was built with. Fields are only ever appended; a library takes what older headers offered, and
 * refuses a config of a newer one. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    /* The network plugins of this communicator, in the form of XCCL_NET_PLUGIN and in its place;
     * NULL: that setting. The same list on all ranks. */
    const char *netName;
    /* Stands in log lines and error texts; at most 63 bytes. NULL: none. */
    const char *commName;
    int blocking; /* 1, the default; 0: see "Non-blocking communicators" below */
    int splitShare; /* 1: a split may share with its parent; default 0; without effect so far */
    /* What the communicator is for, as "tp=0,dp=3": labels of one's own, between commas, at most
     * 127 bytes in all. They stand beside the name in log lines, error texts and `xccl report`.
     * Ranks may have different ones. NULL: none, or in a split those of its parent; "": none. */
    const char *commLabels;
    /* The CUDA device that the rank's buffers are on, counted from 0, or XCCL_DEVICE_HOST. Unset:
     * XCCL_DEVICE says, and by default it is the device of the calling thread's current CUDA
     * context where there is one, else the host. All ranks are of the host, or all of CUDA devices.
     * Several ranks may share a device. */
    int device;
} xcclConfig_t;

#define XCCL_DEVICE_HOST (-1)

#define XCCL_CONFIG_MAGIC     0x7863636cu /* "xccl" */
#define XCCL_CONFIG_UNDEF_INT (-2147483647 - 1) /* leaves a field at its default */
#define XCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(xcclConfig_t), XCCL_CONFIG_MAGIC, XCCL_VERSION_CODE, NULL, NULL,                    \
            XCCL_CONFIG_UNDEF_INT, XCCL_CONFIG_UNDEF_INT, NULL, XCCL_CONFIG_UNDEF_INT              \
    }

/* As xcclCommInitRank, for many ranks: they meet at nId meeting points in place of one, nId from 1
 * to nranks. ids: nId of them, each made by xcclGetUniqueId in a process of its own, best on hosts
 * of their own; all ranks give the same ids in the same order, and each id serves one communicator.
 * The ids' secrets together prove membership. config may be NULL. The ids and the config are not
 * looked at any more when the call has returned, inside a group too. */
xcclResult_t xcclCommInitRankScalable(xcclComm_t *comm, int nranks, int rank, int nId,
                                      const xcclUniqueId *ids, xcclConfig_t *config);

/* Leaves in order, after what comm was given on streams, and frees comm; also one that has failed.
 * The other ranks may still be finishing their last call. Inside a group it takes effect at
 * xcclGroupEnd, after the operations, and no call of comm may follow in that group. NULL is fine.
 */
xcclResult_t xcclCommDestroy(xcclComm_t comm);

/* Ends the communicator now, from any thread, in place of xcclCommDestroy: calls in progress on
 * every rank return an error that names this rank; it waits at most 1 s for this process's. Calls
 * of other threads that come too late return the error as well. Not for a communicator that has
 * calls in an open group of this thread. NULL is fine. */
xcclResult_t xcclCommAbort(xcclComm_t comm);

/* How many ranks there are, and which one this is, from 0 on. Both also after xcclCommFinalize. */
xcclResult_t xcclCommCount(const xcclComm_t comm, int *count);
xcclResult_t xcclCommUserRank(const xcclComm_t comm, int *rank);

/* xcclCommInitRank with a config, which may be NULL. */
xcclResult_t xcclCommInitRankConfig(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank,
                                    xcclConfig_t *config);
/* This thread joins as all ranks of a new communicator: comm_list gets ndev of them. devlist: a
 * CUDA device for each; NULL: devices from 0 on where the thread has a CUDA context or XCCL_DEVICE
 * is cuda, else the host. XCCL_DEVICE=host ignores it. All ranks join, or none. Calls for several
 * of the ranks need a group, as for every thread that owns several. */
xcclResult_t xcclCommInitAll(xcclComm_t *comm_list, int ndev, const int *devlist);

/* Makes new communicators of the ranks of one: those that give the same color (from 0 on) become
 * one, ordered by key, then by rank in comm; with XCCL_SPLIT_NOCOLOR *newcomm becomes NULL. All
 * ranks of comm call it, in the order of their other calls of comm, and it waits for them as a join
 * does. comm stays as it was, and the two do not need each other. config may be NULL; without a
 * netName in it, the plugins are comm's, and without commLabels the labels. Inside a group it takes
 * effect at xcclGroupEnd, as joins do and before collectives. A rank that fails before it knows the
 * others of its color fails comm, so that no rank waits for it; a later failure is the new
 * communicator's only. Wrong arguments are refused before the other ranks hear of them. */
#define XCCL_SPLIT_NOCOLOR (-1)
xcclResult_t xcclCommSplit(xcclComm_t comm, int color, int key, xcclComm_t *newcomm,
                           xcclConfig_t *config);

/* No calls follow but xcclCommDestroy, xcclCommAbort, questions, and what gives back operators and
 * registered buffers. It waits for what comm was given on streams. */
xcclResult_t xcclCommFinalize(xcclComm_t comm);
/* *asyncError: the communicator's error, also one that another rank has raised since the last call,
 * or xcclSuccess; of a non-blocking one also xcclInProgress. xcclGetLastError(comm) has its text.
 * At any time, from any thread. */
xcclResult_t xcclCommGetAsyncError(xcclComm_t comm, xcclResult_t *asyncError);
/* The text of that error, never of another one: "" when comm has none, or is no communicator. It
 * stays until comm is freed. At any time, from any thread. */
const char *xcclCommGetLastError(const xcclComm_t comm);
/* Makes the connections now that the first calls would make: of every collective in small and large
 * sizes, for those with a root as root 0 has it, and of sends and receives between all ranks. All
 * ranks call it, in the order of their other calls; in a group it takes part as they do. For n
 * ranks it costs each about 6 n links and their memory. */
xcclResult_t xcclCommConnectAll(xcclComm_t comm);
/* The CUDA device of a communicator, or XCCL_DEVICE_HOST. */
xcclResult_t xcclCommCuDevice(const xcclComm_t comm, int *device);

/* Non-blocking communicators. With blocking 0 in its config a communicator never keeps its caller
 * waiting. xcclCommInitRankConfig, xcclCommInitRankScalable and xcclCommSplit set *comm, return
 * xcclInProgress (in a group xcclGroupEnd does), and go on in the background. Until
 * xcclCommGetAsyncError stops saying xcclInProgress only that call, xcclGetLastError and
 * xcclCommAbort are allowed; all others are refused with xcclInvalidUsage. A communicator that
 * could not join is destroyed or aborted. To a split without a config the parent's kind applies.
 * All joins of a group are of one kind.
 *
 * Operations without a stream return xcclInProgress and take place in their order;
 * xcclCommGetAsyncError says xcclInProgress until they are through, then xcclSuccess or the error.
 * With a stream they return xcclSuccess, and the stream tells. A split counts as an operation of
 * the parent, also of a blocking one, until the new communicators have joined. xcclCommFinalize may
 * return xcclInProgress too; xcclCommDestroy waits. Other ranks may be of the other kind. */

/* Memory for buffers: zeroed, whole pages, huge ones where the kernel gives them, which takes it as
 * long as it says of xcclCommRegister below. Any memory will do for a buffer; this kind is read in
 * place by the other ranks of the host, which saves a copy of all that is large. Between threads of
 * one process any memory is, and TCP sends from and receives into any (XCCL_DIRECT=0 turns all of
 * it off). A child of fork() shares it with its parent. size 0 gives NULL; xcclSystemError: there
 * is not so much. Where communicators whose config names no device are of a CUDA device, it is
 * zeroed memory of that device, which is no quicker than other memory of the device so far. */
xcclResult_t xcclMemAlloc(void **ptr, size_t size);
/* Not while a call uses it: one of a device is not waited for. NULL is fine; what xcclMemAlloc did
 * not give is refused. */
xcclResult_t xcclMemFree(void *ptr);
/* Announces a buffer that will be used often; it stays the caller's, and is there until it is
 * deregistered. On the host what lies in it is put into huge pages where the kernel does that
 * (Linux 6.1): calls of 2 MiB and more that do not reduce become 1.1 to 1.3 times as quick between
 * processes. It takes memory for all of them, and up to 4 ms for each 2 MiB, but no more than some
 * tenths of a second: the rest of a large buffer stays as it is. The library puts no other memory
 * of the program into huge pages. On a device the library only takes note. What is left is
 * deregistered with the communicator. */
xcclResult_t xcclCommRegister(const xcclComm_t comm, void *buff, size_t size, void **handle);
/* Takes back one of them, once; also after xcclCommFinalize. */
xcclResult_t xcclCommDeregister(const xcclComm_t comm, void *handle);

/* What xcclCommMemStats tells of this rank's memory in a communicator, in bytes. The first four are
 * NCCL's, and 0 for communicators of the host. */
typedef enum {
    xcclStatGpuMemSuspend = 0,
    xcclStatGpuMemSuspended = 1,
    xcclStatGpuMemPersist = 2,
    xcclStatGpuMemTotal = 3,
    xcclStatHostMemTotal = 16, /* slots, plans, scratch and tables */
    xcclStatHostMemPersist = 17, /* of that, what was there when the rank had joined */
    xcclStatHostMemOnDemand = 18, /* and what calls have taken since; it stays */
    xcclStatHostMemSlots = 19, /* where messages to this rank lie, within XCCL_BUFFER_BYTES */
    xcclStatHostMemPlans = 20, /* plans of calls, schedules, and links without their slots */
    xcclStatHostMemScratch = 21, /* that reductions and some algorithms work in */
    xcclStatHostMemTables = 22, /* about the other ranks */
    xcclStatHostMemMapped = 23 /* address space, hardly any memory: see below */
} xcclCommMemStat_t;

/* *value: one number about the memory of comm. The sum over ranks counts all memory once; what the
 * process has once, network plugins and buffers of the system are in none. Shared memory is mapped
 * large and taken in small pieces; each process maps that of all ranks of its host once, and
 * xcclStatHostMemMapped is the same on all of them. Not while a call of comm is at work in another
 * thread. */
xcclResult_t xcclCommMemStats(const xcclComm_t comm, xcclCommMemStat_t stat, uint64_t *value);

typedef enum {
    xcclScalarDevice = 0, /* in memory of the device; the host's communicators refuse it */
    xcclScalarHostImmediate = 1 /* read before the call returns */
} xcclScalarResidence_t;

/* A sum of contributions that are first multiplied by *scalar, one number of datatype, and rounded
 * to it. Each rank has its own scalar. *op is good for calls of comm with that datatype, until it
 * is destroyed; at most 64 at a time. An operation on a stream keeps it; so does a group that has
 * noted a call with it, as long as no more than 64 are created meanwhile. */
xcclResult_t xcclRedOpCreatePreMulSum(xcclRedOp_t *op, void *scalar, xcclDataType_t datatype,
                                      xcclScalarResidence_t residence, xcclComm_t comm);
/* Destroys one of them, once; what is left goes with the communicator. */
xcclResult_t xcclRedOpDestroy(xcclRedOp_t op, xcclComm_t comm);

/* Streams of the host. An operation that is given a stream is done by a thread of the library while
 * the program computes. The call checks its arguments, notes what to do, and returns at once; the
 * buffers belong to the operation until the stream says that it is done.
 *
 * Order: the operations of a stream take place in theirs, and so do those of a communicator,
 * whichever streams they are given to; what has neither in common goes side by side. An operation
 * without a stream comes after all that its communicator was given before, and before all that
 * follows. The operations of a group count as given at once: none of them waits for another one
 * because they share a stream. A group with streams returns when all has been noted, and its
 * operations without one are done.
 *
 * An error of an operation is its communicator's, as without streams, and that of all its streams.
 * A stream keeps its first error; operations of other communicators in it still take place.
 * xcclCommDestroy and xcclCommFinalize wait for what a communicator was given, xcclCommAbort drops
 * it. A thread that owns several ranks of a communicator may give them operations with streams
 * outside of groups too. Streams may be used by any thread, and by several. A child of fork() makes
 * its own, if it may: see the head of this file. */
xcclResult_t xcclStreamCreate(xcclStream_t *stream);
/* Waits for what the stream was given; its errors are lost. Not while another thread uses it, or
 * the open group of this thread has calls for it. NULL is refused. */
xcclResult_t xcclStreamDestroy(xcclStream_t stream);
/* Waits for all that the stream was given until now: its first error, or xcclSuccess. Each
 * operation ends by itself, with an error at the latest after XCCL_TIMEOUT_S. NULL: nothing is
 * outstanding there, xcclSuccess. */
xcclResult_t xcclStreamSynchronize(xcclStream_t stream);
/* The first error of what the stream was given until now, or xcclSuccess, without waiting;
 * xcclInProgress while something is outstanding and nothing has failed. */
xcclResult_t xcclStreamQuery(xcclStream_t stream);

/* Collectives. All ranks of comm call the same one with the same count, datatype, op and root; the
 * calls of a communicator take place in their order. Below n is the number of ranks, and a block is
 * count elements. Buffers of one rank may be the same memory only in the form that is named as in
 * place; any other overlap is refused. A buffer that a rank does not use may be NULL and is not
 * looked at; with count 0 all may. Calls that differ between ranks are an error on all ranks that
 * shows who called what. It comes at once where the calls wait for each other. A rank that need not
 * wait, such as the root of a broadcast, may return first; then the error comes within a second, in
 * its next call or from xcclCommGetAsyncError, or from xcclCommDestroy.
 *
 * xccl_types.h says what each operator does with each datatype. The result of a reduction has the
 * same bits on every rank that gets it. */

/* recvbuff[i] on every rank = sendbuff[i] of all ranks combined. In place: sendbuff == recvbuff. */
xcclResult_t xcclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                           xcclStream_t stream);

/* recvbuff on every rank = sendbuff of root, which only root uses. In place: sendbuff == recvbuff.
 */
xcclResult_t xcclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream);
/* Broadcasts buff of root into buff of every rank. */
xcclResult_t xcclBcast(void *buff, size_t count, xcclDataType_t datatype, int root, xcclComm_t comm,
                       xcclStream_t stream);

/* As xcclAllReduce, but only root gets the result; the others' recvbuff is not used. */
xcclResult_t xcclReduce(const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
                        xcclRedOp_t op, int root, xcclComm_t comm, xcclStream_t stream);

/* Block r of recvbuff on every rank = sendbuff of rank r; recvbuff has n blocks. In place: sendbuff
 * is the rank's own block, recvbuff + rank * sendcount elements. */
xcclResult_t xcclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);

/* recvbuff on rank r = block r of sendbuff of all ranks combined; sendbuff has n blocks. In place:
 * recvbuff is the rank's own block, sendbuff + rank * recvcount elements; the others stay. */
xcclResult_t xcclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                               xcclStream_t stream);

/* Block s of recvbuff on rank r = block r of sendbuff on rank s; both have n blocks. There is no
 * in-place form. */
xcclResult_t xcclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);

/* Block r of recvbuff on root = sendbuff of rank r; the others' recvbuff is not used. In place:
 * sendbuff on root is recvbuff + root * count elements. */
xcclResult_t xcclGather(const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
                        int root, xcclComm_t comm, xcclStream_t stream);

/* recvbuff on rank r = block r of sendbuff on root, which only root uses. In place: recvbuff on
 * root is sendbuff + root * count elements. */
xcclResult_t xcclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream);

/* Returns, or on a stream is done, when all ranks have called it. NCCL has no such call. */
xcclResult_t xcclBarrier(xcclComm_t comm, xcclStream_t stream);

/* A message to one rank, and its receive there. What belongs together is found by order: the k-th
 * send of rank a to rank b and the k-th receive of b from a, of the same size in bytes, else it is
 * an error there. Other ranks take no part, and messages of a pair do not wait for those of another
 * one within a group, in whatever order they are noted. Outside a group a call returns when its
 * message has come, or when sendbuff may be used again, for which the receiver may have to come; so
 * two ranks that send to each other do it in groups. All sends and receives of a group go together,
 * before the group's collective calls. A rank sends to itself in groups only, with the receive in
 * the same group. count 0 is a message without bytes, which has to be received, too. Ranks that
 * wait for each other in a circle, as in two receives, get an error within a second; with sends
 * over a network in it within 5 s. */
xcclResult_t xcclSend(const void *sendbuff, size_t count, xcclDataType_t datatype, int peer,
                      xcclComm_t comm, xcclStream_t stream);
xcclResult_t xcclRecv(void *recvbuff, size_t count, xcclDataType_t datatype, int peer,
                      xcclComm_t comm, xcclStream_t stream);

/* Collectives with a block of its own size for each rank; NCCL has no such calls. Counts and
 * displacements are in elements, one entry for each rank; block r begins at the displacement of r,
 * and displacements NULL mean blocks one behind the other. The arrays are read before the call
 * returns, inside a group too; entries of displacements whose count is 0 do not matter. Blocks that
 * are written must not overlap; memory between blocks is not touched. Counts that do not agree
 * between ranks end in an error. */

/* xcclAllGather, with recvcounts[r] elements from rank r. All ranks give the same recvcounts, each
 * displs of its own; sendcount is the rank's own entry. In place: sendbuff is recvbuff +
 * displs[rank] elements. */
xcclResult_t xcclAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                            const size_t recvcounts[], const size_t displs[],
                            xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);

/* xcclReduceScatter, with sendcounts[r] elements for rank r. All ranks give the same sendcounts,
 * each displs of its own; recvcount is the rank's own entry. In place: recvbuff is sendbuff +
 * displs[rank] elements; the others stay. */
xcclResult_t xcclReduceScatterv(const void *sendbuff, const size_t sendcounts[],
                                const size_t displs[], void *recvbuff, size_t recvcount,
                                xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                                xcclStream_t stream);

/* Block s of recvbuff on rank r = block r of sendbuff on rank s, so sendcounts[r] of rank s must
 * equal recvcounts[s] of rank r. There is no in-place form. */
xcclResult_t xcclAlltoAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                           void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                           xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                             const size_t recvcounts[], const size_t displs[],
                             xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclReduceScatterv(const void *sendbuff, const size_t sendcounts[],
                                 const size_t displs[], void *recvbuff, size_t recvcount,
                                 xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                                 xcclStream_t stream);
xcclResult_t pxcclAlltoAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                            void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                            xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);

/* Between the two, this thread's calls that join, leave or move data check their arguments and take
 * note, no more. The outermost xcclGroupEnd does it all: joins, then operations, all communicators
 * side by side, then leaves; and returns the first error. Where a call was refused it returns that
 * one's error, and nothing of the group begins. Groups nest, up to 1,000 deep; one takes up to
 * 1,048,576 calls. */
xcclResult_t xcclGroupStart(void);
xcclResult_t xcclGroupEnd(void);

/* What xcclGroupSimulateEnd tells. Begin with XCCL_SIM_INFO_INITIALIZER. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    float estimatedTime; /* microseconds */
} xcclSimInfo_t;

#define XCCL_SIM_INFO_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(xcclSimInfo_t), XCCL_CONFIG_MAGIC, XCCL_VERSION_CODE, 0                             \
    }

/* Ends a group without doing any of it, and estimates how long this rank's part would take if no
 * rank kept another waiting. It comes from the schedules and a few fixed figures of a common host,
 * not from measurements here: for comparing groups, right within a factor of a few. The other ranks
 * need not call it; what its communicators were given on streams is waited for. Not for groups in
 * which ranks join or leave; of groups inside each other the outermost end says which it is. */
xcclResult_t xcclGroupSimulateEnd(xcclSimInfo_t *simInfo);

/* A constant text for a code; never NULL. */
const char *xcclGetErrorString(xcclResult_t result);

/* The full text of the last error: of comm where it has one, else of the calling thread. "" when
 * there was none. The text of a thread stays until its next error, that of a communicator until it
 * is freed. */
const char *xcclGetLastError(const xcclComm_t comm);

xcclResult_t pxcclGetVersion(int *version);
xcclResult_t pxcclGetUniqueId(xcclUniqueId *id);
xcclResult_t pxcclGetLaunch(xcclUniqueId *id, int *nranks, int *rank);
xcclResult_t pxcclGetLaunchLocal(int *local_nranks, int *local_rank);
xcclResult_t pxcclCommInitRank(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank);
xcclResult_t pxcclCommInitRankScalable(xcclComm_t *comm, int nranks, int rank, int nId,
                                       const xcclUniqueId *ids, xcclConfig_t *config);
xcclResult_t pxcclCommDestroy(xcclComm_t comm);
xcclResult_t pxcclCommAbort(xcclComm_t comm);
xcclResult_t pxcclCommCount(const xcclComm_t comm, int *count);
xcclResult_t pxcclCommUserRank(const xcclComm_t comm, int *rank);
xcclResult_t pxcclCommInitRankConfig(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank,
                                     xcclConfig_t *config);
xcclResult_t pxcclCommInitAll(xcclComm_t *comm_list, int ndev, const int *devlist);
xcclResult_t pxcclCommSplit(xcclComm_t comm, int color, int key, xcclComm_t *newcomm,
                            xcclConfig_t *config);
xcclResult_t pxcclCommFinalize(xcclComm_t comm);
xcclResult_t pxcclCommGetAsyncError(xcclComm_t comm, xcclResult_t *asyncError);
xcclResult_t pxcclCommConnectAll(xcclComm_t comm);
xcclResult_t pxcclCommCuDevice(const xcclComm_t comm, int *device);
xcclResult_t pxcclMemAlloc(void **ptr, size_t size);
xcclResult_t pxcclMemFree(void *ptr);
xcclResult_t pxcclCommRegister(const xcclComm_t comm, void *buff, size_t size, void **handle);
xcclResult_t pxcclCommDeregister(const xcclComm_t comm, void *handle);
xcclResult_t pxcclCommMemStats(const xcclComm_t comm, xcclCommMemStat_t stat, uint64_t *value);
xcclResult_t pxcclRedOpCreatePreMulSum(xcclRedOp_t *op, void *scalar, xcclDataType_t datatype,
                                       xcclScalarResidence_t residence, xcclComm_t comm);
xcclResult_t pxcclRedOpDestroy(xcclRedOp_t op, xcclComm_t comm);
xcclResult_t pxcclStreamCreate(xcclStream_t *stream);
xcclResult_t pxcclStreamDestroy(xcclStream_t stream);
xcclResult_t pxcclStreamSynchronize(xcclStream_t stream);
xcclResult_t pxcclStreamQuery(xcclStream_t stream);
xcclResult_t pxcclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                            xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                            xcclStream_t stream);
xcclResult_t pxcclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                            xcclDataType_t datatype, int root, xcclComm_t comm,
                            xcclStream_t stream);
xcclResult_t pxcclBcast(void *buff, size_t count, xcclDataType_t datatype, int root,
                        xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclReduce(const void *sendbuff, void *recvbuff, size_t count,
                         xcclDataType_t datatype, xcclRedOp_t op, int root, xcclComm_t comm,
                         xcclStream_t stream);
xcclResult_t pxcclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                            xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                                xcclStream_t stream);
xcclResult_t pxcclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                           xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclGather(const void *sendbuff, void *recvbuff, size_t count,
                         xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclScatter(const void *sendbuff, void *recvbuff, size_t count,
                          xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclBarrier(xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclSend(const void *sendbuff, size_t count, xcclDataType_t datatype, int peer,
                       xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclRecv(void *recvbuff, size_t count, xcclDataType_t datatype, int peer,
                       xcclComm_t comm, xcclStream_t stream);
xcclResult_t pxcclGroupStart(void);
xcclResult_t pxcclGroupEnd(void);
xcclResult_t pxcclGroupSimulateEnd(xcclSimInfo_t *simInfo);
const char *pxcclGetErrorString(xcclResult_t result);
const char *pxcclCommGetLastError(const xcclComm_t comm);
const char *pxcclGetLastError(const xcclComm_t comm);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
