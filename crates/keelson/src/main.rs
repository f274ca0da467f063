//! The keelson binary.
fn main() {}
