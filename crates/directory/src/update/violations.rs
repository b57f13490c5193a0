//! What of the data a rule does not hold of, which was there before the rule was.

/// So many violations of a rule are told, and no more are looked for.
pub const VIOLATIONS_TOLD_MAX: usize = 100;

/// What of the data a rule does not hold of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleViolations {
    told: Vec<String>,
}

impl RuleViolations {
    /// Adds one, unless there are enough.
    pub(crate) fn push(&mut self, violation: String) {
        if !self.is_full() {
            self.told.push(violation);
        }
    }

    /// Whether there are as many as are told. There may be more.
    pub fn is_full(&self) -> bool {
        self.told.len() >= VIOLATIONS_TOLD_MAX
    }

    /// Whether the rule holds of all.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// The first of them, a line each.
    pub fn told(&self) -> &[String] {
        &self.told
    }
}
