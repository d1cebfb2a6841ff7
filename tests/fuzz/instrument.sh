#!/bin/sh
# The compiler for `cargo xtask fuzz` (RUSTC_WORKSPACE_WRAPPER): the libraries under test count their edges.
case " $* " in
*" --crate-name perfquet_events "* | *" --crate-name perfquet_readers "* | \
    *" --crate-name perfquet_trace "* | *" --crate-name perfquet_import "*)
    exec "$@" -C passes=sancov-module \
        -C llvm-args=-sanitizer-coverage-level=3 \
        -C llvm-args=-sanitizer-coverage-inline-8bit-counters
    ;;
*) exec "$@" ;;
esac
