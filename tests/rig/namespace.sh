#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# namespace.sh CMD...: run CMD (as root) where a real kubelet may do what it likes.
#
# New mount, net, pid, ipc and uts namespaces; all that CMD starts ends with CMD. Inside, /dev, /run, /var/log and
# /var/lib/{kubelet,cni} are new and private, so a test may make /dev/infiniband; only `lo` is there; the sysctls that a
# kubelet sets are plain files and the rest of /proc/sys is read-only. Cgroups are the machine's own (a cgroup v1
# hierarchy can't be made private): the empty `kubepods` trees that a kubelet leaves are removed, nothing else.
# One at a time on a machine: a second waits for the first.
# The exit status is CMD's; 2 if CMD could not be run this way.
set -euo pipefail
shopt -s nullglob

FOLDERS=(/var/lib/kubelet /var/lib/cni) # written by a kubelet and by containerd whatever their configuration says

die() { echo "namespace.sh: $*" >&2; exit 2; }

# Remove empty kubepods trees (rmdir refuses those with processes); fail if one is still there.
clean_cgroups() {
  local tree left=0
  for tree in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods; do
    [ -d "$tree" ] || continue
    find "$tree" -depth -type d -exec rmdir {} + 2> /dev/null || true
    [ ! -d "$tree" ] || left=1
  done
  return $left
}

if [ "${1:-}" != --inside ]; then
  [ $# -gt 0 ] || die "usage: namespace.sh CMD..."
  [ "$(id -u)" = 0 ] || die "needs root (mounts, namespaces, cgroups)"
  for tool in unshare setpriv flock ip; do
    command -v "$tool" > /dev/null || die "needs the program '$tool' (Debian: util-linux, iproute2)"
  done
  exec 9< /sys/fs/cgroup # the lock lies on what rigs share, and leaves no file
  flock -w 900 9 || die "another rig has been running for 15 minutes"
  clean_cgroups || die "/sys/fs/cgroup has a kubepods tree in use: another kubelet runs on this machine"
  made=()
  for folder in "${FOLDERS[@]}"; do
    [ -d "$folder" ] || { mkdir "$folder"; made+=("$folder"); }
  done
  trap 'clean_cgroups || true; [ ${#made[@]} = 0 ] || rmdir "${made[@]}"' EXIT
  rc=0
  # setpriv: if this shell is killed, unshare dies too, and with it (--kill-child) all that is inside.
  setpriv --pdeathsig KILL unshare --mount --net --ipc --uts --pid --fork --kill-child --propagation private --mount-proc \
    "$0" --inside "$(readlink /proc/self/ns/mnt)" "$@" 9>&- || rc=$?
  exit $rc
fi

outer=${2:-} own=$(readlink /proc/self/ns/mnt)
shift 2
[[ $outer == mnt:\[*\] && $own == mnt:\[*\] && $own != "$outer" && $$ = 1 ]] || die "refusing: not in a namespace of its own"
! grep -qE ' (shared|master):' /proc/self/mountinfo || die "refusing: mounts made here would reach the machine"

# The mount source is the mark by which kubelet.py knows that it is inside.
own_tmpfs() { mount -t tmpfs -o "$2" rdma-plugin-rig "$1"; }

hostname rig
ip link set lo up
for folder in /run /var/log "${FOLDERS[@]}"; do own_tmpfs "$folder" mode=755; done
mkdir -p /run/lock /run/sysctl /run/dev

own_tmpfs /run/dev mode=755,nosuid
cp -a /dev/{null,zero,full,random,urandom,tty,kmsg} /run/dev/ # kmsg: the kubelet doesn't start without it
mkdir /run/dev/{pts,shm}
ln -s pts/ptmx /run/dev/ptmx
ln -s /proc/self/fd /run/dev/fd
for n in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${n%:*}" "/run/dev/${n#*:}"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /run/dev/pts
own_tmpfs /run/dev/shm mode=1777,nosuid,nodev
mount --move /run/dev /dev

# A kubelet compares these with its own values at start and writes what differs: let it find what it wants.
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
while read -r name value; do
  echo "$value" > "/run/sysctl/${name//\//_}"
  mount --bind "/run/sysctl/${name//\//_}" "/proc/sys/$name"
done << 'VALUES'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
VALUES

set +e # not exec: as PID 1 this shell also reaps what the pods leave
"$@"
exit $?
