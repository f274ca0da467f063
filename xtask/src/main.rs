//! helpers
fn main() {}
