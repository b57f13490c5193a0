//! Compiles what makes plain functions of Berkeley DB's interface, if that is asked for.

fn main() {
    const SOURCE: &str = "src/engines/berkeley_db.c";
    println!("cargo:rerun-if-changed={SOURCE}");
    if std::env::var_os("CARGO_FEATURE_SYSTEM_PEERS").is_some() {
        cc::Build::new()
            .file(SOURCE)
            .compile("berkeley_db_functions");
        println!("cargo:rustc-link-lib=db-5.3");
    }
}
