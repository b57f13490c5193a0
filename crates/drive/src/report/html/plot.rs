//! Plots, drawn in SVG.

use super::{escaped, put};
use crate::report::duration_text;

/// The size of a plot and its margins, in pixels.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 30.0;

/// The width of a character of a line's name, and the gap between two names, in pixels.
const NAME_CHARACTER: f64 = 6.2;
const NAME_GAP: f64 = 14.0;

/// The colours of a plot's lines.
pub(super) const COLOURS: [&str; 4] = ["#2f7d4f", "#b5651d", "#33658a", "#8d3b72"];

/// A figure with lines, which take [`COLOURS`] in order.
pub(super) struct Plot {
    pub(super) caption: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

/// A line of a plot. Without a name it has no legend.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// How numbers map to one side of a plot.
pub(super) struct Axis {
    is_logarithmic: bool,
    /// The end of the axis. Without it, the greatest number is the end.
    most: Option<f64>,
    /// Writes a number at the axis.
    text: fn(f64) -> String,
}

impl Axis {
    /// A linear axis from 0 on.
    pub(super) fn plain() -> Self {
        Axis {
            is_logarithmic: false,
            most: None,
            text: number_text,
        }
    }

    /// A linear axis from 0 to 100.
    pub(super) fn percent() -> Self {
        Axis {
            most: Some(100.0),
            ..Axis::plain()
        }
    }

    /// A logarithmic axis of nanoseconds.
    pub(super) fn latency() -> Self {
        Axis {
            is_logarithmic: true,
            most: None,
            text: |ns| duration_text(ns as u64),
        }
    }

    /// The ends of the axis for these numbers, as logarithms on a logarithmic axis.
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

    /// Where a number lies between the ends of the axis, from 0 to 1.
    fn position(&self, number: f64, (least, most): (f64, f64)) -> f64 {
        let number = if self.is_logarithmic {
            number.max(1.0).log10()
        } else {
            number
        };
        ((number - least) / (most - least)).clamp(0.0, 1.0)
    }

    /// The numbers to write at the axis.
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
    /// Appends the plot as a figure with an SVG drawing.
    pub(super) fn put(&self, out: &mut String) {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let x_ends = self.x.ends(all().map(|point| point.0));
        let y_ends = self.y.ends(all().map(|point| point.1));
        let x = |number| LEFT + self.x.position(number, x_ends) * (WIDTH - LEFT - RIGHT);
        let y =
            |number| HEIGHT - BOTTOM - self.y.position(number, y_ends) * (HEIGHT - TOP - BOTTOM);
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
            // A number at the end of the axis must stay within the drawing.
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
        // The legend stands above the lines.
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

/// A number with at most two decimals, small numbers with four, and without trailing zeros.
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
