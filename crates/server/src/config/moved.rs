//! Keys that `sapwood.toml` had once: what they said is configured with the data now.

use toml::Table;

use super::line_of;

/// The entry of the data.
const DATA: &str = "olcDatabase={1}mdb,cn=config";
/// That of the rules of unique values.
const UNIQUE: &str = "olcOverlay=unique,olcDatabase={1}mdb,cn=config";

/// Each a table, a key in it (none for the whole table), and the attribute and the entry that have taken its place.
const MOVED: &[(&str, Option<&str>, &str, &str)] = &[
    (
        "access",
        Some("anonymous_read"),
        "sapwoodAnonymousRead",
        DATA,
    ),
    ("extensions", None, "sapwoodExtensions", DATA),
    ("limits", Some("search_entries_max"), "olcSizeLimit", DATA),
    ("limits", Some("search_seconds_max"), "olcTimeLimit", DATA),
    ("rules", Some("unique"), "olcUniqueURI", UNIQUE),
];

/// Refuses a text that has one of them; an error is its line and what to do.
pub(super) fn refuse(text: &str) -> Result<(), (usize, String)> {
    // What is wrong with it otherwise is told with more care.
    let all: Table = text.parse().unwrap_or_default();
    for (table, key, attribute, entry) in MOVED {
        let Some(known) = all.get(*table) else {
            continue;
        };
        let (is_there, what, begins) = match key {
            Some(key) => {
                let is_there = known
                    .as_table()
                    .is_some_and(|known| known.contains_key(*key));
                (is_there, format!("{table}.{key}"), *key)
            }
            None => (true, format!("[{table}]"), *table),
        };
        if is_there {
            let reason = format!(
                "{what} is configured with the data now: take it out of this file, and set {attribute} of {entry} by \
                 ldapmodify or 'sapwood config DIR apply'"
            );
            return Err((line_of(text, begins), reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn keys_that_have_moved_are_refused_with_the_attribute() {
        for (lines, line, attribute) in [
            (
                "[access]\nanonymous_read = false\n",
                4,
                "sapwoodAnonymousRead",
            ),
            (
                "[limits]\nconnections_max = 5\nsearch_entries_max = 0\n",
                5,
                "olcSizeLimit",
            ),
            ("[limits]\n search_seconds_max = 7\n", 4, "olcTimeLimit"),
            ("[rules]\nunique = []\n", 4, "olcUniqueURI"),
            (
                "[[rules.unique]]\nattributes = ['uid']\n",
                1,
                "olcUniqueURI",
            ),
            ("limits = { search_seconds_max = 7 }\n", 1, "olcTimeLimit"),
            (
                "[extensions]\n# None of them.\nqueue_length = false\n",
                3,
                "sapwoodExtensions",
            ),
            ("extensions = {}\n", 1, "sapwoodExtensions"),
        ] {
            let admin = "[admin]\ndn = 'x'\n";
            let text = match lines.starts_with('[') {
                true => format!("{admin}{lines}"),
                false => format!("{lines}{admin}"),
            };
            let (at, reason) = Config::parse(&text).unwrap_err();
            assert!(reason.contains(attribute), "{reason}");
            assert_eq!(at, line, "{reason}");
        }
        assert!(Config::parse(&Config::template("cn=admin")).is_ok());
    }
}
