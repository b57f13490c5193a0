//! The lines in front of an operation: its name, how often it is sent and the answer that it expects.

#![deny(clippy::indexing_slicing)]

use sapwood_ldap::controls::{Control, ControlsBuf};
use sapwood_ldap::result::ResultCode;

use super::records::Line;
use crate::plan::PlanError;
use crate::template::Text;

/// Result codes up to this one are looked up by name.
const NAMED_CODE_MAX: u32 = 4096;

/// The lines in front of an operation, parsed.
#[derive(Default)]
pub(super) struct Preamble {
    pub(super) label: Option<String>,
    pub(super) weight: Option<u32>,
    pub(super) repeat: Option<u32>,
    /// The expected result codes. `Some(None)` means any.
    pub(super) codes: Option<Option<Vec<u32>>>,
    pub(super) entries: Option<(u64, u64)>,
    pub(super) value: Option<(String, Text)>,
    pub(super) controls: ControlsBuf,
}

impl Preamble {
    /// Takes a line of the preamble. Returns `false` when the line is not part of it.
    pub(super) fn take(&mut self, line: &Line<'_>) -> Result<bool, PlanError> {
        let count = || line.number(1, u64::from(u32::MAX)).map(|n| Some(n as u32));
        match line.name.as_str() {
            "name" => match line.text()? {
                "" => return Err(line.error("the name is missing")),
                name => self.label = Some(name.to_owned()),
            },
            "weight" => self.weight = count()?,
            "repeat" => self.repeat = count()?,
            "expect" => self.codes = Some(codes(line)?),
            "expect-entries" => {
                let text = line.text()?;
                let (least, most) = text.split_once("..").unwrap_or((text, text));
                let most = if most.is_empty() {
                    Some(u64::MAX)
                } else {
                    most.parse().ok()
                };
                let range = (least.parse().ok(), most);
                self.entries = match range {
                    (Some(least), Some(most)) if least <= most => Some((least, most)),
                    _ => {
                        return Err(
                            line.error("expected a number of entries, LEAST..MOST or LEAST..")
                        );
                    }
                };
            }
            "expect-value" => {
                let (attribute, value) = line
                    .text()?
                    .split_once(':')
                    .ok_or_else(|| line.error("expected an attribute, a colon and a value"))?;
                self.value = Some((
                    attribute.trim().to_ascii_lowercase(),
                    Text::new(value.trim_start().as_bytes()),
                ));
            }
            "control" => self.control(line)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `control: OID [true|false][: VALUE | :: BASE64]`, as in LDIF.
    fn control(&mut self, line: &Line<'_>) -> Result<(), PlanError> {
        let text = line.text()?;
        let (words, value) = match text.split_once(':') {
            None => (text, None),
            Some((words, value)) => match value.strip_prefix(':') {
                None => (words, Some(value.trim_start().as_bytes().to_vec())),
                Some(base64) => {
                    let value = sapwood_ldap::base64::decode(base64.trim().as_bytes());
                    let value =
                        value.ok_or_else(|| line.error("the value after :: is not base64"))?;
                    (words, Some(value))
                }
            },
        };
        let mut words = words.split_ascii_whitespace();
        let oid = words.next().unwrap_or_default();
        let critical = match (words.next(), words.next()) {
            (None | Some("false"), None) => false,
            (Some("true"), None) => true,
            _ => {
                return Err(
                    line.error("a control is an object identifier, true or false, and a value")
                );
            }
        };
        if !sapwood_ldap::attribute::is_numeric_oid(oid) {
            return Err(line.error("a control begins with an object identifier"));
        }
        self.controls.push(Control {
            oid,
            critical,
            value: value.as_deref(),
        });
        Ok(())
    }
}

/// Parses result codes by name or number, or `any`.
fn codes(line: &Line<'_>) -> Result<Option<Vec<u32>>, PlanError> {
    if line.text()? == "any" {
        return Ok(None);
    }
    let code = |word: &str| {
        let named = || {
            (0..=NAMED_CODE_MAX).find(|code| {
                let known = ResultCode::from(*code);
                !matches!(known, ResultCode::Other(_)) && known.name().eq_ignore_ascii_case(word)
            })
        };
        let code = word.parse().ok().or_else(named);
        code.ok_or_else(|| line.error(&format!("{word:?} is not a result code")))
    };
    let codes = line
        .text()?
        .split([',', ' '])
        .filter(|word| !word.is_empty())
        .map(code)
        .collect::<Result<Vec<_>, _>>()?;
    if codes.is_empty() {
        return Err(line.error("expected result codes, by name or number, or \"any\""));
    }
    Ok(Some(codes))
}
