//! The load client against a server of a few lines that can be made to err.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sapwood_drive::{
    ErrorReport, Observer, PhaseReport, Plan, PlanOptions, Point, Settings, StopToken, run,
};
use sapwood_ldap::list::{Attributes, AttributesBuf};
use sapwood_ldap::message::*;
use sapwood_ldap::result::{LdapResult, ResultCode};
use sapwood_testkit::scripted::{Answers, Connection, serve};

/// Ends an operation with a result code.
fn end(out: &mut Answers, request: &RequestMessage<'_>, code: ResultCode) {
    out.end(request, LdapResult::new(code, "because"));
}

/// Answers as a server with all entries would: a search finds one with the uid it names, compares are true.
fn good(request: &RequestMessage<'_>, out: &mut Answers) {
    let code = match request.op {
        Request::Search(search) => {
            let uid = search.base.split([',', '=']).nth(1).unwrap_or_default();
            let mut attributes = AttributesBuf::default();
            attributes.push(b"UID", [uid.as_bytes()]);
            out.entry(request.id, search.base, attributes.view());
            ResultCode::Success
        }
        Request::Compare(_) => ResultCode::CompareTrue,
        _ => ResultCode::Success,
    };
    end(out, request, code);
}

fn plan(text: &str) -> Plan {
    Plan::read(text.as_bytes(), &PlanOptions::default()).unwrap()
}

/// Runs a plan of one phase.
fn run_one(text: &str, url: &str, change: impl FnOnce(&mut Settings)) -> PhaseReport {
    let mut settings = Settings::new(url);
    change(&mut settings);
    run(plan(text), &settings, &mut ()).unwrap().remove(0)
}

/// Runs what has to get done within a time, again with twice as much while it was not `done`: what one machine does in
/// a part of a second takes another many.
fn in_time<T>(run: impl Fn(Duration) -> T, done: impl Fn(&T) -> bool) -> T {
    const MOST: Duration = Duration::from_secs(16);
    let mut time = Duration::from_millis(500);
    loop {
        let result = run(time);
        if done(&result) || time == MOST {
            return result;
        }
        time *= 2;
    }
}

const SEARCH: &str = "let: n = random 1..1000\n\nexpect-entries: 1\nexpect-value: uid: u${n:6}\n\
    search: uid=u${n:6},dc=example\nscope: base\n";

#[test]
fn a_queue_is_kept_full_and_every_answer_is_counted() {
    let most = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let url = serve({
        let (seen, most) = (seen.clone(), most.clone());
        let mut burst = 0;
        move |request, out| {
            burst = if out.is_empty() { 1 } else { burst + 1 };
            most.fetch_max(burst, Ordering::Relaxed);
            seen.lock().unwrap().insert((out.connection(), request.id));
            good(request, out);
        }
    });
    let text = format!("session: s\nconnections: 4\nqueue: 100\ncount: 5000\n\n{SEARCH}");
    let report = run_one(&text, &url, |settings| settings.threads = 2);
    assert_eq!(report.errors, []);
    assert_eq!((report.connections, report.queue), (4, 100));
    assert_eq!((report.total.answered, report.total.entries), (5000, 5000));
    assert_eq!(report.operations.len(), 1);
    assert!(report.total.latency.p50 > 0 && report.total.latency.max >= report.total.latency.p99);
    assert!(report.client_cpu > Duration::ZERO && report.rate() > 0.0);
    let in_series: u64 = report.series.iter().map(|point| point.answered).sum();
    assert_eq!(in_series, 5000);
    // The server got bursts, and no message ID came twice.
    assert!(most.load(Ordering::Relaxed) > 10);
    assert_eq!(seen.lock().unwrap().len(), 5000);
}

#[test]
fn wrong_answers_are_told_by_kind() {
    let url = serve(|request, out| match request.op {
        Request::Search(search) if search.base.starts_with("uid=two,") => {
            (0..2).for_each(|_| out.entry(request.id, "cn=other", Attributes::EMPTY));
            end(out, request, ResultCode::Success);
        }
        Request::Compare(_) => end(out, request, ResultCode::CompareFalse),
        Request::Delete(_) => end(out, request, ResultCode::NoSuchObject),
        _ => good(request, out),
    });
    let text = "session: s\ncount: 50\nqueue: 7\n\n\
        name: wrong count\nexpect-entries: 1\nsearch: uid=two,dc=x\n\n\
        name: wrong value\nexpect-value: uid: x\nsearch: uid=y,dc=x\n\n\
        compare: dc=x\nuid: x\n\n\
        dn: dc=x\nchangetype: delete\n\n\
        name: refused as expected\nexpect: noSuchObject\ndn: dc=x\nchangetype: delete\n";
    let report = run_one(text, &url, |_| ());
    let mut errors: Vec<(String, String, u64)> = report
        .errors
        .iter()
        .map(|error| (error.operation.clone(), error.reason.clone(), error.count))
        .collect();
    errors.sort();
    let error = |operation: &str, reason: &str| (operation.to_owned(), reason.to_owned(), 10);
    assert_eq!(
        errors,
        [
            error("compare", "compareFalse (5): because"),
            error("delete", "noSuchObject (32): because"),
            error("wrong count", "2 entries in place of 1"),
            error("wrong value", "no entry has the expected value of uid"),
        ]
    );
    assert_eq!((report.total.answered, report.total.failed), (50, 40));
    // Of each kind some are shown.
    let told = report.to_string();
    for example in [
        "compare: compare 'dc=x': expected compareTrue (6), got compareFalse (5): because",
        "delete: delete 'dc=x': expected success (0), got noSuchObject (32): because",
        "wrong count: search 'uid=two,dc=x' sub '(objectClass=*)': expected 1 entries, got 2 entries",
        "wrong value: search 'uid=y,dc=x' sub '(objectClass=*)': expected uid 'x', got ",
    ] {
        assert!(
            report
                .examples
                .iter()
                .any(|found| found.starts_with(example)),
            "{example}\n{told}"
        );
        assert_eq!(
            told.matches(&format!("for example {example}")).count(),
            2,
            "{example}\n{told}"
        );
    }
}

#[test]
fn a_server_that_hangs_up_or_says_nothing_is_an_error_of_the_connection() {
    let url = serve(|request, out| {
        if request.id % 2 == 7 {
            good(request, out);
        }
    });
    let silent = |time| {
        run_one(SEARCH, &url, |settings| {
            settings.queue = Some(3);
            settings.answer_timeout = time;
        })
    };
    let report = in_time(silent, |report| report.total.failed == 3);
    assert_eq!(report.total.answered, 0);
    assert_eq!(report.total.failed, 3);
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.operation == "connection" && error.reason.contains("no answer"))
    );

    let url = serve(|request, out| {
        end(out, request, ResultCode::Success);
        out.put_bytes(b"not LDAP");
    });
    let report = run_one(SEARCH, &url, |_| ());
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.operation == "connection"),
        "{report}"
    );

    let nobody = run(plan(SEARCH), &Settings::new("ldap://127.0.0.1:1"), &mut ());
    assert!(nobody.is_err());
}

#[test]
fn a_bind_goes_alone_and_a_refused_one_ends_the_run() {
    let url = serve(|request, out| match request.op {
        Request::Bind(bind) if bind.name == "cn=bad" => {
            end(out, request, ResultCode::InvalidCredentials);
        }
        // Only what comes alone in its burst is answered well.
        Request::Bind(_) if !out.is_empty() => end(out, request, ResultCode::OperationsError),
        _ => good(request, out),
    });
    let text = "session: s\nqueue: 10\ncount: 40\n\nrepeat: 3\nsearch: uid=a\n\nbind: cn=good\npassword: x\n";
    let report = run_one(text, &url, |_| ());
    assert_eq!(
        (report.errors.len(), report.total.answered),
        (0, 40),
        "{report}"
    );
    let mut settings = Settings::new(&url);
    settings.bind = Some(("cn=bad".to_owned(), b"x".to_vec()));
    let refused = run(plan(text), &settings, &mut ()).unwrap_err();
    assert_eq!(refused.code(), Some(ResultCode::InvalidCredentials));
}

#[test]
fn updates_of_a_session_with_transactions_go_into_transactions() {
    transactions(false);
}

/// OpenLDAP refuses a start that it reads before it has done the end of the transaction before.
#[test]
fn a_server_with_one_transaction_at_a_time_gets_the_next_after_the_end() {
    transactions(true);
}

fn transactions(is_one_at_a_time: bool) {
    const START: &str = "1.3.6.1.1.21.1";
    const SPECIFICATION: &str = "1.3.6.1.1.21.2";
    const END: &str = "1.3.6.1.1.21.3";
    /// What a server must see of RFC 5805.
    #[derive(Default)]
    struct Seen {
        open: Option<(u64, u64)>,
        lengths: Vec<u64>,
        wrong: Vec<String>,
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let url = serve({
        let seen = seen.clone();
        move |request, out| {
            let mut seen = seen.lock().unwrap();
            let of = request.controls.find(SPECIFICATION).map(|control| {
                let value = control.value.unwrap_or_default();
                (
                    control.critical,
                    String::from_utf8_lossy(value).into_owned(),
                )
            });
            match request.op {
                // What comes behind an end is in one burst with it.
                Request::Extended(extended)
                    if extended.name == START && is_one_at_a_time && !out.is_empty() =>
                {
                    end(out, request, ResultCode::Busy);
                }
                Request::Extended(extended) if extended.name == START => {
                    if seen.open.is_some() {
                        seen.wrong.push("two at once".to_owned());
                    }
                    let number = seen.lengths.len() as u64 + 7;
                    seen.open = Some((number, 0));
                    let value = format!("txn{number}");
                    out.put(
                        request.id,
                        Response::Extended(ExtendedResponse {
                            result: LdapResult::SUCCESS,
                            name: None,
                            value: Some(value.as_bytes()),
                        }),
                    );
                }
                Request::Extended(extended) if extended.name == END => {
                    let (number, length) = seen.open.take().unwrap_or_default();
                    let identifier = format!("txn{number}");
                    let mut expected = vec![0x30, identifier.len() as u8 + 2, 0x04];
                    expected.push(identifier.len() as u8);
                    expected.extend_from_slice(identifier.as_bytes());
                    if extended.value != Some(&expected) {
                        seen.wrong.push(format!("end: {:?}", extended.value));
                    }
                    seen.lengths.push(length);
                    end(out, request, ResultCode::Success);
                }
                Request::Search(_) if of.is_none() => good(request, out),
                _ => {
                    match (&mut seen.open, of) {
                        (Some((number, length)), Some((true, of)))
                            if of == format!("txn{number}") =>
                        {
                            *length += 1;
                        }
                        (open, of) => {
                            let wrong = format!("{of:?} in {open:?}");
                            seen.wrong.push(wrong);
                        }
                    }
                    good(request, out);
                }
            }
        }
    });
    let text = "session: s\nqueue: 8\ntransaction: 5\ncount: 36\n\n\
        repeat: 2\ndn: uid=a,dc=x\nchangetype: delete\n\nsearch: uid=a\n";
    let report = run_one(text, &url, |_| ());
    assert_eq!(report.errors, [], "{report}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.wrong, Vec::<String>::new());
    // 24 updates: four whole transactions, then what was left, committed too.
    assert_eq!(seen.lengths, [5, 5, 5, 5, 4]);
    assert_eq!(seen.open, None);
    assert_eq!(report.total.answered, 36);
    let names: Vec<&str> = report
        .operations
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["delete", "search", "start transaction", "end transaction"]
    );
}

#[test]
fn updates_of_a_transaction_that_is_not_committed_have_failed() {
    let ends = Arc::new(AtomicU64::new(0));
    let url = serve(move |request, out| match request.op {
        Request::Extended(extended) if extended.name == "1.3.6.1.1.21.1" => out.put(
            request.id,
            Response::Extended(ExtendedResponse {
                result: LdapResult::SUCCESS,
                name: None,
                value: Some(b"x"),
            }),
        ),
        Request::Extended(extended) if extended.name == "1.3.6.1.1.21.3" => {
            let code = match ends.fetch_add(1, Ordering::Relaxed) {
                1 => ResultCode::NoSuchObject,
                _ => ResultCode::Success,
            };
            end(out, request, code);
        }
        // One is refused at once: it is not part of the transaction, and has failed once.
        Request::Delete("uid=bad") => end(out, request, ResultCode::UnwillingToPerform),
        _ => good(request, out),
    });
    let text = "session: s\nqueue: 8\ntransaction: 5\ncount: 15\n\n\
        repeat: 4\ndn: uid=a,dc=x\nchangetype: delete\n\nname: bad\ndn: uid=bad\nchangetype: delete\n\nwait:\n";
    let report = run_one(text, &url, |_| ());
    let failed: Vec<(&str, u64)> = report
        .operations
        .iter()
        .map(|row| (row.name.as_str(), row.failed))
        .collect();
    assert_eq!(failed[..2], [("delete", 4), ("bad", 3)], "{report}");
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.reason == "its transaction was not committed" && error.count == 4),
        "{report}"
    );
}

#[test]
fn updates_of_a_transaction_whose_end_is_not_answered_have_failed() {
    let url = serve(|request, out| match request.op {
        Request::Extended(extended) if extended.name == "1.3.6.1.1.21.1" => out.put(
            request.id,
            Response::Extended(ExtendedResponse {
                result: LdapResult::SUCCESS,
                name: None,
                value: Some(b"x"),
            }),
        ),
        Request::Extended(_) => {}
        _ => good(request, out),
    });
    let text = "session: s\ntransaction: 5\ncount: 5\n\ndn: uid=a,dc=x\nchangetype: delete\n";
    let unanswered = |time| run_one(text, &url, |settings| settings.answer_timeout = time);
    let report = in_time(unanswered, |report| report.total.answered == 5);
    assert_eq!((report.total.answered, report.total.failed), (5, 5));
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.reason.contains("was not answered: ") && error.count == 5),
        "{report}"
    );
}

#[test]
fn wrong_answers_in_ramp_up_are_told() {
    let in_ramp_up = |time| {
        let asked = Arc::new(AtomicU64::new(0));
        let url = serve(
            move |request, out| match asked.fetch_add(1, Ordering::Relaxed) {
                0..5 => end(out, request, ResultCode::Busy),
                _ => good(request, out),
            },
        );
        run_one(&format!("{SEARCH}\nwait:\n"), &url, |settings| {
            settings.ramp_up = time;
            settings.duration = Some(time);
        })
    };
    let report = in_time(in_ramp_up, |report| {
        report.total.answered > 0 && report.total.failed == 0
    });
    assert!(
        report.total.answered > 0 && report.total.failed == 0,
        "{report}"
    );
    assert_eq!(
        report.errors[0].reason, "during ramp-up: busy (51): because",
        "{report}"
    );
}

#[test]
fn a_stall_is_charged_to_all_that_was_due_in_it() {
    const STALL: Duration = Duration::from_millis(300);
    let begun = Instant::now();
    let url = serve(move |request, out| {
        static STALLED: AtomicU64 = AtomicU64::new(0);
        if begun.elapsed() > Duration::from_millis(200)
            && STALLED.fetch_add(1, Ordering::Relaxed) == 0
        {
            std::thread::sleep(STALL);
        }
        good(request, out);
    });
    let report = run_one(SEARCH, &url, |settings| {
        settings.rate = Some(1000.0);
        settings.duration = Some(Duration::from_secs(1));
        settings.queue = Some(1);
    });
    assert_eq!(report.errors, []);
    // A client that measures only from the sending would see one long answer among a thousand.
    let stall = STALL.as_nanos() as u64;
    assert!(report.total.latency.p90 > stall / 4, "{report}");
    assert!(report.total.answered + report.unsent >= 990, "{report}");
    assert!(report.total.answered <= 1000, "{report}");
}

#[test]
fn sequences_are_shared_and_groups_keep_their_values() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let url = serve({
        let seen = seen.clone();
        move |request, out| {
            let name = match request.op {
                Request::Add(add) => format!("+{}", add.dn),
                Request::Delete(dn) => format!("-{dn}"),
                _ => "?".to_owned(),
            };
            seen.lock().unwrap().push(name);
            good(request, out);
        }
    });
    let text = "let: n = sequence 1..100\n\nsession: s\nconnections: 3\nqueue: 2\ncount: 60\n\n\
        group:\n\ndn: cn=${n:3}\ncn: ${n}\n\nwait:\n\ndn: cn=${n:3}\nchangetype: delete\n\nend: group\n";
    let report = run_one(text, &url, |_| ());
    assert_eq!(report.errors, []);
    let seen = seen.lock().unwrap();
    let added: HashSet<&str> = seen
        .iter()
        .filter_map(|name| name.strip_prefix('+'))
        .collect();
    let deleted: HashSet<&str> = seen
        .iter()
        .filter_map(|name| name.strip_prefix('-'))
        .collect();
    assert_eq!(added, deleted);
    assert_eq!(added.len() * 2, seen.len(), "no entry was added twice");
    assert!(seen.len() >= 60);
}

/// Keeps the progress of a run.
#[derive(Default)]
struct Listener {
    begun: Vec<(String, u32)>,
    points: Vec<Point>,
    ended: u32,
}

impl Observer for Listener {
    fn begins(&mut self, phase: &str, connections: u32) {
        self.begun.push((phase.to_owned(), connections));
    }
    fn point(&mut self, point: &Point) {
        self.points.push(point.clone());
    }
    fn ends(&mut self, _report: &PhaseReport) {
        self.ended += 1;
    }
}

#[test]
fn phases_run_in_order_and_ramp_up_is_not_counted() {
    let url = serve(good);
    let text = format!(
        "{}phase: one\nduration: 1\n\nsession: s\nconnections: 4\n\n{}\nphase: two\n\nsession: t\ncount: 5\n\n{}",
        "let: n = random 1..1000\n\n",
        SEARCH.split_once("\n\n").unwrap().1,
        SEARCH.split_once("\n\n").unwrap().1
    );
    let counted = |reports: &[PhaseReport], is: bool| -> u64 {
        let points = reports[0]
            .series
            .iter()
            .filter(|point| point.is_counted == is);
        points.map(|point| point.answered).sum()
    };
    let both = |time| {
        let mut settings = Settings::new(&url);
        settings.ramp_up = time;
        settings.interval = Duration::from_millis(50);
        let mut listener = Listener::default();
        let begun = Instant::now();
        let reports = run(plan(&text), &settings, &mut listener).unwrap();
        (reports, listener, time, begun.elapsed())
    };
    let (reports, listener, ramp_up, elapsed) = in_time(both, |(reports, ..)| {
        counted(reports, false) > 0 && reports[1].total.answered == 5
    });
    assert_eq!(
        listener.begun,
        [("one".to_owned(), 4), ("two".to_owned(), 1)]
    );
    assert_eq!(listener.ended, 2);
    assert!(listener.points.iter().any(|point| !point.is_counted));
    assert!(counted(&reports, false) > 0);
    assert_eq!(reports[0].total.answered, counted(&reports, true));
    let both = reports[0].seconds + ramp_up.as_secs_f64();
    assert!(both <= elapsed.as_secs_f64(), "{}", reports[0]);
    // One that is over before its ramp-up is counted whole.
    assert_eq!(reports[1].total.answered, 5, "{}", reports[1]);
    assert!(reports[1].series.iter().all(|point| point.is_counted));
}

const ENDLESS: &str = "phase: first\nduration: 1000\n\nsession: s\nqueue: 4\n\n\
    search: uid=a,dc=x\nscope: base\n\nphase: second\n\nsession: s\ncount: 1\n\n\
    search: uid=a,dc=x\nscope: base\n";

#[test]
fn what_was_answered_before_a_stop_is_reported_and_no_phase_begins_behind_it() {
    let stop = StopToken::default();
    let mut asked = 0;
    let url = serve({
        let stop = stop.clone();
        move |request, out| {
            asked += 1;
            if asked == 50 {
                stop.request();
            }
            good(request, out);
        }
    });
    let mut settings = Settings::new(url);
    settings.stop = stop;
    let reports = run(plan(ENDLESS), &settings, &mut ()).unwrap();
    assert_eq!(reports.len(), 1, "{}", reports[1]);
    let report = &reports[0];
    assert!(
        report.is_cut_short && report.errors.is_empty() && report.total.answered >= 50,
        "{report}"
    );
    assert_eq!(report.total.entries, report.total.answered);
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_is_silent() {
    for (bind, phases) in [(false, 1), (true, 0)] {
        let stop = StopToken::default();
        let url = serve({
            let stop = stop.clone();
            move |_, _| stop.request()
        });
        let mut settings = Settings::new(url);
        settings.stop = stop;
        settings.bind = bind.then(|| ("cn=x".to_owned(), b"x".to_vec()));
        settings.answer_timeout = Duration::from_secs(2);
        let reports = run(plan(ENDLESS), &settings, &mut ()).unwrap();
        // While connections are made there is nothing to report.
        assert_eq!(reports.len(), phases);
        for report in reports {
            assert!(report.is_cut_short, "{report}");
            assert_eq!((report.total.answered, report.total.failed), (0, 4));
            let late = |error: &ErrorReport| error.reason.contains("after the stop");
            assert!(report.errors.iter().all(late), "{report}");
        }
    }
}

#[test]
fn a_stop_does_not_wait_for_entries_that_never_cease() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ldap://{}", listener.local_addr().unwrap());
    let stop = StopToken::default();
    let mut settings = Settings::new(url);
    settings.stop = stop.clone();
    settings.answer_timeout = Duration::from_secs(1);
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut id = 0;
        Connection::new(&socket).answer(|request, _| id = request.id);
        let mut entries = Answers::default();
        (0..100).for_each(|_| entries.entry(id, "uid=a,dc=x", Attributes::EMPTY));
        stop.request();
        // Until the other side has gone.
        while socket.write_all(entries.as_bytes()).is_ok() {}
    });
    let text = "phase: first\nduration: 1000\n\nsession: s\n\nsearch: uid=a,dc=x\nscope: base\n";
    let report = run(plan(text), &settings, &mut ()).unwrap().remove(0);
    server.join().unwrap();
    assert!(report.is_cut_short && report.total.failed == 1, "{report}");
    let late = |error: &ErrorReport| error.reason.contains("after the stop");
    assert!(report.errors.iter().all(late), "{report}");
}
