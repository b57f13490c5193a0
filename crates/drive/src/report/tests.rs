use super::*;

fn report() -> Report {
    let mut stats = Stats::new(2);
    for (label, count) in [(0, 100u64), (1, 10)] {
        for n in 0..count {
            stats.operations[label].answered += 1;
            stats.operations[label]
                .latency
                .saturating_record(1000 * (n + 1));
        }
    }
    stats.fail(1, "noSuchObject (32): \"gone\", <not there>".to_owned(), 3);
    let mut phase = PhaseReport::new("one, of two");
    phase.connections = 4;
    phase.seconds = 2.0;
    phase.client_cpu = Duration::from_micros(110);
    phase.series.push(Point::new(
        Duration::from_secs(1),
        Duration::from_secs(1),
        &stats.operations,
        true,
    ));
    phase.complete(&["search".to_owned(), "modify".to_owned()], 2, &stats);
    let mut second = phase.clone();
    second.name = "one, of 2two".to_owned();
    second.connections = 8;
    Report {
        plan: "a.plan".to_owned(),
        url: "ldap://x".to_owned(),
        seed: 1,
        begun: "2026-01-01T00:00:00Z".to_owned(),
        is_cut_short: false,
        phases: vec![phase, second],
    }
}

#[test]
fn sums_and_quantiles_are_those_of_what_was_recorded() {
    let report = report();
    let phase = &report.phases[0];
    assert_eq!((phase.total.answered, phase.total.failed), (110, 3));
    assert_eq!(phase.rate(), 55.0);
    assert_eq!(phase.client_cpu_us(), 1.0);
    let latency = &phase.operations[0].latency;
    let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 100;
    assert!(near(latency.p50, 50_000) && near(latency.p99, 99_000) && near(latency.max, 100_000));
    assert_eq!(latency.distribution.last().map(|row| row.1), Some(100));
    assert!(latency.distribution.is_sorted());
    assert!(!report.is_clean());
}

#[test]
fn the_forms_hold_the_same_and_escape_what_they_must() {
    let report = report();
    let text = report.to_string();
    assert!(
        text.contains("3 × modify: noSuchObject (32): \"gone\", <not there>"),
        "{text}"
    );
    assert!(text.contains("drive 1.00 µs"), "{text}");
    let csv = report.csv();
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
    assert!(
        csv.contains("\"one, of two\",4,0,,2.000,all,110,3,"),
        "{csv}"
    );
    let json = report.json();
    assert!(
        json.contains(r#""reason": "noSuchObject (32): \"gone\", <not there>""#),
        "{json}"
    );
    let html = report.html();
    assert!(html.contains("&lt;not there&gt;") && !html.contains("<not there>"));
    assert!(html.contains("Throughput over sessions"));
    // Nothing is fetched: no address but the server's, which is only shown.
    assert!(!html.contains("http") && !html.contains("src=") && !html.contains("@import"));
}

#[test]
fn every_form_says_what_was_cut_short() {
    let mut report = report();
    let count = |report: &Report| {
        [
            report.to_string().matches(", cut short").count(),
            report.html().matches(", cut short").count(),
            report.json().matches("\"is_cut_short\": true").count(),
            report.csv().matches(",true\r\n").count(),
        ]
    };
    assert_eq!(count(&report), [0; 4]);
    report.is_cut_short = true;
    report.phases[1].is_cut_short = true;
    // A row of the phase and one for each of its two operations.
    assert_eq!(count(&report), [2, 2, 2, 3]);
}
