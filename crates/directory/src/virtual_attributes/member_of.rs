//! `memberOf`, of other servers: the groups that name the entry, where [the rule](crate::member_of) is in force. As
//! with OpenLDAP the rights are those on memberOf of the entry, whatever may be done with the groups.

use sapwood_ldap::dn::DN_BYTES_MAX;

use super::{Subject, Values};
use crate::engine::Read;
use crate::error::{Error, Result};
use crate::names::{DnCache, if_named};
use crate::schema::NormalDn;

pub(super) fn compute<R: Read>(subject: &Subject<'_, R>, values: &mut Values) -> Result<()> {
    let Some(vocabulary) = subject.vocabulary else {
        return Ok(());
    };
    let Some(member_of) = vocabulary.attributes.member_of() else {
        return Ok(());
    };
    let schema = vocabulary.schema;
    let object_class = schema.well_known().object_class;
    let object_class = vocabulary.attributes.numbers_of(object_class);
    let name = subject.normal_dn(vocabulary)?;
    let mut names = DnCache::default();
    member_of.each_group(subject.view, (schema, object_class), &name, |group| {
        let superior = if_named(names.superior(subject.view, group.parent()).map(|superior| {
            superior.map_or_else(String::new, |superior| format!(",{}", superior.dn))
        }))?;
        if let Some(superior) = superior.filter(|superior| superior.len() < DN_BYTES_MAX) {
            values.push_with(|text| {
                text.push_str(&String::from_utf8_lossy(group.rdn_bytes()));
                text.push_str(&superior);
            });
        }
        Ok(())
    })
}

/// Whether a group, which is named in normal form, names the entry; `None` where nothing says what a group is.
pub(super) fn has<R: Read>(subject: &Subject<'_, R>, group: &[u8]) -> Result<Option<bool>> {
    let Some(vocabulary) = subject.vocabulary else {
        return Ok(None);
    };
    let Some(member_of) = vocabulary.attributes.member_of() else {
        return Ok(None);
    };
    let schema = vocabulary.schema;
    let object_class = schema.well_known().object_class;
    let object_class = vocabulary.attributes.numbers_of(object_class);
    let group = NormalDn::from_normal(group);
    let name = subject.normal_dn(vocabulary)?;
    let is_member = member_of.has(subject.view, (schema, object_class), &group, &name)?;
    Ok(Some(is_member))
}

impl<R: Read> Subject<'_, R> {
    /// Its DN in normal form.
    fn normal_dn(&self, vocabulary: crate::operational::Vocabulary<'_>) -> Result<NormalDn> {
        let (mut dn, mut normal) = (String::new(), NormalDn::new());
        self.append_dn(&mut dn);
        let parsed = normal.parse(vocabulary.schema, dn.as_bytes());
        parsed.map_err(|invalid| {
            Error::corrupt(format!("entry {} has the DN {dn:?}: {invalid}", self.id))
        })?;
        Ok(normal)
    }
}
