# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one library that sleep until they get an order, for programs that let several libraries
take turns. The ranks are those of tools/perf/perf_serve.h: they connect to a Unix socket, say hello
and carry out orders."""
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

# As tools/perf/perf_coll.c numbers them.
NUMBERS = ["all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "alltoall",
           "gather", "scatter", "sendrecv", "all_gatherv", "reduce_scatterv", "alltoallv",
           "barrier"]
START_S, ORDER_S, STOP_S = 60, 180, 10

# tools/perf/perf_vs_mpi.h: hello, order, answer.
MAGIC, FLOAT, SUM, NEW_PAGES = 0x78706D32, 7, 0, -1
HELLO = struct.Struct("=Iiii96s")
ORDER = struct.Struct("=Iiiiiii4xqqqqQ")
ANSWER = struct.Struct("=Iiiiiii4xqqqqQdq")

CLEAN = ("XCCL_", "OMPI_MCA_", "UCX_", "MPIR_CVAR_")


class Failure(Exception):
    pass


def clean_environment():
    """Without settings of any of the libraries."""
    return {key: value for key, value in os.environ.items() if not key.startswith(CLEAN)}


class Ranks:
    """A subclass starts the processes, which may be a launcher with the ranks below it."""

    def __init__(self, name, ranks, path=""):
        """path: of the socket; "": a name of the kernel's choice, which is no file and is known in
        this network namespace only."""
        self.name, self.ranks, self.software, self.fds = name, ranks, "", [None] * ranks
        self.processes, self.argv = [], []
        self.log = tempfile.TemporaryFile(mode="w+b")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(ranks)
        self.listener.settimeout(0.2)
        address = self.listener.getsockname()
        self.address = (address.encode() if isinstance(address, str) else address).hex()

    def start(self, argv, env, **options):
        self.argv = argv
        self.processes.append(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL,
                                               stdout=self.log, stderr=self.log,
                                               start_new_session=True, **options))

    def ended(self):
        """The status of a process that has ended, or None."""
        return next((status for status in (process.poll() for process in self.processes)
                     if status is not None), None)

    def error(self, text):
        self.log.seek(0)
        said = self.log.read()[-2000:].decode(errors="replace")
        return Failure(f"{self.name}, {self.ranks} ranks: {text}\n{' '.join(self.argv)}\n{said}")

    def take(self, fd):
        """One that has connected: of this user, and a rank that has not come yet."""
        fd.settimeout(1)
        uid = struct.unpack("=iii", fd.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        words = fd.recv(HELLO.size)
        if uid != os.geteuid() or len(words) != HELLO.size:
            return
        magic, _, rank, ranks, software = HELLO.unpack(words)
        if magic == MAGIC and ranks == self.ranks and 0 <= rank < ranks and not self.fds[rank]:
            self.fds[rank] = fd
            if rank == 0:
                self.software = software.split(b"\0")[0].decode(errors="replace").replace(
                    " Version:", "")

    def await_ranks(self):
        end = time.monotonic() + START_S
        while not all(self.fds):
            if self.ended() is not None:
                raise self.error(f"ended with {self.ended()} before it began")
            if time.monotonic() > end:
                raise self.error(f"not all ranks have come in {START_S} s")
            try:
                self.take(self.listener.accept()[0])
            except TimeoutError:
                pass

    def order(self, coll, size, iters, exact, warmup, checks):
        """(us of one call, calls, wrong elements); us 0: there is no such form."""
        answer = self.ask(f"{coll} of {size} bytes", NUMBERS.index(coll), coll == "broadcast",
                          exact, iters, warmup, 1, checks, size)
        return answer[12], answer[7], answer[13]

    def take_new_pages(self):
        """The old ones go at once, the new ones come with the next order, for large calls all."""
        self.ask("new pages", NEW_PAGES, 0, 1, 0, 0, 1, 0, 0)

    def ask(self, what, number, in_place, *rest):
        order = ORDER.pack(MAGIC, number, FLOAT, SUM, 0, in_place, *rest)
        end = time.monotonic() + ORDER_S
        self.fds[0].settimeout(0.5)
        try:
            for fd in self.fds:
                fd.send(order)
        except OSError:
            raise self.error(f"{what}: a rank has ended") from None
        while True:
            try:
                words = self.fds[0].recv(ANSWER.size)
            except TimeoutError:
                if self.ended() is not None or time.monotonic() > end:
                    raise self.error(f"{what}: no answer") from None
                continue
            if len(words) != ANSWER.size:
                raise self.error(f"{what}: rank 0 has ended")
            return ANSWER.unpack(words)

    def close(self):
        """Ranks whose connection ends do so too, and with them the launcher."""
        for fd in self.fds + [self.listener]:
            if fd:
                fd.close()
        end = time.monotonic() + STOP_S
        for process in self.processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.log.close()
