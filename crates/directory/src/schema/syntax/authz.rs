//! Who may act as whom, as values of authzTo and authzFrom say it in OpenLDAP's forms (slapd.conf(5), "authz-policy"):
//!
//! ```text
//! dn[.exact|.onelevel|.children|.subtree|.regex]:<DN or expression>
//! dn:*
//! u[.<mechanism>[/<realm>]]:<user>
//! group[/<class>[/<attribute>]]:<DN of the group>
//! ldap:///<base>??<scope>?<filter>
//! <DN>
//! ```

use sapwood_ldap::dn::Dn;
use sapwood_ldap::filter_text;
use sapwood_ldap::url::{LdapUrl, Scheme, Scope};

use super::{Reason, Schema};
use crate::schema::NormalDn;

/// What a value says of the other one: of whom an entry with authzTo may act as, or of who may act as an entry with
/// authzFrom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthzRule<'v> {
    /// It is anybody but nobody.
    Users,
    /// Its DN stands so to this one.
    Dn(AuthzScope, &'v str),
    /// Its DN matches.
    Regex(&'v str),
    /// It is who has this name, an authzId.
    User(&'v str),
    /// A group has it as a member.
    Group {
        class: Option<&'v str>,
        attribute: Option<&'v str>,
        dn: &'v str,
    },
    /// A search finds its entry.
    Url {
        base: String,
        scope: Scope,
        filter: Option<String>,
    },
}

/// How a DN stands to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthzScope {
    /// It is the same.
    Exact,
    /// It is directly below it.
    OneLevel,
    /// It is below it.
    Children,
    /// It is the same, or below it.
    Subtree,
}

impl<'v> AuthzRule<'v> {
    /// Reads a value. The place in a list that slapd writes before it, as in `{0}dn:*`, is passed over. DNs, names in
    /// the schema and expressions are not looked at.
    pub(crate) fn parse(value: &'v str) -> Result<AuthzRule<'v>, Reason> {
        let value = unnumbered(value);
        let start = value.get(..5);
        if start.is_some_and(|start| start.eq_ignore_ascii_case("ldap:")) {
            return AuthzRule::of_url(value);
        }
        // A DN has no colon before its first equals sign, and each of the other forms has one.
        let (head, rest) = value.split_at(value.find(['=', ':']).unwrap_or(value.len()));
        let Some(rest) = rest.strip_prefix(':') else {
            return Ok(AuthzRule::Dn(AuthzScope::Exact, value));
        };
        let (word, style) = head.split_at(head.find(['.', '/']).unwrap_or(head.len()));
        match word.to_ascii_lowercase().as_str() {
            "dn" if rest == "*" => Ok(AuthzRule::Users),
            "dn" => Ok(match style.to_ascii_lowercase().as_str() {
                "" | ".exact" => AuthzRule::Dn(AuthzScope::Exact, rest),
                ".onelevel" => AuthzRule::Dn(AuthzScope::OneLevel, rest),
                ".children" => AuthzRule::Dn(AuthzScope::Children, rest),
                ".subtree" => AuthzRule::Dn(AuthzScope::Subtree, rest),
                ".regex" => AuthzRule::Regex(rest),
                _ => {
                    return Err("dn has the styles exact, onelevel, children, subtree and regex");
                }
            }),
            "u" if rest.is_empty() => Err("the name of the user is missing"),
            "u" => Ok(AuthzRule::User(value)),
            "group" => {
                let mut parts = style.strip_prefix('/').map(|style| style.split('/'));
                if parts.is_none() && !style.is_empty() {
                    return Err("group has its class and its attribute behind slashes");
                }
                let mut part = || parts.as_mut().and_then(Iterator::next);
                let (class, attribute) = (part(), part());
                match (class, attribute, part()) {
                    (Some(""), ..) | (_, Some(""), _) | (.., Some(_)) => {
                        Err("group has a class and an attribute at most")
                    }
                    (class, attribute, None) => Ok(AuthzRule::Group {
                        class,
                        attribute,
                        dn: rest,
                    }),
                }
            }
            _ => Err("it begins with none of dn, u, group and ldap, and is no DN"),
        }
    }

    fn of_url(value: &str) -> Result<AuthzRule<'static>, Reason> {
        let url = LdapUrl::parse(value).map_err(|_| "it is no LDAP URL")?;
        let is_bare = url.scheme == Scheme::Ldap
            && url.host.is_empty()
            && url.port.is_none()
            && url.attributes.is_empty()
            && url.extensions.is_empty();
        if !is_bare {
            return Err("its URL has more than base, scope and filter: ldap:///base??scope?filter");
        }
        Ok(AuthzRule::Url {
            base: url.dn,
            scope: url.scope.unwrap_or(Scope::Base),
            filter: url.filter,
        })
    }
}

/// A value without the place in a list that slapd writes before it.
fn unnumbered(value: &str) -> &str {
    let rest = value
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'));
    match rest {
        Some((number, rest))
            if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            rest
        }
        _ => value,
    }
}

/// Checks a value. Whether an expression is one turns out when it is used: to make it ready takes longer than to read
/// it.
pub(super) fn validate(_schema: &Schema, value: &[u8]) -> Result<(), Reason> {
    let value = std::str::from_utf8(value).map_err(|_| "it is not UTF-8")?;
    let is_dn = |dn: &str| match Dn::parse(dn) {
        Ok(_) => Ok(()),
        Err(_) => Err("it has what is no DN"),
    };
    match AuthzRule::parse(value)? {
        AuthzRule::Users | AuthzRule::User(_) | AuthzRule::Regex(_) => Ok(()),
        AuthzRule::Dn(_, dn) | AuthzRule::Group { dn, .. } => is_dn(dn),
        AuthzRule::Url { filter, .. } => match filter.as_deref().map(filter_text::parse) {
            Some(Err(_)) => Err("its URL has what is no filter"),
            Some(Ok(_)) | None => Ok(()),
        },
    }
}

/// Appends the normal form of a value: words in lower case and DNs as they are compared.
pub(in crate::schema) fn key(
    schema: &Schema,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let value = std::str::from_utf8(value).map_err(|_| "it is not UTF-8")?;
    let put_dn = |dn: &str, out: &mut Vec<u8>| {
        NormalDn::append(schema, dn.as_bytes(), out).map_err(|_| "it has what is no DN")
    };
    match AuthzRule::parse(value)? {
        AuthzRule::Users => out.extend_from_slice(b"dn:*"),
        AuthzRule::Dn(scope, dn) => {
            out.extend_from_slice(match scope {
                AuthzScope::Exact => b"dn:".as_slice(),
                AuthzScope::OneLevel => b"dn.onelevel:",
                AuthzScope::Children => b"dn.children:",
                AuthzScope::Subtree => b"dn.subtree:",
            });
            put_dn(dn, out)?;
        }
        AuthzRule::Regex(pattern) => {
            out.extend_from_slice(b"dn.regex:");
            out.extend_from_slice(pattern.as_bytes());
        }
        AuthzRule::Group {
            class,
            attribute,
            dn,
        } => {
            let class = class.unwrap_or("groupOfNames").to_ascii_lowercase();
            let attribute = attribute.unwrap_or("member").to_ascii_lowercase();
            out.extend_from_slice(format!("group/{class}/{attribute}:").as_bytes());
            put_dn(dn, out)?;
        }
        AuthzRule::User(_) | AuthzRule::Url { .. } => {
            out.extend_from_slice(unnumbered(value).as_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read() {
        let read = |value| AuthzRule::parse(value).ok();
        let exact = |dn| Some(AuthzRule::Dn(AuthzScope::Exact, dn));
        assert_eq!(read("dn:*"), Some(AuthzRule::Users));
        assert_eq!(read("dn:cn=a"), exact("cn=a"));
        assert_eq!(read("DN.Exact:cn=a"), exact("cn=a"));
        assert_eq!(read("cn=a:b,o=x"), exact("cn=a:b,o=x"));
        assert_eq!(read("{12}cn=a"), exact("cn=a"));
        assert_eq!(read(""), exact(""));
        for (style, scope) in [
            ("onelevel", AuthzScope::OneLevel),
            ("children", AuthzScope::Children),
            ("subtree", AuthzScope::Subtree),
        ] {
            let value = format!("dn.{style}:o=x");
            assert_eq!(AuthzRule::parse(&value), Ok(AuthzRule::Dn(scope, "o=x")));
        }
        assert_eq!(
            read("dn.regex:^cn=[:alpha:]$"),
            Some(AuthzRule::Regex("^cn=[:alpha:]$"))
        );
        assert_eq!(read("u:ann"), Some(AuthzRule::User("u:ann")));
        assert_eq!(
            read("u.PLAIN/x:ann"),
            Some(AuthzRule::User("u.PLAIN/x:ann"))
        );
        let group = |class, attribute| {
            let dn = "cn=g";
            Some(AuthzRule::Group {
                class,
                attribute,
                dn,
            })
        };
        assert_eq!(read("group:cn=g"), group(None, None));
        assert_eq!(read("group/a:cn=g"), group(Some("a"), None));
        assert_eq!(read("Group/a/b:cn=g"), group(Some("a"), Some("b")));
        let url = |scope, filter: Option<&str>| {
            let (base, filter) = ("o=x".to_owned(), filter.map(str::to_owned));
            Some(AuthzRule::Url {
                base,
                scope,
                filter,
            })
        };
        assert_eq!(
            read("ldap:///o=x??sub?(cn=a)"),
            url(Scope::Sub, Some("(cn=a)"))
        );
        assert_eq!(read("LDAP:///o=x"), url(Scope::Base, None));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let schema = Schema::standard();
        for wrong in [
            "dn.sub:o=x",
            "dn:nonsense",
            "dn.children:nonsense",
            "nonsense",
            "x:y",
            "u:",
            "group/:cn=g",
            "group/a/:cn=g",
            "group/a/b/c:cn=g",
            "group.exact:cn=g",
            "group:nonsense",
            "ldap://host/o=x",
            "ldap:///o=x?cn",
            "ldap:///o=x??sub?nonsense",
            "ldap:///nonsense",
        ] {
            assert!(validate(&schema, wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(validate(&schema, b"\xff").is_err());
        assert!(validate(&schema, "ü".as_bytes()).is_err());
    }

    #[test]
    fn values_that_say_the_same_are_equal() {
        let schema = Schema::standard();
        let key = |value: &str| {
            let mut out = Vec::new();
            key(&schema, value.as_bytes(), &mut out).unwrap();
            out
        };
        for (one, other) in [
            ("dn.exact:CN = A,o=x", "cn=a, O=X"),
            ("{0}dn:*", "DN:*"),
            ("group:cn=g", "group/groupOfNames/Member:CN=G"),
            ("dn.Subtree:o=x", "dn.subtree:O=x"),
        ] {
            assert_eq!(key(one), key(other));
        }
        for (one, other) in [
            ("dn.regex:a", "dn.regex:A"),
            ("dn:o=x", "dn.children:o=x"),
            ("u:a", "u:A"),
        ] {
            assert_ne!(key(one), key(other));
        }
    }
}
