//! Exports the functions that replace the clock and the randomness of the C library, so that code that looks them up at
//! run time finds them too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in ["clock_gettime", "getrandom"] {
        println!("cargo::rustc-link-arg=-Wl,--export-dynamic-symbol={symbol}");
    }
}
