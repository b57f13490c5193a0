//! `mdb_stat` of LMDB, for environments of this library.

fn main() -> std::process::ExitCode {
    lmdb::tools::mdb_stat()
}
