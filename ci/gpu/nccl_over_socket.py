# SPDX-License-Identifier: BSD-3-Clause
"""NCCL, as PyTorch brings it, over one of our network plugins: two processes on one device, which
NCCL takes for two hosts (NCCL_HOSTID), so that all goes over the network. Checked all-reduces, and
what they take. Usage: nccl_over_socket.py PLUGIN"""
import os
import subprocess
import sys
import time

SIZES = [8, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26]


def rank_main(rank):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    for size in SIZES:
        data = torch.full((size // 4,), float(rank + 1), device="cuda")
        dist.all_reduce(data)
        torch.cuda.synchronize()
        assert bool((data == 3.0).all()), "wrong sums of %d bytes" % size
        repeats = 20 if size < 1 << 22 else 5
        begin = time.perf_counter()
        for _ in range(repeats):
            dist.all_reduce(data)
        torch.cuda.synchronize()
        took = (time.perf_counter() - begin) / repeats
        if rank == 0:
            print("nccl all-reduce of %9d B: %10.1f us %7.2f GB/s" %
                  (size, took * 1e6, size / took / 1e9), flush=True)
    dist.destroy_process_group()


def main():
    plugin = os.path.abspath(sys.argv[1])
    ranks = []
    for rank in range(2):
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT="29517",
                   NCCL_HOSTID="host%d" % rank, NCCL_NET_PLUGIN=plugin, NCCL_SOCKET_IFNAME="lo",
                   NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", XCCL_SOCKET_IFNAME="lo",
                   NCCL_IB_DISABLE="1")
        ranks.append(subprocess.Popen([sys.executable, __file__, "--rank", str(rank)], env=env,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = []
    for process in ranks:
        try:
            outputs.append(process.communicate(timeout=150)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            outputs.append(process.communicate()[0] + "\ntimed out")
    print("\n".join(outputs))
    loaded = [line for line in outputs[0].splitlines()
              if "lugin" in line or "Using network" in line]
    bad = [process.returncode for process in ranks if process.returncode]
    print("\n".join("# " + line for line in loaded[:8]))
    print("failed" if bad else "sums right, %s" % next(
        (line.split("NCCL INFO ")[-1] for line in loaded if "Using network" in line), "plugin ?"))
    sys.exit(bool(bad))


if sys.argv[1:2] == ["--rank"]:
    rank_main(int(sys.argv[2]))
else:
    main()
