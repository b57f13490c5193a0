//! `sapwood import`, offline and into a server that runs, from files and pipes, as users start it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

use sapwood_testkit::ADMIN;
use sapwood_testkit::folder::{Folder, flat};
use sapwood_testkit::program::{sapwood, sapwood_ok, text};

#[test]
fn streams_are_imported_from_several_pipes_at_once() {
    let folder = Folder::init(&[]);
    let pipes = ["one", "two"].map(|name| folder.name_beside(name));
    let mut writers = Vec::new();
    for (number, pipe) in pipes.iter().enumerate() {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
        let template = folder.name_beside(&format!("template{number}"));
        let root = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";
        let root = if number == 0 { root } else { "" };
        let person = format!(
            "let: n = sequence 1..100000\n\n{root}dn: uid=p{number}x${{n}},dc=example,dc=com\n\
             objectClass: inetOrgPerson\nuid: p{number}x${{n}}\ncn: Ä\nsn: x\n"
        );
        fs::write(&template, person).unwrap();
        let program = env!("CARGO_BIN_EXE_sapwood");
        let line = format!(
            "{program} drive generate --template {template} --entries 3000 --format ber > {pipe}"
        );
        writers.push(Command::new("sh").args(["-c", &line]).spawn().unwrap());
    }
    let said = folder.sapwood_ok("import", &["--format", "ber", &pipes[0], &pipes[1]]);
    assert!(said.contains("6000 entries added, 0 rejected"), "{said}");
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    let out = folder.sapwood_ok("export", &["--filter", "(uid=p1x3000)"]);
    assert!(
        out.contains("uid: p1x3000") && out.contains("cn:: w4Q="),
        "{out}"
    );
    folder.sapwood_ok("check", &[]);
}

#[test]
fn rejected_messages_can_be_imported_again_and_an_import_be_continued() {
    let folder = Folder::init(&[]);
    let [orphans, rest, rejects, again] =
        ["orphans", "rest", "rejects", "again"].map(|name| folder.name_beside(name));
    let template = folder.name_beside("template");
    fs::write(
        &template,
        "let: n = sequence 1..99\n\ndn: uid=u${n},ou=late,dc=example,dc=com\nobjectClass: account\nuid: u${n}\n",
    )
    .unwrap();
    let generate = |template: &str, entries: &str, file: &str| {
        sapwood_ok([
            "drive",
            "generate",
            "--template",
            template,
            "--entries",
            entries,
            "--format",
            "ber",
            "--output",
            file,
        ])
    };
    generate(&template, "5", &orphans);
    fs::write(
        &template,
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
         dn: ou=late,dc=example,dc=com\nobjectClass: organizationalUnit\nou: late\n",
    )
    .unwrap();
    generate(&template, "2", &rest);
    // Only the suffix, so that the orphans have no parent.
    generate(&template, "1", &again);
    folder.sapwood_ok("import", &["--format", "ber", &again]);
    let output = folder.sapwood(
        "import",
        &["--format", "ber", "--reject-file", &rejects, &orphans],
    );
    let said = text(&output.stdout);
    assert!(
        !output.status.success() && said.contains("0 entries added, 5 rejected"),
        "{said}"
    );
    let reasons = fs::read_to_string(format!("{rejects}.reasons")).unwrap();
    assert_eq!(reasons.lines().count(), 5, "{reasons}");
    assert!(reasons.contains("orphans:1: "), "{reasons}");
    // What is there already is passed over with --continue, and rejected without.
    let said = folder.sapwood_ok("import", &["--format", "ber", "--continue", &rest]);
    assert!(
        said.contains("1 entries added, 0 rejected, 1 there already"),
        "{said}"
    );
    let said = folder.sapwood_ok("import", &["--format", "ber", &rejects]);
    assert!(said.contains("5 entries added, 0 rejected"), "{said}");

    // A stream that is cut off is an error, told by the number of the message.
    let whole = fs::read(&orphans).unwrap();
    fs::write(&again, &whole[..whole.len() - 3]).unwrap();
    let output = folder.sapwood("import", &["--format", "ber", &again]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("message 5 is not an LDAP message"),
        "{}",
        text(&output.stderr)
    );
}

/// As LDIF they would be one record that is rejected, and their bytes its reason.
#[test]
fn messages_are_not_imported_as_ldif() {
    let folder = Folder::init(&[]);
    let [messages, rejects] = ["messages", "rejects"].map(|name| folder.name_beside(name));
    let generate = [
        "drive",
        "generate",
        "--entries",
        "50",
        "--format",
        "ber",
        "--output",
    ];
    sapwood_ok(generate.into_iter().chain([messages.as_str()]));
    let refused = |output: Output| {
        let said = text(&output.stderr);
        assert!(
            !output.status.success()
                && said.contains("messages: it holds LDAP messages")
                && said.contains("--format ber"),
            "{said}"
        );
        assert!(!fs::exists(&rejects).unwrap());
    };
    refused(folder.sapwood("import", &[&messages, "--reject-file", &rejects]));
    let server = folder.serve();
    let online = ["import", "--online", server.ldap(), &messages];
    refused(sapwood(
        online.into_iter().chain(["--reject-file", &rejects]),
    ));
    server.stop();
    folder.sapwood_ok("import", &["--format", "ber", &messages]);
}

#[test]
fn a_server_that_runs_is_filled_over_ldap() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let password = folder.name_beside("password");
    let file = folder.name_beside("entries");
    let rejects = folder.name_beside("rejects");
    for format in ["ldif", "ber"] {
        // The entries upside down: children before parents.
        let more = if format == "ldif" {
            sapwood_ok([
                "drive",
                "generate",
                "--shape",
                "org",
                "--entries",
                "300",
                "--output",
                &file,
            ]);
            let text = fs::read_to_string(&file)
                .unwrap()
                .replace("version: 1\n\n", "");
            let mut records: Vec<&str> = text.trim_end().split("\n\n").collect();
            records.reverse();
            fs::write(&file, records.join("\n\n")).unwrap();
            vec![]
        } else {
            sapwood_ok([
                "drive",
                "generate",
                "--shape",
                "org",
                "--entries",
                "300",
                "--format",
                "ber",
                "--output",
                &file,
            ]);
            vec!["--continue"]
        };
        let mut args = vec!["import", "--online", server.ldap(), "--bind-dn", ADMIN];
        args.extend([
            "--password-file",
            &password,
            "--format",
            format,
            "--reject-file",
            &rejects,
        ]);
        args.extend(more);
        args.push(&file);
        let said = sapwood_ok(args);
        let expected = match format {
            "ldif" => "300 entries added, 0 rejected",
            _ => "0 entries added, 0 rejected, 300 there already",
        };
        assert!(said.contains(expected), "{said}");
    }
    // Without --continue they are rejected, and the reject file holds them all.
    let args = [
        "import",
        "--online",
        server.ldap(),
        "--bind-dn",
        ADMIN,
        "--password-file",
        &password,
        "--format",
        "ber",
        "--reject-file",
        &rejects,
        &file,
    ];
    let output = sapwood(args);
    assert!(!output.status.success());
    assert!(
        text(&output.stdout).contains("0 entries added, 300 rejected"),
        "{}",
        text(&output.stdout)
    );
    let reasons = fs::read_to_string(format!("{rejects}.reasons")).unwrap();
    assert!(reasons.contains("entryAlreadyExists"), "{reasons}");
    // Of a stream that is cut off, what came whole is added.
    let template = folder.name_beside("template");
    fs::write(
        &template,
        "let: n = sequence 1..9\n\ndn: cn=d${n},dc=example,dc=com\nobjectClass: device\ncn: d${n}\n",
    )
    .unwrap();
    let generate = ["drive", "generate", "--format", "ber", "--entries", "5"];
    let places = ["--template", &template, "--output", &file];
    sapwood_ok(generate.iter().chain(&places));
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 3]).unwrap();
    let output = sapwood(args);
    let said = text(&output.stderr);
    assert!(
        !output.status.success()
            && said.contains("stopped after 4 entries were added")
            && said.contains("message 5 is not an LDAP message"),
        "{said}"
    );
    let missing = sapwood(["import", "--online", "ldap://127.0.0.1:1", &file]);
    assert!(!missing.status.success());
}

/// Over a connection for each file; the one with the parents is the last.
#[test]
fn files_that_need_each_other_are_added_with_and_without_a_bulk_update() {
    for (lburp, is_bulk) in [("always", true), ("auto", true), ("never", false)] {
        let folder = Folder::init(&[]);
        folder.configure(&[("access = false", "access = true")]);
        let server = folder.serve();
        let password = folder.name_beside("password");
        let files = ["one", "two", "three"].map(|name| folder.name_beside(name));
        let people = |unit: &str| -> String {
            (0..100)
                .map(|n| {
                    format!(
                        "dn: cn=p{n},ou={unit},dc=example,dc=com\nobjectClass: device\ncn: p{n}\n\n"
                    )
                })
                .collect()
        };
        let unit = |unit: &str| {
            format!(
                "dn: ou={unit},dc=example,dc=com\nobjectClass: organizationalUnit\nou: {unit}\n\n"
            )
        };
        let root = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";
        fs::write(&files[0], people("a") + &unit("b")).unwrap();
        fs::write(&files[1], people("b") + &people("missing")).unwrap();
        fs::write(
            &files[2],
            unit("a") + root + "dn: cn=bad,dc=example,dc=com\nobjectClass: nonsense\n",
        )
        .unwrap();
        let rejects = folder.name_beside("rejects");
        let mut args = vec!["import", "--online", server.ldap(), "--bind-dn", ADMIN];
        args.extend(["--password-file", &password, "--reject-file", &rejects]);
        args.extend(["--lburp", lburp, "--queue", "30"]);
        args.extend(files.iter().map(String::as_str));
        let output = sapwood(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("203 entries added, 101 rejected"), "{said}");
        let reasons = fs::read_to_string(&rejects).unwrap();
        assert_eq!(reasons.matches("noSuchObject").count(), 100, "{reasons}");
        let log = server.log();
        assert_eq!(log.contains("LBURP add"), is_bulk, "{lburp}: {log}");
        server.stop();
        assert!(folder.sapwood_ok("check", &[]).contains("Nothing is wrong"));
    }
}

/// With the default queue an import over LBURP was never answered when two of its requests had passwords in the clear.
#[test]
fn an_import_over_ldap_brings_cleartext_passwords() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let password = folder.name_beside("password");
    let file = folder.name_beside("people.ldif");
    let mut ldif = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n".to_owned();
    for number in 0..320 {
        ldif += &format!(
            "dn: cn=p{number},dc=example,dc=com\nobjectClass: person\ncn: p{number}\nsn: x\n"
        );
        if number % 40 == 0 {
            ldif += "userPassword: secret\n";
        }
        ldif.push('\n');
    }
    fs::write(&file, ldif).unwrap();
    let said = sapwood_ok([
        "import",
        "--online",
        server.ldap(),
        "--lburp",
        "always",
        "--bind-dn",
        ADMIN,
        "--password-file",
        &password,
        &file,
    ]);
    assert!(said.contains("321 entries added, 0 rejected"), "{said}");
}

/// Values that no password can match were stored in silence, or hashed as if they were passwords.
#[test]
fn passwords_that_cannot_be_used_are_rejected_with_line_and_reason() {
    let folder = Folder::init(&[]);
    let [file, rejects] = ["people.ldif", "rejects"].map(|name| folder.name_beside(name));
    let person = |name: &str, more: &str| {
        format!("dn: cn={name},dc=example,dc=com\nobjectClass: person\ncn: {name}\nsn: x\n{more}\n")
    };
    let many: String = (0..9)
        .map(|number| format!("userPassword: clear{number}\n"))
        .collect();
    let text = [
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n".to_owned(),
        person("sasl", "userPassword: {SASL}x@Y\n"),
        person("crypt", "userPassword: {crypt}text\n"),
        person("many", &many),
        person("damaged", "userPassword: {SSHA}x\n"),
        "dn: userPassword=clear,dc=example,dc=com\nobjectClass: person\ncn: x\nsn: x\n\n".into(),
        person(
            "right",
            "userPassword: {CRYPT}abNANd1rDfiNc\nuserPassword: clear\n",
        ),
    ];
    fs::write(&file, text.concat()).unwrap();
    let output = folder.sapwood("import", &["--reject-file", &rejects, &file]);
    let said = text_of(&output);
    assert!(said.contains("2 entries added, 5 rejected"), "{said}");
    let rejected = fs::read_to_string(&rejects).unwrap();
    for (line, reason) in [
        (5, "{SASL}"),
        (11, "{CRYPT}"),
        (17, "password_values_max"),
        (31, "{SSHA}"),
        (
            37,
            "userPassword: a protected attribute cannot name an entry",
        ),
    ] {
        let told = rejected
            .lines()
            .any(|told| told.contains(&format!(":{line}: ")) && told.contains(reason));
        assert!(told, "line {line}, {reason}: {rejected}");
    }
    assert!(!rejected.contains("right"), "{rejected}");
}

fn text_of(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_server_that_runs_is_filled_from_several_pipes_at_once() {
    let (folder, server) = flat();
    let password = folder.name_beside("password");
    let pipes = ["one", "two"].map(|name| folder.name_beside(name));
    for pipe in &pipes {
        assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    // The second one has ended before anybody writes to the first one.
    let writer = std::thread::spawn({
        let pipes = pipes.clone();
        move || {
            for (number, pipe) in pipes.iter().enumerate().rev() {
                let entry = format!(
                    "dn: cn=d{number},dc=example,dc=com\nobjectClass: device\ncn: d{number}\n\nnonsense\n"
                );
                fs::write(pipe, entry).unwrap();
            }
        }
    });
    let rejects = folder.name_beside("rejects");
    let output = sapwood([
        "import",
        "--online",
        server.ldap(),
        "--bind-dn",
        ADMIN,
        "--password-file",
        &password,
        "--reject-file",
        &rejects,
        &pipes[0],
        &pipes[1],
    ]);
    writer.join().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("2 entries added, 2 rejected"), "{said}");
    for pipe in &pipes {
        assert!(said.contains(&format!("{pipe}:5: ")), "{said}");
    }
}

#[test]
fn a_reject_file_that_is_read_or_cannot_be_written_is_refused() {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("entries");
    let entries = "dn: dc=example,dc=com\nobjectClass: nonsense\n";
    fs::write(&file, entries).unwrap();
    let missing = folder.name_beside("missing/rejects");
    for (rejects, part) in [
        (&file, "is imported and cannot be the reject file"),
        (&missing, "name another file with --reject-file"),
    ] {
        let output = folder.sapwood("import", &["--reject-file", rejects, &file]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), entries);
    }
}

/// Two readers of one pipe would tear its entries apart.
#[test]
fn a_pipe_is_imported_once() {
    let folder = Folder::init(&[]);
    let pipe = folder.name_beside("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (one, other) in [("-", "-"), (pipe.as_str(), pipe.as_str())] {
        let output = folder.sapwood("import", &[one, other]);
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains(&format!("{one} is named twice")),
            "{said}"
        );
    }
    // A file can be read twice, and its entries are there then.
    let file = folder.name_beside("entries");
    let entry = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n";
    fs::write(&file, entry).unwrap();
    let rejects = folder.name_beside("rejects");
    let output = folder.sapwood("import", &["--reject-file", &rejects, &file, &file]);
    let said = text(&output.stdout);
    assert!(said.contains("1 entries added, 1 rejected"), "{said}");
}

/// What is often given instead of LDIF is told with what helps.
#[test]
fn what_is_no_ldif_is_told_for_what_it_is() {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("entries.ldif");
    let suffix = "\u{feff}dn: dc=example,dc=com\r\nobjectClass: domain\r\ndc: example\r\n";
    let missing = "dn: cn=a,dc=example,dc=com\r\nobjectClass: device\r\ncn: a\r\n";
    let import = || {
        let rejected = folder.name_beside("rejected");
        folder.sapwood("import", &[&file, "--reject-file", &rejected])
    };
    for (bytes, told) in [
        (&b"BZh91AY&SY"[..], "bzcat FILE | sapwood import"),
        (b"\xff\xfed\0n\0:\0", "iconv -f UTF-16"),
    ] {
        fs::write(&file, bytes).unwrap();
        let output = import();
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains(told) && said.contains("entries.ldif"),
            "{said}"
        );
    }
    fs::write(&file, format!("{suffix}{missing}")).unwrap();
    let said = text(&import().stderr);
    assert!(
        said.contains("entries.ldif:4: ") && said.contains("an empty line is missing"),
        "{said}"
    );
    fs::write(&file, format!("{suffix}\r\n{missing}")).unwrap();
    let said = text(&import().stdout);
    assert!(said.contains("2 entries added, 0 rejected"), "{said}");
}

#[test]
fn compressed_files_and_pipes_are_imported() {
    let entries = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n";
    for packer in ["gzip", "zstd"] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), entries).unwrap();
        let input = fs::File::open(file.path()).unwrap();
        let mut command = sapwood_testkit::program::program(packer, packer);
        let packed = command.arg("-c").stdin(input).output().unwrap().stdout;
        let folder = Folder::init(&[]);
        let name = folder.name_beside("entries");
        fs::write(&name, packed).unwrap();
        let said = folder.sapwood_ok("import", &[&name]);
        assert!(
            said.contains("1 entries added, 0 rejected"),
            "{packer}: {said}"
        );
    }
}

#[test]
fn what_other_servers_export_is_imported_without_what_is_their_own() {
    let of_389 = "\
        version: 1\n\n# entry-id: 1\ndn: dc=example,dc=com\nobjectClass: top\nobjectClass: domain\ndc: example\n\
        nsUniqueId: 597ae2f6-16a61027-98f4d28b-5365dc14\nentryid: 1\naci: (targetattr=*)(version 3.0; acl \"a\";)\n\n\
        # entry-id: 2\ndn: uid=ann,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsurname: x\n\
        favouriteColour: red\nparentid: 1\nentryid: 2\nnumSubordinates: 0\nentryUSN: 5\n";
    let imports = |arguments: &[&str]| {
        let folder = Folder::init(&[]);
        let file = folder.name_beside("exported.ldif");
        fs::write(&file, of_389).unwrap();
        let output = folder.sapwood("import", &[arguments, &[&file]].concat());
        (folder, output)
    };
    let (_, plain) = imports(&[]);
    assert!(text(&plain.stdout).contains("0 entries added"), "{plain:?}");
    let arguments = ["--from", "389ds", "--drop", "favouriteColour"];
    let (folder, output) = imports(&arguments);
    let said = text(&output.stdout);
    assert!(said.contains("2 entries added, 0 rejected"), "{output:?}");
    assert!(
        text(&output.stderr).contains("1 values of aci"),
        "{output:?}"
    );
    let out = folder.sapwood_ok("export", &[]);
    let uuid = "entryUUID: 597ae2f6-16a6-1027-98f4-d28b5365dc14\n";
    assert!(out.contains(uuid), "{out}");

    // The first attempt is to read entries in the order of the tree; what it counted is not counted twice.
    let folder = Folder::init(&[]);
    let file = folder.name_beside("exported.ldif");
    let aci = "aci: (targetattr=*)(version 3.0; acl \"a\";)\n";
    let unordered = format!(
        "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n{aci}\n\
         dn: ou=b,ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\nou: b\n{aci}\n\
         dn: ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\nou: a\n{aci}"
    );
    fs::write(&file, unordered).unwrap();
    let output = folder.sapwood("import", &["--from", "389ds", &file]);
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("3 entries added, 0 rejected"), "{said}");
    assert!(said.contains("\n3 values of aci"), "{said}");

    let described = [
        &arguments[..],
        &["--rename", "surname=sn", "--rename", "uid=employeeType"],
    ]
    .concat();
    let (folder, _) = imports(&described);
    let out = folder.sapwood_ok("export", &["--filter", "(employeeType=ann)"]);
    assert!(out.contains("employeeType: ann\n"), "{out}");
    let (_, wrong) = imports(&["--rename", "surname"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}
