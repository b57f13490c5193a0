//! Get Server ID, as PingDirectory and the UnboundID LDAP SDK have it: each response says which server it is from. The
//! request has no value. The response stands on each entry and reference of a search, and on the end of any operation.
//!
//! controlValue of the response: the name itself, in UTF-8

use super::{Control, Fault, Layer, OF_ANSWERED, Spec};

/// OID of the request control.
pub const GET_SERVER_ID: &str = "1.3.6.1.4.1.30221.2.5.14";
/// OID of the response control.
pub const GET_SERVER_ID_RESPONSE: &str = "1.3.6.1.4.1.30221.2.5.15";

pub(super) const SPEC: Spec = Spec {
    oids: &[GET_SERVER_ID],
    operations: OF_ANSWERED,
    layer: Layer::Session,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    control.no_value()
}

/// The response control of a server with this name.
pub fn server_id_response(name: &str) -> Control<'_> {
    Control {
        oid: GET_SERVER_ID_RESPONSE,
        critical: false,
        value: Some(name.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_without_a_value_and_answered_with_the_name() {
        let asked = |value| Control {
            oid: GET_SERVER_ID,
            critical: true,
            value,
        };
        assert_eq!(decode(&asked(None)), Ok(()));
        assert_eq!(decode(&asked(Some(b"one"))), Err(Fault::HasValue));
        let response = server_id_response("one");
        assert_eq!(response.oid, "1.3.6.1.4.1.30221.2.5.15");
        assert_eq!((response.critical, response.value), (false, Some(&b"one"[..])));
    }
}
