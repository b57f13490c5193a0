//! A backup alone is enough to have the directory again, and what is missing or wrong is told with what helps.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sapwood_testkit::folder::Folder;
use sapwood_testkit::program::{Scratch, program, sapwood, sapwood_ok, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX};

const HATS: &str = "attributetype ( 1.3.6.1.4.1.99999.1 NAME 'hatSize' SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 EQUALITY integerMatch )\n\
    objectclass ( 1.3.6.1.4.1.99999.2 NAME 'hatted' SUP person STRUCTURAL MUST hatSize )\n";
const SHOES: &str = "dn: cn=shoes,cn=schema,cn=config\n\
    changetype: add\n\
    objectClass: olcSchemaConfig\n\
    cn: shoes\n\
    olcAttributeTypes: ( 1.3.6.1.4.1.99999.3 NAME 'shoeSize' SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 EQUALITY integerMatch )\n\
    olcObjectClasses: ( 1.3.6.1.4.1.99999.4 NAME 'shod' SUP person STRUCTURAL MUST shoeSize )\n";

/// A directory with a schema and a configuration of its own, and an entry that needs the schema.
fn folder(more: &[&str]) -> Folder {
    let scratch = Scratch::new();
    let schema = scratch.arg("hats.schema");
    fs::write(&schema, HATS).unwrap();
    let folder = Folder::init(&[more, &["--schema", &schema]].concat());
    folder.configure(&[("connections_max = 1000", "connections_max = 77")]);
    let suffix = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    import(&folder, &(suffix + &person("hatted", "hatSize")));
    folder
}

fn person(class: &str, attribute: &str) -> String {
    format!(
        "dn: cn={class},{SUFFIX}\nobjectClass: {class}\ncn: {class}\nsn: x\n{attribute}: 42\n\n"
    )
}

fn import(folder: &Folder, ldif: &str) {
    let file = folder.name_beside("import.ldif");
    fs::write(&file, ldif).unwrap();
    folder.sapwood_ok("import", &[&file]);
}

/// Every file of a directory beside its data, with its contents.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            files.push((name, fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Restores into a folder that is not there, and looks whether that can be served, with the password that it had.
fn restored(folder: &Folder, name: &str, sources: &[&str]) -> String {
    let new = folder.name_beside(name);
    sapwood_ok([&["restore", &new], sources].concat());
    assert!(sapwood_ok(["check", &new]).contains("Nothing is wrong"));
    let data = fs::metadata(Path::new(&new).join("data")).unwrap();
    assert!(data.is_dir());
    for secret in ["admin.password", "tls-key.pem", "sapwood.toml"] {
        let mode = fs::metadata(Path::new(&new).join(secret))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    let server = folder.serve_folder(Path::new(&new));
    let mut search = program("ldapsearch", "ldap-utils");
    search.args([
        "-x",
        "-LLL",
        "-H",
        server.ldap(),
        "-D",
        ADMIN,
        "-w",
        PASSWORD,
        "-b",
        SUFFIX,
    ]);
    let found = succeeded(search.output().unwrap());
    server.stop();
    found
}

fn a_backup_is_enough(more: &[&str]) {
    let folder = folder(more);
    let name = |name: &str| folder.name_beside(name);
    let (full, increment, last) = (name("full"), name("increment"), name("last"));
    let said = folder.sapwood_ok("backup", &[&full]);
    assert!(said.contains("private key"), "{said}");
    if Path::new(&full).is_file() {
        assert_eq!(
            fs::metadata(&full).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    let before = files(&folder.path());
    let found = restored(&folder, "first", &[&full]);
    assert!(found.contains("hatSize: 42"), "{found}");
    assert_eq!(files(&folder.beside("first")), before);

    // Schema, configuration and entries change between a backup and the next.
    let shoes = name("shoes.ldif");
    fs::write(&shoes, SHOES).unwrap();
    folder.sapwood_ok("config", &["apply", &shoes]);
    folder.configure(&[("connections_max = 77", "connections_max = 78")]);
    import(&folder, &person("shod", "shoeSize"));
    folder.sapwood_ok("backup", &[&increment, "--since", &full]);
    import(&folder, &person("person", "description"));
    folder.sapwood_ok("backup", &[&last, "--since", &increment]);
    let found = restored(&folder, "second", &[&full, &increment]);
    assert!(
        found.contains("shoeSize: 42") && !found.contains("cn=person"),
        "{found}"
    );
    assert_eq!(files(&folder.beside("second")), files(&folder.path()));
    let found = restored(&folder, "third", &[&full, &increment, &last]);
    assert!(found.contains("cn=person"), "{found}");
    assert_ne!(before, files(&folder.path()));
    // The first one is what it was.
    restored(&folder, "again", &[&full]);
    assert_eq!(files(&folder.beside("again")), before);

    // An increment alone, or in the wrong place, is told for what it is.
    let refused = |sources: &[&str], parts: &[&str]| {
        let new = name("refused");
        let output = sapwood([&["restore", &new], sources].concat());
        assert_eq!(output.status.code(), Some(1));
        let told = text(&output.stderr);
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert!(!told.contains("damage"), "{told}");
        assert!(!Path::new(&new).exists());
    };
    refused(
        &[&increment],
        &["is an increment", "'full'", "Name that one first"],
    );
    refused(&[&last, &full], &["is an increment", "'increment'"]);
    refused(&[&full, &last], &["since commit", "holds commit"]);
    refused(&[&full, &full], &["only the first"]);
    // So do the store's own commands.
    let output = sapwood(["store", "restore", &increment, &name("refused")]);
    let told = text(&output.stderr);
    assert!(
        told.contains("an increment") && told.contains("comes first"),
        "{told}"
    );
    sapwood_ok(["store", "restore", &full, &increment, &name("store")]);
}

#[test]
fn a_backup_of_one_store_is_enough() {
    a_backup_is_enough(&[]);
}

#[test]
fn a_backup_of_several_stores_is_enough() {
    let partition = format!("3:{SUFFIX}");
    a_backup_is_enough(&["--partition", &partition]);
}

#[test]
fn a_backup_of_a_directory_in_memory_is_enough() {
    let folder = folder(&["--in-memory"]);
    let full = folder.name_beside("full");
    folder.sapwood_ok("backup", &[&full]);
    assert!(restored(&folder, "first", &[&full]).contains("hatSize: 42"));
    // It can take the place of what a directory in memory begins with.
    fs::copy(&full, folder.path().join("memory")).unwrap();
    assert!(folder.sapwood_ok("export", &[]).contains("hatSize: 42"));
}

/// What is there is kept, and told of where it differs.
#[test]
fn a_restore_writes_over_nothing() {
    let folder = folder(&[]);
    let (full, data) = (folder.name_beside("full"), folder.path().join("data"));
    folder.sapwood_ok("backup", &[&full]);
    let config = folder.path().join("sapwood.toml");
    let changed = format!("# Mine\n{}", fs::read_to_string(&config).unwrap());
    fs::write(&config, &changed).unwrap();
    fs::remove_file(folder.path().join("admin.password")).unwrap();
    fs::remove_dir_all(&data).unwrap();
    let said = folder.sapwood_ok("restore", &[&full]);
    assert!(said.contains("sapwood.toml stays as it was"), "{said}");
    assert!(!said.contains("tls-cert.pem stays"), "{said}");
    assert_eq!(fs::read_to_string(&config).unwrap(), changed);
    folder.serve().stop();
}

/// They were told to be damaged.
#[test]
fn files_that_are_no_backups_are_told_to_be_none() {
    let folder = folder(&[]);
    let other = folder.name_beside("other");
    let new = folder.name_beside("new");
    let own = folder.path().join("data/data-0").display().to_string();
    for (content, why) in [
        (String::new(), "of another kind"),
        ("text".repeat(10_000), "of another kind"),
        ("short".into(), "of another kind"),
    ] {
        fs::write(&other, content).unwrap();
        let output = sapwood(["restore", &new, &other]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            told.contains("not a backup") && told.contains(&other),
            "{told}"
        );
        assert!(told.contains(why) && !told.contains("damaged"), "{told}");
        assert!(!Path::new(&new).exists());
        let output = folder.sapwood("backup", &[&folder.name_beside("full"), "--since", &other]);
        let told = text(&output.stderr);
        assert!(
            told.contains("not a backup") && !told.contains("unavailable"),
            "{told}"
        );
    }
    let told = text(&sapwood(["restore", &new, &own]).stderr);
    assert!(told.contains("the data file of an environment"), "{told}");
    let elsewhere = folder.path().display().to_string();
    let told = text(&sapwood(["restore", &new, &elsewhere]).stderr);
    assert!(
        told.contains("not a backup") && told.contains("data-0"),
        "{told}"
    );
    let missing = folder.name_beside("missing/full");
    let told = text(&folder.sapwood("backup", &[&missing]).stderr);
    assert!(told.contains("there is no folder"), "{told}");
    // What begins like one and is not whole is damaged.
    let full = folder.name_beside("full");
    folder.sapwood_ok("backup", &[&full]);
    let mut cut = fs::read(&full).unwrap();
    cut.truncate(100_000);
    fs::write(&other, cut).unwrap();
    let told = text(&sapwood(["restore", &new, &other]).stderr);
    assert!(
        told.contains("damaged") && !told.contains("not a backup"),
        "{told}"
    );
}

/// It was told that the store is unavailable, or damaged twice over.
#[test]
fn what_a_directory_in_memory_begins_with_is_told_to_be_one_thing() {
    let folder = folder(&["--in-memory"]);
    let file = folder.path().join("memory");
    let begins = || text(&folder.sapwood("stat", &[]).stderr);
    let mut content = fs::read(&file).unwrap();
    fs::write(&file, "text".repeat(10_000)).unwrap();
    let told = begins();
    assert!(told.contains("not a backup: "), "{told}");
    assert!(
        !told.contains("unavailable") && !told.contains("damaged"),
        "{told}"
    );
    content.truncate(20_000);
    fs::write(&file, content).unwrap();
    let told = begins();
    assert!(
        told.contains("the store is damaged: ") && !told.contains("not a backup"),
        "{told}"
    );
    assert!(!told.contains("damaged: damaged"), "{told}");
}

#[test]
fn files_outside_of_the_folder_are_named_and_left_out() {
    let folder = folder(&[]);
    let key = folder.beside("elsewhere.pem");
    fs::rename(folder.path().join("tls-key.pem"), &key).unwrap();
    folder.configure(&[("\"tls-key.pem\"", &format!("{:?}", key.to_str().unwrap()))]);
    let full = folder.name_beside("full");
    let said = folder.sapwood_ok("backup", &[&full]);
    assert!(
        said.contains("elsewhere.pem is not in it") && !said.contains("private key"),
        "{said}"
    );
    fs::remove_file(&key).unwrap();
    let said = sapwood_ok(["restore", &folder.name_beside("new"), &full]);
    assert!(said.contains("elsewhere.pem, which is not there"), "{said}");
}

/// One bit that is wrong in the configuration is noticed, and takes nothing from the data.
#[test]
fn a_damaged_configuration_in_a_backup_is_told() {
    let folder = folder(&[]);
    let full = folder.name_beside("full");
    folder.sapwood_ok("backup", &[&full]);
    let whole = fs::read(&full).unwrap();
    let place = whole
        .windows(12)
        .rposition(|part| part == b"sapwood.toml")
        .unwrap();
    for cut in [None, Some(whole.len() - 1)] {
        let mut damaged = whole.clone();
        match cut {
            Some(bytes) => damaged.truncate(bytes),
            None => damaged[place + 20] ^= 1,
        }
        fs::write(&full, damaged).unwrap();
        let new = folder.name_beside("new");
        let told = text(&sapwood(["restore", &new, &full]).stderr);
        assert!(
            told.contains("configuration") && told.contains("store restore"),
            "{told}"
        );
        assert!(!Path::new(&new).exists());
        let alone = folder.beside("alone");
        sapwood_ok(["store", "restore", &full, alone.to_str().unwrap()]);
        fs::remove_dir_all(alone).unwrap();
    }
}

#[test]
fn a_backup_that_fails_leaves_nothing() {
    let folder = folder(&[]);
    let full = folder.name_beside("full");
    let nowhere = folder.name_beside("nowhere/full");
    let output = folder.sapwood("backup", &[&nowhere]);
    assert_eq!(output.status.code(), Some(1));
    let (told, missing) = (text(&output.stderr), folder.name_beside("nowhere"));
    assert!(
        told.contains(&format!("there is no folder {missing}")),
        "{told}"
    );
    fs::write(&full, "of somebody else").unwrap();
    assert_eq!(folder.sapwood("backup", &[&full]).status.code(), Some(1));
    let increment = folder.name_beside("increment");
    let output = folder.sapwood("backup", &[&increment, "--since", &full]);
    assert_eq!(output.status.code(), Some(1));
    let left = fs::read_dir(folder.path().parent().unwrap()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["directory", "full", "import.ldif", "password"]);
}
