//! The operations of LDAP.

/// The operations of LDAP, without their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// RFC 4511 §4.2.
    Bind,
    /// RFC 4511 §4.3.
    Unbind,
    /// RFC 4511 §4.5.
    Search,
    /// RFC 4511 §4.6.
    Modify,
    /// RFC 4511 §4.7.
    Add,
    /// RFC 4511 §4.8.
    Delete,
    /// RFC 4511 §4.9.
    ModifyDn,
    /// RFC 4511 §4.10.
    Compare,
    /// RFC 4511 §4.11.
    Abandon,
    /// RFC 4511 §4.12.
    Extended,
}

impl Operation {
    /// The tag of its request.
    pub const fn request_tag(self) -> u8 {
        match self {
            Operation::Bind => 0x60,
            Operation::Unbind => 0x42,
            Operation::Search => 0x63,
            Operation::Modify => 0x66,
            Operation::Add => 0x68,
            Operation::Delete => 0x4a,
            Operation::ModifyDn => 0x6c,
            Operation::Compare => 0x6e,
            Operation::Abandon => 0x50,
            Operation::Extended => 0x77,
        }
    }

    /// Its name, as in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Bind => "bind",
            Operation::Unbind => "unbind",
            Operation::Search => "search",
            Operation::Modify => "modify",
            Operation::Add => "add",
            Operation::Delete => "delete",
            Operation::ModifyDn => "modify DN",
            Operation::Compare => "compare",
            Operation::Abandon => "abandon",
            Operation::Extended => "extended",
        }
    }

    /// The one whose request has this tag.
    #[inline]
    pub(crate) const fn of_request(tag: u8) -> Option<Self> {
        Some(match tag {
            0x60 => Operation::Bind,
            0x42 => Operation::Unbind,
            0x63 => Operation::Search,
            0x66 => Operation::Modify,
            0x68 => Operation::Add,
            0x4a => Operation::Delete,
            0x6c => Operation::ModifyDn,
            0x6e => Operation::Compare,
            0x50 => Operation::Abandon,
            0x77 => Operation::Extended,
            _ => return None,
        })
    }
}
