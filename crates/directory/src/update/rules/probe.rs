//! A rule for tests: what a rule may do, asked for by descriptions.

use std::borrow::Cow;

use sapwood_ldap::result::ResultCode;
use sapwood_testkit::requests;

use super::{After, Before, Origin, Rule, Touched};
use crate::engine::{Index, Read};
use crate::error::Result;
use crate::names;
use crate::outcome::Stop;
use crate::schema::Schema;
use crate::state::State;

/// Answers drafts and updates of entries by their descriptions.
#[derive(Debug)]
pub(super) struct Probe;

/// The values of description on one side.
fn descriptions<R: Read>(update: &After<'_, R>, side: &super::Side<'_>) -> Vec<String> {
    let known = update.schema.attribute_type(b"description").unwrap();
    let number = update.state.attributes.number(known.id(), "");
    let entry = side.records.map(|[user, _]| user);
    let values = number.and_then(|number| entry?.attribute(number).unwrap());
    let values = values.iter().flat_map(|values| values.values());
    values
        .map(|value| String::from_utf8(value.to_vec()).unwrap())
        .collect()
}

impl Rule for Probe {
    fn heeds(&self, _: Origin) -> bool {
        true
    }

    fn indexes(&self, _: &State) -> impl Iterator<Item = Index> {
        std::iter::empty()
    }

    fn check(&self, _: &Schema, _: &State) -> Result<()> {
        Ok(())
    }

    fn sees_drafts(&self, _: Touched) -> bool {
        true
    }

    fn before<R: Read>(&self, draft: &mut Before<'_, '_, R>) -> std::result::Result<(), Stop> {
        let schema = draft.schema;
        let known = schema.attribute_type(b"description").unwrap();
        let values = draft.draft.values(known.id());
        let wishes: Vec<Vec<u8>> = values.into_iter().map(<[u8]>::to_vec).collect();
        let asks = |what: &[u8]| wishes.iter().any(|wish| wish == what);
        if asks(b"refuse me") {
            return Err(Stop::refuse(
                ResultCode::ConstraintViolation,
                "refused as it asks",
            ));
        }
        let title = schema.attribute_type(b"title").unwrap();
        let see_also = schema.attribute_type(b"seeAlso").unwrap();
        for (wish, added, value) in [
            (&b"add a title"[..], title, &b"Added"[..]),
            (b"add what is none", see_also, b"no DN"),
        ] {
            if asks(wish) {
                let value = Cow::Owned(value.to_vec());
                draft.draft.add_if_missing(schema, added, value);
            }
        }
        Ok(())
    }

    fn after<R: Read>(&self, update: &mut After<'_, R>) -> std::result::Result<(), Stop> {
        let (old, new) = (
            descriptions(update, update.old),
            descriptions(update, update.new),
        );
        let base = "dc=example,dc=com";
        let note = |dn: &str, value: &str| {
            let change = (
                sapwood_ldap::list::ChangeKind::Replace,
                "description",
                &[value][..],
            );
            requests::modify(1, dn, &[change])
        };
        for wish in new.iter().filter(|wish| !old.contains(wish)) {
            let origin = match update.origin {
                Origin::Client => "a client",
                Origin::Rule => "a rule",
                Origin::Replica => "a replica",
            };
            match wish.split_once(' ') {
                Some(("tell", whom)) => {
                    update.queue.push(
                        note(&format!("cn={whom},{base}"), &format!("by {origin}")),
                        None,
                    )?;
                }
                // Each answer is an update that is answered.
                Some(("count", number)) => {
                    let next = number.parse::<u32>().unwrap() + 1;
                    let dn = names::dn_of(update.view, update.id)?;
                    update
                        .queue
                        .push(note(&dn, &format!("count {next}")), None)?;
                }
                Some(("flood", count)) => {
                    for _ in 0..count.parse::<u32>().unwrap() {
                        update.queue.push(requests::modify(1, base, &[]), None)?;
                    }
                }
                _ => {}
            }
        }
        // Who is taken away takes those with them that the description names.
        if update.new.records.is_none() {
            for whom in old.iter().filter_map(|old| old.strip_prefix("with ")) {
                let dn = format!("cn={whom},{base}");
                let delete = sapwood_ldap::message::Request::Delete(&dn);
                update.queue.push(requests::message(1, delete), None)?;
            }
        }
        Ok(())
    }
}
