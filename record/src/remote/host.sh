# Describes this host, then keeps the connection open until the other end closes it. Variables: hash.
say() { printf '\nperfquet %s %s\n' "$1" "$2"; }

say system "$(uname -s)"
say machine "$(uname -m)"
# Traces may be large, and /tmp is often memory.
for folder in "$TMPDIR" /var/tmp /tmp; do
    case $folder in
    /*) [ -d "$folder" ] && [ -w "$folder" ] && say folder "$folder" && break ;;
    esac
done
installed=$(command -v perfquet-record) && {
    say installed "$installed"
    say version "$("$installed" --version 2>&1)"
    set -- $(sha256sum <"$installed")
    say hash "$1"
}
copy=${XDG_CACHE_HOME:-$HOME/.cache}/perfquet/perfquet-record-$hash
# A copy that is in use is not old.
[ -x "$copy" ] && touch "$copy" && say copy "$copy"
say end
read -r _
