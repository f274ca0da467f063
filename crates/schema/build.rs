//! Builds the catalogue of the built-in kinds of each release in the compiled form that the crate reads in place. Its
//! sources are the schemas of the `k8s-openapi` crate and the facts in `facts/`.
//!
//! Fails with a message if the two sources disagree about a field. So a newer `k8s-openapi` can't silently leave a
//! field without its facts.

// A build script writes instructions to cargo on standard output, and may stop with a panic.
#![allow(clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]

#[path = "build/compile.rs"]
mod compile;
#[path = "build/facts.rs"]
mod facts;
#[path = "build/kinds.rs"]
mod kinds;

#[path = "src/builder.rs"]
mod builder;
#[path = "src/layout.rs"]
mod layout;

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=facts");
    println!("cargo::rerun-if-changed=src/builder.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for release in ["1.36", "1.37"] {
        let facts = facts::Facts::read(Path::new("facts"), release);
        let compiled = compile::compile(&kinds::collect(release), &facts);
        write(&out.join(format!("{release}.tables")), &compiled.tables);
        write(&out.join(format!("{release}.names")), compiled.names.as_bytes());
        write(&out.join(format!("{release}.docs")), compiled.docs.as_bytes());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
