//! `sapwood drive` and what it generates, against the server as users start it.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use support::{ADMIN, Folder, PASSWORD, Running, SUFFIX, program, sapwood, sapwood_ok, text};

const ENTRIES: &str = "1000";

/// A server with the entries of the shape `flat`.
fn flat() -> (Folder, Running) {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("flat.ldif");
    sapwood_ok([
        "drive",
        "generate",
        "--shape",
        "flat",
        "--entries",
        ENTRIES,
        "--output",
        &file,
    ]);
    let said = folder.sapwood_ok("import", &[&file]);
    assert!(said.contains("1000 entries added, 0 rejected"), "{said}");
    let server = folder.serve();
    (folder, server)
}

/// Runs `sapwood drive URL`, bound as the administrator. Gives the exit status and both outputs.
fn drive(folder: &Folder, url: &str, more: &[&str]) -> (bool, String) {
    let password = folder.name_beside("password");
    let mut args = vec![
        "drive",
        url,
        "--bind-dn",
        ADMIN,
        "--password-file",
        &password,
    ];
    args.extend(more);
    let output = sapwood(args);
    (
        output.status.success(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

#[track_caller]
fn drive_ok(folder: &Folder, url: &str, more: &[&str]) -> String {
    let (success, said) = drive(folder, url, more);
    assert!(success, "{said}");
    said
}

/// The plans of the documentation.
fn documented() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/drive.md");
    let page = fs::read_to_string(page).unwrap();
    let plans = page.split("```plan\n").skip(1);
    plans
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_documented_plans_do_what_is_said_of_them() {
    let (folder, server) = flat();
    let plans = documented();
    assert_eq!(plans.len(), 3);
    for (number, plan) in plans.iter().enumerate() {
        let file = folder.name_beside(&format!("{number}.plan"));
        fs::write(&file, plan).unwrap();
        let said = drive_ok(&folder, server.ldap(), &[&file]);
        assert!(
            said.contains("drive ") && said.contains(" 0 failed"),
            "{said}"
        );
        match number {
            0 => assert!(
                said.contains("readers") || said.contains("2000 operations"),
                "{said}"
            ),
            1 => assert!(said.contains("compare"), "{said}"),
            _ => assert!(
                said.contains("by uid") && said.contains("missing"),
                "{said}"
            ),
        }
    }
}

#[test]
fn reports_are_written_in_every_form() {
    let (folder, server) = flat();
    let plan = folder.name_beside("plan");
    fs::write(
        &plan,
        "set: count = 5\n\nlet: n = random 1..999\n\nsession: s\ncount: ${count}\n\n\
         expect-entries: 1\nsearch: dc=example,dc=com\nfilter: (uid=u${n:8})\n",
    )
    .unwrap();
    let [json, csv, html] = ["json", "csv", "html"].map(|name| folder.name_beside(name));
    let pid = server.child.id().to_string();
    let said = drive_ok(
        &folder,
        server.ldap(),
        &[
            &plan,
            "--set",
            "count=200",
            "--connections",
            "1,2",
            "--json",
            &json,
            "--csv",
            &csv,
            "--html",
            &html,
            "--server-pid",
            &pid,
            "--database",
            folder.path().to_str().unwrap(),
        ],
    );
    assert_eq!(said.matches("200 operations").count(), 4, "{said}");
    assert!(
        said.contains("server ") && said.contains("data on disk"),
        "{said}"
    );
    // python3 comes with python-ldap, which other tests need.
    let check = "import json,sys; r=json.load(open(sys.argv[1])); \
        assert [p['connections'] for p in r['phases']]==[1,2]; \
        assert all(p['total']['answered']==200 for p in r['phases'])";
    let status = Command::new("python3")
        .args(["-c", check, &json])
        .status()
        .unwrap();
    assert!(status.success());
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 5, "{csv}");
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("Throughput over sessions") && html.contains("<svg"));
}

/// What is read from standard output by another program is the report and nothing else.
#[test]
fn a_report_goes_to_standard_output_in_place_of_the_table() {
    let (folder, server) = flat();
    let [plan, html] = ["plan", "html"].map(|name| folder.name_beside(name));
    fs::write(&plan, "session: s\ncount: 7\n\nsearch:\nscope: base\n").unwrap();
    let run = |more: &[&str]| {
        let args = ["drive", server.ldap(), &plan].into_iter();
        let output = Command::new(env!("CARGO_BIN_EXE_sapwood"))
            .args(args.chain(more.iter().copied()))
            .current_dir(folder.beside(""))
            .output()
            .unwrap();
        (
            output.status.success(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (success, json, said) = run(&["--json", "-", "--html", &html]);
    assert!(
        success && json.starts_with('{') && json.trim_end().ends_with('}'),
        "{json}"
    );
    assert!(json.contains("\"answered\": 7"), "{json}");
    assert!(said.contains("7 operations"), "{said}");
    assert!(fs::read_to_string(&html).unwrap().contains("<svg"));
    let (success, csv, _) = run(&["--csv", "-"]);
    assert!(
        success && csv.lines().all(|line| line.contains(',')),
        "{csv}"
    );
    let (success, page, _) = run(&["--html", "-"]);
    assert!(success && page.starts_with("<!"), "{page}");
    assert!(!folder.beside("-").exists());

    let (success, _, said) = run(&["--csv", "-", "--json", "-"]);
    assert!(!success && said.contains("only one report"), "{said}");
    let entries = ["drive", "generate", "--entries", "50", "--output", "-"];
    assert!(sapwood_ok(entries).contains("\ndn: dc=example,dc=com\n"));
}

/// Starts `sapwood drive` and reads what it says until `text` is in a line.
#[track_caller]
fn drive_until(args: &[&str], text: &str) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sapwood"))
        .arg("drive")
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    read_until(&mut said, text);
    (child, said)
}

#[track_caller]
fn read_until(said: &mut BufReader<ChildStderr>, text: &str) {
    let mut all = String::new();
    while !all.lines().last().is_some_and(|line| line.contains(text)) {
        let bytes = said.read_line(&mut all).unwrap();
        assert!(bytes > 0, "{text:?} is not in {all}");
    }
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_run_that_a_signal_ends_is_reported_until_then() {
    let (folder, server) = flat();
    let plan = folder.name_beside("plan");
    // When the signal comes, some connections are busy, and some sleep: for their next operation or for their first.
    fs::write(
        &plan,
        "phase: counted\n\nsession: s\ncount: 100\n\nsearch: dc=example,dc=com\nscope: base\n\n\
         phase: endless\nduration: 3000\n\nsession: busy\nconnections: 2\nqueue: 5\n\n\
         search: dc=example,dc=com\nscope: base\n\n\
         session: slow\nrate: 0.001\n\nsearch: dc=example,dc=com\nscope: base\n\n\
         phase: never\n\nsession: s\ncount: 1\n\nsearch: dc=example,dc=com\nscope: base\n",
    )
    .unwrap();
    let [json, csv, html] = ["json", "csv", "html"].map(|name| folder.name_beside(name));
    let password = folder.name_beside("password");
    for (signal, status, ramp_up) in [(Signal::INT, 130, "0"), (Signal::TERM, 143, "3000")] {
        let mut args = vec![server.ldap(), &plan, "--threads", "2"];
        args.extend(["--bind-dn", ADMIN, "--password-file", &password]);
        args.extend(["--json", &json, "--csv", &csv, "--html", &html]);
        args.extend(["--ramp-up", ramp_up]);
        let (mut child, mut said) = drive_until(&args, "endless: 3 connections");
        send(&child, signal);
        read_until(&mut said, "stopping");
        let mut table = String::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_string(&mut table).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status), "{table}");
        assert!(
            table.contains("100 operations") && table.contains(", cut short"),
            "{table}"
        );
        let check = "import json,sys; r=json.load(open(sys.argv[1])); p=r['phases']; \
            assert r['is_cut_short']; \
            assert [(x['name'], x['is_cut_short']) for x in p]==[('counted', False), ('endless', True)]; \
            assert p[0]['total']['answered']==100; \
            assert not p[1]['errors']";
        let checked = Command::new("python3")
            .args(["-c", check, &json])
            .status()
            .unwrap();
        assert!(checked.success(), "{table}");
        let csv = fs::read_to_string(&csv).unwrap();
        assert!(csv.contains(",false\r\nendless,3,"), "{csv}");
        assert!(csv.ends_with(",true\r\n"), "{csv}");
        let html = fs::read_to_string(&html).unwrap();
        assert!(html.matches(", cut short").count() == 2, "{html}");
    }
    // The server has all its connections back.
    drive_ok(&folder, server.ldap(), &[&plan, "--phase", "never"]);
}

#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plan, json) = (name("plan"), name("json"));
    fs::write(
        &plan,
        "phase: run\nduration: 3000\n\nsession: s\n\nsearch: dc=x\n",
    )
    .unwrap();
    // It takes connections and requests, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", silent.local_addr().unwrap());
    let args = [&url, &plan, "--answer-timeout", "3000", "--json", &json];
    let (mut child, mut said) = drive_until(&args, "run: 1 connection");
    // Wait for its request, or nothing would have to be awaited.
    let (mut connection, _) = silent.accept().unwrap();
    connection.read_exact(&mut [0; 1]).unwrap();
    send(&child, Signal::INT);
    read_until(&mut said, "stopping");
    send(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(fs::read_to_string(&json).unwrap(), "");
}

#[test]
fn wrong_answers_and_wrong_plans_are_failures() {
    let (folder, server) = flat();
    let plan = folder.name_beside("plan");
    fs::write(
        &plan,
        "session: s\ncount: 3\n\ndn: cn=nobody,dc=example,dc=com\nchangetype: delete\n",
    )
    .unwrap();
    let (success, said) = drive(&folder, server.ldap(), &[&plan]);
    assert!(
        !success && said.contains("3 × delete: noSuchObject (32)"),
        "{said}"
    );
    fs::write(&plan, "search: dc=example,dc=com\nscope: all\n").unwrap();
    let (success, said) = drive(&folder, server.ldap(), &[&plan]);
    assert!(!success && said.contains("line 2: a scope is"), "{said}");
    let (success, said) = drive(&folder, "ldap://127.0.0.1:1", &["--preset", "dvtds"]);
    assert!(!success && said.contains("127.0.0.1:1"), "{said}");
}

#[test]
fn what_cannot_be_done_is_told_before_the_run() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let plan = folder.name_beside("plan");
    fs::write(&plan, "session: s\ncount: 1\n\nsearch:\nscope: base\n").unwrap();
    let missing = folder.name_beside("missing/report");
    let no_process = u32::MAX.to_string();
    for (more, part) in [
        (["--html", &missing], missing.as_str()),
        (["--json", &missing], missing.as_str()),
        (["--database", &missing], missing.as_str()),
        (["--server-pid", &no_process], "no process"),
        (["--duration", "0"], "above 0"),
    ] {
        let (success, said) = drive(&folder, server.ldap(), &[&plan, more[0], more[1]]);
        assert!(
            !success && said.contains(part) && !said.contains("operations"),
            "{said}"
        );
        let times = said.matches("No such file").count();
        assert!(times <= 1, "told {times} times: {said}");
    }
    fs::write(&plan, "count: 1\n\nsearch:\n").unwrap();
    let (success, said) = drive(&folder, server.ldap(), &[&plan]);
    assert!(
        !success && said.contains("line 1: \"count\" is said of a session"),
        "{said}"
    );
}

#[test]
fn tls_and_ldapi_are_driven_alike() {
    let (folder, server) = flat();
    let plan = folder.name_beside("plan");
    fs::write(
        &plan,
        "session: s\ncount: 100\nqueue: 5\n\nsearch: dc=example,dc=com\nscope: base\n",
    )
    .unwrap();
    let certificate = server.certificate().to_str().unwrap().to_owned();
    for (url, more) in [
        (server.ldaps_by_name(), vec!["--ca-file", &certificate]),
        (
            server.ldap_by_name(),
            vec!["--start-tls", "--ca-file", &certificate],
        ),
        (server.ldapi().to_owned(), vec![]),
    ] {
        let mut args = vec![plan.as_str()];
        args.extend(more);
        let said = drive_ok(&folder, &url, &args);
        assert!(said.contains("100 operations"), "{said}");
    }
}

#[test]
fn the_preset_of_the_paper_fills_and_measures_a_server() {
    let folder = Folder::init(&[]);
    let server = folder.serve();
    let said = drive_ok(
        &folder,
        server.ldap(),
        &[
            "--preset",
            "mdb-paper",
            "--set",
            "people=500",
            "--duration",
            "0.2",
        ],
    );
    for phase in [
        "load: 500 operations",
        "scan, 16 at once: 16 operations",
        "combined",
    ] {
        assert!(said.contains(phase), "{said}");
    }
    let said = drive_ok(
        &folder,
        server.ldap(),
        &[
            "--preset",
            "dvtds",
            "--set",
            "people=500",
            "--duration",
            "0.2",
            "--phase",
            "mixed",
        ],
    );
    assert!(said.contains("mixed"), "{said}");
}

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
        let configuration = folder.path().join("sapwood.toml");
        let text_of = fs::read_to_string(&configuration).unwrap();
        fs::write(
            &configuration,
            text_of.replace("access = false", "access = true"),
        )
        .unwrap();
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

/// OpenLDAP's server, which ends with this value.
struct Slapd(Child);

impl Slapd {
    /// Serves `dc=example,dc=com`, with the same administrator and password as the folder's own.
    fn serve(folder: &Folder, address: SocketAddr) -> Self {
        let path = folder.name_beside("slapd");
        fs::create_dir(&path).unwrap();
        let schemas = ["core", "cosine", "inetorgperson"];
        let includes = schemas.map(|name| format!("include /etc/ldap/schema/{name}.schema\n"));
        let configuration = format!(
            "{}pidfile {path}/pid\nargsfile {path}/args\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw \"{PASSWORD}\"\ndirectory {path}\n\
             maxsize 268435456\ndbnosync\nindex objectClass,uid eq\n",
            includes.concat()
        );
        let file = format!("{path}/slapd.conf");
        fs::write(&file, configuration).unwrap();
        let mut slapd = program("/usr/sbin/slapd", "slapd");
        let slapd = slapd.args(["-d", "0", "-f", &file, "-h", &format!("ldap://{address}")]);
        let slapd = Self(slapd.stderr(Stdio::null()).spawn().unwrap());
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        slapd
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Neither speaks anything that is Sapwood's own.
#[test]
fn another_server_is_filled_and_driven_alike() {
    let folder = Folder::init(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let _slapd = Slapd::serve(&folder, address);
    let url = format!("ldap://{address}");
    let [file, password] = ["flat", "password"].map(|name| folder.name_beside(name));
    let generate = ["drive", "generate", "--shape", "flat", "--format", "ber"];
    sapwood_ok(
        generate
            .iter()
            .chain(&["--entries", ENTRIES, "--output", &file]),
    );
    let import = [
        "import",
        "--online",
        &url,
        "--bind-dn",
        ADMIN,
        "--password-file",
        &password,
        "--continue",
        "--format",
        "ber",
        &file,
    ];
    let said = sapwood_ok(import);
    assert!(said.contains("1000 entries added, 0 rejected"), "{said}");
    let said = sapwood_ok(import);
    assert!(said.contains("1000 there already"), "{said}");
    for (number, plan) in documented().iter().enumerate() {
        let plan_file = folder.name_beside(&format!("{number}.plan"));
        fs::write(&plan_file, plan).unwrap();
        let said = drive_ok(&folder, &url, &[&plan_file]);
        assert!(said.contains(" 0 failed"), "{said}");
    }
    let preset = [
        "--preset",
        "dvtds",
        "--phase",
        "mixed",
        "--set",
        "people=999",
    ];
    let said = drive_ok(
        &folder,
        &url,
        &[&preset[..], &["--duration", "0.2"]].concat(),
    );
    assert!(said.contains(" 0 failed"), "{said}");
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

#[test]
fn generated_entries_go_through_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sapwood"))
        .args([
            "drive",
            "generate",
            "--shape",
            "flat",
            "--entries",
            "1000000",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who reads has had enough: no reason to complain.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
}
