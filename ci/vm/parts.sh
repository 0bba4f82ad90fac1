# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What check_ib and check_hosts have in common; they source it. Outside, it looks whether a guest
# can be had, and starts itself there; inside it runs the parts that were asked for.
#
#   parts_main "PART..." SECONDS SECONDS_FULL "OPTION OF ci/vm/run..." ARGUMENT...

xccl=build/release/bin/xccl
full=0

fail() {
    echo "${0##*/}: FAILED: $*"
    exit 1
}

parts_inside() {
    local part
    full=$1
    shift
    # Of the collectives; the suite names its plugin.
    export XCCL_NET_PLUGIN=ib XCCL_SHM_DISABLE=1
    for part in "$@"; do
        echo "== $part"
        "part_$part"
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
        if [[ " $all " != *" $part "* ]]; then
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
