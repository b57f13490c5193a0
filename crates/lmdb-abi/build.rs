//! Gives the library the name under which programs look for LMDB's.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblmdb.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
