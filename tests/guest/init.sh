#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# /init of the guest's initramfs: load the few modules that the root needs, mount the host's / read-only under a
# writable tmpfs, and hand over to agent.py on that root. PID 1 stays a shell, so that orphans are reaped; when the
# agent ends, so does the guest.
# From the kernel's command line, which gives unknown words to init as variables: guest_python, guest_path,
# guest_libraries, guest_modules (a folder with lib/modules in it), guest_folder (the agent's working directory).

die() { echo "guest: $*" > /dev/console; poweroff -f; }

/bin/busybox mkdir -p /proc /sys /dev /lower /rw /new
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module" || die "insmod $module failed"; done < /modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,ro,cache=loose root /lower || die "the host's / can't be mounted"
mount -t tmpfs -o mode=755 tmpfs /rw
mkdir /rw/upper /rw/work
chmod 755 /rw/upper
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /new || die "no overlay"
mkdir -p /new/proc /new/sys /new/dev /new/run /new/lib/modules
mount -t tmpfs -o mode=755 tmpfs /new/run
mount --bind "/lower$guest_modules/lib/modules" /new/lib/modules || die "no $guest_modules"
for folder in proc sys dev; do mount --move "/$folder" "/new/$folder"; done
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
cp /agent.py /bin/busybox /new/run/
export PATH="$guest_path" LD_LIBRARY_PATH="$guest_libraries" HOME=/root LANG=C.UTF-8
hostname guest 2> /dev/null || echo guest > /new/proc/sys/kernel/hostname
# shellcheck disable=SC2016 # for the shell on the new root
exec /bin/busybox switch_root /new /bin/sh -c '
  ip link set lo up
  command -v modprobe > /proc/sys/kernel/modprobe # for what the kernel loads by itself
  cd "$guest_folder" && "$guest_python" -I /run/agent.py
  echo "guest: the agent ended with status $?" > /dev/console
  /run/busybox poweroff -f
'
