# Sends the trace, and removes it once the other host has it. Variables: dir, name.
say() { printf '\nperfquet %s %s\n' "$1" "$2"; }

cd "$dir" 2>/dev/null && [ -e "$name" ] || { say nothing; exit 0; }
[ -s status ] || { say unfinished; exit 0; }
say trace "$(cat status)"
find "$name" -type f | while IFS= read -r file; do
    printf 'file %s %s\n' "$(($(wc -c <"$file")))" "$file"
    cat "$file"
done
printf 'end\n'
read -r answer && [ "$answer" = received ] && cd / && rm -rf "$dir"
