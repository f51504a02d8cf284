#!/bin/busybox sh
# The first and only program of the guest: loads modules, says READY, and does what the one line
# that it is sent says. Everything that the host is to hear begins with "AZ ".
#
# /dev/vda is the file system under judgement, /dev/vdb has what is to be written (the new content,
# and behind it the old one), /dev/vdc takes what was found.
export PATH=/bin
/bin/busybox mkdir -p /proc /dev /m
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
dmesg -n 1
stty -echo -onlcr
while read -r module; do
    insmod "/modules/$module" || echo "AZ FAILED module $module"
done < /modules/order

now() {
    read -r uptime idle < /proc/uptime
    echo "$uptime"
}

fail() {
    echo "AZ FAILED $*"
    wait_for_the_end
}

wait_for_the_end() {
    while :; do sleep 1000; done
}

# write FS OPTIONS BLOCKS HOW EXPIRE WRITEBACK
write() {
    blocks=$3
    mount -t "$1" -o "$2" /dev/vda /m || fail "mount"
    echo "$5" > /proc/sys/vm/dirty_expire_centisecs
    echo "$6" > /proc/sys/vm/dirty_writeback_centisecs
    if [ "$4" = rename ]; then
        dd if=/dev/vdb of=/m/file bs=4096 skip="$blocks" count="$blocks" 2> /dev/null ||
            fail "the old file"
        sync
    fi
    began=$(now)
    case $4 in
        close) dd if=/dev/vdb of=/m/file bs=4096 count="$blocks" 2> /dev/null ;;
        fsync) dd if=/dev/vdb of=/m/file bs=4096 count="$blocks" conv=fsync 2> /dev/null ;;
        fdatasync)
            dd if=/dev/vdb of=/m/file bs=4096 count="$blocks" 2> /dev/null &&
                fsync -d /m/file
            ;;
        rename)
            dd if=/dev/vdb of=/m/file.new bs=4096 count="$blocks" 2> /dev/null &&
                mv /m/file.new /m/file
            ;;
    esac || fail "$4"
    echo "AZ DONE $began $(now)"
}

# check FS OPTIONS BLOCKS: at most so many blocks of 4096 bytes are handed out
check() {
    if ! said=$(mount -t "$1" -o "$2" /dev/vda /m 2>&1); then
        echo "AZ UNMOUNTABLE $said"
        return
    fi
    if [ -e /m/file ]; then
        if ! dd if=/m/file of=/dev/vdc bs=4096 count="$3" conv=fsync 2> /dev/null; then
            echo "AZ UNREADABLE $(stat -c %s /m/file)"
            return
        fi
        echo "AZ FOUND $(stat -c %s /m/file)"
    else
        echo "AZ MISSING"
    fi
}

echo "AZ READY $(now)"
read -r what arguments
# The arguments are words without blanks.
case $what in
    write) write $arguments ;;
    check) check $arguments ;;
    *) fail "what is $what" ;;
esac
wait_for_the_end
