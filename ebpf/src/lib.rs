//! BPF programs and their loading: for what perf events cannot do. Empty until the first program exists.
