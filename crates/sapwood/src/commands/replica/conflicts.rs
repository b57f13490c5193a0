//! `sapwood replica conflicts`: the changes that were acknowledged and have lost against others, where several servers
//! take updates.

use std::fmt::Write as _;

use anyhow::Result;
use sapwood_directory::{Csn, Directory, LostAttribute, LostChange, LostWhat};
use sapwood_ldap::time::generalized_time;
use sapwood_replication::Rule;

use super::agreements::{ask, quoted};
use crate::cli::replica::ReplicaStatus;
use crate::output::Output;

pub(super) fn run(args: &ReplicaStatus, out: &mut Output) -> Result<()> {
    let form = if args.json { "json" } else { "text" };
    let done = ask(&args.folder, &["conflicts", form], true, out)?;
    if !done.is_empty() {
        out.say(done);
    }
    Ok(())
}

/// Hands out a line for each.
pub(super) fn list(
    directory: &Directory,
    form: &str,
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let mut count = 0;
    let listed = directory.conflicts(|lost| {
        count += 1;
        note(&match form {
            "json" => json(&lost),
            _ => line(&lost),
        });
    });
    listed.map_err(|error| error.to_string())?;
    Ok(match (count, form) {
        (0, "text") => "No change is known that was acknowledged and has lost.".to_owned(),
        _ => String::new(),
    })
}

/// A line for people, such as `2026-11-24T10:00:00Z (replica 2) uid=ann,o=x: sn "b" lost to replica 1,
/// 2026-11-24T10:00:01Z: the later change wins [20261124100000.000000Z#000000#002#000000]`.
fn line(lost: &LostChange) -> String {
    let mut text = format!(
        "{} (replica {}) {}: ",
        time(lost.loser),
        lost.loser.replica,
        lost.dn
    );
    match &lost.what {
        LostWhat::Delete => text += "its delete",
        LostWhat::Name => text += "its name",
        LostWhat::Place => text += "its move",
        LostWhat::Attributes(attributes) => {
            for (at, one) in attributes.iter().enumerate() {
                let LostAttribute { name, values, .. } = one;
                text += if at == 0 { "" } else { ", " };
                text += if one.is_added { "the new " } else { "" };
                text += name;
                match values {
                    None => text += " (not shown)",
                    Some(values) if values.is_empty() => text += " (taken away)",
                    Some(values) => {
                        for value in values {
                            let _ = write!(text, " \"{}\"", value.escape_ascii());
                        }
                    }
                }
            }
        }
    }
    let why = why(lost.rule);
    let _ = write!(
        text,
        " lost to replica {}, {}: {why} [{}]",
        lost.winner.replica,
        time(lost.winner),
        lost.loser
    );
    text
}

fn json(lost: &LostChange) -> String {
    let (what, attributes) = match &lost.what {
        LostWhat::Attributes(attributes) => ("attributes", attributes.as_slice()),
        LostWhat::Delete => ("delete", &[][..]),
        LostWhat::Name => ("name", &[][..]),
        LostWhat::Place => ("move", &[][..]),
    };
    let attributes = attributes.iter().map(|LostAttribute { name, values, .. }| {
        let values = values.as_ref().map(|values| {
            let texts = values
                .iter()
                .map(|value| quoted(&String::from_utf8_lossy(value)));
            format!("[{}]", texts.collect::<Vec<_>>().join(","))
        });
        format!(
            "{}:{}",
            quoted(name),
            values.unwrap_or_else(|| "null".into())
        )
    });
    format!(
        "{{\"dn\":{},\"entryUUID\":\"{}\",\"lost\":\"{what}\",\"attributes\":{{{}}},\"loser\":\"{}\",\"winner\":\"{}\",\
         \"rule\":{},\"found\":{}}}",
        quoted(&lost.dn),
        sapwood_replication::Uuid(lost.entry),
        attributes.collect::<Vec<_>>().join(","),
        lost.loser,
        lost.winner,
        quoted(why(lost.rule)),
        lost.found / 1_000_000
    )
}

fn why(rule: Rule) -> &'static str {
    match rule {
        Rule::Later => "the later change wins",
        Rule::Deleted => "the entry was deleted",
        Rule::Ring => "the entry would be below itself",
        Rule::NameTaken => "another entry has the name",
        Rule::Glue => "there are entries below it",
        Rule::Late => "its server was away for too long",
    }
}

/// The time of a change, to the second (RFC 3339).
fn time(csn: Csn) -> String {
    let text = generalized_time(csn.micros);
    match (
        text.get(..4),
        text.get(4..6),
        text.get(6..8),
        text.get(8..10),
        text.get(10..12),
        text.get(12..14),
    ) {
        (Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)) => {
            format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_has_lost_to_what_and_shows_no_password() {
        let csn = |second: u64, replica| Csn {
            micros: 951_827_696_000_123 + second * 1_000_000,
            count: 0,
            replica,
        };
        let attribute = |name: &str, values: Option<&[&str]>| LostAttribute {
            name: name.into(),
            values: values.map(|values| values.iter().map(|one| one.as_bytes().to_vec()).collect()),
            is_added: name == "member",
        };
        let mut lost = LostChange {
            found: 951_827_700_000_000,
            loser: csn(0, 2),
            winner: csn(1, 1),
            rule: Rule::Later,
            entry: [0x1f; 16],
            dn: "uid=ann,o=x".into(),
            what: LostWhat::Attributes(vec![
                attribute("mail", Some(&[])),
                attribute("member", Some(&["cn=a"])),
                attribute("sn", Some(&["\"a\"", "b"])),
                attribute("userPassword", None),
            ]),
        };
        assert_eq!(
            line(&lost),
            "2000-02-29T12:34:56Z (replica 2) uid=ann,o=x: mail (taken away), the new member \"cn=a\", sn \"\\\"a\\\"\" \
             \"b\", userPassword (not shown) lost to replica 1, 2000-02-29T12:34:57Z: the later change wins \
             [20000229123456.000123Z#000000#002#000000]"
        );
        let told = json(&lost);
        assert!(told.contains(
            r#""attributes":{"mail":[],"member":["cn=a"],"sn":["\"a\"","b"],"userPassword":null}"#
        ));
        assert!(
            told.contains(r#""winner":"20000229123457.000123Z#000000#001#000000""#),
            "{told}"
        );
        lost.what = LostWhat::Delete;
        lost.rule = Rule::Glue;
        assert!(line(&lost).contains("its delete lost to replica 1"));
    }
}
