//! Line plots with logarithmic axes, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 48.0;

/// Readable on white and on black, and apart for most eyes.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777", "#a0522d",
];

/// Lines over a common axis.
#[derive(Debug)]
pub(crate) struct Plot<'p> {
    pub(crate) title: &'p str,
    pub(crate) across: &'p str,
    pub(crate) up: &'p str,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Positive pairs of across and up. A line of one point is drawn through the whole plot.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot<'_> {
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let across = Axis::over(points().map(|point| point.0), LEFT, WIDTH - RIGHT, 1.0);
        let up = Axis::over(points().map(|point| point.1), HEIGHT - BOTTOM, TOP, 1.6);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#777777\">\n<text x=\"{LEFT}\" y=\"16\" font-size=\"14\">{}</text>\n",
            escaped(self.title)
        );
        for (value, label) in up.ticks() {
            let y = up.place(value);
            let (end, text) = (WIDTH - RIGHT, LEFT - 6.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"#777777\" stroke-opacity=\"0.3\"/>\
                 <text x=\"{text}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                y + 4.0
            );
        }
        for (value, label) in across.ticks() {
            let x = across.place(value);
            let (bottom, text) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 16.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {bottom}v4\" stroke=\"#777777\"/>\
                 <text x=\"{x:.1}\" y=\"{text}\" text-anchor=\"middle\">{label}</text>"
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escaped(self.across),
            HEIGHT / 2.0,
            escaped(self.up)
        );
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let mut path = String::new();
            if let [(_, only)] = line.points[..] {
                let y = up.place(only);
                let _ = write!(path, "M{LEFT} {y:.1}H{}", WIDTH - RIGHT);
            } else {
                for (number, (x, y)) in line.points.iter().enumerate() {
                    let command = if number == 0 { 'M' } else { 'L' };
                    let (x, y) = (across.place(*x), up.place(*y));
                    let _ = write!(path, "{command}{x:.1} {y:.1}");
                    let _ = writeln!(
                        svg,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
                    );
                }
            }
            let (x, y) = (WIDTH - RIGHT + 12.0, TOP + 12.0 + 18.0 * number as f64);
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
                 <path d=\"M{x} {:.1}h16\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"{y}\">{}</text>",
                y - 4.0,
                x + 22.0,
                escaped(&line.name)
            );
        }
        svg + "</svg>\n"
    }
}

/// A logarithmic axis from one place on the paper to another.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64, margin: f64) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let (low, high) = if low < high {
            (low / margin, high * margin)
        } else {
            (0.5, 2.0)
        };
        Self {
            low,
            high,
            from,
            to,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * part
    }

    /// Powers of ten where the axis spans several, else powers of two.
    fn ticks(&self) -> Vec<(f64, String)> {
        let base: f64 = if self.high / self.low > 300.0 {
            10.0
        } else {
            2.0
        };
        let first = (self.low.ln() / base.ln() - 1e-9).ceil() as i32;
        let last = (self.high.ln() / base.ln() + 1e-9).floor() as i32;
        (first..=last)
            .map(|power| {
                let value = base.powi(power);
                let label = match value {
                    1e6.. => format!("{} M", value / 1e6),
                    1e4.. if base == 10.0 => format!("{} k", value / 1e3),
                    0.001..0.1 => format!("{value:.3}"),
                    0.1..1.0 => format!("{value:.2}"),
                    _ => format!("{value}"),
                };
                (value, label)
            })
            .collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_to_the_paper() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let plot = Plot {
            title: "a < b",
            across: "KiB",
            up: "s",
            lines: vec![
                line("x & y", &[(2.0, 0.01), (512.0, 3.0)]),
                line("flat", &[(1.0, 1.0)]),
            ],
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y") && !svg.contains("NaN"));
        let empty = Plot {
            lines: Vec::new(),
            ..plot
        };
        assert!(empty.svg().ends_with("</svg>\n"));
    }
}
