//! The report as one HTML page of tables and plots. The page fetches nothing.

mod plot;

use std::fmt::Write;

use super::{PhaseReport, Report, cut_short, duration_text};
use plot::{Axis, COLOURS, Line, Plot};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;\
    color:#1b2420;background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}\
    p{margin:.3rem 0}table{border-collapse:collapse;margin:.6rem 0}\
    th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d5dcd8}\
    td{white-space:nowrap}th:first-child,td:first-child{text-align:left}.bad{color:#a3231b}\
    .plots{display:flex;flex-wrap:wrap;gap:1rem}\
    figure{margin:.5rem 0}figcaption{font-size:.85rem;color:#4c5852}\
    svg{background:#fafcfb;border:1px solid #d5dcd8}text{font:11px system-ui,sans-serif;fill:#4c5852}";

impl Report {
    /// The report as an HTML page that can be opened from disk.
    pub fn html(&self) -> String {
        let mut out = String::new();
        let title = format!("{} on {}", self.plan, self.url);
        put(
            &mut out,
            format_args!(
                "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\">\
                 <title>{}</title><style>{STYLE}</style></head>\n\
                 <body><h1>{}</h1><p>{}; seed {}{}</p>\n",
                escaped(&title),
                escaped(&title),
                escaped(&self.begun),
                self.seed,
                cut_short(self.is_cut_short)
            ),
        );
        self.summary(&mut out);
        let lines = self.over_sessions();
        if !lines.is_empty() {
            put(
                &mut out,
                format_args!("<h2>Throughput over sessions</h2>\n"),
            );
            let plot = Plot {
                caption: "operations per second over connections",
                x: Axis::plain(),
                y: Axis::plain(),
                lines,
            };
            plot.put(&mut out);
        }
        self.phases
            .iter()
            .for_each(|phase| put_phase(&mut out, phase));
        out.push_str("</body></html>\n");
        out
    }

    fn summary(&self, out: &mut String) {
        out.push_str(
            "<table><tr><th>phase</th><th>connections</th><th>queue</th><th>transaction</th><th>operations/s</th>\
             <th>entries/s</th><th>p50</th><th>p99</th><th>failed</th><th>drive, µs of CPU each</th>\
             <th>server, µs of CPU each</th></tr>\n",
        );
        for phase in &self.phases {
            let failed: u64 = phase
                .operations
                .iter()
                .map(|operation| operation.failed)
                .sum();
            put(
                out,
                format_args!(
                    "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{}</td><td>{}</td>\
                     <td{}>{failed}</td><td>{:.2}</td><td>{}</td></tr>\n",
                    escaped(&phase.name),
                    phase.connections,
                    phase.queue,
                    phase
                        .transaction
                        .map_or_else(String::new, |length| length.to_string()),
                    phase.rate(),
                    phase.entry_rate(),
                    duration_text(phase.total.latency.p50),
                    duration_text(phase.total.latency.p99),
                    if failed > 0 { " class=\"bad\"" } else { "" },
                    phase.client_cpu_us(),
                    phase
                        .server_cpu_us()
                        .map_or_else(String::new, |cpu| format!("{cpu:.2}")),
                ),
            );
        }
        out.push_str("</table>\n");
    }

    /// Throughput over connections: phases whose names differ only in numbers make a line, if their connections differ.
    fn over_sessions(&self) -> Vec<Line> {
        let mut lines: Vec<(String, Line)> = Vec::new();
        for phase in &self.phases {
            let stem: String = phase.name.chars().filter(|c| !c.is_ascii_digit()).collect();
            let known = lines.iter().position(|(other, _)| *other == stem);
            let index = known.unwrap_or_else(|| {
                let line = Line {
                    name: stem.trim().to_owned(),
                    points: Vec::new(),
                };
                lines.push((stem, line));
                lines.len() - 1
            });
            let points = &mut lines[index].1.points;
            points.push((f64::from(phase.connections), phase.rate()));
        }
        let mut lines: Vec<Line> = lines.into_iter().map(|(_, line)| line).collect();
        for line in &mut lines {
            line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let is_line = |line: &Line| {
            let first = line.points.first().map(|point| point.0);
            line.points.iter().any(|point| Some(point.0) != first)
        };
        lines.retain(is_line);
        lines
    }
}

fn put_phase(out: &mut String, phase: &PhaseReport) {
    put(
        out,
        format_args!(
            "<h2>{}</h2><p>{}, queue {}, {:.2} s{}: {} operations, {:.0}/s",
            escaped(&phase.name),
            phase.connections_text(),
            phase.queue,
            phase.seconds,
            cut_short(phase.is_cut_short),
            phase.total.answered,
            phase.rate()
        ),
    );
    if phase.total.entries > 0 {
        put(
            out,
            format_args!(
                "; {} entries, {:.0}/s",
                phase.total.entries,
                phase.entry_rate()
            ),
        );
    }
    if let Some(server) = &phase.server {
        let mib = server.memory_bytes as f64 / f64::from(1 << 20);
        put(out, format_args!("; the server's own memory {mib:.1} MiB"));
    }
    if let Some(bytes) = phase.database_bytes {
        let mib = bytes as f64 / f64::from(1 << 20);
        put(out, format_args!("; data on disk {mib:.1} MiB"));
    }
    out.push_str("</p>\n");
    if phase.unsent > 0 {
        put(
            out,
            format_args!(
                "<p class=\"bad\">{} operations were due and could not be sent before the end</p>\n",
                phase.unsent
            ),
        );
    }
    out.push_str(
        "<table><tr><th>operation</th><th>answered</th><th>failed</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th>\
         <th>p99.9</th><th>max</th></tr>\n",
    );
    for row in &phase.operations {
        put(
            out,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td></tr>\n",
                escaped(&row.name),
                row.answered,
                if row.failed > 0 { " class=\"bad\"" } else { "" },
                row.failed,
                duration_text(row.latency.mean),
                duration_text(row.latency.p50),
                duration_text(row.latency.p90),
                duration_text(row.latency.p99),
                duration_text(row.latency.p999),
                duration_text(row.latency.max),
            ),
        );
    }
    out.push_str("</table>\n");
    for error in &phase.errors {
        put(
            out,
            format_args!(
                "<p class=\"bad\">{} × {}: {}</p>\n",
                error.count,
                escaped(&error.operation),
                escaped(&error.reason)
            ),
        );
    }
    for example in &phase.examples {
        put(
            out,
            format_args!("<p class=\"bad\">for example {}</p>\n", escaped(example)),
        );
    }
    out.push_str("<div class=\"plots\">");
    // The last interval is left out when it is short: its rate would look like a peak or a breakdown.
    let longest = phase.series.iter().map(|point| point.length);
    let least = longest.fold(0.0, f64::max) / 2.0;
    let series = phase
        .series
        .iter()
        .filter(|point| point.length >= least)
        .map(|point| (point.seconds, point.rate()));
    Plot {
        caption: "operations per second over seconds",
        x: Axis::plain(),
        y: Axis::plain(),
        lines: vec![Line {
            name: String::new(),
            points: series.collect(),
        }],
    }
    .put(out);
    let lines = phase
        .operations
        .iter()
        .take(COLOURS.len())
        .map(|operation| {
            let all = operation.answered.max(1) as f64;
            let rows = &operation.latency.distribution;
            Line {
                name: operation.name.clone(),
                points: rows
                    .iter()
                    .map(|(limit, count)| (*limit as f64, *count as f64 / all * 100.0))
                    .collect(),
            }
        });
    Plot {
        caption: "percent of operations that took no longer",
        x: Axis::latency(),
        y: Axis::percent(),
        lines: lines.collect(),
    }
    .put(out);
    out.push_str("</div>\n");
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}
