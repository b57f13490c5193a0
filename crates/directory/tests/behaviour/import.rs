//! Import: into an empty directory, into one with entries, and what is rejected.

use std::io::Cursor;
use std::sync::Mutex;

use sapwood_directory::engine::{Embedded, Engine, Model};
use sapwood_directory::{
    Directory, IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportObserver, ImportOptions, ImportPhase,
    ImportProgress, ImportRejection, ImportReport, ImportSource, PasswordHasher,
};

use crate::support::*;

#[derive(Default)]
struct Rejections {
    rejections: Mutex<Vec<(String, u64, String, String)>>,
    /// How far the last step was, and where it ends, as was told last.
    last_step: Mutex<(u64, u64)>,
}

impl ImportObserver for Rejections {
    fn progress(&self, progress: ImportProgress) {
        let (written, records) = (progress.index_records_written, progress.index_records);
        assert!(written <= records && (progress.phase == ImportPhase::Index || written == 0));
        let mut last = self.last_step.lock().unwrap();
        assert!(written >= last.0);
        *last = (written, records);
    }

    fn rejected(&self, rejection: ImportRejection<'_>) {
        self.rejections.lock().unwrap().push((
            rejection.source.to_owned(),
            rejection.line,
            rejection.reason.to_owned(),
            String::from_utf8(rejection.text.to_vec()).unwrap(),
        ));
    }
}

struct Marking;

impl PasswordHasher for Marking {
    fn hash(&self, cleartext: &[u8]) -> Result<Vec<u8>, String> {
        Ok([b"{MARK}", cleartext].concat())
    }

    fn is_hashed(&self, value: &[u8]) -> bool {
        value.starts_with(b"{")
    }
}

fn import<E: Engine>(
    directory: &Directory<E>,
    files: &[(&str, &str)],
) -> (ImportReport, Vec<(String, u64, String, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let sources = files
        .iter()
        .map(|(name, text)| ImportSource {
            name: (*name).into(),
            reader: Box::new(Cursor::new(text.to_string())),
            format: ImportFormat::Ldif,
        })
        .collect();
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: folder.path().into(),
        threads: 2,
        hasher: Some(&Marking),
        creator: "cn=admin,dc=example,dc=com".into(),
        skip_present: false,
    };
    let rejections = Rejections::default();
    let report = directory.import(sources, &options, &rejections).unwrap();
    let (written, records) = rejections.last_step.into_inner().unwrap();
    assert_eq!(written, records, "the last step ends where it was said to");
    assert_eq!(report.built && report.added > 0, records > 0);
    let mut rejected = rejections.rejections.into_inner().unwrap();
    rejected.sort();
    (report, rejected)
}

/// Children before parents, on purpose.
const TREE: &str = "\
dn: uid=anne,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
uid: anne
cn: Anne
sn: Ä
userPassword: secret
description;lang-de: Hallo
entryUUID: 00000000-0000-0000-0000-0000000000aa
memberOf: cn=nothing

dn: uid=berta,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
uid: berta
cn: Berta
sn: B
userPassword: {SSHA}x

dn: ou=People,dc=example,dc=com
objectClass: organizationalUnit
ou: People
structuralObjectClass: nonsense

dn: dc=example,dc=com
objectClass: domain
dc: example
";

fn check_tree<E: Engine>(directory: &Directory<E>) {
    let berta = "uid=berta,ou=People,dc=example,dc=com";
    assert!(holds(directory, berta, "cn", "berta"));
    assert!(holds(directory, berta, "objectClass", "person"));
    assert!(holds(
        directory,
        "ou=People,dc=example,dc=com",
        "structuralObjectClass",
        "organizationalUnit"
    ));
    assert!(holds(
        directory,
        berta,
        "creatorsName",
        "cn=admin,dc=example,dc=com"
    ));
    assert_eq!(
        directory
            .snapshot()
            .unwrap()
            .credentials(berta)
            .unwrap()
            .unwrap()
            .stored,
        [b"{SSHA}x".to_vec()]
    );
    assert!(holds(
        directory,
        "ou=people,dc=example,dc=com",
        "hasSubordinates",
        "TRUE"
    ));
}

fn tree_is_imported<E: Engine>(directory: &Directory<E>) {
    let tree = TREE.replace("memberOf: cn=nothing\n", "");
    let (report, rejected) = import(directory, &[("tree.ldif", &tree)]);
    assert_eq!(rejected, []);
    assert_eq!(
        report,
        ImportReport {
            added: 4,
            rejected: 0,
            present: 0,
            built: true
        }
    );
    check_tree(directory);
    let anne = "uid=anne,ou=People,dc=example,dc=com";
    assert!(holds(
        directory,
        anne,
        "entryUUID",
        "00000000-0000-0000-0000-0000000000AA"
    ));
    assert!(holds(directory, anne, "description", "hallo"));
    assert_eq!(
        directory
            .snapshot()
            .unwrap()
            .credentials(anne)
            .unwrap()
            .unwrap()
            .stored,
        [b"{MARK}secret".to_vec()]
    );
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
    // A later update finds everything as it expects it.
    succeed(directory, person("carla"));
    succeed(directory, delete(anne));
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn an_empty_directory_is_built() {
    tree_is_imported(&in_memory());
    tree_is_imported(&Directory::create_on(Model::default(), &config(), options()).unwrap());
}

#[test]
fn a_directory_with_entries_is_added_to() {
    let directory = in_memory();
    succeed(
        &directory,
        add("dc=example,dc=com", "objectClass: domain\ndc: example"),
    );
    let (report, rejected) = import(
        &directory,
        &[("tree.ldif", &TREE.replace("memberOf: cn=nothing\n", ""))],
    );
    assert_eq!(
        report,
        ImportReport {
            added: 3,
            rejected: 1,
            present: 0,
            built: false
        }
    );
    let (source, line, reason, text) = &rejected[0];
    assert_eq!((source.as_str(), *line), ("tree.ldif", 22));
    assert!(reason.contains("already"), "{reason}");
    assert!(
        text.starts_with("dn: dc=example,dc=com\nobjectClass: domain\n"),
        "{text}"
    );
    check_tree(&directory);
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn bad_entries_are_rejected_by_file_line_and_reason() {
    let directory = in_memory();
    let more = "\
# a comment
dn: cn=lost,ou=Nowhere,dc=example,dc=com
objectClass: device
cn: lost

dn: ou=people,DC=example,dc=com
objectClass: organizationalUnit
ou: people

dn: cn=x,dc=example,dc=com
changetype: delete

dn: serialNumber=x,dc=example,dc=com
objectClass: device

no dn here

dn: cn=x,dc=elsewhere
objectClass: device
cn: x
";
    let (report, rejected) = import(&directory, &[("one", TREE), ("two", more)]);
    assert_eq!(
        report,
        ImportReport {
            added: 3,
            rejected: 7,
            present: 0,
            built: true
        }
    );
    let at: Vec<_> = rejected
        .iter()
        .map(|(source, line, reason, _)| (source.as_str(), *line, reason.as_str()))
        .collect();
    assert_eq!(at[0].1, 1);
    assert!(at[0].2.contains("memberOf"), "{at:?}");
    assert_eq!(
        at[1..].iter().map(|place| place.1).collect::<Vec<_>>(),
        [2, 6, 10, 13, 16, 18]
    );
    assert!(at[1].2.contains("no entry above"), "{at:?}");
    assert!(at[2].2.contains("already"), "{at:?}");
    assert!(at[4].2.contains("class device requires"), "{at:?}");
    assert!(at[6].2.contains("naming contexts"), "{at:?}");
    assert!(rejected[0].3.starts_with("dn: uid=anne"));
    check_tree(&directory);
}

#[test]
fn more_than_fits_the_memory_is_sorted_outside() {
    let mut text = String::from("dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n");
    let mut state = 1u32;
    let count = 12_000;
    for _ in 0..count {
        // A full-period generator: every uid once, in no particular order.
        state = (state.wrapping_mul(12_289) + 1_237) % (1 << 20);
        text.push_str(&format!(
            "dn: uid=u{state},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: u{state}\ncn: Person {state}\nsn: {state}\ndescription: {}\n\n",
            "x".repeat(200)
        ));
    }
    let directory = in_memory();
    let (report, rejected) = import(&directory, &[("many", &text)]);
    let distinct = report.added;
    assert_eq!(report.rejected as usize, rejected.len());
    assert_eq!(report.added + report.rejected, count + 1);
    assert!(
        rejected
            .iter()
            .all(|rejection| rejection.2.contains("already"))
    );
    assert!(holds(
        &directory,
        "dc=example,dc=com",
        "numSubordinates",
        &(distinct - 1).to_string()
    ));
    assert_eq!(
        directory.check(|_| {}).unwrap().problems,
        Vec::<String>::new()
    );
    let _: &Embedded = directory.engine();
}
