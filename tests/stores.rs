//! A directory in several stores: real clients see one tree, what was acknowledged survives kill -9 whole or not at
//! all, and the commands know about all stores.

#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sapwood_client::{Client, Options};
use sapwood_ldap::controls::{Controls, TRANSACTION_SPECIFICATION};
use sapwood_ldap::extended::{END_TRANSACTION, EndTransaction, START_TRANSACTION};
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{Frame, ModifyRequest, Request, Scope, SearchRequest, frame};
use sapwood_testkit::folder::{Folder, Running};
use sapwood_testkit::program::{fed, program, sapwood_command, sapwood_ok, succeeded, text};
use sapwood_testkit::{ADMIN, PASSWORD, SUFFIX, requests};

const PEOPLE: usize = 200;

/// The entries below the suffix are in three stores, `o=other` has one of its own.
fn folder(more: &[&str]) -> Folder {
    let partition = format!("3:{SUFFIX}");
    let mut args = vec![
        "--suffix",
        "o=other",
        "--own-stores",
        "--partition",
        &partition,
    ];
    args.extend(more);
    filled(&args)
}

/// The entries of the suffix and of `o=other`, in the stores that `init` is told of.
fn filled(args: &[&str]) -> Folder {
    let folder = Folder::init(args);
    let (people, other) = (folder.beside("people.ldif"), folder.beside("other.ldif"));
    // The suffix is one of them.
    let entries = (PEOPLE + 1).to_string();
    let generated = sapwood_ok([
        "drive",
        "generate",
        "--shape",
        "flat",
        "--suffix",
        SUFFIX,
        "--entries",
        &entries,
    ]);
    std::fs::write(&people, generated).unwrap();
    std::fs::write(&other, "dn: o=other\nobjectClass: organization\no: other\n").unwrap();
    folder.sapwood_ok(
        "import",
        &[people.to_str().unwrap(), other.to_str().unwrap()],
    );
    folder
}

fn uid(number: usize) -> String {
    format!("uid=u{number:08},{SUFFIX}")
}

/// Runs one of the ldap-utils as the administrator; standard output of what must succeed.
#[track_caller]
fn ldap_util(tool: &str, server: &Running, args: &[&str], input: &str) -> String {
    let mut command = program(tool, "ldap-utils");
    command.args(["-x", "-H", server.ldap(), "-D", ADMIN, "-w", PASSWORD]);
    succeeded(fed(command.args(args), input))
}

/// The DNs that ldapsearch prints, sorted.
fn found(server: &Running, args: &[&str]) -> Vec<String> {
    let printed = ldap_util(
        "ldapsearch",
        server,
        &[&["-LLL", "-o", "ldif-wrap=no"], args].concat(),
        "",
    );
    let lines = printed.lines().filter_map(|line| line.strip_prefix("dn: "));
    let mut dns: Vec<String> = lines.map(str::to_owned).collect();
    dns.sort();
    dns
}

fn clean(folder: &Folder) {
    let said = folder.sapwood_ok("check", &[]);
    assert!(
        said.contains("Store 4, ") && said.contains("Nothing is wrong."),
        "{said}"
    );
}

/// What clients and commands see, whatever the directory is kept in.
fn one_tree(folder: &Folder) {
    let server = folder.serve();
    for args in [
        ["-b", SUFFIX, "-s", "one"].as_slice(),
        &["-b", SUFFIX, "(uid=*)"],
        &[
            "-b",
            SUFFIX,
            "-E",
            "pr=17/noprompt",
            "(objectClass=inetOrgPerson)",
        ],
    ] {
        let all = found(&server, &[args, &["dn"]].concat());
        assert_eq!(all.len(), PEOPLE, "{args:?}");
    }
    assert_eq!(found(&server, &["-b", "o=other", "dn"]), ["o=other"]);
    let contexts = ldap_util(
        "ldapsearch",
        &server,
        &["-LLL", "-b", "", "-s", "base", "namingContexts"],
        "",
    );
    assert!(contexts.contains("namingContexts: o=other"), "{contexts}");
    let mut changes = String::new();
    for number in 1..=20 {
        changes += &format!(
            "dn: {}\nchangetype: modrdn\nnewrdn: uid=r{number}\ndeleteoldrdn: 1\n\n\
             dn: uid=r{number},{SUFFIX}\nchangetype: modify\nreplace: description\ndescription: renamed\n\n\
             dn: cn=below,uid=r{number},{SUFFIX}\nchangetype: add\nobjectClass: device\ncn: below\n\n",
            uid(number)
        );
    }
    ldap_util("ldapmodify", &server, &[], &changes);
    assert_eq!(
        found(&server, &["-b", SUFFIX, "(description=renamed)", "dn"]).len(),
        20
    );
    assert_eq!(
        found(&server, &["-b", &format!("uid=r7,{SUFFIX}"), "dn"]).len(),
        2
    );
    ldap_util(
        "ldapdelete",
        &server,
        &["-r", &format!("uid=r7,{SUFFIX}")],
        "",
    );
    server.stop();
}

#[test]
fn clients_and_commands_see_one_tree() {
    let folder = folder(&[]);
    one_tree(&folder);
    clean(&folder);
    let exported = folder.sapwood_ok("export", &[]);
    assert_eq!(exported.matches("\ndn: ").count(), PEOPLE + 1 + 1 + 20 - 2);
    assert!(folder.sapwood_ok("stat", &[]).contains("\nStore 3\n"));
    folder.sapwood_ok("index", &["add", "description eq"]);
    clean(&folder);
    let file = folder.name_beside("backup");
    folder.sapwood_ok("backup", &[&file]);
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    folder.sapwood_ok("restore", &[&file]);
    clean(&folder);
    assert_eq!(folder.sapwood_ok("export", &[]), exported);
    let server = folder.serve();
    folder.sapwood_ok("backup", &[&folder.name_beside("beside a server")]);
    let (path, copied) = (folder.path(), folder.name_beside("copied beside a server"));
    sapwood_ok(["store", "copy", path.to_str().unwrap(), &copied]);
    let said = sapwood_ok(["store", "check", &copied]);
    assert!(
        said.contains("Store 3\n") && said.contains("Nothing is wrong."),
        "{said}"
    );
    ldap_util(
        "ldapadd",
        &server,
        &[],
        "dn: cn=late,o=other\nobjectClass: device\ncn: late\n",
    );
    server.stop();
    clean(&folder);
}

#[test]
fn in_memory_the_stores_come_back_after_a_stop() {
    let folder = folder(&["--in-memory"]);
    one_tree(&folder);
    let exported = folder.sapwood_ok("export", &[]);
    assert_eq!(exported.matches("\ndn: ").count(), PEOPLE + 1 + 1 + 20 - 2);
    clean(&folder);
    folder.serve().stop();
    assert_eq!(folder.sapwood_ok("export", &[]), exported);
}

#[test]
fn naming_contexts_are_added() {
    let folder = Folder::init(&[]);
    folder.sapwood_ok("suffix", &["add", "o=more", "--own-store"]);
    folder.sapwood_ok("suffix", &["add", "o=beside"]);
    let refused = folder.sapwood("suffix", &["add", "O=more", "--own-store"]);
    let told = text(&refused.stderr);
    assert!(
        told.contains("there is a naming context 'o=more' already"),
        "{told}"
    );
    assert_eq!(
        folder.sapwood_ok("suffix", &["list"]),
        format!("{SUFFIX}\no=more\no=beside\n")
    );
    let server = folder.serve();
    let refused = folder.sapwood("suffix", &["add", "o=late"]);
    assert!(
        text(&refused.stderr).contains("stop it first"),
        "{refused:?}"
    );
    for name in ["more", "beside"] {
        let entries = format!(
            "dn: o={name}\nobjectClass: organization\no: {name}\n\n\
             dn: cn=a,o={name}\nobjectClass: device\ncn: a\n"
        );
        ldap_util("ldapadd", &server, &[], &entries);
        assert_eq!(
            found(&server, &["-b", &format!("o={name}"), "(cn=a)", "dn"]).len(),
            1
        );
    }
    server.stop();
    let said = folder.sapwood_ok("check", &[]);
    assert!(
        said.contains("Store 1, ") && said.contains("\n4 entries, "),
        "{said}"
    );
}

/// With a server and without, rules of one naming context are set, shown and explained.
#[test]
fn a_naming_context_has_access_rules_of_its_own() {
    let folder = Folder::init(&[]);
    let file = folder.name_beside("rules");
    let set = |rules: &str, more: &[&str]| {
        std::fs::write(&file, rules).unwrap();
        folder.sapwood("access", &[&["set", file.as_str()], more].concat())
    };
    let all = "access to *\n    by users read\n";
    // As long as there is only one, they are those of all.
    succeeded(set(all, &["--context", SUFFIX]));
    folder.sapwood_ok("suffix", &["add", "o=more"]);
    let own = "access to *\n    by dn.base=\"cn=admin,o=more\" write\n";
    let shown = format!("# Of the naming contexts\n{all}# Of o=more\n{own}");
    succeeded(set(own, &["--context", "O=More"]));
    assert_eq!(folder.sapwood_ok("access", &["show"]), shown);
    let server = folder.serve();
    succeeded(set("", &["--context", "o=more"]));
    let common = format!("# Of the naming contexts\n{all}");
    assert_eq!(folder.sapwood_ok("access", &["show"]), common);
    succeeded(set(own, &["--context", "o=more"]));
    assert_eq!(folder.sapwood_ok("access", &["show"]), shown);
    let entries = format!(
        "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\ndn: o=more\nobjectClass: organization\no: more\n"
    );
    ldap_util("ldapadd", &server, &[], &entries);
    let expectations = format!("deny read {SUFFIX} o=more\nallow read {SUFFIX} {SUFFIX}\n");
    std::fs::write(&file, expectations).unwrap();
    let met = folder.sapwood_ok("access", &["test", &file]);
    assert_eq!(met, "2 expectations met\n");
    let config = [
        "-b",
        "cn=config",
        "(&(olcSuffix=o=more)(olcAccess=*))",
        "dn",
    ];
    let databases = [
        "olcDatabase={1}mdb,cn=config",
        "olcDatabase={3}mdb,cn=config",
    ];
    assert_eq!(found(&server, &config), databases);
    let refused = set(own, &["--context", "o=nowhere"]);
    assert!(
        text(&refused.stderr).contains("no naming context"),
        "{refused:?}"
    );
    server.stop();
    assert_eq!(folder.sapwood_ok("access", &["show"]), shown);
}

/// Describes `o=other` again and again and reads it, until the server is gone, and counts in `acknowledged` how often
/// it may.
async fn use_other(url: &str, acknowledged: &AtomicU32) {
    let client = Client::connect(url, &Options::default()).await.unwrap();
    client.bind(ADMIN, PASSWORD.as_bytes()).await.unwrap();
    for round in 0.. {
        let text = format!("round {round}");
        let changes = requests::described(&text);
        if client.modify("o=other", changes.view()).await.is_err() {
            return;
        }
        match client
            .compare("o=other", "description", text.as_bytes())
            .await
        {
            Ok(is_so) => assert!(is_so, "{text}"),
            Err(_) => return,
        }
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// The first `count` of LDAP messages one behind the other.
fn first_messages(messages: &[u8], count: usize) -> &[u8] {
    let length = (0..count).fold(0, |length, _| match frame(&messages[length..], 1 << 20) {
        Ok(Frame::Complete(message)) => length + message,
        other => panic!("{other:?}"),
    });
    &messages[..length]
}

/// Waits until the server has so many entries at and below the suffix.
async fn wait_for_entries(url: &str, enough: usize, importer: &mut Child) {
    let client = Client::connect(url, &Options::default()).await.unwrap();
    client.bind(ADMIN, PASSWORD.as_bytes()).await.unwrap();
    let filter = filter_text::parse("(objectClass=*)").unwrap();
    let request = SearchRequest::new(SUFFIX, Scope::Subtree, filter.as_filter());
    loop {
        let mut search = client.search(request, Controls::EMPTY).unwrap();
        let mut entries = 0;
        // The suffix is no entry before it is imported.
        while let Ok(Some(_)) = search.next().await {
            entries += 1;
        }
        if entries >= enough {
            break;
        }
        assert!(
            importer.try_wait().unwrap().is_none(),
            "the import has ended"
        );
    }
}

#[test]
fn a_bulk_update_that_is_killed_keeps_what_was_acknowledged_and_another_context_serves_meanwhile() {
    const ENTRIES: usize = 4000;
    const ROUNDS: usize = 6;
    // A message of 16 MiB begins.
    const ENDLESS: [u8; 6] = [0x30, 0x84, 1, 0, 0, 0];
    // What an import wants to have before it looks at it.
    const READ_AT_ONCE: usize = 1 << 20;
    let folder = Folder::init(&["--suffix", "o=other", "--own-stores"]);
    let (file, other) = (folder.name_beside("flat.ber"), folder.name_beside("other"));
    let count = ENTRIES.to_string();
    let generate = ["drive", "generate", "--shape", "flat", "--suffix", SUFFIX];
    let places = ["--format", "ber", "--entries", &count, "--output", &file];
    sapwood_ok(generate.iter().chain(&places));
    std::fs::write(&other, "dn: o=other\nobjectClass: organization\no: other\n").unwrap();
    folder.sapwood_ok("import", &[&other]);
    let password = folder.name_beside("password");
    let import = |url: &str, file: &str| {
        let mut command = sapwood_command();
        command.args(["import", "--online", url, "--lburp", "always", "--continue"]);
        command.args(["--bind-dn", ADMIN, "--password-file", &password]);
        command.args(["--queue", "64", "--format", "ber", file]);
        command
    };
    let entries = std::fs::read(&file).unwrap();
    let on_disk = || {
        let exported = folder.sapwood_ok("export", &["--base", SUFFIX]);
        exported
            .lines()
            .filter(|line| line.starts_with("dn: "))
            .count()
    };
    let mut before = 0;
    for round in 0..ROUNDS {
        let server = folder.serve();
        let url = server.ldap().to_owned();
        // It cannot come to its end, however fast it is: behind some entries more than the round before comes one that
        // does not end.
        let mut arrives = first_messages(&entries, ENTRIES / ROUNDS * (round + 1)).to_vec();
        arrives.extend(ENDLESS);
        arrives.resize(arrives.len() + READ_AT_ONCE, 0);
        let mut importer = import(&url, "-")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = importer.stdin.take().unwrap();
        let served = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                // The importer may have ended before it read all.
                let _ = pipe.write_all(&arrives);
                pipe
            });
            scope.spawn(|| block_on(use_other(&url, &served)));
            // At the first new entry, or some later. The importer may keep the last hundreds until it knows that no
            // more come.
            block_on(wait_for_entries(
                &url,
                before + 1 + 30 * round,
                &mut importer,
            ));
            while served.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            server.kill();
            drop(written);
        });
        let said = text(&importer.wait_with_output().unwrap().stderr);
        let (_, rest) = said.split_once("stopped after ").unwrap();
        let acknowledged: usize = rest.split(' ').next().unwrap().parse().unwrap();
        let now = on_disk();
        assert!(
            now >= before + acknowledged,
            "{before} and {acknowledged}, now {now}"
        );
        before = now;
    }
    let server = folder.serve();
    let finished = import(server.ldap(), &file).output().unwrap();
    let said = text(&finished.stdout) + &text(&finished.stderr);
    assert!(
        finished.status.success() && said.contains("0 rejected"),
        "{said}"
    );
    server.stop();
    assert_eq!(on_disk(), ENTRIES);
    assert!(
        folder
            .sapwood_ok("check", &[])
            .contains("Nothing is wrong.")
    );
}

/// Transactions that describe entries of all stores, until the server is gone; the last that was acknowledged stands in
/// `acknowledged`.
async fn describe_all(
    url: &str,
    first: u32,
    acknowledged: &AtomicU32,
) -> Result<(), sapwood_client::Error> {
    let client = Client::connect(url, &Options::default()).await?;
    client.bind(ADMIN, PASSWORD.as_bytes()).await?;
    for round in first.. {
        let identifier = client.extended(START_TRANSACTION, None).await?.unwrap();
        let controls = requests::controls(&[(TRANSACTION_SPECIFICATION, true, Some(&identifier))]);
        let text = format!("round {round}");
        let changes = requests::described(&text);
        for dn in (1..=12)
            .map(uid)
            .chain([SUFFIX.to_owned(), "o=other".to_owned()])
        {
            let op = Request::Modify(ModifyRequest {
                dn: &dn,
                changes: changes.view(),
            });
            client.request(op, controls.view()).await?;
        }
        let mut value = Vec::new();
        EndTransaction {
            commit: true,
            identifier: &identifier,
        }
        .encode(&mut value);
        client.extended(END_TRANSACTION, Some(&value)).await?;
        acknowledged.store(round, Ordering::SeqCst);
    }
    Ok(())
}

#[test]
fn after_kill_9_a_transaction_is_in_all_stores_or_in_none() {
    killed_in_transactions(&folder(&[]));
}

#[test]
fn after_kill_9_a_transaction_of_one_store_took_place_or_not() {
    killed_in_transactions(&filled(&["--suffix", "o=other"]));
}

fn killed_in_transactions(folder: &Folder) {
    let acknowledged = AtomicU32::new(0);
    for round in 0..12u64 {
        let server = folder.serve();
        let url = server.ldap().to_owned();
        let before = acknowledged.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            // It ends when the server does.
            scope.spawn(|| {
                assert!(block_on(describe_all(&url, before + 1, &acknowledged)).is_err())
            });
            while acknowledged.load(Ordering::SeqCst) < before + 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(round * 700));
            server.kill();
        });
        let exported = folder.sapwood_ok("export", &["--filter", "(description=*)"]);
        let mut rounds: Vec<u32> = exported
            .lines()
            .filter_map(|line| line.strip_prefix("description: round "))
            .map(|round| round.parse().unwrap())
            .collect();
        assert_eq!(rounds.len(), 14, "{exported}");
        rounds.dedup();
        assert_eq!(rounds.len(), 1, "{rounds:?}");
        let acknowledged_last = acknowledged.load(Ordering::SeqCst);
        assert!(
            rounds[0] == acknowledged_last || rounds[0] == acknowledged_last + 1,
            "{rounds:?} of {acknowledged_last}"
        );
        acknowledged.store(rounds[0], Ordering::SeqCst);
    }
    let said = folder.sapwood_ok("check", &[]);
    assert!(said.contains("Nothing is wrong."), "{said}");
}
