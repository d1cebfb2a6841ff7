#!/bin/bash
# One moment, recorded by three recorders: the system, a command, a process. Threads that start, end, share two CPUs, and wait for each
# other, for a disk, and for a thread outside of the command.
. ./common.sh
cd /tmp
EVENTS=sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new
record() { # NAME ARGUMENT...
  local name=$1; shift
  perfquet-record -q -e $EVENTS --format perf.data -o "$W/out/$name.data" "$@" || echo "FAILED: $name"
}
spin() { local k=0; while [ $k -lt $1 ]; do k=$((k+1)); done; }
export -f spin
until_there() { while [ ! -e $1 ]; do sleep 0.01; done; }
mkfifo /tmp/request /tmp/answer
# The thread outside, which the command wakes, and which wakes it.
(while read line; do spin 200; echo $line > /tmp/answer; done < /tmp/request) & OUTSIDE=$!
cat > work <<'W'
echo $$ > /tmp/pid
while [ ! -e /tmp/go ]; do sleep 0.01; done
exec 3> /tmp/request
for i in 1 2 3 4; do ls -l /usr/bin > /dev/null; echo $i >&3; read line < /tmp/answer; done
dd if=/dev/zero of=/tmp/f bs=64k count=20 conv=fsync 2> /dev/null
for i in 1 2 3; do (for j in 1 2 3; do spin 2000; sleep 0.004; done) & done; wait
cat /tmp/f | cat | wc -c > /dev/null
W
record system -a & SYSTEM=$!
sleep 1
record command -- bash work & COMMAND=$!
until_there /tmp/pid
record process -p $(cat /tmp/pid) & PROCESS=$!
sleep 2
touch /tmp/go
wait $COMMAND; wait $PROCESS
kill -INT $(pidof perfquet-record); wait $SYSTEM
wait $OUTSIDE
about system.data.zst "every thread" "perfquet-record -a"
about command.data.zst "the command, at the same time" "perfquet-record -- bash work"
about process.data.zst "its process, from the moment at which that had attached" "perfquet-record -p PID"
