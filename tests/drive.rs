//! `sapwood drive` and what it generates, against the server as users start it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use sapwood_testkit::folder::{ENTRIES, Folder, flat};
use sapwood_testkit::program::{Process, Scratch, sapwood, sapwood_command, sapwood_ok, text};
use sapwood_testkit::{ADMIN, Slapd};

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
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/drive.md");
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
        let output = sapwood_command()
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

/// Starts `sapwood drive` and waits until it has said this.
#[track_caller]
fn drive_until(args: &[&str], text: &str) -> Process {
    let mut command = sapwood_command();
    let drive = Process::start(command.arg("drive").args(args).stdout(Stdio::piped()));
    drive.wait_for(text);
    drive
}

#[test]
fn a_run_that_a_signal_ends_is_reported_until_then() {
    let (folder, server) = flat();
    let plan = folder.name_beside("plan");
    // When the signal comes, some connections are busy, and some sleep: for their next operation or for their first.
    // What is not answered ten seconds later, on a slow machine, is told as that and nothing else.
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
        let mut drive = drive_until(&args, "endless: 3 connections");
        drive.signal(signal);
        drive.wait_for("stopping");
        let mut table = String::new();
        let mut stdout = drive.child.stdout.take().unwrap();
        stdout.read_to_string(&mut table).unwrap();
        assert_eq!(drive.wait().code(), Some(status), "{table}");
        assert!(
            table.contains("100 operations") && table.contains(", cut short"),
            "{table}"
        );
        let check = "import json,sys; r=json.load(open(sys.argv[1])); p=r['phases']; \
            assert r['is_cut_short']; \
            assert [(x['name'], x['is_cut_short']) for x in p]==[('counted', False), ('endless', True)]; \
            assert p[0]['total']['answered']==100; \
            assert all('after the stop' in e['reason'] for e in p[1]['errors'])";
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
    let folder = Scratch::new();
    let [plan, json] = ["plan", "json"].map(|name| folder.arg(name));
    fs::write(
        &plan,
        "phase: run\nduration: 3000\n\nsession: s\n\nsearch: dc=x\n",
    )
    .unwrap();
    // It takes connections and requests, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", silent.local_addr().unwrap());
    let args = [&url, &plan, "--answer-timeout", "3000", "--json", &json];
    let mut drive = drive_until(&args, "run: 1 connection");
    // Wait for its request, or nothing would have to be awaited.
    let (mut connection, _) = silent.accept().unwrap();
    connection.read_exact(&mut [0; 1]).unwrap();
    drive.signal(Signal::INT);
    drive.wait_for("stopping");
    drive.signal(Signal::TERM);
    assert_eq!(drive.wait().code(), Some(143));
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
    let asked = "for example delete: delete 'cn=nobody,dc=example,dc=com': expected success";
    assert!(said.contains(asked), "{said}");
    let value = "session: s\ncount: 1\n\nexpect-value: o: another\nsearch: dc=example,dc=com\nscope: base\n";
    fs::write(&plan, value).unwrap();
    let (success, said) = drive(&folder, server.ldap(), &[&plan]);
    let asked = "search 'dc=example,dc=com' base '(objectClass=*)': expected o 'another', got 'example' in 'dc=example,dc=com'";
    assert!(!success && said.contains(asked), "{said}");
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

/// Neither speaks anything that is Sapwood's own.
#[test]
fn another_server_is_filled_and_driven_alike() {
    let folder = Folder::init(&[]);
    let slapd = Slapd::start("");
    let url = format!("ldap://{}", slapd.address());
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

#[test]
fn generated_entries_go_through_a_pipe() {
    let mut child = sapwood_command()
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
