//! What an import makes of the entries of a source before it looks at them: attributes that are left out, or are called
//! otherwise, and what another server writes that is its own business.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use sapwood_ldap::attribute::AttributeDescription;
use sapwood_ldap::ldif::{AttributeValue, Body, Record};

use crate::stamp::uuid_text;

/// Another server whose exports are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportProfile {
    /// `slapcat` of OpenLDAP.
    OpenLdap,
    /// `db2ldif` of 389 Directory Server.
    Ds389,
    /// `ldifde` of Active Directory.
    ActiveDirectory,
}

/// What `slapcat` writes of overlays that are of no use elsewhere.
const OF_OPENLDAP: &[&str] = &[
    "auditContext",
    "authTimestamp",
    "dynamicSubtrees",
    "monitorContext",
    "syncreplCookie",
];

/// What `db2ldif` writes of the server's own.
const OF_DS389: &[&str] = &[
    "accountUnlockTime",
    "copiedFrom",
    "copyingFrom",
    "dncomp",
    "dsEntryDN",
    "entryDN",
    "entryID",
    "entryUSN",
    "internalCreatorsName",
    "internalModifiersName",
    "lastLoginTime",
    "nscpEntryDN",
    "nscpEntryWSI",
    "nsParentUniqueId",
    "nsRole",
    "nsTombstoneCSN",
    "numSubordinates",
    "parentID",
    "passwordAllowChangeTime",
    "passwordExpirationTime",
    "passwordExpWarned",
    "passwordGraceUserTime",
    "passwordHistory",
    "passwordRetryCount",
    "pwdUpdateTime",
    "retryCountResetTime",
    "tombstoneNumSubordinates",
];

/// What `ldifde` writes of the server's own.
const OF_ACTIVE_DIRECTORY: &[&str] = &[
    "badPasswordTime",
    "badPwdCount",
    "distinguishedName",
    "dSCorePropagationData",
    "instanceType",
    "isCriticalSystemObject",
    "lastLogoff",
    "lastLogon",
    "lastLogonTimestamp",
    "logonCount",
    "name",
    "nTSecurityDescriptor",
    "objectCategory",
    "pwdLastSet",
    "replPropertyMetaData",
    "sAMAccountType",
    "showInAdvancedViewOnly",
    "subRefs",
    "systemFlags",
    "uSNChanged",
    "uSNCreated",
];

/// The identifier of an entry at Active Directory: a UUID whose first three parts have the least octet first.
const OBJECT_GUID: &str = "objectguid";
/// Its times, with a fraction that is always 0.
const WHEN: [(&str, &str); 2] = [
    ("whencreated", "createTimestamp"),
    ("whenchanged", "modifyTimestamp"),
];

/// The identifier of an entry at 389 Directory Server: a UUID with other hyphens.
const NS_UNIQUE_ID: &str = "nsuniqueid";
const ENTRY_UUID: &str = "entryUUID";
/// Access rules of 389 Directory Server.
const ACI: &str = "aci";
/// Options of values that tell when they were changed, in exports for replicas (`db2ldif -r`).
const STATE_OPTIONS: [&str; 4] = ["adcsn-", "mdcsn-", "vdcsn-", "vucsn-"];
/// Options of values and attributes that are not there any more.
const GONE_OPTIONS: [&str; 2] = ["deleted", "deletedattribute"];

/// What is made of entries.
#[derive(Debug, Default)]
pub struct Reshape {
    profile: Option<ImportProfile>,
    /// In small letters.
    dropped: HashSet<String>,
    /// The names in small letters, and what they become.
    renamed: HashMap<String, String>,
    access_rules: AtomicU64,
}

impl Reshape {
    /// Leaves some attributes out, and calls others otherwise: pairs of a name and the new one. Options stay.
    ///
    /// # Errors
    /// When something is no name of an attribute, or one is named twice.
    pub fn new(
        profile: Option<ImportProfile>,
        dropped: &[String],
        renamed: &[(String, String)],
    ) -> Result<Reshape, String> {
        let is_name = |name: &String| {
            let parsed = AttributeDescription::parse(name);
            match parsed.is_ok_and(|parsed| !parsed.has_options()) {
                true => Ok(()),
                false => Err(format!("'{name}' is no name of an attribute")),
            }
        };
        let pairs = renamed.iter().flat_map(|(from, to)| [from, to]);
        dropped.iter().chain(pairs).try_for_each(is_name)?;
        let own = match profile {
            None => &[],
            Some(ImportProfile::OpenLdap) => OF_OPENLDAP,
            Some(ImportProfile::Ds389) => OF_DS389,
            Some(ImportProfile::ActiveDirectory) => OF_ACTIVE_DIRECTORY,
        };
        let mut reshape = Reshape {
            profile,
            dropped: own.iter().map(|name| name.to_ascii_lowercase()).collect(),
            ..Reshape::default()
        };
        let given = dropped.iter().map(|name| name.to_ascii_lowercase());
        reshape.dropped.extend(given);
        for (from, to) in renamed {
            let before = reshape
                .renamed
                .insert(from.to_ascii_lowercase(), to.clone());
            if before.is_some() {
                return Err(format!("'{from}' is to be called otherwise twice"));
            }
        }
        Ok(reshape)
    }

    /// How many values of `aci` were left out: what they say is to be written as access rules.
    pub fn access_rules(&self) -> u64 {
        self.access_rules.load(Ordering::Relaxed)
    }

    /// Forgets what was counted: the source is read again.
    pub(crate) fn begin_again(&self) {
        self.access_rules.store(0, Ordering::Relaxed);
    }

    /// Whether all stays as it is.
    fn is_nothing(&self) -> bool {
        self.profile.is_none() && self.dropped.is_empty() && self.renamed.is_empty()
    }

    /// Makes of an entry what is wanted of it.
    pub fn apply(&self, record: &mut Record<'_>) {
        if self.is_nothing() {
            return;
        }
        let (Body::Entry(values) | Body::Add(values)) = &mut record.body else {
            return;
        };
        let is_uuid =
            |value: &AttributeValue<'_>| value.description.eq_ignore_ascii_case(ENTRY_UUID);
        let has_uuid = values.iter().any(is_uuid);
        values.retain_mut(|value| self.keeps(value, has_uuid));
    }

    /// Makes of a value what is wanted of it; whether it stays.
    fn keeps(&self, value: &mut AttributeValue<'_>, has_uuid: bool) -> bool {
        if self.profile == Some(ImportProfile::Ds389) && value.description.contains(';') {
            let mut parts = value.description.split(';');
            let is_gone = |option: &str| {
                GONE_OPTIONS
                    .iter()
                    .any(|gone| gone.eq_ignore_ascii_case(option))
            };
            if parts.clone().skip(1).any(is_gone) {
                return false;
            }
            let name = parts.next().unwrap_or_default().to_owned();
            let is_state = |option: &str| {
                let option = option.to_ascii_lowercase();
                STATE_OPTIONS.iter().any(|state| option.starts_with(state))
            };
            let kept = parts.filter(|option| !is_state(option));
            value.description = Cow::Owned(kept.fold(name, |name, option| name + ";" + option));
        }
        let (name, options) = match value.description.split_once(';') {
            Some((name, options)) => (name, Some(options)),
            None => (&*value.description, None),
        };
        let small = name.to_ascii_lowercase();
        if self.dropped.contains(&small) {
            return false;
        }
        if let Some(other) = self.renamed.get(&small) {
            value.description = Cow::Owned(match options {
                Some(options) => format!("{other};{options}"),
                None => other.clone(),
            });
            return true;
        }
        match (self.profile, small.as_str()) {
            (Some(ImportProfile::Ds389), NS_UNIQUE_ID) => {
                becomes_uuid(value, uuid_of_ns(&value.value).filter(|_| !has_uuid))
            }
            (Some(ImportProfile::Ds389), ACI) => {
                self.access_rules.fetch_add(1, Ordering::Relaxed);
                false
            }
            (Some(ImportProfile::ActiveDirectory), OBJECT_GUID) => {
                becomes_uuid(value, uuid_of_guid(&value.value).filter(|_| !has_uuid))
            }
            (Some(ImportProfile::ActiveDirectory), name) => {
                if let Some((_, ours)) = WHEN.iter().find(|(theirs, _)| *theirs == name) {
                    value.description = Cow::Borrowed(ours);
                    if let Some(seconds) = value.value.strip_suffix(b".0Z") {
                        value.value = Cow::Owned([seconds, b"Z"].concat());
                    }
                }
                true
            }
            _ => true,
        }
    }
}

/// Has a value become the entryUUID, if there is one; whether it has.
fn becomes_uuid(value: &mut AttributeValue<'_>, uuid: Option<[u8; 16]>) -> bool {
    if let Some(uuid) = uuid {
        value.description = Cow::Borrowed(ENTRY_UUID);
        value.value = Cow::Owned(uuid_text(uuid).into_bytes());
    }
    uuid.is_some()
}

/// The UUID that objectGUID is.
fn uuid_of_guid(value: &[u8]) -> Option<[u8; 16]> {
    let mut uuid: [u8; 16] = value.try_into().ok()?;
    for part in [0..4, 4..6, 6..8] {
        uuid.get_mut(part)?.reverse();
    }
    Some(uuid)
}

/// The UUID that nsUniqueId is: four groups of eight hexadecimal digits.
fn uuid_of_ns(value: &[u8]) -> Option<[u8; 16]> {
    let digits: Vec<u8> = value.iter().copied().filter(|byte| *byte != b'-').collect();
    let digits = std::str::from_utf8(&digits).ok()?;
    let is_hexadecimal = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok();
    number.filter(|_| is_hexadecimal).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use sapwood_ldap::ldif::{Blocks, Options};

    use super::*;

    /// The lines of an entry after it was made what is wanted.
    fn applied(reshape: &Reshape, lines: &str) -> Vec<String> {
        let text = format!("dn: cn=x\n{lines}\n");
        let mut found = Vec::new();
        for block in Blocks::new(text.as_bytes(), Options::default()) {
            for record in block.unwrap().records(Options::default()) {
                let mut record = record.unwrap();
                reshape.apply(&mut record);
                let Body::Entry(values) = &record.body else {
                    panic!("it is no entry");
                };
                found.extend(values.iter().map(|value| {
                    let text = String::from_utf8_lossy(&value.value);
                    format!("{}: {text}", value.description)
                }));
            }
        }
        found
    }

    #[test]
    fn attributes_are_left_out_and_called_otherwise() {
        let renamed = [("surname".to_owned(), "sn".to_owned())];
        let reshape = Reshape::new(None, &["Mail".into()], &renamed).unwrap();
        let lines = "cn: x\nmail: a\nMAIL;lang-en: b\nSurname: c\nsurname;lang-de: d\nmailbox: e";
        let expected = ["cn: x", "sn: c", "sn;lang-de: d", "mailbox: e"];
        assert_eq!(applied(&reshape, lines), expected);
        assert_eq!(
            applied(&Reshape::default(), "cn: x\naci: y"),
            ["cn: x", "aci: y"]
        );
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        for (dropped, renamed) in [
            (vec!["no name".to_owned()], vec![]),
            (vec!["cn;lang-en".to_owned()], vec![]),
            (vec![], vec![pair("cn", "")]),
            (vec![], vec![pair("cn", "sn"), pair("CN", "uid")]),
        ] {
            assert!(Reshape::new(None, &dropped, &renamed).is_err());
        }
    }

    #[test]
    fn what_is_the_own_business_of_other_servers_stays_with_them() {
        let ds389 = Reshape::new(Some(ImportProfile::Ds389), &[], &[]).unwrap();
        let lines = "nsUniqueId: 597ae2f6-16a61027-98f4d28b-5365dc14\nentryid: 7\nparentid: 1\n\
                     aci: (targetattr=*)\nentryUSN: 4\ncn: x\nsn;vucsn-5;lang-en: y\nsn;vdcsn-5;deleted: z";
        let expected = [
            "entryUUID: 597ae2f6-16a6-1027-98f4-d28b5365dc14",
            "cn: x",
            "sn;lang-en: y",
        ];
        assert_eq!(applied(&ds389, lines), expected);
        assert_eq!(ds389.access_rules(), 1);
        // It has its entryUUID already, or its identifier is none.
        let lines = "nsUniqueId: 597ae2f6-16a61027-98f4d28b-5365dc14\nentryUUID: own";
        assert_eq!(applied(&ds389, lines), ["entryUUID: own"]);
        assert_eq!(
            applied(&ds389, "nsUniqueId: +97ae2f6"),
            Vec::<String>::new()
        );
        let ad = Reshape::new(Some(ImportProfile::ActiveDirectory), &[], &[]).unwrap();
        let lines = "cn: x\nname: x\nuSNChanged: 12\nwhenCreated: 20240229120000.0Z\n\
                     objectGUID:: AAECAwQFBgcICQoLDA0ODw==\nobjectGUID: short";
        let expected = [
            "cn: x",
            "createTimestamp: 20240229120000Z",
            "entryUUID: 03020100-0504-0706-0809-0a0b0c0d0e0f",
        ];
        assert_eq!(applied(&ad, lines), expected);
        let openldap = Reshape::new(Some(ImportProfile::OpenLdap), &[], &[]).unwrap();
        let lines = "cn: x\nauthTimestamp: 20260101000000Z\naci: y";
        assert_eq!(applied(&openldap, lines), ["cn: x", "aci: y"]);
    }
}
