//! `sapwood replica restore`: makes a change again that was acknowledged and has lost, as a change of its own, by the
//! administrator. So it is later than the one that has won, and others take it.
//!
//! | what has lost | what is done |
//! | --- | --- |
//! | what a change had left of attributes | they get these values |
//! | values that were added | they are added |
//! | the same, and the entry has gone | it is added anew with what the log has of it, and with another entryUUID |
//! | a delete | the entry is deleted |
//! | a name, a move | the entry is renamed |

use anyhow::Result;
use sapwood_directory::{Csn, Directory, LostAttribute, LostChange, LostWhat};
use sapwood_ldap::controls::{Control, ControlsBuf, PERMISSIVE_MODIFY};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::list::{AttributesBuf, ChangeKind, ChangesBuf};
use sapwood_ldap::message::{AddRequest, ModifyDnRequest, ModifyRequest, Request};

use super::agreements::ask;
use crate::cli::replica::RestoreChange;
use crate::commands::config;
use crate::output::Output;

pub(super) fn run(args: &RestoreChange, out: &mut Output) -> Result<()> {
    let done = ask(&args.folder, &["restore", &args.change], false, out)?;
    out.say(done);
    Ok(())
}

/// Makes the change with a number again, as far as it has lost and the log has it.
pub(super) fn restore(
    directory: &Directory,
    administrator: &str,
    change: &str,
    note: &mut dyn FnMut(&str),
) -> Result<String, String> {
    let number = Csn::parse(change);
    let number = number.ok_or(
        "name the change by its number, which 'sapwood replica conflicts' has in brackets",
    )?;
    let mut lines = Vec::new();
    let read = directory.conflicts(|line| {
        if line.loser == number {
            lines.push(line);
        }
    });
    read.map_err(|error| error.to_string())?;
    if lines.is_empty() {
        return Err(format!("the conflict log here has no change {number}"));
    }
    for line in &lines {
        restore_one(directory, administrator, line, note)?;
    }
    Ok("That is a new change, which the other servers take.".to_owned())
}

fn restore_one(
    directory: &Directory,
    administrator: &str,
    line: &LostChange,
    note: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let now = directory.dn_of_uuid(line.entry);
    let now = now.map_err(|error| error.to_string())?;
    let make = |op| config::make(directory, administrator, op);
    match (&line.what, &now) {
        (LostWhat::Attributes(attributes), _) => {
            let kept: Vec<(&LostAttribute, &Vec<Vec<u8>>)> = attributes
                .iter()
                .filter(|one| may_be_written(directory, one))
                .filter_map(|one| Some((one, one.values.as_ref()?)))
                .collect();
            let left_out = attributes
                .iter()
                .filter(|one| !kept.iter().any(|(own, _)| own == one));
            let left_out: Vec<&str> = left_out.map(|one| one.name.as_str()).collect();
            match &now {
                Some(dn) => {
                    let mut controls = ControlsBuf::default();
                    let mut changes = ChangesBuf::default();
                    for (one, values) in &kept {
                        let kind = match one.is_added {
                            true => ChangeKind::Add,
                            false => ChangeKind::Replace,
                        };
                        changes.push(kind, one.name.as_bytes(), values.iter().map(Vec::as_slice));
                    }
                    controls.push(Control {
                        oid: PERMISSIVE_MODIFY,
                        critical: true,
                        value: None,
                    });
                    if kept.is_empty() {
                        return Err(format!(
                            "the log does not have the values of {}",
                            left_out.join(", ")
                        ));
                    }
                    let changes = changes.view();
                    let op = Request::Modify(ModifyRequest { dn, changes });
                    config::make_with(directory, administrator, op, controls.view())?;
                    note(&format!("changed again: {dn}"));
                }
                None => {
                    let mut list = AttributesBuf::default();
                    for (one, values) in kept.iter().filter(|(_, values)| !values.is_empty()) {
                        list.push(one.name.as_bytes(), values.iter().map(Vec::as_slice));
                    }
                    let attributes = list.view();
                    let op = Request::Add(AddRequest {
                        dn: &line.dn,
                        attributes,
                    });
                    make(op)?;
                    note(&format!("added again: {}", line.dn));
                }
            }
            if !left_out.is_empty() {
                note(&format!(
                    "not restored, set them anew: {}",
                    left_out.join(", ")
                ));
            }
            Ok(())
        }
        (_, None) => Err(format!("the entry has gone: {}", line.dn)),
        (LostWhat::Delete, Some(dn)) => {
            make(Request::Delete(dn))?;
            note(&format!("deleted again: {dn}"));
            Ok(())
        }
        (LostWhat::Name | LostWhat::Place, Some(dn)) => {
            let wanted = Dn::parse(&line.dn).map_err(|error| error.to_string())?;
            let parsed = Dn::parse(dn).map_err(|error| error.to_string())?;
            let (rdn, superior) = (wanted.rdn(), wanted.parent());
            let rdn = rdn.ok_or("the name is empty")?;
            let is_moved = superior.map(Dn::as_str) != parsed.parent().map(Dn::as_str);
            make(Request::ModifyDn(ModifyDnRequest {
                dn,
                new_rdn: rdn.as_str(),
                delete_old_rdn: true,
                new_superior: superior.map(Dn::as_str).filter(|_| is_moved),
            }))?;
            note(&format!("renamed again: {}", line.dn));
            Ok(())
        }
    }
}

/// Whether an update may write an attribute: what the server itself keeps is not restored.
fn may_be_written(directory: &Directory, lost: &LostAttribute) -> bool {
    let name = lost.name.split(';').next().unwrap_or_default();
    let schema = directory.schema();
    let known = schema.attribute_type(name.as_bytes());
    known.is_some_and(|known| !known.is_no_user_modification())
}
