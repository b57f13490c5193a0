//! Relax rules (draft-zeilenga-ldap-relax): an update may change the structural class of an entry, and set attributes
//! that only the directory sets otherwise. It has no value, and must be critical (§2).

use super::{Control, Fault, Layer, OF_UPDATES, Spec};

/// Its OID, which is the one that OpenLDAP has for it.
pub const RELAX_RULES: &str = "1.3.6.1.4.1.4203.666.5.12";

pub(super) const SPEC: Spec = Spec {
    oids: &[RELAX_RULES],
    operations: OF_UPDATES,
    layer: Layer::Directory,
};

/// That it is there.
pub(super) type Value<'m> = ();

pub(super) fn decode(control: &Control<'_>) -> Result<(), Fault> {
    match control.critical {
        true => control.no_value(),
        false => Err(Fault::NotCritical),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_critical_and_has_no_value() {
        let asked = |critical, value| {
            decode(&Control {
                oid: RELAX_RULES,
                critical,
                value,
            })
        };
        assert_eq!(asked(true, None), Ok(()));
        assert_eq!(asked(true, Some(&b""[..])), Err(Fault::HasValue));
        assert_eq!(asked(false, None), Err(Fault::NotCritical));
    }
}
