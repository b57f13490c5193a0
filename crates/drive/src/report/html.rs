//! The report as one HTML page: tables and plots drawn in SVG, nothing fetched from anywhere.

use std::fmt::Write;

use super::{PhaseReport, Report, cut_short, duration_text};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;\
    color:#1b2420;background:#fff}h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}\
    p{margin:.3rem 0}table{border-collapse:collapse;margin:.6rem 0}\
    th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #d5dcd8}\
    td{white-space:nowrap}th:first-child,td:first-child{text-align:left}.bad{color:#a3231b}.plots{display:flex;flex-wrap:wrap;gap:1rem}\
    figure{margin:.5rem 0}figcaption{font-size:.85rem;color:#4c5852}\
    svg{background:#fafcfb;border:1px solid #d5dcd8}text{font:11px system-ui,sans-serif;fill:#4c5852}";

/// The size of a plot and the room around its lines, in pixels.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 30.0;

/// Room for a character of a line's name, and between two names, in pixels.
const NAME_CHARACTER: f64 = 6.2;
const NAME_GAP: f64 = 14.0;

/// Colours of the lines of a plot.
const COLOURS: [&str; 4] = ["#2f7d4f", "#b5651d", "#33658a", "#8d3b72"];

impl Report {
    /// A page that reads the same when it is opened from disk.
    pub fn html(&self) -> String {
        let mut out = String::new();
        let title = format!("{} on {}", self.plan, self.url);
        put(
            &mut out,
            format_args!(
                "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style></head>\n\
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

    /// Phases that differ only in the numbers of their names, and in connections, make a line.
    fn over_sessions(&self) -> Vec<Line> {
        let mut lines: Vec<(String, Line)> = Vec::new();
        for phase in &self.phases {
            let stem: String = phase.name.chars().filter(|c| !c.is_ascii_digit()).collect();
            let place = lines.iter().position(|(other, _)| *other == stem);
            let place = place.unwrap_or_else(|| {
                let line = Line {
                    name: stem.trim().to_owned(),
                    points: Vec::new(),
                };
                lines.push((stem, line));
                lines.len() - 1
            });
            let points = &mut lines[place].1.points;
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
                "<tr><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
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
    // The rate of what is left of the last interval says little, and would look like a peak or a breakdown.
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
        y: Axis {
            most: Some(100.0),
            ..Axis::plain()
        },
        lines: lines.collect(),
    }
    .put(out);
    out.push_str("</div>\n");
}

struct Plot {
    caption: &'static str,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// How numbers lie along one side of a plot.
struct Axis {
    is_logarithmic: bool,
    /// The end of the axis, where it is not the greatest number.
    most: Option<f64>,
    text: fn(f64) -> String,
}

impl Axis {
    /// From 0 on.
    fn plain() -> Self {
        Axis {
            is_logarithmic: false,
            most: None,
            text: number_text,
        }
    }

    /// Nanoseconds by powers.
    fn latency() -> Self {
        Axis {
            is_logarithmic: true,
            most: None,
            text: |ns| duration_text(ns as u64),
        }
    }

    /// The ends of the axis for these numbers, as they lie on it.
    fn ends(&self, numbers: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
        let most = self.most.unwrap_or_else(|| {
            numbers.clone().fold(0.0, f64::max) * if self.is_logarithmic { 1.0 } else { 1.05 }
        });
        match self.is_logarithmic {
            false => (0.0, if most > 0.0 { most } else { 1.0 }),
            true => {
                let least = numbers
                    .fold(f64::INFINITY, f64::min)
                    .clamp(1.0, f64::MAX)
                    .log10();
                let most = most.max(1.0).log10();
                if most > least {
                    (least, most)
                } else {
                    (least - 0.5, least + 0.5)
                }
            }
        }
    }

    fn place(&self, number: f64, (least, most): (f64, f64)) -> f64 {
        let number = if self.is_logarithmic {
            number.max(1.0).log10()
        } else {
            number
        };
        ((number - least) / (most - least)).clamp(0.0, 1.0)
    }

    /// Numbers to write at the axis.
    fn marks(&self, (least, most): (f64, f64)) -> Vec<f64> {
        match self.is_logarithmic {
            true => {
                let powers = (least.ceil() as i32)..=(most.floor() as i32);
                let powers: Vec<f64> = powers.map(|power| 10f64.powi(power)).collect();
                match powers.len() {
                    0 => vec![10f64.powf(least), 10f64.powf(most)],
                    _ => powers,
                }
            }
            false => {
                let rough = (most - least) / 5.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0]
                    .into_iter()
                    .map(|factor| factor * power)
                    .find(|step| *step >= rough)
                    .unwrap_or(rough);
                let count = ((most - least) / step).floor() as i32;
                (0..=count.clamp(0, 20))
                    .map(|mark| least + f64::from(mark) * step)
                    .collect()
            }
        }
    }
}

impl Plot {
    fn put(&self, out: &mut String) {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let x_ends = self.x.ends(all().map(|point| point.0));
        let y_ends = self.y.ends(all().map(|point| point.1));
        let x = |number| LEFT + self.x.place(number, x_ends) * (WIDTH - LEFT - RIGHT);
        let y = |number| HEIGHT - BOTTOM - self.y.place(number, y_ends) * (HEIGHT - TOP - BOTTOM);
        put(
            out,
            format_args!(
                "<figure><svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
                 aria-label=\"{}\">",
                escaped(self.caption)
            ),
        );
        for mark in self.y.marks(y_ends) {
            put(
                out,
                format_args!(
                    "<path d=\"M{LEFT} {:.1}H{:.1}\" stroke=\"#e3e9e6\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                     text-anchor=\"end\">{}</text>",
                    y(mark),
                    WIDTH - RIGHT,
                    LEFT - 6.0,
                    y(mark) + 4.0,
                    (self.y.text)(mark)
                ),
            );
        }
        for mark in self.x.marks(x_ends) {
            // What stands under the end of the axis must not go over the edge.
            let anchor = if x(mark) > WIDTH - LEFT {
                "end"
            } else {
                "middle"
            };
            put(
                out,
                format_args!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                    x(mark),
                    HEIGHT - BOTTOM + 16.0,
                    (self.x.text)(mark)
                ),
            );
        }
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<String> = line
                .points
                .iter()
                .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1)))
                .collect();
            put(
                out,
                format_args!(
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
                    points.join(" ")
                ),
            );
            if let [point] = line.points.as_slice() {
                let (x, y) = (x(point.0), y(point.1));
                put(
                    out,
                    format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"),
                );
            }
        }
        let named = self
            .lines
            .iter()
            .zip(COLOURS.iter().cycle())
            .filter(|(line, _)| !line.name.is_empty());
        // Above the plot, one behind the other.
        let mut from = LEFT;
        for (line, colour) in named {
            put(
                out,
                format_args!(
                    "<text x=\"{from:.1}\" y=\"{:.1}\" style=\"fill:{colour}\">{}</text>",
                    TOP - 11.0,
                    escaped(&line.name)
                ),
            );
            from += NAME_GAP + NAME_CHARACTER * line.name.chars().count() as f64;
        }
        put(
            out,
            format_args!(
                "</svg><figcaption>{}</figcaption></figure>\n",
                escaped(self.caption)
            ),
        );
    }
}

fn number_text(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{} M", trimmed(number / 1e6)),
        number if number >= 1e4 => format!("{} k", trimmed(number / 1e3)),
        number => trimmed(number),
    }
}

/// At most two decimals, of small numbers four, and none that are zero.
fn trimmed(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let text = match number < 0.1 {
        true => format!("{number:.4}"),
        false => format!("{number:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
