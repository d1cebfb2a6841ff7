#!/bin/sh
# The compiler for `cargo xtask fuzz` (RUSTC_WORKSPACE_WRAPPER): the library under test counts its edges.
case " $* " in
*" --crate-name perfquet_formats "*)
    exec "$@" -C passes=sancov-module \
        -C llvm-args=-sanitizer-coverage-level=3 \
        -C llvm-args=-sanitizer-coverage-inline-8bit-counters
    ;;
*) exec "$@" ;;
esac
