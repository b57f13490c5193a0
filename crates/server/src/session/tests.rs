//! The state machine on byte buffers: no socket, and the test decides when bytes come and go.

mod acting;
mod awaited;
mod failed_binds;
mod long;
mod renewal;
mod scan_ahead;
mod tree_delete;
mod updates;

use super::*;
use std::path::Path;
use std::time::Instant;

use sapwood_directory::engine::Embedded;
use sapwood_directory::schema::Schema;
use sapwood_directory::{Directory, Options};
use sapwood_ldap::controls::{ASSERTION, MANAGE_DSA_IT, SUBENTRIES};
use sapwood_ldap::extended::WHO_AM_I;
use sapwood_ldap::filter_text;
use sapwood_ldap::message::{AddRequest, Request, Scope, SearchRequest};
use sapwood_testkit::Answer;
use sapwood_testkit::requests::{self, add, bind, bind_external, extended, message};
use tempfile::TempDir;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::config::{Config, Flags};
use crate::journal::JournalWriters;
use crate::password::{self, HasherPool};
use crate::workers::Workers;
use crate::writer::{Writer, WriterThreads};

const ADMIN: &str = "cn=admin,o=X";
const PASSWORD: &[u8] = b"secret";

/// A session with the threads behind it.
struct Bench {
    session: Session<Embedded>,
    completed: UnboundedReceiver<Completion<Embedded>>,
    _threads: WriterThreads,
    _folder: TempDir,
}

impl Bench {
    fn new(limits: &str, peer: Peer) -> Self {
        let (service, threads, folder) = example(limits);
        let (completions, completed) = mpsc::unbounded_channel();
        let admission = service.connections.newcomer(&peer, 1).admit().unwrap();
        let session = Session::new(
            Arc::new(service),
            (peer, Arc::default()),
            Rc::new(admission),
            completions,
            LastSnapshot::default(),
        );
        Self {
            session,
            completed,
            _threads: threads,
            _folder: folder,
        }
    }

    fn local() -> Self {
        Self::new("", Peer::Local { uid: 0, gid: 0 })
    }

    /// A session of the administrator, with the entry o=X.
    fn admin(limits: &str) -> Self {
        let mut bench = Self::new(limits, Peer::Local { uid: 0, gid: 0 });
        bench.receive(&bind_external(1));
        bench.receive(&add(
            2,
            "o=X",
            &[("objectClass", "organization"), ("o", "X")],
        ));
        bench.wait();
        let codes: Vec<_> = bench.answers().iter().map(|(_, code)| *code).collect();
        assert_eq!(codes, [Some(ResultCode::Success); 2]);
        bench
    }

    /// What the connection does with bytes that have come.
    fn receive(&mut self, bytes: &[u8]) {
        assert!(self.session.wants_input());
        self.session.input().extend_from_slice(bytes);
        self.session.process();
    }

    /// Takes in one completion of another thread.
    fn wait(&mut self) {
        let completion = self.completed.blocking_recv().unwrap();
        self.session.complete(completion);
        self.session.process();
    }

    /// Waits until the session has something to do, and has it done.
    fn wait_for_deadline(&mut self) {
        let deadline = self.session.deadline().unwrap();
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        self.session.expire();
        self.session.process();
    }

    /// All that is in the output as message ids and results; it is written then.
    fn answers(&mut self) -> Vec<(u32, Option<ResultCode>)> {
        let output = self.session.output();
        let answers = Answer::all(output);
        let length = output.len();
        self.session.wrote(length, true);
        let result = |answer: &Answer| (answer.id, answer.ends.then_some(answer.code));
        answers.iter().map(result).collect()
    }
}

/// What sessions share, of a directory in memory that is to hold o=X.
pub(crate) fn example(limits: &str) -> (Service<Embedded>, WriterThreads, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[admin]\ndn = '{ADMIN}'\n[limits]\n{limits}");
    std::fs::write(folder.path().join("sapwood.toml"), config).unwrap();
    std::fs::write(
        folder.path().join("admin.password"),
        password::hash(PASSWORD),
    )
    .unwrap();
    let contents = sapwood_directory::Config {
        naming_contexts: vec!["o=X".into()],
        ..sapwood_directory::Config::default()
    };
    let engine = Embedded::in_memory().unwrap();
    let directory =
        Directory::create_on(engine, &contents, Options::new(Schema::standard())).unwrap();
    let (service, threads) = service(folder.path(), directory);
    (service, threads, folder)
}

fn service(folder: &Path, directory: Directory) -> (Service<Embedded>, WriterThreads) {
    let settings =
        Settings::new(folder, Config::load(folder).unwrap(), &directory.schema()).unwrap();
    let (writer, threads) = Writer::start(directory.clone(), None).unwrap();
    let hashers = HasherPool::start(1, 0).unwrap();
    let preparers = Workers::start("preparer", 1, 1).unwrap();
    let folder = folder.to_owned();
    let parts = Parts {
        folder,
        directory,
        writer,
        hashers,
        preparers,
        tls: None,
        journals: JournalWriters::default(),
        settings,
        flags: Flags::default(),
    };
    (Service::new(parts), threads)
}

fn add_person(id: u32, name: &str, description: &str) -> Vec<u8> {
    add_named(id, name, "x", description)
}

fn add_named(id: u32, name: &str, surname: &str, description: &str) -> Vec<u8> {
    let attributes = [
        ("objectClass", "person"),
        ("cn", name),
        ("sn", surname),
        ("description", description),
    ];
    add(id, &format!("cn={name},o=X"), &attributes)
}

fn search(id: u32, scope: Scope) -> Vec<u8> {
    search_for(id, scope, "(objectClass=*)")
}

fn search_for(id: u32, scope: Scope, filter: &str) -> Vec<u8> {
    requests::search(id, "o=X", scope, filter)
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let bytes = [extended(1, WHO_AM_I, None), extended(2, WHO_AM_I, None)].concat();
    let mut bench = Bench::local();
    for cut in 0..=bytes.len() {
        bench.receive(&bytes[..cut]);
        bench.receive(&bytes[cut..]);
        assert_eq!(
            bench.answers(),
            [
                (1, Some(ResultCode::Success)),
                (2, Some(ResultCode::Success))
            ]
        );
        assert!(bench.session.is_idle());
    }
}

#[test]
fn a_bind_holds_what_comes_after_it() {
    let mut bench = Bench::local();
    bench.receive(&[bind(1, ADMIN, PASSWORD), extended(2, WHO_AM_I, None)].concat());
    assert_eq!(bench.answers(), [], "a hasher is at it");
    assert!(!bench.session.wants_input() && !bench.session.is_idle());
    bench.wait();
    assert_eq!(
        bench.answers(),
        [
            (1, Some(ResultCode::Success)),
            (2, Some(ResultCode::Success))
        ]
    );
    bench.receive(&bind(3, ADMIN, b"wrong"));
    bench.wait();
    if bench.session.deadline().is_some() {
        bench.wait_for_deadline();
    }
    assert_eq!(bench.answers(), [(3, Some(ResultCode::InvalidCredentials))]);
}

#[test]
fn a_client_that_goes_stops_the_check_of_its_password() {
    let names = [ADMIN, "cn=nobody,o=X"];
    for (name, unbind) in names
        .into_iter()
        .flat_map(|name| [(name, true), (name, false)])
    {
        let mut bench = Bench::local();
        let mut bytes = bind(1, name, b"wrong");
        if unbind {
            bytes.extend(message(2, Request::Unbind));
        }
        bench.receive(&bytes);
        if !unbind {
            assert!(bench.session.watches_peer());
            bench.session.peer_closed();
        }
        // It ends at once and without a word for every name. Otherwise its end would tell which names exist.
        assert_eq!(bench.session.then(), Then::Close, "{name}");
        assert!(bench.session.deadline().is_none());
        assert_eq!(bench.answers(), []);
    }
    // A failed bind that waits for its time.
    let mut bench = Bench::local();
    bench.receive(&bind(1, "cn=nobody,o=X", "wrong"));
    assert!(bench.session.deadline().is_some() && bench.session.watches_peer());
    bench.session.complete(Completion::Stop);
    bench.session.process();
    assert_eq!(bench.session.then(), Then::Close);
    assert_eq!(
        bench.answers(),
        [
            (1, Some(ResultCode::Unavailable)),
            (0, Some(ResultCode::Unavailable))
        ]
    );
}

#[test]
fn a_bind_waits_for_updates_before_it() {
    let mut bench = Bench::admin("");
    bench.receive(
        &[
            add_person(10, "p", "x"),
            bind_external(11),
            add_person(12, "q", "x"),
        ]
        .concat(),
    );
    assert_eq!(bench.answers(), []);
    bench.wait();
    let answers = bench.answers();
    assert_eq!(
        answers,
        [
            (10, Some(ResultCode::Success)),
            (11, Some(ResultCode::Success))
        ]
    );
    bench.wait();
    assert_eq!(bench.answers(), [(12, Some(ResultCode::Success))]);
}

#[test]
fn passwords_over_the_network_need_tls() {
    for (address, code) in [
        ("192.0.2.1:9", Some(ResultCode::ConfidentialityRequired)),
        ("127.0.0.1:9", None),
        ("[::ffff:127.0.0.1]:9", None),
    ] {
        let mut bench = Bench::new("", Peer::Tcp(address.parse().unwrap()));
        bench.receive(&bind(1, ADMIN, PASSWORD));
        match code {
            Some(code) => assert_eq!(bench.answers(), [(1, Some(code))], "{address}"),
            None => {
                bench.wait();
                assert_eq!(
                    bench.answers(),
                    [(1, Some(ResultCode::Success))],
                    "{address}"
                );
            }
        }
    }
}

#[test]
fn a_search_stops_when_the_output_is_full_and_goes_on_when_it_is_not() {
    let mut bench = Bench::admin("output_bytes_max = 4096\n");
    let text = "x".repeat(500);
    let people: Vec<u8> = (0..50)
        .flat_map(|number| add_person(100 + number, &format!("p{number}"), &text))
        .collect();
    bench.receive(&people);
    let mut answered = 0;
    while answered < 50 {
        bench.wait();
        answered += bench.answers().len();
    }
    bench.receive(&search(7, Scope::Subtree));
    assert!(!bench.session.has_work());
    let length = bench.session.output().len();
    assert!((3000..=4096).contains(&length), "{length}");
    bench.session.process();
    assert_eq!(bench.session.output().len(), length, "full is full");
    // Written in small pieces, the buffer stays bounded and no message is broken.
    let mut written = Vec::new();
    while !bench.session.output().is_empty() {
        let piece = bench.session.output().len().min(100);
        written.extend_from_slice(&bench.session.output()[..piece]);
        bench.session.wrote(piece, true);
        bench.session.process();
        assert!(bench.session.output.bytes.len() <= 3 * 4096);
    }
    assert_eq!(Answer::all(&written).len(), 52, "51 entries and the end");
    assert!(bench.session.is_idle() && bench.session.wants_input());
}

#[test]
fn searches_begun_together_are_answered_in_their_turn() {
    let mut bench = Bench::admin("");
    let burst: Vec<Vec<u8>> = (1..100)
        .map(|id| match id {
            // Begun together end where another request stands, and where one is not to be decoded.
            7 | 50 => extended(id, WHO_AM_I, None),
            60 => search_for(id, Scope::Base, &format!("(cn={})", "x".repeat(2000))),
            61 => search_for(id, Scope::Base, "(cn=nobody)"),
            // What controls ask for is each search's own.
            20..30 => requests::with(&search(id, Scope::Base), &[(MANAGE_DSA_IT, true, None)]),
            30 => requests::with(
                &search(id, Scope::Base),
                &[(SUBENTRIES, true, Some(&[1, 1, 0xff]))],
            ),
            31 => requests::with(&search(id, Scope::Base), &[("1.2.3", true, None)]),
            _ => search(id, Scope::Base),
        })
        .collect();
    let mut bytes = burst.concat();
    bytes.extend_from_slice(&[0x30, 0x02, 0x02, 0x00]);
    let entries = |id: u32| !matches!(id, 7 | 30 | 31 | 50 | 60 | 61);
    let mut expected = Vec::new();
    for id in 1..100 {
        expected.extend(entries(id).then_some((id, None)));
        let code = match id {
            31 => ResultCode::UnavailableCriticalExtension,
            _ => ResultCode::Success,
        };
        expected.push((id, Some(code)));
    }
    expected.push((0, Some(ResultCode::ProtocolError)));
    bench.receive(&bytes);
    let mut answers = bench.answers();
    while bench.session.then() != Then::Close {
        bench.session.process();
        answers.extend(bench.answers());
    }
    assert_eq!(answers, expected);
}

#[test]
fn a_session_that_has_work_gets_on_with_it() {
    let mut bench = Bench::admin("output_bytes_max = 4096\n");
    let (small, large) = ("x".repeat(700), "x".repeat(3600));
    // So many that a search uses up its step before it finds anything.
    let mut people: Vec<Vec<u8>> = (0..550)
        .map(|number| add_person(1000 + number, &format!("p{number}"), "x"))
        .collect();
    people.push(add_named(5, "small", "first", &small));
    people.push(add_named(6, "large", "first", &large));
    people.extend(
        (0..5).map(|number| add_named(10 + number, &format!("s{number}"), "second", &small)),
    );
    for some in people.chunks(50) {
        bench.receive(&some.concat());
        let mut answered = 0;
        while answered < some.len() {
            bench.wait();
            answered += bench.answers().len();
        }
    }
    // Two searches under way at once: one waits with a large entry, and soon there is room for one of the other's.
    bench.receive(&search_for(7, Scope::Subtree, "(sn=first)"));
    bench.receive(&search_for(8, Scope::Subtree, "(sn=second)"));
    let mut written = Vec::new();
    let mut waited_for_room = 0;
    loop {
        while bench.session.has_work() {
            let before = (bench.session.output().len(), bench.session.turn_used);
            bench.session.process();
            let after = (bench.session.output().len(), bench.session.turn_used);
            assert!(after.0 > before.0 || after.1, "nothing was done");
        }
        let piece = bench.session.output().len().min(100);
        if piece == 0 {
            break;
        }
        waited_for_room += usize::from(bench.session.waits_for_room());
        written.extend_from_slice(&bench.session.output()[..piece]);
        bench.session.wrote(piece, true);
    }
    assert!(waited_for_room > 10 && bench.session.is_idle());
    let found = Answer::all(&written);
    let mut found: Vec<u32> = found.iter().map(|answer| answer.id).collect();
    found.sort_unstable();
    assert_eq!(found, [[7; 3].as_slice(), &[8; 6]].concat());
}

#[test]
fn an_abandon_behind_a_full_output_is_done_as_soon_as_there_is_room() {
    let mut bench = Bench::admin("output_bytes_max = 4096\n");
    let text = "x".repeat(500);
    bench.receive(
        &(0..50)
            .flat_map(|number| add_person(100 + number, &format!("p{number}"), &text))
            .collect::<Vec<_>>(),
    );
    let mut answered = 0;
    while answered < 50 {
        bench.wait();
        answered += bench.answers().len();
    }
    bench.receive(
        &[
            search(7, Scope::Subtree),
            message(8, Request::Abandon(7)),
            extended(9, WHO_AM_I, None),
        ]
        .concat(),
    );
    let mut answers = bench.answers();
    bench.session.process();
    answers.extend(bench.answers());
    assert_eq!(answers.pop(), Some((9, Some(ResultCode::Success))));
    assert!(answers.iter().all(|(id, code)| *id == 7 && code.is_none()));
    assert!(bench.session.is_idle());
}

#[test]
fn a_large_entry_waits_for_room_and_gives_it_back() {
    let mut bench = Bench::admin("output_bytes_max = 4096\nanswers_bytes_max = 65536\n");
    bench.receive(
        &[
            add_person(5, "small", "x"),
            add_person(6, "large", &"x".repeat(40_000)),
        ]
        .concat(),
    );
    let mut answered = 0;
    while answered < 2 {
        bench.wait();
        answered += bench.answers().len();
    }
    let answers = bench.session.service.memory.answers.clone();
    let claimant = Arc::clone(bench.session.claimant());
    let taken = answers.try_take(&claimant, 30_000).unwrap();
    bench.receive(&search(7, Scope::Subtree));
    assert_eq!(bench.answers(), [(7, None), (7, None)]);
    bench.session.process();
    assert_eq!(bench.session.output(), b"");
    let wanted = bench.session.wants_room().unwrap();
    assert!((40_000..41_000).contains(&wanted), "{wanted}");
    assert!(answers.try_take(&claimant, wanted).is_none());
    drop(taken);
    bench
        .session
        .granted_room(answers.try_take(&claimant, wanted).unwrap());
    assert!(bench.session.wants_room().is_none() && bench.session.has_work());
    bench.session.process();
    assert!(bench.session.output.bytes.capacity() < 50_000);
    assert_eq!(bench.answers()[0], (7, None));
    bench.session.process();
    bench.answers();
    assert!(bench.session.is_idle());
    assert_eq!(
        bench
            .session
            .take_output_buffer()
            .map(|output| output.len()),
        Some(0)
    );
    assert_eq!(answers.free_bytes(), 65_536);
}

#[test]
fn a_short_search_takes_room_for_a_long_answer_only() {
    let mut bench = Bench::admin("");
    bench.receive(&add_person(5, "large", &"x".repeat(20_000)));
    bench.wait();
    assert_eq!(bench.answers(), [(5, Some(ResultCode::Success))]);
    bench.session.take_output_buffer();
    let answers = bench.session.service.memory.answers.clone();
    let free = answers.free_bytes();
    bench.receive(&search(7, Scope::Base));
    assert_eq!(answers.free_bytes(), free);
    let ended = Some(ResultCode::Success);
    assert_eq!(bench.answers(), [(7, None), (7, ended)]);
    bench.receive(&search(8, Scope::Subtree));
    assert!(answers.free_bytes() < free);
    assert_eq!(bench.answers(), [(8, None), (8, None), (8, ended)]);
    assert!(bench.session.waits());
    bench.session.take_output_buffer();
    assert_eq!(answers.free_bytes(), free);
}

#[test]
fn an_unbind_voids_what_comes_after_it() {
    let mut bench = Bench::local();
    bench.receive(&[message(1, Request::Unbind), extended(2, WHO_AM_I, None)].concat());
    assert_eq!(bench.session.then(), Then::Close);
    assert_eq!(bench.answers(), []);
}

#[test]
fn a_malformed_message_ends_the_session_after_what_came_before() {
    let mut bench = Bench::local();
    bench.receive(
        &[
            extended(1, WHO_AM_I, None),
            b"\x31\x00".to_vec(),
            extended(2, WHO_AM_I, None),
        ]
        .concat(),
    );
    assert_eq!(bench.session.then(), Then::Close);
    assert_eq!(
        bench.answers(),
        [
            (1, Some(ResultCode::Success)),
            (0, Some(ResultCode::ProtocolError))
        ]
    );
}

#[test]
fn a_stop_waits_for_what_is_under_way() {
    let mut bench = Bench::admin("");
    bench.receive(&add_person(5, "p", "x"));
    bench.session.complete(Completion::Stop);
    bench.session.process();
    assert!(!bench.session.wants_input());
    assert_eq!(
        (bench.session.then(), bench.answers()),
        (Then::Continue, vec![])
    );
    bench.wait();
    assert_eq!(
        bench.answers(),
        [
            (5, Some(ResultCode::Success)),
            (0, Some(ResultCode::Unavailable))
        ]
    );
    assert_eq!(bench.session.then(), Then::Close);
}

#[test]
fn a_full_update_queue_makes_the_session_wait_for_room() {
    let mut bench = Bench::admin("update_queue_bytes_max = 65536\n");
    let updates = bench.session.service.memory.updates.clone();
    let claimant = Arc::clone(bench.session.claimant());
    let taken = updates.try_take(&claimant, 65_000).unwrap();
    bench.receive(
        &[
            add_person(5, "p", &"x".repeat(1000)),
            add_person(6, "q", "x"),
        ]
        .concat(),
    );
    let (_, bytes) = bench.session.wants_share().unwrap();
    assert!(!bench.session.wants_input() && bench.completed.try_recv().is_err());
    drop(taken);
    let share = updates.try_take(&claimant, bytes).unwrap();
    bench.session.granted(share);
    // That the peer sends nothing more may be seen before they are taken.
    bench.session.peer_closed();
    bench.session.process();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        bench.wait();
        answers.extend(bench.answers());
    }
    assert_eq!(
        answers,
        [
            (5, Some(ResultCode::Success)),
            (6, Some(ResultCode::Success))
        ]
    );
    // The writer gives the room back when it has applied the updates, which is before they are answered.
    assert_eq!(updates.free_bytes(), 65_536);
}

#[test]
fn a_long_request_is_announced_and_its_limit_depends_on_who_asks() {
    let mut bench = Bench::local();
    // 300,000 bytes of content: more than an anonymous session may send.
    bench.receive(b"\x30\x83\x04\x93\xe0");
    assert_eq!(bench.answers(), [(0, Some(ResultCode::ProtocolError))]);
    let mut bench = Bench::admin("");
    bench.receive(b"\x30\x83\x04\x93\xe0\x02\x01\x05");
    assert_eq!(bench.session.input_needed(), 300_005);
    assert!(bench.session.wants_input());
}

/// A session in which an entry has many values, and a filter that takes long to compare with them.
fn long_evaluation() -> (Bench, String) {
    let mut bench = Bench::admin("");
    let person = [("objectClass", "person"), ("cn", "p"), ("sn", "x")];
    let mut attributes = requests::attributes(&person);
    let values: Vec<String> = (0..5000).map(|number| format!("value {number}")).collect();
    attributes.push(b"description", values.iter().map(String::as_bytes));
    let request = AddRequest {
        dn: "cn=p,o=X",
        attributes: attributes.view(),
    };
    bench.receive(&message(10, Request::Add(request)));
    bench.wait();
    assert_eq!(bench.answers(), [(10, Some(ResultCode::Success))]);
    (bench, format!("(|{})", "(description=*none*)".repeat(100)))
}

#[test]
fn a_long_evaluation_gives_others_their_turns_and_can_be_abandoned() {
    let (mut bench, filter) = long_evaluation();
    bench.receive(&search_for(7, Scope::Subtree, &filter));
    let mut steps = 0;
    while bench.session.has_work() {
        assert_eq!(
            bench.answers(),
            [],
            "nothing matches, and the end has not come"
        );
        bench.session.process();
        steps += 1;
    }
    assert!(steps > 3, "{steps} steps after the first");
    assert_eq!(bench.answers(), [(7, Some(ResultCode::Success))]);
    bench.receive(&search_for(8, Scope::Subtree, &filter));
    bench.receive(&extended(9, WHO_AM_I, None));
    assert_eq!(bench.answers(), [(9, Some(ResultCode::Success))]);
    bench.receive(&message(10, Request::Abandon(8)));
    assert!(bench.session.is_idle() && !bench.session.has_work());
    assert_eq!(bench.answers(), []);
}

#[test]
fn a_compare_whose_assertion_takes_long_can_be_canceled() {
    let (mut bench, filter) = long_evaluation();
    let filter = filter_text::parse(&filter).unwrap();
    let assertion = (ASSERTION, true, Some(filter.as_filter().as_ber()));
    let compare =
        |id: u32| requests::with(&requests::compare(id, "cn=p,o=X", "cn", "p"), &[assertion]);
    bench.receive(&compare(7));
    while bench.session.has_work() {
        assert_eq!(bench.answers(), []);
        bench.session.process();
    }
    assert_eq!(bench.answers(), [(7, Some(ResultCode::AssertionFailed))]);
    bench.receive(&compare(8));
    bench.receive(&requests::cancel(9, 8));
    let canceled = [
        (8, Some(ResultCode::Canceled)),
        (9, Some(ResultCode::Success)),
    ];
    assert_eq!(bench.answers(), canceled);
    assert!(bench.session.is_idle());
}

/// A stop waited for long searches, up to ten seconds.
#[test]
fn a_stop_ends_a_long_search_within_a_step() {
    let (mut bench, filter) = long_evaluation();
    bench.receive(&search_for(7, Scope::Subtree, &filter));
    assert!(bench.session.has_work());
    bench.session.complete(Completion::Stop);
    bench.session.process();
    let stopped = Some(ResultCode::Unavailable);
    assert_eq!(bench.answers(), [(7, stopped), (0, stopped)]);
    assert_eq!(bench.session.then(), Then::Close);
}

#[test]
fn nothing_is_hashed_for_who_has_not_bound() {
    let mut bench = Bench::new(
        "",
        Peer::Local {
            uid: u32::MAX,
            gid: 0,
        },
    );
    let attributes = [
        ("objectClass", "organization"),
        ("o", "X"),
        ("userPassword", "secret"),
    ];
    bench.receive(&add(1, "o=X", &attributes));
    assert!(bench.session.operations.hashing.is_none());
    bench.wait();
    assert_eq!(
        bench.answers(),
        [(1, Some(ResultCode::StrongerAuthRequired))]
    );
}

#[test]
fn a_user_of_this_machine_has_a_name_but_reads_nothing() {
    let mut bench = Bench::new(
        "",
        Peer::Local {
            uid: u32::MAX,
            gid: 7,
        },
    );
    bench.receive(&bind_external(1));
    bench.receive(&extended(2, WHO_AM_I, None));
    bench.receive(&requests::search(
        3,
        "o=X",
        Scope::Subtree,
        "(objectClass=*)",
    ));
    let answers = Answer::all(bench.session.output());
    assert_eq!(answers[0].code, ResultCode::Success);
    let name = String::from_utf8(answers[1].value.clone().unwrap()).unwrap();
    let expected = format!(
        "dn:gidNumber=7+uidNumber={},cn=peercred,cn=external,cn=auth",
        u32::MAX
    );
    assert_eq!(name, expected);
    assert_eq!(answers[2].code, ResultCode::InsufficientAccessRights);
}
