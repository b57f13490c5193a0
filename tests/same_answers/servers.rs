//! Debian's slapd and sapwood, with the same suffix, administrator and schema.

use sapwood_testkit::Slapd;
use sapwood_testkit::folder::{Folder, Running};

const ODD_SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/same_answers/odd.schema"
);

pub(crate) fn slapd() -> Slapd {
    Slapd::start(&format!(
        "include {ODD_SCHEMA}\nsizelimit unlimited\nattributeoptions lang- x-test"
    ))
}

pub(crate) fn sapwood() -> (Folder, Running) {
    let folder = Folder::init(&["--schema", ODD_SCHEMA]);
    folder.configure(&[("attribute_options = []", "attribute_options = [\"x-test\"]")]);
    let server = folder.serve();
    (folder, server)
}
