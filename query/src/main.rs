//! perfquet-query
fn main() {}
