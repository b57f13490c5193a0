//! Rules that are the values of one attribute, in an overlay's entry that is there while there is one of them.

use super::Settings;

/// A rule of such a kind.
pub(crate) trait ListedRule: Sized + PartialEq {
    /// The attribute that has the rules.
    const ATTRIBUTE: &'static str;
    /// The entry that has the attribute.
    const ENTRY: &'static str;
    /// A value, for people.
    const EXAMPLE: &'static str;

    /// Where the rules are.
    fn list(settings: &mut Settings) -> &mut Vec<Self>;

    /// Reads a value.
    ///
    /// # Errors
    /// Says what of it cannot be.
    fn read(value: &str) -> Result<Self, String>;
}

/// The rules that a directory has of one such kind at most.
pub(crate) const RULES_MAX: usize = 100;
