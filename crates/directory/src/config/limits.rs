//! Limits as values of olcLimits, whose order counts.

use super::ordered::Ordered;
use crate::policy::Limits;

impl Ordered for Limits {
    const ATTRIBUTE: &'static str = LIMITS;
    /// Each may be tried on who binds.
    const VALUES_MAX: usize = 100;
    const WHAT: &'static str = "limit";
}

/// The attribute that has them.
pub(crate) const LIMITS: &str = "olcLimits";
