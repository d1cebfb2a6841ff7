//! perfquet-record
fn main() {}
