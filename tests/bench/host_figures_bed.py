# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on a switch for host_figures: network namespaces, each with one card or two, veth pairs
whose other ends are ports of a bridge. Both ends of a pair have a token bucket, so a card has its
rate in either direction.

All of it lives in namespaces of the program that calls enter(): what ends the program, SIGKILL
included, removes them. Needs root, or user namespaces, and Debian's iproute2."""
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

BURST, LATENCY = "128kb", "50ms"
PAYLOAD, FRAME = 1448, 1514  # bytes of a full TCP segment: data, and all of it on the wire
NEAR = 0.05  # a plain stream has to come so near to the rate
WARM_S, COUNT_S = 0.4, 0.8
PAUSES_S = [0.5, 1, 2, 4, 8, 8, 0]  # after looks that were not good
INSIDE = "HOST_FIGURES_INSIDE"
PR_SET_PDEATHSIG = 1

# A plain TCP stream. Arguments: "to" or "at", address, port, seconds to warm up, seconds to count.
STREAM = """
import socket, sys, time
way, address, port, warm, count = sys.argv[1:]
s = socket.socket()
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
if way == "to":
    for _ in range(200):
        try:
            s.connect((address, int(port)))
            break
        except OSError:
            time.sleep(0.02)
    try:
        while True:
            s.sendall(bytes(1 << 18))
    except OSError:
        sys.exit(0)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((address, int(port)))
s.listen(1)
s.settimeout(20)
fd, room = s.accept()[0], bytearray(1 << 18)
begin = time.monotonic()
while time.monotonic() < begin + float(warm):
    fd.recv_into(room)
begin, got = time.monotonic(), 0
while time.monotonic() < begin + float(count):
    got += fd.recv_into(room)
print(got / (time.monotonic() - begin))
"""


class BedError(Exception):
    pass


def run(*argv, text=None):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BedError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def enter():
    """Starts the program once more, in network and mount namespaces of its own."""
    if os.environ.get(INSIDE) == str(os.getpid()):
        del os.environ[INSIDE]
        # What ranks and `ip netns` leave there ends with these mounts.
        for folder in ("/run", "/dev/shm"):
            run("mount", "-t", "tmpfs", "none", folder)
        os.mkdir("/run/netns")
        run("ip", "link", "set", "lo", "up")
        return
    for program in ("ip", "tc", "unshare", "setpriv"):
        if not shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            raise BedError(f"there is no {program} (Debian: iproute2, util-linux)")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    os.environ[INSIDE] = str(os.getpid())
    how = ["--net", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        how = ["--user", "--map-root-user"] + how
    os.execvp("unshare", ["unshare"] + how + [sys.executable, os.path.abspath(sys.argv[0])] +
              sys.argv[1:])


def die_with_parent():
    """For preexec_fn: the process gets SIGKILL when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Bed:
    """Hosts h0, h1, ... with cards card0, card1; the switch is this program's own namespace."""

    def __init__(self, hosts, mbit, rails=1, slow=None):
        self.hosts, self.rails = hosts, rails
        self.mbits = [mbit / 2 if host == slow else mbit for host in range(hosts)]
        self.cards = [(host, rail) for host in range(hosts) for rail in range(rails)]
        self.streams = []

    def address(self, host, rail=0):
        return f"10.{79 + rail}.0.{1 + host}"

    def subnets(self):
        return [f"10.{79 + rail}.0.0/24" for rail in range(self.rails)]

    def command(self, host, argv):
        """On a host, under a name of its own, which some libraries ask for."""
        return ["ip", "netns", "exec", f"h{host}", "unshare", "--uts", "sh", "-c",
                'hostname "$0"; exec "$@"', f"h{host}"] + argv

    def rate(self, host):
        """Payload bytes per second, of all its cards."""
        return self.rails * self.mbits[host] * 1e6 / 8 * PAYLOAD / FRAME

    def __enter__(self):
        lines = []
        for rail in range(self.rails):
            lines += [f"link add name sw{rail} type bridge", f"link set dev sw{rail} up",
                      f"addr add 10.{79 + rail}.0.254/24 dev sw{rail}"]
        try:
            for host in range(self.hosts):
                run("ip", "netns", "add", f"h{host}")
                run("ip", "-n", f"h{host}", "link", "set", "lo", "up")
            for host, rail in self.cards:
                lines += [f"link add p{host}c{rail} type veth peer name card{rail} netns h{host}",
                          f"link set dev p{host}c{rail} master sw{rail} up"]
            run("ip", "-batch", "-", text="\n".join(lines) + "\n")
            for host, rail in self.cards:
                self.card_up(host, rail)
        except BedError:
            self.__exit__()
            raise
        return self

    def card_up(self, host, rail):
        run("ip", "-n", f"h{host}", "addr", "add", self.address(host, rail) + "/24", "dev",
            f"card{rail}")
        run("ip", "-n", f"h{host}", "link", "set", "dev", f"card{rail}", "up")
        bucket = ["root", "tbf", "rate", f"{self.mbits[host]:g}mbit", "burst", BURST, "latency",
                  LATENCY]
        run("tc", "-n", f"h{host}", "qdisc", "add", "dev", f"card{rail}", *bucket)
        run("tc", "qdisc", "add", "dev", f"p{host}c{rail}", *bucket)

    def __exit__(self, *_):
        for process in self.streams:
            process.kill()
            process.wait()
        # Ports by name: those of a namespace that goes do so a little later.
        for name in [f"p{host}c{rail}" for host, rail in self.cards] + [
                f"sw{rail}" for rail in range(self.rails)]:
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
        for host in range(self.hosts):
            subprocess.run(["ip", "netns", "del", f"h{host}"], capture_output=True, check=False)

    def counters(self):
        """(bytes sent, bytes received) of each card so far, as the switch's ports counted them."""
        found = {}
        with open("/proc/self/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, words = line.partition(":")
                if name.strip().startswith("p"):
                    host, rail = name.strip()[1:].split("c")
                    found[int(host), int(rail)] = int(words.split()[0]), int(words.split()[8])
        return [found[card] for card in self.cards]

    def stream(self, host, way, address, port):
        argv = [sys.executable, "-c", STREAM, way, address, str(port), str(WARM_S), str(COUNT_S)]
        self.streams.append(subprocess.Popen(self.command(host, argv), text=True,
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                             preexec_fn=die_with_parent))
        return self.streams[-1]

    def look(self, port):
        """All cards at once send a plain stream to the next host: the share of its rate that the
        worst one had, and the best one."""
        ends = []
        for host, rail in self.cards:
            to = (host + 1) % self.hosts
            ends.append((host, to, self.stream(to, "at", self.address(to, rail), port)))
            self.stream(host, "to", self.address(to, rail), port)
        shares = []
        for host, to, process in ends:
            words = process.communicate(timeout=30)[0].split()
            rate = min(self.rate(host), self.rate(to)) / self.rails
            shares.append(float(words[0]) / rate if words else 0.0)
        for process in self.streams:
            process.kill()
            process.wait()
        self.streams = []
        return min(shares), max(shares)

    def is_good(self, shares):
        return abs(shares[0] - 1) <= NEAR and abs(shares[1] - 1) <= NEAR

    def check(self):
        """The shares of the first look that was good, or of the last; what else the machine does
        may spoil one."""
        for turn, pause_s in enumerate(PAUSES_S):
            shares = self.look(5301 + turn)
            if self.is_good(shares):
                break
            time.sleep(pause_s)
        return shares
