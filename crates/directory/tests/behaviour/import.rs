//! Import: into an empty directory, into one with entries, and what is rejected.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::made::{Directory, engine, in_memory};
use proptest::prelude::*;
use sapwood_directory::engine::{Engine, Model};
use sapwood_directory::{
    Budget, Config, IMPORT_MEMORY_BYTES_MIN, ImportFormat, ImportObserver, ImportOptions,
    ImportPhase, ImportProgress, ImportRejection, ImportReport, ImportSource, PasswordHasher,
    Reshape, Search, SearchOptions, Settings, Step, UniqueRule, Wire,
};
use sapwood_ldap::controls::Controls;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::list::OctetStringsBuf;
use sapwood_ldap::message::{Frame, Scope, SearchRequest, frame};
use sapwood_ldap::result::ResultCode;
use sapwood_testkit::directories::*;

#[derive(Default)]
struct Rejections {
    rejections: Mutex<Vec<(String, u64, String, String)>>,
    /// How far the last step was, and where it ends, as was told last.
    last_step: Mutex<(u64, u64)>,
    /// Whether entries were written that had been sorted.
    had_sorted: AtomicBool,
}

impl ImportObserver for Rejections {
    fn progress(&self, progress: ImportProgress) {
        let (written, records) = (progress.index_records_written, progress.index_records);
        self.had_sorted
            .fetch_or(progress.phase == ImportPhase::Write, Relaxed);
        if progress.phase != ImportPhase::Index {
            return assert_eq!((written, records), (0, 0));
        }
        assert!(written <= records);
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

    fn check(&self, values: &[&[u8]]) -> Result<(), String> {
        match values.len() {
            0..=2 => Ok(()),
            _ => Err("too many passwords".into()),
        }
    }
}

pub(crate) fn import<E: Engine>(
    directory: &Directory<E>,
    files: &[(&str, &str)],
) -> (ImportReport, Vec<(String, u64, String, String)>) {
    let (report, rejected, _) = import_telling(directory, files, true);
    (report, rejected)
}

/// Also tells whether the entries were sorted; not if they are in order and the source can be read again.
#[allow(clippy::type_complexity)] // In a test, and said once.
fn import_telling<E: Engine>(
    directory: &Directory<E>,
    files: &[(&str, &str)],
    again: bool,
) -> (ImportReport, Vec<(String, u64, String, String)>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let sources = files
        .iter()
        .map(|(name, text)| ImportSource {
            name: (*name).into(),
            reader: Box::new(Cursor::new(text.to_string())),
            format: ImportFormat::Ldif,
            again: again.then(|| Box::new(Cursor::new(text.to_string())) as _),
        })
        .collect();
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: folder.path().into(),
        threads: 2,
        hasher: Some(&Marking),
        creator: "cn=admin,dc=example,dc=com".into(),
        reshape: &Reshape::default(),
        skip_present: false,
    };
    let rejections = Rejections::default();
    let report = directory.import(sources, &options, &rejections).unwrap();
    let (written, records) = rejections.last_step.into_inner().unwrap();
    assert_eq!(written, records, "the last step ends where it was said to");
    assert_eq!(report.built && report.added > 0, records > 0);
    let mut rejected = rejections.rejections.into_inner().unwrap();
    rejected.sort();
    (report, rejected, rejections.had_sorted.into_inner())
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
groupMember: cn=nothing

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
            .through(|snapshot| snapshot.credentials(berta, usize::MAX))
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
    let tree = TREE.replace("groupMember: cn=nothing\n", "");
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
            .through(|snapshot| snapshot.credentials(anne, usize::MAX))
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
        &[("tree.ldif", &TREE.replace("groupMember: cn=nothing\n", ""))],
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

/// Into an empty directory and into one with entries, however many others there are.
#[test]
fn options_that_are_not_recognised_are_rejected_by_line_and_reason() {
    let text = "\
dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people
ou;lang-de: Leute
ou;x-any: x

dn: ou=one,dc=example,dc=com
objectClass: organizationalUnit
ou: one
ou;y-any: x

dn: ou=two,dc=example,dc=com
objectClass: organizationalUnit
ou: two
description;binary: x
";
    let context = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";
    for is_built in [true, false] {
        let directory = in_memory();
        let more = if is_built { context } else { "" };
        if !is_built {
            succeed(
                &directory,
                add("dc=example,dc=com", "objectClass: domain\ndc: example"),
            );
        }
        let (report, rejected) = import(&directory, &[("x.ldif", &format!("{more}{text}"))]);
        assert_eq!((report.built, report.rejected), (is_built, 2));
        let first = if is_built { 11 } else { 7 };
        for ((_, line, reason, _), (at, what)) in rejected
            .iter()
            .zip([(first, "ou;y-any"), (first + 5, "description;binary")])
        {
            assert_eq!(*line, at);
            assert!(reason.contains(what), "{reason}");
        }
        assert!(holds(
            &directory,
            "ou=people,dc=example,dc=com",
            "ou;x-any",
            "x"
        ));
    }
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
    assert!(at[0].2.contains("groupMember"), "{at:?}");
    assert_eq!(
        at[1..].iter().map(|place| place.1).collect::<Vec<_>>(),
        [2, 6, 10, 13, 16, 18]
    );
    assert!(
        at[1]
            .2
            .contains("there is no entry 'ou=Nowhere,dc=example,dc=com'"),
        "{at:?}"
    );
    assert!(at[2].2.contains("already"), "{at:?}");
    assert!(at[4].2.contains("class device requires"), "{at:?}");
    assert!(
        at[6]
            .2
            .ends_with("which holds dc=example,dc=com and o=other"),
        "{at:?}"
    );
    assert!(rejected[0].3.starts_with("dn: uid=anne"));
    check_tree(&directory);
}

/// An import into an empty directory let them in, where no update does.
#[test]
fn nothing_is_imported_below_aliases_and_subentries() {
    let entry = |dn: &str, lines: &str| format!("dn: {dn}\n{lines}\n\n");
    let ou = |dn: &str| {
        let name = &dn[3..dn.find(',').unwrap()];
        entry(dn, &format!("objectClass: organizationalUnit\nou: {name}"))
    };
    let entries = [
        entry("dc=example,dc=com", "objectClass: domain\ndc: example"),
        ou("ou=real,dc=example,dc=com"),
        entry(
            "cn=alias,dc=example,dc=com",
            "objectClass: alias\nobjectClass: extensibleObject\ncn: alias\n\
             aliasedObjectName: ou=real,dc=example,dc=com",
        ),
        ou("ou=a,cn=alias,dc=example,dc=com"),
        ou("ou=b,ou=a,cn=alias,dc=example,dc=com"),
        entry(
            "cn=sub,dc=example,dc=com",
            "objectClass: subentry\ncn: sub\nsubtreeSpecification: {}",
        ),
        ou("ou=c,cn=sub,dc=example,dc=com"),
    ];
    for backwards in [false, true] {
        let directory = in_memory();
        let mut text = entries.clone();
        if backwards {
            text.reverse();
        }
        let (report, mut rejected) = import(&directory, &[("one", &text.concat())]);
        assert!(report.built);
        assert_eq!((report.added, report.rejected), (4, 3), "{rejected:?}");
        rejected.sort_by(|one, other| one.3.cmp(&other.3));
        let reasons: Vec<&str> = rejected
            .iter()
            .map(|rejected| rejected.2.as_str())
            .collect();
        let [alias, below, subentry] = reasons[..] else {
            panic!("{reasons:?}");
        };
        assert!(
            alias.contains("'cn=alias,dc=example,dc=com' is an alias"),
            "{alias}"
        );
        assert!(
            below.contains("no entry 'ou=a,cn=alias,dc=example,dc=com'"),
            "{below}"
        );
        assert!(
            subentry.contains("'cn=sub,dc=example,dc=com' is a subentry"),
            "{subentry}"
        );
        assert_eq!(
            directory.check(|_| {}).unwrap().problems,
            Vec::<String>::new()
        );
    }
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
            "dn: uid=u{state},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: u{state}\n\
             cn: Person {state}\nsn: {state}\ndescription: {}\n\n",
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
}

/// Several blocks of entries in the order of the tree.
fn in_order() -> Vec<String> {
    people_in_order(3_000)
}

fn people_in_order(people: u32) -> Vec<String> {
    let suffix = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n".to_owned();
    let people = (0..people).map(|number| {
        // Every third is below the one before.
        let (name, parent) = match number % 3 {
            2 => (
                format!("uid=below{number:05}"),
                format!("uid=u{:05},", number - 1),
            ),
            _ => (format!("uid=u{number:05}"), String::new()),
        };
        format!(
            "dn: {name},{parent}dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: {}\n\
             cn: Person {number}\nsn: {number}\ndescription: {}\n",
            &name[4..],
            "x".repeat(1500)
        )
    });
    std::iter::once(suffix).chain(people).collect()
}

#[test]
fn entries_in_order_are_not_sorted_and_all_others_are() {
    let last = |text: &str| {
        let mut entries = in_order();
        entries.push(text.to_owned());
        entries
    };
    let person = |dn: &str, more: &str| {
        format!("dn: {dn},dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: x\nsn: x\n{more}\n")
    };
    // So far behind that no thread parses it before tables are built, from when on attributes get no numbers.
    let mut with_new_attribute = people_in_order(6_000);
    with_new_attribute.push(person("uid=z", "uid: z\ncn;lang-x: z"));
    let mut with_bad_ones = in_order();
    for at in [3, 1500, 2901] {
        with_bad_ones[at] = "dn: uid=u99999,dc=example,dc=com\nuid: x\n".to_owned();
    }
    let mut with_bad_ones_in_no_order = with_bad_ones.clone();
    with_bad_ones_in_no_order.push(person("uid=a", "uid: a"));
    let mut all_bad = in_order();
    all_bad.extend((0..2000).map(|_| "dn: uid=x,dc=example,dc=com\nuid: x\n".to_owned()));
    let cases = [
        ("in order", in_order(), false),
        (
            "a smaller name behind",
            last(&person("uid=a", "uid: a")),
            true,
        ),
        (
            "the same name again",
            last(&person("uid=u02998", "uid: u02998")),
            true,
        ),
        (
            "a parent behind",
            last(&person("uid=z,uid=y", "uid: z")),
            true,
        ),
        ("a new attribute", with_new_attribute, true),
        ("bad ones", with_bad_ones, false),
        ("bad ones in no order", with_bad_ones_in_no_order, true),
        ("too many bad ones", all_bad, true),
    ];
    for (what, entries_in, is_sorted) in cases {
        let text = entries_in.join("\n");
        let files = [("one", text.as_str())];
        let (once, again) = (in_memory(), in_memory());
        let (report, rejected, had_sorted) = import_telling(&once, &files, false);
        assert!(had_sorted, "{what}");
        let (second_report, second_rejected, had_sorted) = import_telling(&again, &files, true);
        assert_eq!(had_sorted, is_sorted, "{what}");
        assert_eq!(second_report, report, "{what}");
        assert_eq!(second_rejected, rejected, "{what}");
        assert!(entries(&again) == entries(&once), "{what}");
        // The ids that are given next are those that follow.
        succeed(
            &again,
            add(
                "uid=new,dc=example,dc=com",
                "objectClass: inetOrgPerson\nuid: new\ncn: x\nsn: x",
            ),
        );
        let found = again.check(|_| {}).unwrap();
        assert_eq!(found.problems, Vec::<String>::new(), "{what}");
    }
}

/// Fails where its text ends.
struct Broken(Cursor<String>);

impl Read for Broken {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self.0.read(space)? {
            0 => Err(io::Error::other("the disk is gone")),
            read => Ok(read),
        }
    }
}

#[test]
fn a_source_that_breaks_off_leaves_the_directory_empty() {
    let text = in_order().join("\n");
    let folder = tempfile::tempdir().unwrap();
    let reader = || Box::new(Broken(Cursor::new(text.clone())));
    let source = ImportSource {
        name: "broken".into(),
        reader: reader(),
        format: ImportFormat::Ldif,
        again: Some(reader()),
    };
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: folder.path().into(),
        threads: 2,
        hasher: None,
        creator: String::new(),
        reshape: &Reshape::default(),
        skip_present: false,
    };
    let directory = in_memory();
    let error = directory
        .import(vec![source], &options, &Rejections::default())
        .unwrap_err();
    assert!(error.to_string().contains("broken"), "{error}");
    assert!(!exists(&directory, "dc=example,dc=com"));
    let (report, ..) = import(&directory, &[("whole", &text)]);
    assert_eq!((report.added, report.built), (3_001, true));
}

/// The messages with the entries below the suffix, with what follows from their classes.
/// A pipe that is filled for hours must not keep it a secret that another one has failed.
#[test]
fn a_source_that_fails_ends_the_reading_of_the_others() {
    /// LDIF without end.
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            let text = format!("dn: cn={},dc=example,dc=com\ncn: x\n\n", self.0);
            let count = text.len().min(space.len());
            space[..count].copy_from_slice(&text.as_bytes()[..count]);
            Ok(count)
        }
    }
    /// What another project's pipe may end with.
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _space: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("it broke"))
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str, reader| ImportSource {
        name: name.into(),
        reader,
        format: ImportFormat::Ldif,
        again: None,
    };
    let options = ImportOptions {
        memory_bytes: IMPORT_MEMORY_BYTES_MIN,
        folder: folder.path().into(),
        threads: 2,
        hasher: None,
        creator: String::new(),
        reshape: &Reshape::default(),
        skip_present: false,
    };
    let sources = vec![
        source("endless", Box::new(Endless(0)) as Box<dyn Read + Send>),
        source("broken", Box::new(Broken)),
    ];
    let failure = in_memory()
        .import(sources, &options, &Rejections::default())
        .unwrap_err();
    assert!(failure.to_string().contains("reading broken"), "{failure}");
}

fn entries<E: Engine>(directory: &Directory<E>) -> BTreeSet<Vec<u8>> {
    let mut attributes = OctetStringsBuf::default();
    for attribute in ["*", "structuralObjectClass"] {
        attributes.push(attribute.as_bytes());
    }
    let request = SearchRequest {
        attributes: attributes.view(),
        ..SearchRequest::new(
            "dc=example,dc=com",
            Scope::Subtree,
            Filter::OBJECT_CLASS_PRESENT,
        )
    };
    let options = SearchOptions {
        manage_dsa_it: true,
        ..SearchOptions::default()
    };
    let requester = directory.requester(admin());
    let mut search = Search::new(directory.snapshot().unwrap(), &requester, &request, options);
    let budget = Budget {
        entries: 100,
        work: u64::MAX,
        out_bytes: 1 << 20,
    };
    let mut messages = BTreeSet::new();
    let mut found = Vec::new();
    loop {
        let mut wire = Wire::new(&mut found, 1, Controls::EMPTY);
        let step = search.step(&mut wire, budget).unwrap();
        let mut rest = found.as_slice();
        while let Ok(Frame::Complete(length)) = frame(rest, usize::MAX) {
            messages.insert(rest[..length].to_vec());
            rest = &rest[length..];
        }
        found.clear();
        match step {
            Step::Done(_) => break,
            Step::Fetch => search.snapshot().fetch().unwrap(),
            Step::More | Step::Room(_) | Step::Wait => {}
        }
    }
    messages
}

/// The lines of an entry: mostly those of a person with a number, with deviations.
fn person_lines() -> impl Strategy<Value = (String, String)> {
    let rdn = prop_oneof![
        8 => Just("uid=U{n}"),
        1 => Just("uid= u{n}"),
        1 => Just("UID=u{n}"),
        1 => Just("cn=Person {n}+uid=u{n}"),
        1 => Just("cn=person  {n}"),
        1 => Just("sn=other {n}"),
        1 => Just("description=u{n}"),
        1 => Just("uid=u\\2c{n}"),
        1 => Just("entryUUID=u{n}"),
        1 => Just("dc=deep {n},dc=nowhere"),
    ];
    let classes = prop_oneof![
        8 => Just("objectClass: inetOrgPerson\n"),
        2 => Just("objectClass: top\nobjectClass: person\n\
            objectClass: organizationalPerson\nobjectClass: inetOrgPerson\n"),
        2 => Just("objectClass: person\nobjectClass: uidObject\n"),
        1 => Just("objectClass: device\nobjectClass: inetOrgPerson\n"),
        1 => Just("objectClass: inetOrgPerson\nobjectClass: INETORGPERSON\n"),
        1 => Just("objectClass: nothing\n"),
        1 => Just(""),
    ];
    let more = prop_oneof![
        6 => Just(""),
        1 => Just("description: one\ndescription: other\n"),
        1 => Just("description: one\ndescription: ONE\n"),
        1 => Just("description: one\nmail: a@b\ndescription: other\n"),
        1 => Just("preferredLanguage: en\npreferredLanguage: de\n"),
        1 => Just("cn;lang-de: Person\n"),
        1 => Just("mail: caf\u{e9}\n"),
        1 => Just("mail: a@b\n"),
        1 => Just("telephoneNumber: +1 2\n"),
        1 => Just("telephoneNumber: *\n"),
        1 => Just("l: here\nuid: second\n"),
        1 => Just("userPassword: {X}y\n"),
        1 => Just("c: Germany\n"),
    ];
    let names = prop_oneof![
        8 => Just("uid: u{n}\ncn: Person {n}\nsn: {n}\n"),
        2 => Just("cn: Person {n}\nsn: {n}\nuid: u{n}\n"),
        1 => Just("cn: Person {n}\nsn: {n}\n"),
        1 => Just("uid: u{n}\nUID: u{n}\ncn: Person {n}\nsn: {n}\n"),
        1 => Just("uid: u{n}\ncn: Person {n}\n"),
    ];
    (rdn, classes, names, more, 0..30_u32).prop_map(|(rdn, classes, names, more, number)| {
        let numbered = |text: &str| text.replace("{n}", &number.to_string());
        let dn = numbered(rdn) + ",dc=example,dc=com";
        (dn, classes.to_owned() + &numbered(names) + more)
    })
}

proptest! {
    #![proptest_config(crate::made::random(64))]

    #[test]
    fn entries_are_judged_as_adds_are(people in prop::collection::vec(person_lines(), 1..60)) {
        let suffix = ("dc=example,dc=com".to_owned(), "objectClass: domain\ndc: example\n".to_owned());
        let people: Vec<_> = std::iter::once(suffix).chain(people).collect();
        let added = in_memory();
        let mut refused = 0;
        for (dn, lines) in &people {
            let outcome = apply(&added, add(dn, lines));
            refused += u64::from(outcome.code != ResultCode::Success);
        }
        let text: String = people.iter().map(|(dn, lines)| format!("dn: {dn}\n{lines}\n")).collect();
        for repeated in [1, 3] {
            let imported = in_memory();
            let (report, _) = import(&imported, &[("people", &text.repeat(repeated))]);
            let rejected = refused + (repeated as u64 - 1) * people.len() as u64;
            prop_assert_eq!(report.rejected, rejected);
            prop_assert_eq!(entries(&imported), entries(&added));
            prop_assert_eq!(imported.check(|_| {}).unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn a_value_that_must_be_unique_is_imported_once() {
    let settings = Settings {
        unique: vec![UniqueRule {
            attributes: vec!["uid".into()],
            base: String::new(),
            name: String::new(),
        }],
        ..Settings::default()
    };
    let config = Config {
        settings,
        ..config()
    };
    let engine = engine();
    let directory = Directory::create_on(engine, &config, options()).unwrap();
    let people = "\
dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
dn: uid=ann,dc=example,dc=com\nobjectClass: account\nuid: ann\n\n\
dn: uid=bob,dc=example,dc=com\nobjectClass: account\nuid: bob\nuid: ANN\n\n\
dn: uid=eve,dc=example,dc=com\nobjectClass: account\nuid: eve\n\n";
    // Into an empty directory and into one with entries.
    for (added, text) in [
        (3, people),
        (
            1,
            "dn: uid=may,dc=example,dc=com\nobjectClass: account\nuid: may\n\n\
             dn: uid=sue,dc=example,dc=com\nobjectClass: account\nuid: eve\nuid: sue\n",
        ),
    ] {
        let (report, rejected) = import(&directory, &[("people", text)]);
        assert_eq!((report.added, report.rejected), (added, 1), "{rejected:?}");
        let (_, _, reason, _) = &rejected[0];
        assert!(
            reason.starts_with("uid: ") && reason.contains("unique"),
            "{reason}"
        );
    }
}
