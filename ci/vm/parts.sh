# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What check_ib and check_hosts have in common; they source it. Outside, it looks whether a guest
# can be had, and starts itself there; inside it runs the parts that were asked for.
#
#   parts_main "PART..." SECONDS SECONDS_FULL "OPTION OF ci/vm/run..." ARGUMENT...

xccl=build/release/bin/xccl
full=0
port=7000

fail() {
    echo "${0##*/}: FAILED: $*"
    exit 1
}

# Until xccl perf has written the head of its table into FILE: its ranks are connected then. 1: it
# does not come within a minute.
wait_for_head() {
    local turn
    for ((turn = 0; turn < 120; turn++)); do
        ! grep -q '(GB/s)' "$1" || return 0
        sleep 0.5
    done
    return 1
}

# Packets that rail $1 has sent.
sent_by() {
    cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/sent_pkts"
}
# Until rail $1 has sent $2 packets in all. 1: not within 20 s.
wait_for_sent() {
    local turn
    for ((turn = 0; turn < 200; turn++)); do
        [[ $(sent_by "$1") -lt $2 ]] || return 0
        sleep 0.1
    done
    return 1
}

# Each part in a shell of its own, so what it sets or exports ends with it. port: the first of 100
# that are the part's own, the same in both guests.
parts_inside() {
    local part
    full=$1
    shift
    # Of the collectives; the suite names its plugin.
    export XCCL_NET_PLUGIN=ib XCCL_SHM_DISABLE=1
    for part in "$@"; do
        echo "== $part"
        port=$((port + 100))
        ("part_$part")
    done
    exit 0
}

parts_main() {
    local all=$1 seconds=$2 seconds_full=$3 guest=$4 part name=${0##*/}
    shift 4
    if [[ ${1:-} == --inside ]]; then
        shift
        parts_inside "$@"
    fi
    if [[ ${1:-} == --full ]]; then
        full=1 seconds=$seconds_full
        shift
    fi
    for part in "$@"; do
        if [[ " $all short " != *" $part "* ]]; then
            sed -n '3,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
            exit 2
        fi
    done
    # shellcheck disable=SC2086
    [[ $# -gt 0 ]] || set -- $all
    if [[ ! -x $xccl || ! -e build/release/lib/xccl/libxccl-net-ib.so ]]; then
        echo "$name: no build of the preset release with net-ib; libibverbs-dev is needed for it"
        exit 77
    fi
    if ! command -v qemu-system-x86_64 > /dev/null; then
        echo "$name: no qemu; do: ci/install_packages vm"
        exit 77
    fi
    export XCCL_PLUGIN_PATH=$PWD/build/release/lib/xccl
    # shellcheck disable=SC2086
    ci/vm/run $guest --seconds "${VM_SECONDS:-$seconds}" -- "ci/vm/$name" --inside "$full" "$@"
}
