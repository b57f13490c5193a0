//! What the access log may say of a request: nothing in which a password can stand. People type one where a name
//! belongs, and clients compare with userPassword.

use std::borrow::Cow;
use std::fmt;

use sapwood_directory::schema::Schema;
use sapwood_directory::{Outcome, is_secret};
use sapwood_ldap::dn::Dn;
use sapwood_ldap::filter::Filter;
use sapwood_ldap::result::{ResultCode, shortened};

use crate::printable::Printable;

/// Bytes of the longest name that is logged.
const NAME_BYTES_MAX: usize = 2 << 10;
/// Bytes of the longest filter that is logged, as it was sent.
const FILTER_BYTES_MAX: usize = 16 << 10;

/// A name of a request for the log: what is none in this schema is told by its length only.
pub(super) struct LoggedName<'n> {
    schema: &'n Schema,
    name: &'n str,
}

impl<'n> LoggedName<'n> {
    pub(super) fn dn(schema: &'n Schema, name: &'n str) -> Self {
        Self { schema, name }
    }

    /// What may be told. It is as it was sent, with whatever characters there are.
    pub(super) fn text(&self) -> Cow<'n, str> {
        let bytes = self.name.len();
        if bytes > NAME_BYTES_MAX {
            return format!("(a name of {bytes} bytes)").into();
        }
        let Ok(dn) = Dn::parse(self.name) else {
            return format!("(no DN, {bytes} bytes)").into();
        };
        let mut avas = dn.rdns().flat_map(|rdn| rdn.avas());
        match avas.any(|ava| is_secret(self.schema, ava.attribute().as_bytes())) {
            true => format!("(a name of unknown or protected attributes, {bytes} bytes)").into(),
            false => self.name.into(),
        }
    }
}

impl fmt::Display for LoggedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(self.text()).fmt(f)
    }
}

/// The filter of a request for the log.
pub(super) struct LoggedFilter<'n> {
    filter: Filter<'n>,
    is_secret: &'n dyn Fn(&[u8]) -> bool,
}

impl<'n> LoggedFilter<'n> {
    /// Without values of the attributes that `is_secret`, see [`Filter::redacted`].
    pub(super) fn new(filter: Filter<'n>, is_secret: &'n dyn Fn(&[u8]) -> bool) -> Self {
        Self { filter, is_secret }
    }
}

impl fmt::Display for LoggedFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.filter.as_ber().len() {
            ..=FILTER_BYTES_MAX => Printable(self.filter.redacted(self.is_secret)).fmt(f),
            bytes => write!(f, "(a filter of {bytes} bytes)"),
        }
    }
}

/// An attribute description of a request for the log.
pub(super) fn description(schema: &Schema, description: &[u8]) -> String {
    match schema.attribute_type(base(description)) {
        Some(_) => String::from_utf8_lossy(description).into_owned(),
        None => format!("(no attribute type, {} bytes)", description.len()),
    }
}

/// A description without its options.
pub(super) fn base(description: &[u8]) -> &[u8] {
    let mut parts = description.split(|&byte| byte == b';');
    parts.next().unwrap_or_default()
}

/// The diagnostic of a result for the log, without what it quotes: that may come from the request. Not longer than the
/// client is told.
pub(super) fn diagnostic(outcome: &Outcome) -> Printable<Cow<'_, str>> {
    Printable(match outcome.code {
        ResultCode::UndefinedAttributeType => "an attribute type that is not defined".into(),
        _ => match unquoted(&outcome.diagnostic) {
            Cow::Borrowed(text) => shortened(text),
            Cow::Owned(text) => shortened(&text).into_owned().into(),
        },
    })
}

fn unquoted(diagnostic: &str) -> Cow<'_, str> {
    // An apostrophe within a word begins no quotation.
    let mut before = ' ';
    let begins = diagnostic.char_indices().find(|(_, c)| {
        let is_quote = matches!(c, '\'' | '"') && !before.is_alphanumeric();
        before = *c;
        is_quote
    });
    let Some((start, quote)) = begins else {
        return diagnostic.into();
    };
    match diagnostic.rfind(quote) {
        Some(end) if end > start => {
            format!("{}...{}", &diagnostic[..=start], &diagnostic[end..]).into()
        }
        _ => diagnostic[..start].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sapwood_ldap::result::RESULT_TEXT_BYTES_MAX;

    #[test]
    fn what_is_no_name_is_not_logged() {
        let schema = Schema::standard();
        let logged = |name: &str| LoggedName::dn(&schema, name).to_string();
        for dn in ["", "cn=Ann,dc=example,dc=com", "UID=x+cn=y, o=z"] {
            assert_eq!(logged(dn), dn);
        }
        // Nobody writes lines of their own.
        let line = "cn=x\n2026-01-01T00:00:00Z INFO access: conn=1";
        assert_eq!(logged(line), line.replace('\n', r"\n"));
        for secret in [
            "hunter2",
            "hunter=2",
            "userPassword=hunter2,dc=example,dc=com",
            "cn=x+2.5.4.35=hunter2,dc=example",
            "cn=x,",
        ] {
            let logged = logged(secret);
            assert!(!logged.contains("hunter"), "{logged}");
            assert!(
                logged.contains(&format!("{} bytes", secret.len())),
                "{logged}"
            );
        }
        assert!(logged(&format!("cn={}", "x".repeat(9000))).len() < 100);
        assert_eq!(description(&schema, b"cn;lang-en"), "cn;lang-en");
        assert!(!description(&schema, b"hunter2").contains("hunter2"));
    }

    #[test]
    fn a_long_filter_is_not_logged() {
        for (length, is_logged) in [(10_000, true), (20_000, false)] {
            let text = format!("(cn={})", "x".repeat(length));
            let filter = sapwood_ldap::filter_text::parse(&text).unwrap();
            let logged = LoggedFilter::new(filter.as_filter(), &|_| false).to_string();
            assert_eq!(logged == text, is_logged);
            assert!(is_logged || logged.len() < 100, "{logged:.200}");
        }
    }

    #[test]
    fn a_long_diagnostic_is_cut_off() {
        for long in [
            "x".repeat(1 << 20),
            format!("'a' {} 'b' {0}", "x".repeat(1 << 20)),
        ] {
            let outcome = Outcome::new(ResultCode::Unavailable, long);
            assert!(diagnostic(&outcome).0.len() <= RESULT_TEXT_BYTES_MAX);
        }
    }

    #[test]
    fn a_diagnostic_stays_on_its_line() {
        let told = "the control 1.2\n3 is not known";
        let outcome = Outcome::new(ResultCode::UnavailableCriticalExtension, told);
        let logged = diagnostic(&outcome).to_string();
        assert_eq!(logged, r"the control 1.2\n3 is not known");
    }

    #[test]
    fn what_a_diagnostic_quotes_is_not_logged() {
        for (told, logged) in [
            ("the server's own", "the server's own"),
            ("'hunter2' is not a DN: x", "'...' is not a DN: x"),
            ("'x' hunter2' is not a DN", "'...' is not a DN"),
            ("there is no entry \"hunter2\"", "there is no entry \"...\""),
            ("x: 'hunter2", "x: "),
            ("", ""),
        ] {
            assert_eq!(unquoted(told), logged);
        }
    }
}
