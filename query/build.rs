//! Has the linker fold functions of equal machine code, if it can: 4% of a program that consists of DataFusion for the most
//! part. Nothing here compares functions by address, which is all that folding could change.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

const FOLD: &str = "-Wl,--icf=all";

/// Whether the linker that this build will call knows the option: LLD and mold do, GNU ld does not.
fn folds() -> Option<bool> {
    let folder = env::var_os("OUT_DIR")?;
    let source = Path::new(&folder).join("folded.rs");
    std::fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        rustc.arg("-C").arg(option);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").ok()?;
    let status = rustc
        .arg(source)
        .args(["--target", &env::var("TARGET").ok()?])
        .args(["-C", &format!("link-arg={FOLD}")])
        .args(flags.split('\x1f').filter(|flag| !flag.is_empty()))
        .arg("-o")
        .arg(Path::new(&folder).join("folded"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    Some(status.ok()?.success())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    if folds() == Some(true) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
    }
}
