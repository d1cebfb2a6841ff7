//! Scenarios on real kernels in QEMU: `vm/*.md`. `cargo xtask vm --help` runs them by hand; see [`perfquet_tests::vm`].
//!
//! Prints the table of facilities, scenario by kernel. Scenarios that cannot run here are reported as skipped, with the
//! command that provides the missing parts.

use perfquet_tests::{bin, skip, vm};

#[test]
fn scenarios_run_on_real_kernels() {
    let scenarios = vm::scenarios(&[]).unwrap();
    assert!(!scenarios.is_empty());
    if let Some(missing) = vm::missing() {
        return skip(&format!("needs machines: {missing}").replace('\n', " "));
    }
    let recorder = bin("perfquet-record");
    let report =
        vm::run_on(&scenarios, &vm::KERNELS, &recorder).unwrap_or_else(|error| panic!("{error:#}"));
    for reason in report.skipped() {
        skip(&reason);
    }
    for line in report.table() {
        println!("table: {line}");
    }
    let failures = report.failures();
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}
