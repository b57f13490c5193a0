//! Dynamic entries (RFC 2589), as slapo-dds(5) has them: while the overlay's entry is there, entries of the class
//! dynamicObject end by themselves.

use super::entries::DDS;
use super::{Setting, Settings};

/// How long dynamic entries live, as it is configured. All times are in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdsRule {
    /// For how long an entry may be refreshed: from a day to a year and six hours.
    pub max_ttl: u32,
    /// For how long it is refreshed at least.
    pub min_ttl: u32,
    /// How long a new entry lives; 0 is as long as it can be refreshed for.
    pub default_ttl: u32,
    /// How often those that have ended are looked for.
    pub interval: u32,
    /// How much later than told an entry is deleted.
    pub tolerance: u32,
    /// How many dynamic entries there may be; 0 is no limit.
    pub max_objects: u32,
}

/// A day.
const DAY: u32 = 86_400;
/// A year and six hours: longer than that no entry lives without being refreshed (RFC 2589 §4.1).
pub const TTL_MAX: u32 = 31_557_600;
/// An hour.
const INTERVAL: u32 = 3600;

impl Default for DdsRule {
    fn default() -> DdsRule {
        DdsRule {
            max_ttl: DAY,
            min_ttl: 0,
            default_ttl: 0,
            interval: INTERVAL,
            tolerance: 0,
            max_objects: 0,
        }
    }
}

impl DdsRule {
    /// How long a new entry lives.
    pub fn new_ttl(&self) -> u32 {
        match self.default_ttl {
            0 => self.max_ttl,
            own => own,
        }
    }

    /// What of it is not as it is by default, as the options of `sapwood rule DIR add dds`.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let usual = DdsRule::default();
        let options = [
            ("max-ttl", self.max_ttl, usual.max_ttl),
            ("min-ttl", self.min_ttl, usual.min_ttl),
            ("default-ttl", self.default_ttl, usual.default_ttl),
            ("interval", self.interval, usual.interval),
            ("tolerance", self.tolerance, usual.tolerance),
            ("max-objects", self.max_objects, usual.max_objects),
        ];
        let options = options.into_iter().filter(|(_, own, usual)| own != usual);
        options
            .map(|(word, own, _)| (word, own.to_string()))
            .collect()
    }
}

/// What can be set in its entry.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        attribute: "olcDDSstate",
        entry: DDS,
        get: |_| "TRUE".to_owned(),
        set: |_, value| match value {
            "TRUE" => Ok(()),
            _ => Err("write TRUE, or delete the entry of the overlay".to_owned()),
        },
        reset: |_| {},
    },
    Setting {
        attribute: "olcDDSmaxTtl",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.max_ttl),
        set: |settings, value| {
            let (ttl, rule) = (seconds(value)?, rule(settings));
            match (DAY..=TTL_MAX).contains(&ttl) && ttl >= rule.min_ttl.max(rule.default_ttl) {
                true => rule.max_ttl = ttl,
                false => {
                    return Err(format!(
                        "write {DAY} (a day) to {TTL_MAX}, not less than olcDDSminTtl and olcDDSdefaultTtl"
                    ));
                }
            }
            Ok(())
        },
        reset: |settings| rule(settings).max_ttl = DdsRule::default().max_ttl,
    },
    Setting {
        attribute: "olcDDSminTtl",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.min_ttl),
        set: |settings, value| {
            let (ttl, rule) = (seconds(value)?, rule(settings));
            rule.min_ttl = up_to(ttl, rule.max_ttl)?;
            Ok(())
        },
        reset: |settings| rule(settings).min_ttl = 0,
    },
    Setting {
        attribute: "olcDDSdefaultTtl",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.default_ttl),
        set: |settings, value| {
            let (ttl, rule) = (seconds(value)?, rule(settings));
            rule.default_ttl = up_to(ttl, rule.max_ttl)?;
            Ok(())
        },
        reset: |settings| rule(settings).default_ttl = 0,
    },
    Setting {
        attribute: "olcDDSinterval",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.interval),
        set: |settings, value| {
            rule(settings).interval = match seconds(value)? {
                0 => return Err("write one second at least".to_owned()),
                seconds => up_to(seconds, TTL_MAX)?,
            };
            Ok(())
        },
        reset: |settings| rule(settings).interval = INTERVAL,
    },
    Setting {
        attribute: "olcDDStolerance",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.tolerance),
        set: |settings, value| {
            rule(settings).tolerance = up_to(seconds(value)?, TTL_MAX)?;
            Ok(())
        },
        reset: |settings| rule(settings).tolerance = 0,
    },
    Setting {
        attribute: "olcDDSmaxDynamicObjects",
        entry: DDS,
        get: |settings| read(settings, |rule| rule.max_objects),
        set: |settings, value| {
            let count = value.parse();
            rule(settings).max_objects = count.map_err(|_| "write a number".to_owned())?;
            Ok(())
        },
        reset: |settings| rule(settings).max_objects = 0,
    },
];

/// Seconds, or such as `1d`, `2h30m`: days, hours, minutes and seconds, in this order.
fn seconds(value: &str) -> Result<u32, String> {
    let wrong = || "write seconds, or such as 1d or 2h30m".to_owned();
    let (mut sum, mut rest, mut last) = (0_u32, value, u32::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(digits);
        let unit = match behind.bytes().next() {
            None | Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => DAY,
            _ => return Err(wrong()),
        };
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let own = number.checked_mul(unit).filter(|_| unit < last);
        sum = own.and_then(|own| sum.checked_add(own)).ok_or_else(wrong)?;
        last = unit;
        rest = behind.get(1..).unwrap_or_default();
    }
    match value.is_empty() {
        true => Err(wrong()),
        false => Ok(sum),
    }
}

fn up_to(seconds: u32, most: u32) -> Result<u32, String> {
    match seconds <= most {
        true => Ok(seconds),
        false => Err(format!("write {most} seconds at most")),
    }
}

fn rule(settings: &mut Settings) -> &mut DdsRule {
    settings.dds.get_or_insert_default()
}

fn read(settings: &Settings, value: impl Fn(&DdsRule) -> u32) -> String {
    match &settings.dds {
        Some(rule) => value(rule),
        None => value(&DdsRule::default()),
    }
    .to_string()
}

/// The values that the entry shows: those that are not the usual ones.
pub(crate) fn shown(settings: &Settings) -> Vec<(&'static str, Vec<String>)> {
    let usual = Settings::default();
    let set = SETTINGS.iter().map(|setting| {
        let value = setting.value(settings);
        let is_set = value != setting.value(&usual);
        (setting.attribute, Vec::from_iter(is_set.then_some(value)))
    });
    set.collect()
}

/// The rule as a line of the definition.
pub(crate) fn line(rule: &DdsRule) -> String {
    format!(
        "{} {} {} {} {} {}",
        rule.max_ttl,
        rule.min_ttl,
        rule.default_ttl,
        rule.interval,
        rule.tolerance,
        rule.max_objects
    )
}

/// The rule that a line of the definition has.
pub(crate) fn parse(line: &str) -> Option<DdsRule> {
    let numbers: Result<Vec<u32>, _> = line.split(' ').map(str::parse).collect();
    let [
        max_ttl,
        min_ttl,
        default_ttl,
        interval,
        tolerance,
        max_objects,
    ] = numbers.ok()?[..]
    else {
        return None;
    };
    Some(DdsRule {
        max_ttl,
        min_ttl,
        default_ttl,
        interval,
        tolerance,
        max_objects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_all_of_it() {
        let all = DdsRule {
            max_ttl: 100_000,
            min_ttl: 5,
            default_ttl: 60,
            interval: 7,
            tolerance: 3,
            max_objects: 9,
        };
        for rule in [DdsRule::default(), all] {
            assert_eq!(parse(&line(&rule)), Some(rule));
        }
        assert_eq!(parse("1 2 3 4 5"), None);
        assert_eq!(parse("1 2 3 4 5 x"), None);
    }

    #[test]
    fn times_are_read_as_slapd_reads_them() {
        for (value, expected) in [
            ("0", Some(0)),
            ("86400", Some(DAY)),
            ("1d", Some(DAY)),
            ("1h30m", Some(5400)),
            ("1d2h3m4s", Some(93_784)),
            ("90m5", Some(5405)),
            ("", None),
            ("d", None),
            ("1m1h", None),
            ("1m1m", None),
            ("-1", None),
            ("1w", None),
            ("5000000000", None),
            ("50000d", None),
        ] {
            assert_eq!(seconds(value).ok(), expected, "{value}");
        }
    }
}
