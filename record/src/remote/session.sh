# Records into a private directory. Variables: dir, name, program. Arguments: those of the recorder.
# Each line on stdin is a Ctrl-C; the end of stdin means that the other host is gone.
(umask 077 && mkdir "$dir") || exit 1
exec 3<&0 </dev/null
{
    started() { until [ -s "$dir/pid" ]; do sleep 1; done; }
    while read -r _; do
        started
        kill -s INT "$(cat "$dir/pid")"
    done
    started
    kill -s TERM "$(cat "$dir/pid")"
} <&3 >/dev/null 2>&1 &
watcher=$!
# In the foreground, because a shell lets background commands ignore SIGINT, and the recorded command would inherit that.
sh -c 'echo $$ >"$0/pid" && exec "$@"' "$dir" "$program" --ssh-output "$dir/$name" "$@" 3<&-
status=$?
exec 2>/dev/null
kill "$watcher"
rm -f "$dir/pid"
if [ -e "$dir/$name" ]; then echo "$status" >"$dir/status"; else rm -rf "$dir"; fi
exit "$status"
