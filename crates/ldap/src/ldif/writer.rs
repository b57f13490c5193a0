//! Writing LDIF.

#![deny(clippy::indexing_slicing)]

use super::{Body, ModificationKind, Record};
use crate::base64;

/// Lines longer than this are folded.
pub const COLUMNS: usize = 76;

/// Appends the version line that begins a file, and an empty line.
pub fn write_version(out: &mut Vec<u8>) {
    out.extend_from_slice(b"version: 1\n\n");
}

/// Appends the line that begins a record.
pub fn write_dn(out: &mut Vec<u8>, dn: &str) {
    write_value(out, "dn", dn.as_bytes());
}

/// Appends one value: as it is where RFC 2849 has it safe, in base 64 otherwise, folded at [`COLUMNS`]. Records end
/// with an empty line, which is the caller's to append.
pub fn write_value(out: &mut Vec<u8>, description: &str, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(description.as_bytes());
    if is_safe(value) {
        out.extend_from_slice(if value.is_empty() { b":" } else { b": " });
        out.extend_from_slice(value);
    } else {
        out.extend_from_slice(b":: ");
        base64::encode(value, out);
    }
    end_line(out, start);
}

/// Appends a whole record with the empty line after it.
pub fn write_record(out: &mut Vec<u8>, record: &Record<'_>) {
    write_dn(out, &record.dn);
    for control in &record.controls {
        write_control(out, control);
    }
    match &record.body {
        Body::Entry(attributes) => write_attributes(out, attributes),
        Body::Add(attributes) => {
            write_value(out, "changetype", b"add");
            write_attributes(out, attributes);
        }
        Body::Delete => write_value(out, "changetype", b"delete"),
        Body::Modify(modifications) => {
            write_value(out, "changetype", b"modify");
            for modification in modifications {
                let kind = match modification.kind {
                    ModificationKind::Add => "add",
                    ModificationKind::Delete => "delete",
                    ModificationKind::Replace => "replace",
                    ModificationKind::Increment => "increment",
                };
                write_value(out, kind, modification.description.as_bytes());
                for value in &modification.values {
                    write_value(out, &modification.description, value);
                }
                out.extend_from_slice(b"-\n");
            }
        }
        Body::ModifyDn {
            new_rdn,
            delete_old_rdn,
            new_superior,
        } => {
            write_value(out, "changetype", b"modrdn");
            write_value(out, "newrdn", new_rdn.as_bytes());
            write_value(
                out,
                "deleteoldrdn",
                if *delete_old_rdn { b"1" } else { b"0" },
            );
            if let Some(new_superior) = new_superior {
                write_value(out, "newsuperior", new_superior.as_bytes());
            }
        }
    }
    out.push(b'\n');
}

fn write_attributes(out: &mut Vec<u8>, attributes: &[super::AttributeValue<'_>]) {
    for attribute in attributes {
        write_value(out, &attribute.description, &attribute.value);
    }
}

fn write_control(out: &mut Vec<u8>, control: &super::Control<'_>) {
    let start = out.len();
    out.extend_from_slice(b"control: ");
    out.extend_from_slice(control.oid.as_bytes());
    out.extend_from_slice(if control.critical {
        b" true"
    } else {
        b" false"
    });
    if let Some(value) = &control.value {
        // Base 64 whatever the value: a plain one could not be told from the rest of the line.
        out.extend_from_slice(b":: ");
        base64::encode(value, out);
    }
    end_line(out, start);
}

/// Ends the line that began at `start`, folding it where it is too long.
fn end_line(out: &mut Vec<u8>, start: usize) {
    if out.len() - start > COLUMNS {
        let line = out.split_off(start);
        let (first, rest) = line.split_at_checked(COLUMNS).unwrap_or((&line, &[]));
        out.reserve(line.len() + rest.len() / 32 + 2);
        out.extend_from_slice(first);
        for continuation in rest.chunks(COLUMNS - 1) {
            out.extend_from_slice(b"\n ");
            out.extend_from_slice(continuation);
        }
    }
    out.push(b'\n');
}

/// SAFE-STRING of RFC 2849, and no space at the end (its note 8).
fn is_safe(value: &[u8]) -> bool {
    let [first, ..] = value else { return true };
    let safe_everywhere = |&byte: &u8| byte < 0x80 && !matches!(byte, 0 | b'\n' | b'\r');
    !matches!(first, b' ' | b':' | b'<')
        && !value.ends_with(b" ")
        && value.iter().all(safe_everywhere)
}
