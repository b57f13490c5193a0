//! Get User Resource Limits, as PingDirectory and the UnboundID LDAP SDK have it: a bind that succeeds says how much
//! the searches of who has bound may take.
//!
//! controlValue of the request, if there is one:
//!
//! ```text
//! GetUserResourceLimitsRequest ::= SEQUENCE {
//!     excludeGroups [0] BOOLEAN DEFAULT FALSE }
//! ```
//!
//! controlValue of the response, as far as it is told here:
//!
//! ```text
//! GetUserResourceLimitsResponse ::= SEQUENCE {
//!     sizeLimit        [0] INTEGER OPTIONAL,
//!     timeLimit        [1] INTEGER OPTIONAL,
//!     idleTimeLimit    [2] INTEGER OPTIONAL,
//!     lookthroughLimit [3] INTEGER OPTIONAL,
//!     ... }
//! ```

use super::{Control, Fault, Layer, Spec, sequence};
use crate::ber;
use crate::operation::Operation;

/// OID of the request control.
pub const GET_USER_RESOURCE_LIMITS: &str = "1.3.6.1.4.1.30221.2.5.25";
/// OID of the response control.
pub const GET_USER_RESOURCE_LIMITS_RESPONSE: &str = "1.3.6.1.4.1.30221.2.5.26";

pub(super) const SPEC: Spec = Spec {
    oids: &[GET_USER_RESOURCE_LIMITS],
    operations: &[Operation::Bind],
    layer: Layer::Session,
};

/// That it is there. Groups are not told, whether they are excluded or not.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    let Some(value) = control.value else {
        return Ok(());
    };
    let mut reader = sequence(value, "GetUserResourceLimitsRequest")?;
    if let Some(excludes) = reader.optional(ber::context(0), "excludeGroups")? {
        ber::boolean(excludes, "excludeGroups")?;
    }
    Ok(reader.skip_extensions()?)
}

/// What the operations of somebody may take; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Entries that a search returns.
    pub size: u32,
    /// Seconds that a search takes.
    pub time: u32,
    /// Seconds after which an idle connection is closed.
    pub idle: u32,
    /// Candidates that a search looks at.
    pub candidates: u32,
}

impl ResourceLimits {
    /// Appends the value of the response control.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let element = ber::open(out, ber::SEQUENCE, 0);
        let limits = [self.size, self.time, self.idle, self.candidates];
        for (number, limit) in (0..).zip(limits) {
            ber::put_integer(out, ber::context(number), limit.into());
        }
        ber::close(out, element);
    }
}

/// The response control with an encoded value.
pub fn resource_limits_response(value: &[u8]) -> Control<'_> {
    Control {
        oid: GET_USER_RESOURCE_LIMITS_RESPONSE,
        critical: false,
        value: Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_and_answered_as_the_sdk_does() {
        let asked = |value| {
            decode(&Control {
                oid: GET_USER_RESOURCE_LIMITS,
                critical: false,
                value,
            })
        };
        assert_eq!(asked(None), Ok(()));
        assert_eq!(asked(Some(b"\x30\x00")), Ok(()));
        assert_eq!(asked(Some(b"\x30\x03\x80\x01\xff")), Ok(()));
        for wrong in [&b""[..], b"\x30\x02\x80\x00", b"\x30\x01\x80"] {
            assert!(asked(Some(wrong)).is_err(), "{wrong:?}");
        }
        let limits = ResourceLimits {
            size: 1,
            time: 2,
            idle: 3,
            candidates: 0,
        };
        let mut value = Vec::new();
        limits.encode(&mut value);
        let expected = b"\x30\x0c\x80\x01\x01\x81\x01\x02\x82\x01\x03\x83\x01\x00";
        assert_eq!(value, expected);
    }
}
