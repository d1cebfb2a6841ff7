//! All chores of the project.

fn main() {}
