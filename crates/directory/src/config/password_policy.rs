//! The overlay ppolicy, as slapo-ppolicy(5) has it: while its entry is there, passwords are governed by policies.

use sapwood_ldap::dn::Dn;

use super::entries::PASSWORD_POLICY;
use super::{Setting, Settings, boolean, shown_boolean};

/// How password policies are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PasswordPolicyOverlay {
    /// The DN of the policy of entries that no other one governs; empty for none.
    pub default: String,
    /// What slapd asks for so is always done: passwords in clear text are hashed.
    pub hash_cleartext: bool,
    /// Whether the client is told that an account is locked, which helps those who try passwords, too.
    pub use_lockout: bool,
    /// Whether clients that do not ask for the control of password policies get those of Netscape.
    pub send_netscape_controls: bool,
}

/// What can be set in its entry.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        attribute: "olcPPolicyDefault",
        entry: PASSWORD_POLICY,
        get: |settings| read(settings, |overlay| overlay.default.clone()),
        set: |settings, value| {
            Dn::parse(value).map_err(|error| format!("'{value}' is not a DN: {error}"))?;
            if value.is_empty() || value.contains(['\n', '\r']) {
                return Err(
                    "write the DN of an entry of class pwdPolicy, without line breaks".to_owned(),
                );
            }
            overlay(settings).default = value.to_owned();
            Ok(())
        },
        reset: |settings| overlay(settings).default.clear(),
    },
    Setting {
        attribute: "olcPPolicyHashCleartext",
        entry: PASSWORD_POLICY,
        get: |settings| read(settings, |overlay| shown_boolean(overlay.hash_cleartext)),
        set: |settings, value| {
            overlay(settings).hash_cleartext = boolean(value)?;
            Ok(())
        },
        reset: |settings| overlay(settings).hash_cleartext = false,
    },
    Setting {
        attribute: "olcPPolicyUseLockout",
        entry: PASSWORD_POLICY,
        get: |settings| read(settings, |overlay| shown_boolean(overlay.use_lockout)),
        set: |settings, value| {
            overlay(settings).use_lockout = boolean(value)?;
            Ok(())
        },
        reset: |settings| overlay(settings).use_lockout = false,
    },
    Setting {
        attribute: "olcPPolicySendNetscapeControls",
        entry: PASSWORD_POLICY,
        get: |settings| {
            read(settings, |overlay| {
                shown_boolean(overlay.send_netscape_controls)
            })
        },
        set: |settings, value| {
            overlay(settings).send_netscape_controls = boolean(value)?;
            Ok(())
        },
        reset: |settings| overlay(settings).send_netscape_controls = false,
    },
];

/// The values that the entry shows: those that somebody has set.
pub(crate) fn shown(settings: &Settings) -> Vec<(&'static str, Vec<String>)> {
    let set = SETTINGS.iter().map(|setting| {
        let is_set = !setting.is_default(settings);
        (
            setting.attribute,
            Vec::from_iter(is_set.then(|| setting.value(settings))),
        )
    });
    set.collect()
}

/// The overlay as a line of the definition.
pub(crate) fn line(overlay: &PasswordPolicyOverlay) -> String {
    let flags = [
        (overlay.hash_cleartext, "hash-cleartext"),
        (overlay.use_lockout, "use-lockout"),
        (overlay.send_netscape_controls, "netscape-controls"),
    ];
    let flags = flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, word)| *word);
    let flags: Vec<&str> = std::iter::once("on").chain(flags).collect();
    format!("{} {}", flags.join(","), overlay.default)
}

/// The overlay that a line of the definition has.
pub(crate) fn parse(line: &str) -> Option<PasswordPolicyOverlay> {
    let (flags, default) = line.split_once(' ')?;
    let mut overlay = PasswordPolicyOverlay {
        default: default.to_owned(),
        ..PasswordPolicyOverlay::default()
    };
    for flag in flags.split(',') {
        match flag {
            "on" => {}
            "hash-cleartext" => overlay.hash_cleartext = true,
            "use-lockout" => overlay.use_lockout = true,
            "netscape-controls" => overlay.send_netscape_controls = true,
            _ => return None,
        }
    }
    Some(overlay)
}

fn overlay(settings: &mut Settings) -> &mut PasswordPolicyOverlay {
    settings.password_policy.get_or_insert_default()
}

fn read(settings: &Settings, value: impl Fn(&PasswordPolicyOverlay) -> String) -> String {
    match &settings.password_policy {
        Some(overlay) => value(overlay),
        None => value(&PasswordPolicyOverlay::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_all_of_it() {
        let all = PasswordPolicyOverlay {
            default: "cn=a b,dc=x".into(),
            hash_cleartext: true,
            use_lockout: true,
            send_netscape_controls: true,
        };
        for overlay in [PasswordPolicyOverlay::default(), all] {
            assert_eq!(parse(&line(&overlay)), Some(overlay));
        }
        assert_eq!(parse("on,more cn=x"), None);
        assert_eq!(parse("on"), None);
    }
}
