//! perfquet-convert
fn main() {}
